"""The checklist of a pull request's comment: a marked block of its own, rebuilt with the comment from the same snapshot."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from assay.baselines.errors import InputError
from assay.baselines.record import Record
from assay.bot.milestones.proposal import Capstone, parse_capstone
from assay.bot.milestones.scope import Growth, growth
from assay.bot.milestones.shelf import Kept, Shelf, Verdict
from assay.bot.milestones.status import State, Status, status
from assay.bot.sections import Result
from assay.bot.snapshot import Snapshot
from assay.bot.templates import template
from assay.bot.text import plain

START = "<!-- assay milestones -->"
END = "<!-- /assay milestones -->"
MARKS = {State.DONE: "✓", State.OPEN: "○", State.BLOCKED: "✗"}
LIMIT = 20_000
"""Bytes of the block; over it the table of items is left out."""


def block(snapshot: Snapshot, records: Mapping[str, Record], results: Sequence[Result] = ()) -> str:
    """The block as Markdown with its markers; empty when the base branch has no `capstone.yml`."""
    seen = snapshot.capstone
    if seen is None:
        return ""
    if seen.problem:
        return _marked(_invalid(seen.problem))
    try:
        capstone = parse_capstone(seen.base.encode(), origin="capstone.yml")
    except InputError as error:
        return _marked(_invalid(str(error)))
    kept = [Kept(k.digest, records[k.digest].evidence, k.place) for k in seen.evidence if k.digest in records]
    shown = [Kept(d, records[d].evidence, m.url) for m in snapshot.measurements for d in m.evidence if d in records]
    verdicts = {r.kind: Verdict(r.overall.value, r.url) for r in results}
    shelf = Shelf((*kept, *shown), seen.files, verdicts, seen.files_at)
    grown, problem = _growth(capstone, seen.head)
    return render(status(capstone, shelf, snapshot.now.date()), grown, seen.head_problem or problem, seen.unseen)


def render(found: Status, grown: Sequence[Growth] = (), problem: str = "", unseen: str = "") -> str:
    """The block of a status, with the growth of the scope.

    `problem` says why the head's own file cannot be read, `unseen` why evidence could not be fetched.
    """
    text = ""
    for folded in (True, False):
        text = template("checklist.md.j2").render(
            status=found,
            headline=headline(found),
            explained=[g for g in grown if g.explained],
            unexplained=[g for g in grown if not g.explained],
            problem=problem,
            unseen=unseen,
            marks=MARKS,
            folded=folded,
        )
        if len(text.encode()) <= LIMIT:
            break
    return _marked(re.sub(r"\n{3,}", "\n\n", text).strip())


def headline(found: Status) -> str:
    """How far it is, in one line of Markdown."""
    blocked = found.count(State.BLOCKED)
    parts = [f"{found.count(State.DONE)} of {len(found.milestones)} done"]
    parts += [f"{blocked} blocked"] if blocked else []
    parts += ["stop"] if found.stops else []
    return f"Milestones of {plain(found.title, 100)}: {', '.join(parts)}"


def _invalid(reason: str) -> str:
    return (
        f"### Milestones: `capstone.yml` cannot be read\n\n{plain(reason, 300)}\n\n"
        "The file on the base branch counts; `assay capstone lint` shows what is wrong."
    )


def _growth(base: Capstone, head: str | None) -> tuple[list[Growth], str]:
    if head is None:
        return [], ""
    try:
        return growth(base, parse_capstone(head.encode(), origin="capstone.yml")), ""
    except InputError as error:
        return [], str(error)


def _marked(text: str) -> str:
    return f"{START}\n{text}\n{END}\n"
