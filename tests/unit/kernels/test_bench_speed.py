"""The statistics of block times: level, power, coverage, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.ab import mann_whitney, state
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from assay.baselines.errors import InputError
from assay.baselines.stats.speed import (
    SpeedChange,
    detectable,
    median_interval,
    needed_blocks,
    paired_change,
    unpaired_change,
)

BLOCKS = 60
RUNS = 200


def drifting(chance: np.random.Generator, true: float, noise: float = 0.01) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Times of blocks that took turns on a machine that drifts by 5% and now and then stalls."""
    drift = np.cumsum(chance.normal(0, 0.006, BLOCKS))
    times = []
    for log_ratio in (0.0, np.log1p(true)):
        spikes = (chance.random(BLOCKS) < 0.03) * chance.exponential(0.5, BLOCKS)
        times.append(50e-6 * np.exp(drift + log_ratio + chance.normal(0, noise, BLOCKS) + spikes))
    return times[0], times[1]


def slower(true: float, margin: float = 0.01) -> float:
    """How often a true change is called slower."""
    chance = np.random.default_rng(5)
    hits = 0
    for seed in range(RUNS):
        found = paired_change(*drifting(chance, true), threshold=margin, draws=400, seed=seed)
        hits += found.p_slower < 0.05
    return hits / RUNS


def test_no_change_is_never_called_slower() -> None:
    assert slower(0.0) == 0.0


def test_a_change_of_the_margin_keeps_the_level() -> None:
    assert slower(0.01) <= 0.09


def test_two_and_five_per_cent_are_found() -> None:
    assert slower(0.02) > 0.9
    assert slower(0.05) == 1.0


def test_the_interval_covers_the_truth() -> None:
    chance = np.random.default_rng(6)
    covered = 0
    for seed in range(RUNS):
        found = paired_change(*drifting(chance, 0.03), draws=400, seed=seed)
        covered += found.low <= 0.03 <= found.high
    assert covered / RUNS > 0.9


def test_drift_between_two_leases_is_in_no_interval() -> None:
    base, head = drifting(np.random.default_rng(1), 0.0)
    found = unpaired_change(base, 1.2 * head)
    assert not found.paired
    assert found.change == pytest.approx(0.2, abs=0.03)
    assert found.p_slower < 0.01


@settings(deadline=None, max_examples=25)
@given(st.floats(0.3, 3.0), st.integers(0, 1000))
def test_swapping_the_arms_mirrors_the_change(ratio: float, seed: int) -> None:
    base, head = drifting(np.random.default_rng(seed), ratio - 1)
    one, other = (paired_change(a, b, threshold=0.02, draws=200) for a, b in ((base, head), (head, base)))
    assert (1 + one.change) * (1 + other.change) == pytest.approx(1)
    assert one.low <= one.change <= one.high
    assert one.bound_low >= one.low - 1e-12
    assert one.bound_high <= one.high + 1e-12
    assert one.p_slower == pytest.approx(other.p_faster, abs=0.02)


def test_identical_times_have_no_spread() -> None:
    found = paired_change([1e-3] * 8, [1e-3] * 8, threshold=0.02)
    assert (found.change, found.low, found.high, found.error) == (0.0, 0.0, 0.0, 0.0)
    assert found.p_slower == 1.0
    assert needed_blocks(found, 0.02, 0.02, 0.05, 0.8) is None


def seen(change: float, error: float) -> SpeedChange:
    ratio = float(np.log1p(change))
    return SpeedChange(change, 0, 0, ratio, error, 0.5, 0.5, 0, 0, BLOCKS, True)


def test_more_blocks_are_needed_near_the_margin() -> None:
    near, far = (needed_blocks(seen(c, 0.01), 0.02, 0.02, 0.05, 0.8) for c in (0.015, 0.0))
    assert near is not None
    assert far is not None
    assert near > far > BLOCKS
    assert needed_blocks(seen(0.0199, 0.01), 0.02, 0.02, 0.05, 0.8) is None
    # (1.645 + 0.842) * 0.01 has to shrink to log(1.02)
    assert far == pytest.approx(BLOCKS * (2.4865 * 0.01 / np.log(1.02)) ** 2, rel=0.02)


def test_detectable_shrinks_with_the_error() -> None:
    assert detectable(seen(0, 0.0), 0.02, 0.05, 0.8) == pytest.approx(0.02)
    assert detectable(seen(0, 0.01), 0.02, 0.05, 0.8) > detectable(seen(0, 0.001), 0.02, 0.05, 0.8) > 0.02


def test_median_interval_holds_the_median() -> None:
    middle, low, high = median_interval(np.random.default_rng(0).lognormal(0, 0.1, 101))
    assert low < middle < high


@pytest.mark.parametrize(
    ("base", "head", "message"),
    [
        ([1.0] * 7, [1.0] * 7, "7 blocks"),
        ([1.0] * 9, [1.0] * 8, "base has 9 blocks and head has 8"),
        ([1.0] * 8, [1.0] * 7 + [0.0], "head has a time that is not positive"),
        ([1.0] * 8, [1.0] * 7 + [float("nan")], "head has a time that is not positive"),
        ([[1.0] * 8], [1.0] * 8, "blocks"),
    ],
)
def test_what_cannot_be_compared(base: list[float], head: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        paired_change(base, head)


def test_mann_whitney_is_scipys() -> None:
    chance = np.random.default_rng(2)
    for a, b in (
        (chance.normal(size=40), chance.normal(0.6, size=35)),
        (chance.integers(0, 5, 40).astype(float), chance.integers(0, 6, 40).astype(float)),
        (np.ones(5), np.ones(5)),
    ):
        expected = 1.0 if np.ptp(np.concatenate([a, b])) == 0 else stats.mannwhitneyu(a, b, method="asymptotic").pvalue
        assert mann_whitney(a, b) == pytest.approx(expected, rel=1e-9)


def test_states_of_the_benchmark_are_those_of_the_gate() -> None:
    chance = np.random.default_rng(3)
    assert state(*drifting(chance, 0.05, 0.002), 0.01)[0] == "slower"
    assert state(*drifting(chance, -0.05, 0.002), 0.01)[0] == "faster"
    assert state(*drifting(chance, 0.0, 0.002), 0.01)[0] == "same"
    assert state(*drifting(np.random.default_rng(4), 0.01, 0.02), 0.01)[0] == "ambiguous"
