"""The frontier: a point dominates only when the intervals say so, and never itself or in a circle."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.evidence import evaluation, outcomes

from assay.baselines.errors import InputError
from assay.baselines.pareto import ACCURACY, COSTS, Point, Value, accuracy_of, cost_of, dominates, frontier, shared_cost
from assay.bot.standing import standing

LATENCY, MEMORY, SIZE = COSTS
AXES = (ACCURACY, LATENCY)


def point(accuracy: tuple[float, float, float], cost: tuple[float, float, float], name: str = "p") -> Point:
    return Point(name, (Value(*accuracy), Value(*cost)))


def exact(accuracy: float, cost: float) -> Point:
    return point((accuracy,) * 3, (cost,) * 3)


def test_exact_points_are_the_textbook_frontier() -> None:
    points = [exact(0.9, 10), exact(0.8, 5), exact(0.8, 6), exact(0.7, 5), exact(0.6, 1)]
    assert frontier(points, AXES) == [True, True, False, False, True]


def test_equal_points_dominate_neither() -> None:
    assert frontier([exact(0.5, 5), exact(0.5, 5)], AXES) == [True, True]


@pytest.mark.parametrize(
    ("a", "b", "wins"),
    [
        (((0.50, 0.52, 0.54), (5, 5, 5)), ((0.51, 0.53, 0.55), (9, 9, 9)), True),  # as accurate within, clearly faster
        (((0.40, 0.42, 0.44), (5, 5, 5)), ((0.51, 0.53, 0.55), (9, 9, 9)), False),  # clearly less accurate
        (((0.50, 0.52, 0.54), (4, 6, 8)), ((0.49, 0.51, 0.53), (5, 7, 9)), False),  # wide on both
        (((0.60, 0.62, 0.64), (4, 6, 8)), ((0.49, 0.51, 0.53), (5, 7, 9)), True),  # clearly better, as fast within
        (
            ((0.60, 0.62, 0.64), (5, 9.5, 10)),
            ((0.49, 0.51, 0.53), (5, 7, 9)),
            False,
        ),  # better, but its time is not as good
    ],
)
def test_intervals_decide(
    a: tuple[tuple[float, float, float], ...], b: tuple[tuple[float, float, float], ...], wins: bool
) -> None:
    assert dominates(point(*((x[1], x[0], x[2]) for x in a)), point(*((x[1], x[0], x[2]) for x in b)), AXES) is wins


values = st.tuples(st.integers(0, 20), st.integers(0, 4), st.integers(0, 4)).map(
    lambda t: (float(t[0]), float(t[0] - t[1]), float(t[0] + t[2]))
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(values, values), min_size=1, max_size=6))
def test_laws(raw: list[tuple[tuple[float, float, float], tuple[float, float, float]]]) -> None:
    points = [point(*p) for p in raw]
    for a in points:
        assert not dominates(a, a, AXES)
        for b in points:
            assert not (dominates(a, b, AXES) and dominates(b, a, AXES))
            if dominates(a, b, AXES):  # more is better on the first axis, less on the second
                assert a.values[0].low > b.values[0].high or a.values[1].high < b.values[1].low
                assert a.values[0].value >= b.values[0].low
                assert a.values[1].value <= b.values[1].high


def test_an_interval_holds_its_value() -> None:
    with pytest.raises(InputError, match="does not hold its value"):
        Value(1.0, 2.0, 3.0)
    record = evaluation({"t": [1, 0]}, costs={"latency": (12.0, 13.0, 14.0)})
    with pytest.raises(InputError, match="latency: the interval"):
        cost_of(record.evidence, LATENCY)


def test_latency_counts_only_between_equal_machines() -> None:
    costs = {"latency": (12.0, 11.0, 13.0), "size": (1e6, 1e6, 1e6)}
    one = evaluation({"t": [1, 0]}, costs=costs, hardware="A").evidence
    other = evaluation({"t": [1, 0]}, costs=costs, hardware="B").evidence
    assert shared_cost([one, one]) == LATENCY
    assert shared_cost([one, other]) == SIZE
    assert shared_cost([evaluation({"t": [1, 0]}).evidence, one]) is None


def test_accuracy_is_over_all_examples_of_the_primary_metrics() -> None:
    record = evaluation({"a": [1] * 30 + [0] * 10, "b": [1] * 10 + [0] * 50})
    value = accuracy_of(record.evidence)
    assert value is not None
    assert value.value == pytest.approx(0.4)
    assert value.low < 0.4 < value.high
    only = accuracy_of(record.evidence, ["a"])
    assert only is not None
    assert only.value == 0.75
    assert accuracy_of(evaluation({"a": [0.5] * 9}, scale="bounded", low=0.0, high=1.0).evidence) is None


@pytest.mark.parametrize("value", [1e308, -0.1, 1.0001])
def test_what_is_no_proportion_is_no_accuracy(value: float) -> None:
    record = evaluation({"a": [1, 0]})
    metrics = {k: m.model_copy(update={"value": value}) for k, m in record.evidence.metrics.items()}
    with pytest.raises(InputError, match=r"a/acc is .*, which no accuracy is"):
        accuracy_of(record.evidence.model_copy(update={"metrics": metrics}))


@pytest.mark.parametrize("n", [49, 161, 200])
def test_a_change_stands_where_the_gate_puts_it(n: int) -> None:
    """The plot and the gate use one paired difference; no count of examples breaks either."""
    before, after = outcomes(n, 10, 2, 0.5)
    base = evaluation({"t": before}, costs={"size": (2e6, 2e6, 2e6)})
    head = evaluation({"t": after}, costs={"size": (1e6, 1e6, 1e6)}, name="other")
    base, head = (type(r)(r.evidence, r.rows, digest) for r, digest in ((base, "b" * 64), (head, "a" * 64)))
    axes, points = standing(("main", base), [("this PR", head)], date(2026, 11, 30))
    assert axes == (ACCURACY, SIZE)
    main, this = points
    assert main.values[0].low == main.values[0].high == pytest.approx(sum(before) / n)
    assert this.values[0].value - main.values[0].value == pytest.approx(-8 / n)
    assert this.values[0].low < this.values[0].value < this.values[0].high
