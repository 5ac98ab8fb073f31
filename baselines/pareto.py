"""Pareto frontier over measured points with uncertainty: a point dominates only when the intervals say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.baselines.errors import InputError
from assay.baselines.evidence import Evidence
from assay.baselines.stats import intervals


@dataclass(frozen=True)
class Axis:
    """One objective: its name, unit, and whether more is better."""

    name: str
    unit: str
    higher_is_better: bool


@dataclass(frozen=True)
class Value:
    """A measured value with its 95% interval; an exact one has low == value == high."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise InputError(
                f"the interval [{self.low:g}, {self.high:g}] does not hold its value {self.value:g}: measure again."
            )


@dataclass(frozen=True)
class Point:
    """One subject with a value on every axis."""

    name: str
    values: tuple[Value, ...]


def dominates(a: Point, b: Point, axes: Sequence[Axis]) -> bool:
    """Whether `a` is clearly better than `b` somewhere and as good everywhere.

    Clearly better: the intervals do not overlap. As good: `a`'s value is no worse than the bad end of `b`'s interval
    and the two intervals overlap or favour `a`. Two wide intervals that overlap on every axis dominate nothing.
    """
    better = False
    for axis, x, y in zip(axes, a.values, b.values, strict=True):
        x, y = (x, y) if axis.higher_is_better else (_negated(x), _negated(y))
        if x.value < y.low or x.high < y.low:
            return False
        better = better or x.low > y.high
    return better


def frontier(points: Sequence[Point], axes: Sequence[Axis]) -> list[bool]:
    """For each point, whether no other point dominates it."""
    return [not any(dominates(other, point, axes) for other in points if other is not point) for point in points]


ACCURACY = Axis("accuracy", "", higher_is_better=True)
COSTS = (
    Axis("latency", "ms", higher_is_better=False),
    Axis("memory", "bytes", higher_is_better=False),
    Axis("size", "bytes", higher_is_better=False),
)
"""Cost axes by preference: what was measured in time first, then what must fit, then what must be shipped."""


def accuracy_of(evidence: Evidence, tasks: Sequence[str] | None = None) -> Value | None:
    """Accuracy over all examples of the primary 0/1 metrics (of `tasks`, if given), with Wilson's interval.

    Metrics of which less is better are no accuracies. Raises `InputError` for a value that is no proportion.
    """
    metrics = {
        key: m
        for key, m in evidence.metrics.items()
        if m.scale == "binary"
        and m.direction == "higher"
        and m.primary
        and m.n
        and (tasks is None or key.rpartition("/")[0] in tasks)
    }
    for key, metric in metrics.items():
        if not 0 <= metric.value <= 1:
            raise InputError(f"{key[:120]} is {metric.value:g}, which no accuracy is: measure again.")
    total = sum(m.n or 0 for m in metrics.values())
    if not total:
        return None
    value = sum(m.value * (m.n or 0) for m in metrics.values()) / total
    bounds = intervals.wilson(value * total, total, 0.95)
    return Value(value, min(float(bounds.low), value), max(float(bounds.high), value))


def cost_of(evidence: Evidence, axis: Axis) -> Value | None:
    """The measured cost on an axis; without a stated interval the value counts as exact."""
    metric = evidence.metrics.get(axis.name)
    if metric is None or metric.scale != "measure":
        return None
    low = metric.low if metric.low is not None else metric.value
    high = metric.high if metric.high is not None else metric.value
    try:
        return Value(metric.value, low, high)
    except InputError as error:
        raise InputError(f"{axis.name}: {error}") from None


def shared_cost(evidence: Sequence[Evidence]) -> Axis | None:
    """The first cost axis on which all of them were measured, on one kind of hardware where it is a time."""
    for axis in COSTS:
        if all(cost_of(e, axis) for e in evidence) and (
            axis.name != "latency" or len({e.environment.hardware for e in evidence}) == 1
        ):
            return axis
    return None


def _negated(value: Value) -> Value:
    return Value(-value.value, -value.high, -value.low)
