"""Which publications a retention policy removes: pure, and never one that somebody still needs."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from assay.baselines.errors import InputError
from assay.baselines.ledger import Publication, nearest
from assay.bot.objects import Pull
from assay.bot.text import plural


@dataclass(frozen=True)
class Choice:
    """What is done with one publication, and why."""

    publication: Publication
    remove: bool
    why: str


def choose(
    publications: Iterable[Publication],
    needed: Mapping[str, Sequence[int]],
    now: datetime,
    *,
    keep: int | None = None,
    max_age: timedelta | None = None,
    linked: Container[str] = frozenset(),
) -> list[Choice]:
    """One choice for each publication, newest first within its branch and kind.

    `keep` newest of each branch and kind stay, and so does what is younger than `max_age`; what neither keeps goes.
    Always kept: the newest, what `needed` names (tag -> open pull requests), the tags that a capstone's milestones have
    `linked`, and what has no known age.
    Raises `InputError` when no policy is given.
    """
    if keep is None and max_age is None:
        raise InputError("no retention policy is given: give --keep N, --max-age DAYS, or both.")
    ordered = sorted(publications, key=lambda p: (p.branch, p.kind, -_time(p), p.digest12))
    choices: list[Choice] = []
    rank = 0
    for i, publication in enumerate(ordered):
        before = ordered[i - 1] if i else None
        same = before is not None and (before.branch, before.kind) == (publication.branch, publication.kind)
        rank = rank + 1 if same else 0
        choices.append(_choice(publication, rank, needed.get(publication.tag, ()), linked, now, keep, max_age))
    return choices


def _choice(
    publication: Publication,
    rank: int,
    pulls: Sequence[int],
    linked: Container[str],
    now: datetime,
    keep: int | None,
    max_age: timedelta | None,
) -> Choice:
    if rank == 0:
        return Choice(publication, False, "the newest of its kind")
    if pulls:
        named = ", ".join(f"#{number}" for number in sorted(pulls)[:5])
        return Choice(publication, False, f"needed by {plural(len(pulls), 'open pull request')} ({named})")
    if publication.tag in linked:
        return Choice(publication, False, "evidence of a milestone in capstone.yml")
    if publication.created is None:
        return Choice(publication, False, "its age is not known")
    age = now - publication.created
    old = plural(age.days, "day")
    if keep is not None and rank < keep:
        return Choice(publication, False, f"among the newest {keep}")
    if max_age is not None and age <= max_age:
        return Choice(publication, False, f"{old} old")
    reasons = [f"{old} old"] if max_age is not None else []
    reasons += [f"beyond the newest {keep}"] if keep is not None else []
    return Choice(publication, True, ", ".join(reasons))


def needed_by(
    pulls: Iterable[Pull],
    publications: Sequence[Publication],
    merge_base: Callable[[str, str], str],
    history: Callable[[str], Iterable[str]],
) -> dict[str, list[int]]:
    """Tag -> the open pull requests that are compared with that publication: the nearest to their merge base, of each
    kind, as the gate would choose it. A pull request without common history needs none."""
    needed: dict[str, list[int]] = {}
    for pull in pulls:
        mine = [p for p in publications if p.branch == pull.base_ref]
        if not mine:
            continue
        try:
            start = merge_base(pull.base_ref, pull.head_sha)
        except InputError:
            continue
        for kind in sorted({p.kind for p in mine}):
            found = nearest((p for p in mine if p.kind == kind), history(start))
            if found is not None:
                needed.setdefault(found.publication.tag, []).append(pull.number)
    return needed


def _time(publication: Publication) -> float:
    return publication.created.timestamp() if publication.created is not None else 0.0
