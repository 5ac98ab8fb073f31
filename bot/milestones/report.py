"""The publishable report of a capstone, written from its evidence; a negative result is a result when it is supported."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from assay.baselines.evidence import Evidence
from assay.bot.milestones import tables
from assay.bot.milestones.contest import Rank, Sweep
from assay.bot.milestones.proposal import Capstone
from assay.bot.milestones.shelf import Kept, Shelf
from assay.bot.milestones.status import Item, State, Status, status
from assay.bot.milestones.vocabulary import Ablation, ContractPassed, ModelAgrees
from assay.bot.templates import template
from assay.bot.text import code, plain, plural

COMMAND = "command"
"""Attribute of evidence: the command that measured it."""


@dataclass(frozen=True)
class Command:
    """A command that the report prints."""

    what: str
    text: str


@dataclass(frozen=True)
class Reproduction:
    """How another person makes one table again: words and a script for `sh`."""

    words: str
    script: str


@dataclass(frozen=True)
class RawData:
    """One row of the table of raw data."""

    digest: str
    evidence: Evidence
    shown_place: str
    rows: str
    when: str
    commit: str


def report(
    capstone: Capstone, shelf: Shelf, today: date, *, source: Sequence[str], capstone_path: str, report_path: str
) -> str:
    """The report as Markdown.

    `source` are the options that name where the evidence is (`--ledger DIR`, `--repository owner/name`), as words for `sh`;
    they and the two paths are what the commands of the report are made of.
    """
    found = status(capstone, shelf, today)
    sweeps = tables.sweeps(capstone, shelf)
    used = used_evidence(capstone, shelf)
    text = template("capstone_report.md.j2").render(
        c=capstone,
        verdict=_verdict(found, sweeps),
        contract=_table("contract", capstone, shelf),
        model=_table("model", capstone, shelf),
        results=_table("results", capstone, shelf),
        losing=_losing(sweeps),
        negative=_negative(capstone, shelf, found, sweeps),
        commands=_commands(capstone, used),
        kept=[_raw(kept) for kept in used],
        software=sorted({_software(kept.evidence) for kept in used} - {""}),
        limitations=_limitations(capstone, found, sweeps),
        reproduce=reproduction(capstone, shelf, source=source, capstone_path=capstone_path, report_path=report_path),
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def used_evidence(capstone: Capstone, shelf: Shelf) -> list[Kept]:
    """The evidence that the proposal asks for, each once, oldest first."""
    links = {k.digest: k for k in shelf.kept}
    wanted = [p.selector for p in capstone.predicates()]
    wanted += [capstone.baseline.evidence, capstone.functional_case.evidence]
    found = {k.digest for s in wanted if s is not None for k in shelf.matching(s)}
    found |= {k.digest for k in shelf.kept for sweep in tables.sweeps(capstone, shelf) if k.link in sweep.links}
    return sorted((links[d] for d in found), key=lambda k: (k.evidence.provenance.created.timestamp(), k.digest))


def reproduction(
    capstone: Capstone, shelf: Shelf, *, source: Sequence[str], capstone_path: str, report_path: str
) -> Reproduction:
    """How one table is made again: by running the functional case where its evidence is declared, else from raw data."""
    case = capstone.functional_case
    base = ["assay", "capstone", "report", capstone_path]
    if case.command.strip() and case.writes and tables.functional(capstone, shelf).rows:
        check = [*base, "--evidence", case.writes, "--table", "functional", "--check", report_path]
        printed = tables.functional(capstone, shelf).markdown()
        words = (
            "The functional case runs without the hardware. It measures again, and the second command compares the numbers "
            f"that come out the same on every machine with this table:\n\n{printed}"
        )
        return Reproduction(words, f"{_one_line(case.command)}\n{shlex.join(check)}")
    name = next((n for n in ("model", "results", "contract") if tables.TABLES[n](capstone, shelf).rows), "contract")
    check = ["--table", name, "--check", report_path]
    words = f"This makes the table `{name}` again from the raw data, whose digests are verified, and compares it with the one above:"
    return Reproduction(words, " ".join([shlex.join(base), *source, shlex.join(check)]))


def _table(name: str, capstone: Capstone, shelf: Shelf) -> str:
    table = tables.TABLES[name](capstone, shelf)
    return table.markdown() if table.rows else "Nothing was measured for this yet."


def _verdict(found: Status, sweeps: Sequence[Sweep]) -> str:
    done = f"{found.count(State.DONE)} of {len(found.milestones)} milestones are done"
    lines = [f"**{stop.what}:** {plain(stop.reason, 400)}." for stop in found.stops]
    pairings = [p for sweep in sweeps for p in sweep.pairings]
    if pairings:
        counts = {rank: sum(p.rank is rank for p in pairings) for rank in Rank}
        lines.insert(
            0,
            f"**The contender wins on {counts[Rank.WINS]}, loses on {counts[Rank.LOSES]} and cannot be told apart on "
            f"{counts[Rank.SAME]} of {plural(len(pairings), 'shape')}**; {done}.",
        )
    else:
        lines.insert(0, f"**{done[0].upper()}{done[1:]}; no sweep against the baseline was measured.**")
    return "\n\n".join(lines)


def _losing(sweeps: Sequence[Sweep]) -> str:
    if not sweeps:
        return "Not known: the contender was not measured against the baseline."
    lines = []
    for sweep in sweeps:
        lost = [p for p in sweep.pairings if p.rank is Rank.LOSES]
        lines += [f"- {plain(p.shape, 80)}: behind by {p.behind_percent:.1f}%" for p in lost]
        if sweep.missing:
            lines.append(f"- not measured: {', '.join(plain(s, 60) for s in sweep.missing[:20])}")
        if sweep.unlike:
            lines.append(f"- not comparable: {plain(sweep.unlike, 300)}")
    return "\n".join(lines) or "None: on no required shape is the contender behind the baseline."


def _negative(capstone: Capstone, shelf: Shelf, found: Status, sweeps: Sequence[Sweep]) -> list[str]:
    """What supports a result in which the contender loses somewhere, and what is not shown."""
    if not any(sweep.lost for sweep in sweeps):
        return []
    lines = [
        _support(
            "The mechanism ran",
            "that the mechanism ran",
            _items(capstone, found, (ModelAgrees, Ablation)),
        ),
        _support("What ran was correct", "that what ran was correct", _items(capstone, found, (ContractPassed,))),
    ]
    b = capstone.baseline
    said = [
        n
        for n, same in (("hardware", b.same_hardware), ("inputs", b.same_inputs), ("contract", b.same_contract))
        if same
    ]
    unlike = next((s.unlike for s in sweeps if s.unlike), "")
    if unlike:
        lines.append(
            f"Not shown: that the baseline was fair. {plain(unlike, 300)[:1].upper()}{plain(unlike, 300)[1:]}."
        )
    else:
        links = ", ".join(dict.fromkeys(plain(link.label, 60) for s in sweeps for link in s.links))
        declared = f", and the proposal declares the same {', '.join(said)}" if said else ""
        lines.append(
            f"The baseline was fair: both sides have the same protocol and hardware in the evidence ({links}){declared}."
        )
    lines.append(
        "This is about these shapes, this machine and this implementation. It does not show that the mechanism fails elsewhere."
    )
    return lines


def _items(capstone: Capstone, found: Status, words: tuple[type, ...]) -> list[Item]:
    """Items about the contender itself: what a functional case or a reference shows says nothing about what was timed."""
    contenders = {contest.subject for contest in capstone.contests()}
    return [
        item
        for milestone, progress in zip(capstone.milestones, found.milestones, strict=True)
        for predicate, item in zip(milestone.evidence, progress.items, strict=True)
        if isinstance(predicate.asked, words)
        and predicate.selector is not None
        and predicate.selector.subject in contenders
    ]


def _support(shown: str, missing: str, items: Sequence[Item]) -> str:
    met = [item for item in items if item.state is State.DONE]
    if not met:
        why = f" ({plain(items[0].outcome.reason, 200)})" if items else ""
        return f"Not shown: {missing}{why}."
    links = ", ".join(dict.fromkeys(plain(link.label, 60) for item in met for link in item.outcome.links))
    return f"{shown}: {'; '.join(plain(item.says, 200) for item in met)} ({links})."


def _commands(capstone: Capstone, used: Sequence[Kept]) -> list[Command]:
    found = []
    if capstone.functional_case.command.strip():
        found.append(Command("functional case, without the hardware", capstone.functional_case.command))
    for kept in used:
        text = kept.evidence.attributes.get(COMMAND)
        if isinstance(text, str) and text.strip():
            found.append(Command(f"{kept.evidence.kind} {kept.digest[:12]}", text))
    return found


def _limitations(capstone: Capstone, found: Status, sweeps: Sequence[Sweep]) -> list[str]:
    lines = [f"Excluded: {plain(e.item, 200)}{_because(e.reason)}" for e in capstone.scope.excluded]
    lines += [f"Deferred: {plain(e.item, 200)}{_because(e.reason)}" for e in capstone.scope.deferred]
    if capstone.resources.simulation is not None:
        lines.append(f"Only modelled, not measured: {plain(capstone.resources.simulation.remains_modeled, 300)}")
    for m in found.milestones:
        lines += [
            f"Milestone {m.number}, {i.state}: {plain(i.says, 200)}{_because(i.outcome.reason)}"
            for i in m.items
            if i.state is not State.DONE
        ]
    missing = sorted({shape for sweep in sweeps for shape in sweep.missing})
    if missing:
        lines.append(f"Not measured: {', '.join(plain(shape, 60) for shape in missing[:20])}")
    axes = capstone.input_family.axes
    if axes:
        said = "; ".join(f"{plain(k, 60)} {', '.join(plain(str(v), 40) for v in values)}" for k, values in axes.items())
        lines.append(f"Nothing is claimed outside {said}")
    return lines or ["None is declared."]


def _because(reason: str) -> str:
    return f" ({plain(reason, 300)})" if reason.strip() else ""


def _raw(kept: Kept) -> RawData:
    evidence = kept.evidence
    place = kept.place
    shown = (
        f"[where]({place})" if place.startswith(("https://", "http://")) else f"`{code(place, 200)}`" if place else ""
    )
    return RawData(
        digest=kept.digest,
        evidence=evidence,
        shown_place=shown,
        rows=f"{evidence.table.rows:,}" if evidence.table is not None else "–",
        when=f"{evidence.provenance.created:%Y-%m-%d}",
        commit=f"`{evidence.provenance.commit[:12]}`" if evidence.provenance.commit else "unknown",
    )


def _software(evidence: Evidence) -> str:
    e = evidence.environment
    parts = [e.driver, f"Python {e.python}" if e.python else "", *(f"{k} {v}" for k, v in sorted(e.libraries.items()))]
    return ", ".join(part for part in parts if part)


def _one_line(command: str) -> str:
    return " ".join(command.split()).replace("```", "` ` `")
