"""A contender against a baseline over the required shapes: who wins where, and whether it was measured alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from assay.baselines.compare.protocol import protocol_differences
from assay.baselines.evidence import Metric
from assay.bot.milestones.shelf import Kept, Link, Shelf
from assay.bot.milestones.vocabulary import SHAPE, Contest, Selector


class Rank(StrEnum):
    """The contender's state on one shape. Overlapping intervals are no win for anybody."""

    WINS = "faster"
    LOSES = "slower"
    SAME = "not told apart"


@dataclass(frozen=True)
class Pairing:
    """The contender's and the baseline's value on one shape."""

    shape: str
    ours: Metric
    theirs: Metric

    @property
    def rank(self) -> Rank:
        low, high = interval(self.ours)
        their_low, their_high = interval(self.theirs)
        if self.ours.direction == "higher":
            low, high, their_low, their_high = -high, -low, -their_high, -their_low
        if high < their_low:
            return Rank.WINS
        return Rank.LOSES if their_high < low else Rank.SAME

    @property
    def behind_percent(self) -> float:
        """How far the contender is behind, in percent of its own value; negative when it is ahead."""
        difference = self.ours.value - self.theirs.value
        if self.ours.direction == "higher":
            difference = -difference
        return 100 * difference / abs(self.ours.value) if self.ours.value else 0.0


@dataclass(frozen=True)
class Sweep:
    """What is known about a contest."""

    pairings: tuple[Pairing, ...] = ()
    missing: tuple[str, ...] = ()
    """Required shapes without both values in one unit."""
    unlike: str = ""
    """Why the two sides may not be compared, if they may not."""
    links: tuple[Link, ...] = ()
    ours: Kept | None = None

    @property
    def lost(self) -> list[str]:
        """Shapes on which the contender loses."""
        return [p.shape for p in self.pairings if p.rank is Rank.LOSES]


def names(pattern: str, shapes: Sequence[str]) -> list[tuple[str, str]]:
    """(shape, metric) for each metric that a pattern stands for; one with no shape when it names no {shape}."""
    return [(shape, pattern.replace(SHAPE, shape)) for shape in shapes] if SHAPE in pattern else [("", pattern)]


def interval(metric: Metric) -> tuple[float, float]:
    """The 95% interval of a measured value; the value itself where none is known."""
    if metric.scale != "measure":
        return metric.value, metric.value
    return (
        metric.low if metric.low is not None else metric.value,
        metric.high if metric.high is not None else metric.value,
    )


def contest(asked: Contest, shelf: Shelf, shapes: Sequence[str]) -> Sweep:
    """Both sides of a contest, from the newest evidence of each."""
    wanted = names(asked.metric, shapes)
    ours = holding(shelf.matching(asked), [metric for _, metric in wanted])
    other = asked.baseline_metric or asked.metric
    if asked.baseline is None:
        theirs = ours
    else:
        their_kind = Selector(kind=asked.kind, subject=asked.baseline)
        theirs = holding(shelf.matching(their_kind), [metric for _, metric in names(other, shapes)])
    if ours is None or theirs is None:
        return Sweep(missing=tuple(shape or metric for shape, metric in wanted), ours=ours)
    pairings, missing = [], []
    for (shape, metric), (_, their_metric) in zip(wanted, names(other, shapes), strict=False):
        a, b = ours.evidence.metrics.get(metric), theirs.evidence.metrics.get(their_metric)
        if a is None or b is None or a.unit != b.unit:
            missing.append(shape or metric)
        else:
            pairings.append(Pairing(shape or metric, a, b))
    return Sweep(tuple(pairings), tuple(missing), unlike(ours, theirs), links_of(ours, theirs), ours)


def unlike(ours: Kept, theirs: Kept) -> str:
    """Why two measurements may not be compared: another protocol, other hardware; empty when they may."""
    a, b = ours.evidence, theirs.evidence
    fields = [field for field, _, _ in protocol_differences(b, a, ())]
    if fields:
        return f"contender and baseline were measured differently ({', '.join(fields[:3])})"
    if a.environment.hardware != b.environment.hardware:
        return "contender and baseline were measured on different hardware"
    return ""


def links_of(*kept: Kept) -> tuple[Link, ...]:
    """Their links, each once."""
    return tuple(dict.fromkeys(k.link for k in kept))


def holding(found: Sequence[Kept], metrics: Sequence[str]) -> Kept | None:
    """Of evidence sorted newest first, the first that has all of these metrics, else the first that has any of them."""
    whole = next((k for k in found if all(m in k.evidence.metrics for m in metrics)), None)
    return whole or next((k for k in found if any(m in k.evidence.metrics for m in metrics)), None)
