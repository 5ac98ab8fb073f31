"""Where a capstone stands: each milestone done, open or blocked, and whether a stop condition holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from assay.bot.milestones.contest import contest
from assay.bot.milestones.predicates import Blocked, Met, Open, Outcome, judge
from assay.bot.milestones.proposal import Capstone, LibraryFaster, Prerequisite, Proof
from assay.bot.milestones.shelf import Link, Shelf
from assay.bot.milestones.wording import words
from assay.bot.text import plural


class State(StrEnum):
    """State of a milestone."""

    DONE = "done"
    OPEN = "open"
    BLOCKED = "blocked"


@dataclass(frozen=True)
class Item:
    """One thing that is asked for, and what is known about it."""

    says: str
    outcome: Outcome

    @property
    def state(self) -> State:
        return _STATES[type(self.outcome)]


@dataclass(frozen=True)
class Progress:
    """One milestone."""

    number: int
    title: str
    review: str
    items: Sequence[Item]

    @property
    def state(self) -> State:
        """Blocked when anything is; done only when there is something and all of it is met."""
        states = {item.state for item in self.items}
        if State.BLOCKED in states:
            return State.BLOCKED
        return State.DONE if states == {State.DONE} else State.OPEN

    @property
    def blocker(self) -> Item | None:
        """The first item that says no."""
        return next((i for i in self.items if i.state is State.BLOCKED), None)

    @property
    def first_open(self) -> Item | None:
        """The first item that is not there yet."""
        return next((i for i in self.items if i.state is State.OPEN), None)

    @property
    def others_open(self) -> int:
        """How many items beside that are not there yet."""
        return max(0, sum(i.state is State.OPEN for i in self.items) - 1)

    @property
    def links(self) -> list[Link]:
        """Where the evidence of all items is, each once."""
        return list(dict.fromkeys(link for item in self.items for link in item.outcome.links))


@dataclass(frozen=True)
class Stop:
    """A stop condition that holds."""

    what: str
    """What to stop: the performance work, adding to the scope, or everything but the delivery."""
    reason: str
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Status:
    """The whole."""

    title: str
    milestones: Sequence[Progress]
    prerequisites: Sequence[Item]
    stops: Sequence[Stop]

    def count(self, state: State) -> int:
        """How many milestones are in a state."""
        return sum(m.state is state for m in self.milestones)


_STATES: dict[type[Outcome], State] = {Met: State.DONE, Open: State.OPEN, Blocked: State.BLOCKED}


def status(capstone: Capstone, shelf: Shelf, today: date) -> Status:
    """The state of every milestone and prerequisite, and the stop conditions that hold today."""
    milestones = [
        Progress(i, m.title, m.review, [Item(words(p), judge(p, capstone, shelf)) for p in m.evidence])
        for i, m in enumerate(capstone.milestones, 1)
    ]
    prerequisites = [Item(p.name, _demonstrated(p, shelf)) for p in capstone.prerequisites]
    return Status(capstone.title, milestones, prerequisites, stops(capstone, shelf, milestones, today))


def stops(capstone: Capstone, shelf: Shelf, milestones: Sequence[Progress], today: date) -> list[Stop]:
    """The stop conditions that hold."""
    found: list[Stop | None] = []
    for condition in capstone.stop_conditions:
        if condition.bound_below_gain:
            found.append(_bound(capstone))
        elif condition.library_faster is not None:
            found.append(_library(condition.library_faster, capstone, shelf))
        elif condition.scope_answered is not None:
            found.append(_answered(condition.scope_answered.milestones, milestones))
        elif condition.deadline is not None and today >= condition.deadline.date:
            when = f"the last day was {condition.deadline.date:%Y-%m-%d}"
            if not milestones or any(m.state is not State.DONE for m in milestones):
                found.append(Stop("Stop all new work", f"{when}. Deliver: {condition.deadline.then}"))
    return [s for s in found if s is not None]


def _bound(capstone: Capstone) -> Stop | None:
    """An upper bound in another unit than the gain says nothing here; `lint` names that."""
    bound, gain = capstone.quantitative_model.bound, capstone.material_gain
    if bound is None or gain is None or bound.unit != gain.unit or bound.value >= gain.value:
        return None
    return Stop(
        "Stop performance work",
        f"by the model it can gain at most {bound.value:g} {bound.unit}, and less than {gain.value:g} {gain.unit} does not matter",
    )


def _library(asked: LibraryFaster, capstone: Capstone, shelf: Shelf) -> Stop | None:
    found = contest(asked, shelf, capstone.input_family.shapes)
    if not found.pairings or found.missing or found.unlike or len(found.lost) < len(found.pairings):
        return None
    least = min(p.behind_percent for p in found.pairings)
    if least < asked.by_percent:
        return None
    return Stop(
        "Stop the private kernel path",
        f"the baseline is faster on {'the one' if len(found.pairings) == 1 else 'all'} "
        f"{plural(len(found.pairings), 'required shape')}, by {least:.1f}% at least; what is left to gain is educational",
        found.links,
    )


def _answered(wanted: Sequence[int], milestones: Sequence[Progress]) -> Stop | None:
    states = {m.number: m.state for m in milestones}
    if any(states.get(n) is not State.DONE for n in wanted):
        return None
    which = f"milestone {wanted[0]} is" if len(wanted) == 1 else f"milestones {', '.join(map(str, wanted))} are"
    return Stop("Stop adding", f"the question is answered: {which} done. Write the report before anything new")


def _demonstrated(prerequisite: Prerequisite, shelf: Shelf) -> Outcome:
    proof = prerequisite.demonstrated
    if not isinstance(proof, Proof):
        return Open("not demonstrated")
    if proof.path is not None:
        there = shelf.files.get(proof.path) is not None
        return Met("", (shelf.file(proof.path),)) if there else Open(f"{proof.path} is not there")
    assert proof.evidence is not None
    found = shelf.matching(proof.evidence)
    return (
        Met("", (found[0].link,))
        if found
        else Open(f"no {proof.evidence.kind} evidence of {proof.evidence.subject} yet")
    )
