"""Drift of a branch: its newest publication against earlier ones, and the one issue that tracks it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from assay.baselines.compare.verdict import Overall, error_rank
from assay.bot.comment import BUDGET, render, title
from assay.bot.sections import Result
from assay.bot.text import plain, unmarked

LABEL = "assay-drift"
_MARKER = re.compile(r"^<!-- assay drift branch=(\S+) kind=([a-z][a-z0-9-]*) -->")


@dataclass(frozen=True)
class Issue:
    """An issue with our label."""

    number: int
    title: str
    body: str
    open: bool


@dataclass(frozen=True)
class CreateIssue:
    """Open the tracking issue."""

    title: str
    body: str


@dataclass(frozen=True)
class UpdateIssue:
    """Rewrite the tracking issue, and open or close it."""

    number: int
    title: str
    body: str
    open: bool


Step = CreateIssue | UpdateIssue


def marker(branch: str, kind: str) -> str:
    """The hidden first line by which the issue is found again."""
    return f"<!-- assay drift branch={branch} kind={kind} -->"


def ours(issues: Sequence[Issue], branch: str, kind: str) -> list[Issue]:
    """The tracking issues of a branch and kind, oldest first."""
    found = []
    for issue in issues:
        match = _MARKER.match(issue.body)
        if match and (match[1], match[2]) == (branch, kind):
            found.append(issue)
    return sorted(found, key=lambda i: i.number)


def plan(results: Sequence[Result], issues: Sequence[Issue], branch: str, kind: str) -> list[Step]:
    """What brings the tracking issue up to date; nothing when it is.

    It is open exactly while the newest publication has regressed against any of those that it is compared with. What
    is neither shown to be worse nor shown to be as good leaves it as it is: "not significant" is no recovery. Of several
    (two runs at once) the oldest stays and the others are closed.
    """
    mine = ours(issues, branch, kind)
    if not results:
        return _duplicates(mine)
    regressed = any(r.overall is Overall.REGRESSED for r in results)
    recovered = all(r.overall in (Overall.EQUIVALENT, Overall.IMPROVED) for r in results)
    if not mine:
        return [CreateIssue(_title(results, branch), _body(results, branch, kind))] if regressed else []
    kept = mine[0]
    if not regressed and not recovered:
        return _duplicates(mine)
    if recovered and not kept.open:
        return _duplicates(mine)
    heading = _title(results, branch) if regressed else f"{plain(branch, 60)} has recovered: {_words(results)}"
    wanted = UpdateIssue(kept.number, heading, _body(results, branch, kind), regressed)
    same = (kept.title, kept.body, kept.open) == (wanted.title, wanted.body, wanted.open)
    return [*([] if same else [wanted]), *_duplicates(mine)]


def _duplicates(mine: Sequence[Issue]) -> list[Step]:
    kept = mine[0] if mine else None
    return [
        UpdateIssue(i.number, i.title, f"{i.body.rstrip()}\n\nA duplicate of #{kept.number}.\n", False)
        for i in mine[1:]
        if i.open and kept is not None
    ]


def _title(results: Sequence[Result], branch: str) -> str:
    return f"{plain(branch, 60)} drifted: {_words(results)}"


def _words(results: Sequence[Result]) -> str:
    worst = max(results, key=lambda r: error_rank(r.overall))
    return unmarked(title([worst])).lstrip("✓✗?– ")[:180]


def _body(results: Sequence[Result], branch: str, kind: str) -> str:
    head = (
        f"{marker(branch, kind)}\nThe newest publication of `{branch}` against earlier ones that were measured the same "
        "way. This text is rewritten by every run, and the issue closes when the branch has recovered.\n\n"
    )
    return head + render(results, None, BUDGET - len(head.encode()))
