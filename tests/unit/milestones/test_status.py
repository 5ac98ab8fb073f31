"""Milestones, stop conditions and the growth of the scope."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.milestones.workbench import (
    ALL,
    ATTENTION,
    FIRST_TWO,
    LIBRARY,
    PASSED,
    REPORT,
    WITHOUT,
    attention,
    kernel,
    latencies,
    ours,
    shelf,
)

from assay.baselines.record import Record
from assay.bot.milestones.proposal import Capstone, Scope, ScopeItem
from assay.bot.milestones.scope import growth
from assay.bot.milestones.status import State, status

DAY = date(2026, 12, 1)


def states(*records: Record, **files: tuple[str, ...] | None) -> list[State]:
    found = status(attention(), shelf(*records, files={"report.md": files.get("report")}), DAY)
    return [m.state for m in found.milestones]


def test_milestones_are_ticked_by_evidence_and_unticked_by_newer_evidence() -> None:
    assert states() == [State.OPEN] * 5
    assert states(*FIRST_TWO) == [State.DONE] * 2 + [State.OPEN] * 3
    assert states(*ALL, report=REPORT) == [State.DONE] * 5
    broken = ours(contract={**PASSED, "extreme": False}, day=8)
    assert states(*ALL, broken, report=REPORT)[2] is State.BLOCKED


def test_a_milestone_that_asks_for_nothing_is_not_done() -> None:
    made = Capstone.model_validate({"title": "x", "milestones": [{"title": "a"}]})
    assert status(made, shelf(), DAY).milestones[0].state is State.OPEN


def stopped(*records: Record, text: str = ATTENTION, day: date = DAY) -> list[str]:
    found = status(attention(text), shelf(*records, files={"report.md": None}), day)
    return [s.what for s in found.stops]


def test_bound_below_gain() -> None:
    assert stopped() == []
    assert stopped(text=ATTENTION.replace("    value: 33\n", "    value: 3.9\n")) == ["Stop performance work"]
    assert stopped(text=ATTENTION.replace("    value: 33\n", "    value: 4\n")) == []  # it can just be reached
    other = ATTENTION.replace("    value: 33\n    unit: times fewer bytes at s4096", "    value: 3\n    unit: ms")
    assert other != ATTENTION
    assert stopped(text=other) == []  # another unit says nothing; lint names it


FASTER = kernel("attention-library", latencies(30.0, 40.0, 60.0, 90.0), day=5)


@pytest.mark.parametrize(
    ("library", "stops"),
    [
        (FASTER, True),
        (LIBRARY, False),  # it loses at s512
        (
            kernel("attention-library", latencies((40.0, 39.0, 45.0), 40.0, 60.0, 90.0), day=5),
            False,
        ),  # not told apart at s512
        (kernel("attention-library", latencies(40.0, 40.0, 60.0, 90.0), day=5), False),  # by 11%, and 20% are asked for
        (kernel("attention-library", {"latency/s512": 1.0, "latency/s1024": 1.0}, day=5), False),  # not all shapes
        (kernel("attention-library", latencies(3.0, 4.0, 6.0, 9.0), protocol={"timer": "wall"}, day=5), False),
        (kernel("attention-library", latencies(3.0, 4.0, 6.0, 9.0), unit="ms", day=5), False),
    ],
)
def test_library_faster(library: Record, stops: bool) -> None:
    assert stopped(ours(), library) == (["Stop the private kernel path"] if stops else [])


def test_scope_answered() -> None:
    assert stopped(*ALL) == ["Stop adding"]
    assert stopped(*ALL[:-1]) == []
    assert stopped(*FIRST_TWO, text=ATTENTION.replace("milestones: [1, 2, 3, 4]", "milestones: [2]")) == ["Stop adding"]


def test_deadline() -> None:
    assert stopped(day=date(2027, 2, 18)) == []
    assert stopped(day=date(2027, 2, 19)) == ["Stop all new work"]
    done = status(attention(), shelf(*ALL, files={"report.md": REPORT}), date(2027, 3, 1))
    assert [s.what for s in done.stops] == ["Stop adding"]  # all is delivered: the last day asks for nothing


def test_prerequisites() -> None:
    found = status(attention(), shelf(*FIRST_TWO, WITHOUT), DAY)
    assert [i.state for i in found.prerequisites] == [State.DONE, State.DONE, State.OPEN]


items = st.lists(st.sampled_from("abcdefgh"), max_size=6, unique=True)


@settings(deadline=None, max_examples=100)
@given(before=items, after=items, excluded=items)
def test_growth_is_what_was_not_included_before(before: list[str], after: list[str], excluded: list[str]) -> None:
    def scope(included: list[str], out: list[str]) -> Capstone:
        made = Scope(
            included=[ScopeItem(item=i, reason="r") for i in included], excluded=[ScopeItem(item=i) for i in out]
        )
        return Capstone(title="x", scope=made)

    found = growth(scope(before, excluded), scope([item.upper() for item in after], []))
    assert [g.item.lower() for g in found] == [i for i in after if i not in before]
    assert {g.item.lower() for g in found if g.was} == (set(after) - set(before)) & set(excluded)
    assert growth(scope(before, []), scope(before, [])) == []


def test_a_reason_of_blanks_is_none() -> None:
    base, head = Capstone(title="x"), Capstone(title="x", scope=Scope(included=[ScopeItem(item="a", reason="  ")]))
    [found] = growth(base, head)
    assert not found.explained
