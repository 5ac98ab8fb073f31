"""Where a change stands among published points: accuracy against what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from assay.baselines.compare import compare
from assay.baselines.errors import InputError
from assay.baselines.pareto import ACCURACY, Axis, Point, Value, accuracy_of, cost_of, shared_cost
from assay.baselines.policy import Policy
from assay.baselines.record import Record

_ALL_TASKS = Policy.model_validate({"at-chance": "warn"})


def standing(
    base: tuple[str, Record], others: Sequence[tuple[str, Record]], today: date
) -> tuple[tuple[Axis, Axis] | None, list[Point]]:
    """Points of the base and of every other record that can be paired with it; the first other one sets the cost axis.

    Accuracies are relative to the base, example by example: the base has its own score without an interval, the others
    the base's score plus the paired difference with its interval. A gate that found a regression and a plot that calls
    the two equally accurate would contradict each other. (None, []) when fewer than two points have both axes.
    """
    name, record = base
    reference = accuracy_of(record.evidence)
    axis = shared_cost([record.evidence, others[0][1].evidence]) if others else None
    if reference is None or axis is None:
        return None, []
    points = []
    for other_name, other in others:
        cost = cost_of(other.evidence, axis)
        same_machine = (
            axis.name != "latency" or other.evidence.environment.hardware == record.evidence.environment.hardware
        )
        if cost is None or not same_machine or other.digest == record.digest:
            continue
        paired = _paired(other, record, today)
        if paired is not None:
            points.append(Point(other_name, (paired[1], cost)))
            reference = paired[0]
    own = cost_of(record.evidence, axis)
    if not points or own is None:
        return None, []
    return (ACCURACY, axis), [Point(name, (Value(reference.value, reference.value, reference.value), own)), *points]


def _paired(other: Record, base: Record, today: date) -> tuple[Value, Value] | None:
    """The base's score on the common examples, and the other's relative to it; None when the two cannot be paired."""
    try:
        findings = [f for f in compare(other, base, _ALL_TASKS, today, some_tasks=True).findings if f.scale == "binary"]
    except InputError:
        return None
    whole = next((f for f in findings if f.pooled), findings[0] if len(findings) == 1 else None)
    if whole is None:
        return None
    exact = Value(whole.base, whole.base, whole.base)
    low, high = whole.base + whole.low, whole.base + whole.high
    return exact, Value(whole.head, min(low, whole.head), max(high, whole.head))
