"""The section of compiled models: cycles, traffic, VTCM, what runs on the host, and which layers changed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.baselines.compare.npu import dram_of, models_of, relative
from assay.baselines.compare.verdict import Comparison, Finding, PartChange, State
from assay.baselines.evidence import Evidence
from assay.baselines.kernel import LEASE
from assay.baselines.npu import CYCLES, FAILED, HOST_ROW, LATENCY, SHARE, VTCM
from assay.baselines.sizes import binary_size
from assay.bot import text
from assay.bot.npu_words import budget_line, headline, verdict_words
from assay.bot.sections import Result, Room
from assay.bot.templates import template

__all__ = ["change_header", "headline", "remarks", "render", "verdict_words"]

MARK = {State.REGRESSED: "✗", State.IMPROVED: "✓", State.EQUIVALENT: "✓", State.INCONCLUSIVE: "?"}
MOST_ACCEPTS = 6
"""Findings that the comment says how to accept."""
ORDER = (State.REGRESSED, State.INCONCLUSIVE, State.IMPROVED, State.EQUIVALENT)
_PLAIN_YAML = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)


@dataclass(frozen=True)
class Row:
    """One model of the table, ready to print."""

    model: str
    cycles: str
    dram: str
    vtcm: str
    share: str
    verdict: str


@dataclass(frozen=True)
class Part:
    """One changed layer, ready to print."""

    name: str
    base: str
    head: str
    change: str
    dram: str


def render(result: Result, room: Room) -> str:
    """The section as Markdown."""
    comparison = result.comparison
    if comparison is None:
        return template("no_comparison.md.j2").render(result=result, how=_how(result, room))
    by_model = _by_model(comparison.findings)
    known = models_of(result.head) if result.head is not None else []
    models = sorted(known, key=lambda m: ORDER.index(_worst(by_model.get(m, ()))))
    layers = [p for p in comparison.parts if p.kind != HOST_ROW]
    hidden = comparison.parts_changed - len(comparison.parts)
    blocking = [f for f in comparison.findings if f.blocks]
    lines = _lines(result, comparison)
    shown = layers[: min(room.folded, 60)]
    return template("npu.md.j2").render(
        result=result,
        comparison=comparison,
        lead=_lead(result, comparison),
        lines=lines[: room.rows],
        lines_left_out=max(0, len(lines) - room.rows),
        accepted=[f for f in comparison.findings if f.accepted][: room.folded],
        rows=[_row(m, by_model.get(m, ()), result) for m in models[: room.rows]],
        folded=[_row(m, by_model.get(m, ()), result) for m in models[room.rows :][: room.folded]],
        left_out=max(0, len(models) - room.rows - room.folded),
        parts=[_part(p, several=len(known) > 1) for p in shown],
        parts_changed=len(layers) + hidden,
        warnings=comparison.warnings[: max(room.environment, 1)],
        accept=[(f.name, _accept_as(f)) for f in blocking[:MOST_ACCEPTS]],
        accept_left_out=max(0, len(blocking) - MOST_ACCEPTS),
        how=_how(result, room),
        tests=_tests(result),
        two_sided=[],
    )


def change_header(findings: Sequence[Finding]) -> str:
    """Heading of the column of changes, with their unit."""
    return "change"


def remarks(result: Result) -> list[str]:
    """Why a model is void, what came to the host and why, what is over budget; the first 20, then the layers that changed most."""
    comparison = result.comparison
    if comparison is None:
        return []
    void = [f"{_capital(text.plain(comparison.reason, 300))}: void. This is not a pass."] if comparison.reason else []
    layers = [p for p in comparison.parts if p.kind != HOST_ROW][:5]
    moved = [
        f"{p.name}: {p.base} → {p.head} cycles ({p.change})" for p in (_part(layer, several=True) for layer in layers)
    ]
    return void + _lines(result, comparison)[:20] + moved


def _by_model(findings: Sequence[Finding]) -> Mapping[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for f in findings:
        found.setdefault(f.task, []).append(f)
    return found


def _worst(findings: Sequence[Finding]) -> State:
    """The state that a model's row shows: what is accepted no longer counts as worse."""
    states = [State.EQUIVALENT if f.accepted else f.state for f in findings]
    return min(states, key=ORDER.index, default=State.EQUIVALENT)


def _row(model: str, findings: Sequence[Finding], result: Result) -> Row:
    head, base = result.head, result.base
    assert head is not None
    first = sorted(findings, key=lambda f: (f.accepted is not None, ORDER.index(f.state), f.scale != "count"))
    mark, words = "–", "new"
    if first:
        mark = "?" if first[0].advised else "✓" if first[0].accepted else MARK[first[0].state]
        words = verdict_words(first[0])
    # What could not be compiled, or not twice alike, has no numbers that could be shown beside the other's.
    void = FAILED + model in head.attributes or any(f.scale == "unstable" for f in findings)
    there = None if base is None or CYCLES + model not in base.metrics else base

    if void:
        return Row(text.plain(model, 60), "–", "–", "–", "–", f"{mark} {words}")

    def both(value: str, then: str, change: float | None) -> str:
        if there is None or value == then:
            return value
        moved = f" ({_percent(change)})" if change is not None else ""
        return f"{then} → {value}{moved}"

    def counted(prefix: str) -> tuple[float | None, float | None]:
        now, then = head.metrics.get(prefix + model), there.metrics.get(prefix + model) if there is not None else None
        return now.value if now is not None else None, then.value if then is not None else None

    def cell(now: float | None, then: float | None, form: str = "count") -> str:
        if now is None:
            return "–"
        change = relative(then, now) if then is not None and form != "share" else None
        return both(_shown(now, form), _shown(then, form) if then is not None else "", change)

    latency = cell(*counted(LATENCY), form="ms")
    return Row(
        model=text.plain(model, 60),
        cycles=cell(*counted(CYCLES)) + (f"<br>{latency}" if latency != "–" else ""),
        dram=cell(dram_of(head, model), dram_of(there, model) if there is not None else None, "bytes"),
        vtcm=cell(*counted(VTCM), form="bytes"),
        share=cell(*counted(SHARE), form="share"),
        verdict=f"{mark} {words}",
    )


def _shown(value: float, form: str) -> str:
    match form:
        case "bytes":
            return binary_size(value)
        case "share":
            return f"{100 * value:.2f}%".replace("100.00%", "100%" if value == 1 else "99.99%")
        case "ms":
            return f"{text.number(value)} ms"
        case _:
            return f"{value:,.0f}"


def _percent(change: float | None) -> str:
    """A relative change in percent, never rounded to nothing."""
    if not change:
        return "0%"
    digits = 1 if abs(change) >= 0.01 else 2
    shown = text.signed(100 * change, digits)
    sign = "+" if change > 0 else "−"
    return f"{sign}<&nbsp;0.01%".replace("<", "&lt;") if shown == f"{0:.{digits}f}" else f"{shown}%"


def _part(part: PartChange, *, several: bool) -> Part:
    name = text.plain(part.part, 80)
    before = "–" if part.base is None else f"{part.base:,.0f}"
    after = "–" if part.head is None else f"{part.head:,.0f}"
    change = "new" if part.base is None else "gone" if part.head is None else _percent(relative(part.base, part.head))
    then, now = part.base_bytes, part.head_bytes
    sizes = [binary_size(value) for value in (then, now) if value is not None]
    return Part(
        name=f"{text.plain(part.task, 40)}: {name}" if several else name,
        base=before,
        head=after,
        change=change,
        dram=" → ".join(dict.fromkeys(sizes)),
    )


def _lines(result: Result, comparison: Comparison) -> list[str]:
    """One line on each model that does not compile, operator that came or went, and budget that is not kept."""
    why = {(p.task, p.part): p.detail for p in comparison.parts if p.kind == HOST_ROW}
    found = []
    for f in sorted(comparison.findings, key=lambda f: ORDER.index(f.state)):
        name = f"**{text.plain(f.task, 60)}**"
        if f.scale == "compiles":
            reason = result.head.attributes.get(FAILED + f.task) if result.head is not None else None
            if f.state is State.IMPROVED:
                found.append(f"{name} compiles now.")
                continue
            also = f", nor does it on {text.plain(result.base_name, 40)}" if f.state is State.INCONCLUSIVE else ""
            because = f": {text.plain(reason, 300).rstrip('.')}" if isinstance(reason, str) else ""
            found.append(f"{name} does not compile{also}{because}.")
        elif f.scale == "fallback":
            found.append(_host_line(f, name, why.get((f.task, f.metric), "")))
        elif f.scale == "budget" and f.state is State.REGRESSED:
            found.append(budget_line(f, name))
    return found


def _host_line(f: Finding, name: str, detail: str) -> str:
    op, times = f"`{text.code(f.metric, 80)}`", text.plural(int(max(f.head, f.base)), "time")
    reason = f": {text.plain(detail, 200)}" if detail else ""
    if f.head > f.base:
        allowed = ", which is allowed" if f.state is State.EQUIVALENT else ""
        more = f"{int(f.head)} times instead of {int(f.base)}" if f.base else times
        return f"{name} runs {op} on the host{' now' if not f.base else ''}, {more}{allowed}{reason}."
    return (
        f"{name} runs {op} on the host {int(f.head)} times instead of {int(f.base)}."
        if f.head
        else f"{name} no longer runs {op} on the host (it did so {times})."
    )


def _lead(result: Result, comparison: Comparison) -> str:
    """One sentence about the finding that decided, and what follows from it."""
    findings = comparison.findings
    if any(f.scale == "compiles" and f.blocks for f in findings):
        return "A model that does not compile has no cost, and this change is blocked until it does."
    worst = max((f for f in findings if f.scale == "count" and f.blocks), key=lambda f: f.drop, default=None)
    if worst is not None:
        return f"{_moved(worst)} The policy blocks a rise over {100 * worst.threshold:g}%."
    if any(f.blocks for f in findings):
        over = any(f.scale == "budget" for f in findings if f.blocks)
        return (
            "A budget of the policy is not kept." if over else "The policy blocks operators that newly run on the host."
        )
    if comparison.reason:
        return (
            f"{_capital(text.plain(comparison.reason, 300))}: the same model, the same compiler, another program. "
            "So no count of it is believed; make the model the same in every process. This is not a pass."
        )
    advised = max((f for f in findings if f.scale == "count" and f.advised), key=lambda f: f.drop, default=None)
    if advised is not None:
        return f"{_moved(advised)} Compile base and head together (`assay compile --base`) to decide it."
    gained = min(
        (f for f in findings if f.state is State.IMPROVED and f.scale == "count"), key=lambda f: f.drop, default=None
    )
    if gained is not None:
        return _moved(gained)
    counted = [f for f in findings if f.scale == "count"]
    if not counted:
        return "Nothing was compared: there is no model that both sides compile." if not findings else ""
    most = max(counted, key=lambda f: abs(f.change))
    if most.change:
        return _moved(most)
    return "Every program takes as many cycles as before." if len(counted) > 1 else f"{_moved(most)}"


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _moved(f: Finding) -> str:
    what = {"cycles": "cycles", "dram": "bytes of DRAM traffic", "vtcm": "bytes of VTCM"}[f.metric]
    name = f"**{text.plain(f.task, 60)}**"
    if not f.change:
        return f"{name} takes {f.head:,.0f} {what}, as before."
    return f"{name} takes {f.head:,.0f} {what} instead of {f.base:,.0f} ({_percent(f.change)})."


def _accept_as(f: Finding) -> str:
    """The entry of `gate.accepted` that would cover a finding, as YAML in one line."""
    task, metric = (
        part if _PLAIN_YAML.fullmatch(part) else json.dumps(part[:200], ensure_ascii=False)
        for part in (f.task, f.metric)
    )
    return f'{{task: {task}, metric: {metric}, reason: "…", by: you, expires: YYYY-MM-DD}}'


def _how(result: Result, room: Room) -> list[str]:
    """Facts on how the head was compiled, one phrase each."""
    evidence = result.head
    if evidence is None:
        return []
    beside = result.base.provenance.commit if result.base is not None and result.baseline is None else None
    backend = f" ({text.plain(evidence.subject.backend, 60)})" if evidence.subject.backend else ""
    facts = [f"{text.plain(evidence.subject.name, 80)}{backend}{f', against `{beside[:12]}`' if beside else ''}"]
    libraries = [f"{name} {version}" for name, version in sorted(evidence.environment.libraries.items())]
    facts.append(", ".join(text.plain(part, 80) for part in libraries[: room.environment]))
    dtypes = text.plain(evidence.subject.format, 80)
    compiled = {1: "compiled once", 2: "compiled twice, by processes of their own"}.get(
        _compilations(evidence), "compiled"
    )
    facts.append(", ".join(part for part in (dtypes, compiled) if part))
    return [fact for fact in facts if fact]


def _compilations(evidence: Evidence) -> int:
    value = evidence.attributes.get("compilations")
    return value if isinstance(value, int) else 0


def _tests(result: Result) -> str:
    """How it was judged, in one sentence."""
    lease = result.head.attributes.get(LEASE) if result.head is not None else None
    together = bool(lease) and result.base is not None and result.base.attributes.get(LEASE) == lease
    how = "Base and head by one compiler in one run" if together else "Against what was published"
    return f"{how}; counts are exact, so that a change over a limit is one, and nothing is tested for significance"
