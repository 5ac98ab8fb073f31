"""The one comment of a pull request, as a function of the results at its head."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from assay.baselines.compare.verdict import Overall, error_rank
from assay.bot.sections import Result, Room, section_for
from assay.bot.text import plain

BUDGET = 60_000
"""Bytes of a comment. GitHub refuses 65,536 characters; the rest is room for what it adds."""
CHECK_BUDGET = 60_000
SUMMARY_BUDGET = 1_000_000
"""A step summary over 1 MiB is dropped whole."""

MARKS = {
    Overall.REGRESSED: "✗",
    Overall.MISMATCH: "✗",
    Overall.INVALID: "✗",
    Overall.BROKEN: "✗",
    Overall.INCONCLUSIVE: "?",
    Overall.ADVISORY: "?",
    Overall.NO_BASELINE: "–",
    Overall.IMPROVED: "✓",
    Overall.EQUIVALENT: "✓",
}

_MARKER = re.compile(r"^<!-- assay run=(\d+) attempt=(\d+) head=([0-9a-f]{12}) -->")


@dataclass(frozen=True, order=True)
class Marker:
    """The hidden first line: which run wrote the comment, for which head."""

    run: int
    attempt: int
    head: str

    def __str__(self) -> str:
        return f"<!-- assay run={self.run} attempt={self.attempt} head={self.head[:12]} -->"


def read_marker(body: str) -> Marker | None:
    """The marker of a comment that assay wrote; None for any other comment, also one that quotes a marker later on."""
    match = _MARKER.match(body)
    return Marker(int(match[1]), int(match[2]), match[3]) if match else None


def title(results: Sequence[Result]) -> str:
    """The verdict of the whole on one line, without Markdown heading."""
    worst = _worst_first(results)[0]
    line = f"{MARKS[worst.overall]} {section_for(worst.kind).headline(worst)}"
    others = [
        r
        for r in results
        if r is not worst and r.overall in (Overall.REGRESSED, Overall.MISMATCH, Overall.INVALID, Overall.BROKEN)
    ]
    return line + (f" (and {len(others)} more)" if others else "")


def overall(results: Sequence[Result]) -> Overall:
    """The worst outcome among the results."""
    return _worst_first(results)[0].overall


def render(results: Sequence[Result], marker: Marker | None, budget: int = BUDGET, *, flips: int | None = None) -> str:
    """The comment, at most `budget` bytes: whole rows are left out until it fits, the verdict never.

    `flips` is how many changed examples are listed at most; what `Room` gives if left out.

    Sections keep the order of their workflows, so that a comment does not jump around while runs finish.
    """
    room: Room | None = Room() if flips is None else Room(flips=flips)
    while room is not None:
        body = _render(results, marker, room)
        if len(body.encode()) <= budget:
            return body
        room = room.smaller()
    kept = [str(marker)] if marker else []
    kept.append(f"## {title(results)}\n\nThe details do not fit here; the run's summary has them.")
    return "\n".join(kept) + "\n"


def _render(results: Sequence[Result], marker: Marker | None, room: Room) -> str:
    lines = [str(marker)] if marker else []
    lines.append(f"## {title(results)}")
    ordered = sorted(results, key=lambda r: (r.workflow, r.kind, r.run_id or 0))
    for result in ordered:
        section = section_for(result.kind)
        if len(ordered) > 1:
            lines.append(f"\n### {MARKS[result.overall]} {plain(result.workflow, 60)}: {section.headline(result)}")
        if result.running:
            lines.append(f"\n_[A newer run]({result.running}) is measuring; this is the newest finished one._")
        lines.append("\n" + re.sub(r"\n{3,}", "\n\n", section.render(result, room)).strip())
    return "\n".join(lines) + "\n"


def _worst_first(results: Sequence[Result]) -> list[Result]:
    return sorted(results, key=lambda r: -error_rank(r.overall))
