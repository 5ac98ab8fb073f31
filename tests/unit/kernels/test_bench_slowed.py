"""Blocks in which the device was slowed down: which are left out, for whom, and when nothing is left to believe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.baselines.compare import compare
from assay.baselines.compare.verdict import Comparison, Overall
from assay.baselines.evidence import Environment
from assay.baselines.policy import Policy
from assay.baselines.record import Record
from assay.kernels.bench.clocks import SLOWED, UNKNOWN, ClockState, during, reasons_of
from assay.kernels.bench.evidence import records
from assay.kernels.bench.lease import leave_out
from assay.kernels.bench.order import BASE, CONTROL, HEAD
from assay.kernels.bench.slowed import LOW_CLOCK, Seen, left_out, usual_clock, void, words
from assay.kernels.bench.timed import Checkout, Lease, Plan, Row, Timed

ARMS = (BASE, CONTROL, HEAD)
BLOCKS, ROUNDS = 40, 2
FAST = ClockState(1980.0, False)
CAPPED = ClockState(1980.0, True, ("power cap",))
SLOW = ClockState(1500.0, False)
States = Mapping[tuple[int, str], ClockState]
"""(block, arm) -> what the clocks said; as fast as ever where nothing is planted."""


def lease(states: States, seconds: Callable[[int, str], float] = lambda block, arm: 1e-4, **plan: Any) -> Lease:
    """A lease of one case, as it is before anything is left out."""
    timed = Timed("c", "double", "c", list(ARMS), launches=10)
    for block in range(BLOCKS):
        for position, arm in enumerate(ARMS):
            state = states.get((block, arm), FAST)
            turn = block * ROUNDS // BLOCKS
            own = seconds(block, arm)
            row = Row("c", block, turn, arm, position, own, 10, 11 * own, state.mhz, state.throttled, state.reasons)
            timed.rows.append(row)
    case = {"parameters": "", "dtype": "float32", "tolerance": "", "inputs": "", "bytes": 8.0, "flops": 1.0}
    checkouts = {
        arm: Checkout(
            {"double": {"cases": {"c": case}, "configuration": {}}},
            0.1,
            0.0,
            {},
            {"double": [["c", True, 0.0, 0.0, ""]]},
        )
        for arm in ARMS
    }
    settings_ = Plan(Path("bench.py"), Path("head"), Path("base"), "cuda", blocks=BLOCKS, rounds=ROUNDS, **plan)
    return Lease("1" * 32, settings_, checkouts, {"c": timed}, "cuda-event", several=False, clocks=True)


def written(found: Lease) -> tuple[Record, Record]:
    leave_out(found)
    head, base = records(
        found,
        commits={"head": "a" * 40, "base": "b" * 40},
        command="assay bench",
        environment=Environment(hardware="GPU"),
    )
    assert base is not None
    return head, base


def compared(found: Lease) -> Comparison:
    head, base = written(found)
    return compare(head, base, Policy(), date(2026, 11, 30))


# -- what the driver says -----------------------------------------------------------------------------------------------


def test_what_slows_a_device_down_is_told_from_what_does_not() -> None:
    assert {bit: reasons_of(bit) for bit in (0x4, 0x8, 0x20, 0x40, 0x80)} == {b: (w,) for b, w in SLOWED.items()}
    for harmless in (0x0, 0x1, 0x2, 0x10, 0x100):  # none, idle, application clocks, sync boost, display
        assert reasons_of(harmless) == ()
    assert reasons_of(0x1 | 0x4 | 0x40) == ("power cap", "hw thermal")


def test_a_block_is_as_bad_as_the_worse_of_its_ends() -> None:
    assert during(FAST, CAPPED) == during(CAPPED, FAST) == CAPPED
    assert during(FAST, SLOW) == during(SLOW, FAST) == SLOW
    assert during(UNKNOWN, UNKNOWN) == UNKNOWN
    assert during(UNKNOWN, SLOW) == SLOW
    assert during(CAPPED, ClockState(1400.0, True, ("thermal", "power cap"))).reasons == ("power cap", "thermal")


# -- the rule -----------------------------------------------------------------------------------------------------------


def test_a_reason_or_a_low_clock_in_any_turn_takes_the_block() -> None:
    seen = [Seen(block, 0, 1980.0, ()) for block in range(9)]
    seen += [Seen(3, 0, 1700.0, ()), Seen(4, 0, 1980.0, ("thermal", "power cap")), Seen(5, 0, 1790.0, ())]
    assert left_out(seen, usual_clock(seen), 0.1) == {3: LOW_CLOCK, 4: "thermal"}
    assert left_out(seen, usual_clock(seen), 0.2) == {4: "thermal"}
    assert left_out([*seen, Seen(4, 0, 100.0, ())], 1980.0, 0.1)[4] == "thermal"  # the driver's word before ours


def test_nothing_is_left_out_where_nothing_tells() -> None:
    seen = [Seen(block, 0, None, ()) for block in range(9)]
    assert usual_clock(seen) is None
    assert left_out(seen, None, 0.1) == {}
    assert void(seen, {}, 0.0) == ""


def test_the_usual_clock_is_the_runs_and_not_the_cases() -> None:
    """A case in which the whole time is slow is seen beside the others."""
    found = lease({(block, arm): SLOW for block in range(BLOCKS) for arm in ARMS})
    leave_out(found)
    assert found.timed["c"].left_out == {}  # nothing to compare with
    other = lease({})
    for label in ("d", "e"):
        found.timed[label] = other.timed["c"]
    leave_out(found)
    assert set(found.timed["c"].left_out.values()) == {LOW_CLOCK}
    assert found.timed["d"].left_out == {}


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("state", [CAPPED, SLOW])
def test_a_block_goes_for_all_arms_whosever_turn_was_slow(arm: str, state: ClockState) -> None:
    found = lease({(7, arm): state, (31, arm): state}, lambda block, arm: 1e-4 + 1e-7 * block)
    leave_out(found)
    timed = found.timed["c"]
    assert set(timed.left_out) == {7, 31}
    kept = [1e-4 + 1e-7 * block for block in range(BLOCKS) if block not in (7, 31)]
    assert {other: timed.seconds(other) for other in ARMS} == dict.fromkeys(ARMS, kept)
    assert {len(timed.all_seconds(other)) for other in ARMS} == {BLOCKS}


@settings(deadline=None, max_examples=30)
@given(
    st.dictionaries(
        st.tuples(st.integers(0, BLOCKS - 1), st.sampled_from(ARMS)),
        st.sampled_from([CAPPED, SLOW, UNKNOWN]),
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_what_is_left_out_depends_on_no_time(states: States, chance: Any) -> None:
    plain, wild = lease(states), lease(states, lambda block, arm: 1e-6 * 10 ** chance.uniform(0, 6))
    for found in (plain, wild):
        leave_out(found)
    assert plain.timed["c"].left_out == wild.timed["c"].left_out
    assert plain.timed["c"].void == wild.timed["c"].void
    swapped = lease({(block, {HEAD: BASE, BASE: HEAD}.get(arm, arm)): state for (block, arm), state in states.items()})
    leave_out(swapped)
    assert swapped.timed["c"].left_out == plain.timed["c"].left_out


def test_too_little_that_is_left_is_void() -> None:
    seen = [Seen(block, block // 10, 1980.0, ()) for block in range(20)]
    lost = dict.fromkeys(range(5), "power cap")
    assert void(seen, lost, 0.25) == ""
    assert void(seen, {**lost, 7: "thermal"}, 0.25) == (
        "6 of 20 blocks left out: power cap, thermal; at most 25% may be"
    )
    assert "nothing is left of round 2" in void(seen, dict.fromkeys(range(10, 20), "thermal"), 0.5)
    assert "an interval needs 8" in void(seen[:10], dict.fromkeys(range(3), "thermal"), 0.5)
    assert words(["thermal", "power cap", "power cap"], 60) == "3 of 60 blocks left out: power cap, thermal"


# -- the evidence, and what is made of it -------------------------------------------------------------------------------


def slow_when_capped(block: int, arm: str) -> float:
    """The head is as fast as the base but for the blocks in which the device was slowed down."""
    return 1e-4 * (1 + 1e-3 * (block % 5)) * (3.0 if arm == HEAD and block % 4 == 0 else 1.0)


def test_statistics_have_the_other_blocks_and_the_table_has_all() -> None:
    states = {(block, HEAD): CAPPED for block in range(0, BLOCKS, 4)}
    head, base = written(lease(states, slow_when_capped))
    assert head.evidence.metrics["latency/c"].n == 30
    assert head.evidence.metrics["latency/c"].high == pytest.approx(100.3, abs=0.2)
    for record, arms in ((head, {HEAD}), (base, {BASE, CONTROL})):
        assert record.rows is not None
        assert record.rows.num_rows == BLOCKS * len(arms)
        assert set(record.rows.column("arm").to_pylist()) == arms | {f"{arm}, left out" for arm in arms}
        assert record.evidence.attributes["left-out.c"] == "10 of 40 blocks left out: power cap"
        assert record.evidence.attributes["clocks"] == "10 of 40 blocks left out: power cap"
        assert record.evidence.attributes["clock_drop_percent"] == 10
        assert record.evidence.attributes["most_left_out_percent"] == 25
    found = compare(head, base, Policy(), date(2026, 11, 30))
    assert found.overall is Overall.EQUIVALENT
    assert found.findings[0].n == 30
    assert found.warnings == ["the GPU was throttled in 10 of 40 blocks"]


def test_a_slowdown_is_found_in_the_blocks_that_are_left() -> None:
    found = lease({(3, BASE): CAPPED}, lambda block, arm: 1.1e-4 if arm == HEAD else 1e-4)
    assert compared(found).overall is Overall.REGRESSED


def test_a_case_that_lost_too_many_blocks_accuses_and_praises_nobody() -> None:
    states = {(block, BASE): CAPPED for block in range(11)}
    for factor in (0.5, 1.0, 3.0):
        found = lease(states, lambda block, arm, f=factor: 1e-4 * (f if arm == HEAD else 1.0))  # type: ignore[misc]
        assert compared(found).overall is Overall.INCONCLUSIVE
    head, base = written(found)
    for record in (head, base):
        assert not [name for name in record.evidence.metrics if name.startswith("latency/")]
        assert record.evidence.attributes["void.c"] == "11 of 40 blocks left out: power cap; at most 25% may be"
    assert "refused.c" not in head.evidence.attributes
    assert compared(lease(states, most_left_out=0.5)).overall is Overall.EQUIVALENT


def test_a_device_that_was_not_slowed_down_loses_nothing() -> None:
    head, _ = written(lease({}))
    assert head.evidence.attributes["clocks"] == "read by NVML"
    assert not [name for name in head.evidence.attributes if name.startswith(("left-out.", "void."))]
    assert head.rows is not None
    assert set(head.rows.column("arm").to_pylist()) == {HEAD}
    found = lease({})
    silent = replace(found, clocks=False)
    assert written(silent)[0].evidence.attributes["clocks"] == "not available"
