"""The confidence sequence: its algebra, its level under optional stopping, and its coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.baselines.errors import InputError
from assay.baselines.stats import intervals, mcnemar, sequential

CHUNK, CHUNKS = 50, 40


@st.composite
def paired(draw: st.DrawFn) -> tuple[int, int, int]:
    n = draw(st.integers(1, 2000))
    b = draw(st.integers(0, n))
    return b, draw(st.integers(0, n - b)), n


def paths(churn: float, difference: float, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cumulative (broke, fixed, n) of `runs` evaluations that grow chunk by chunk; shapes (runs, chunks)."""
    rng = np.random.default_rng(seed)
    rates = [(churn - difference) / 2, (churn + difference) / 2, 1 - churn]
    counts = rng.multinomial(CHUNK, rates, size=(runs, CHUNKS)).cumsum(axis=1)
    return counts[..., 0], counts[..., 1], np.arange(1, CHUNKS + 1) * CHUNK


def test_published_e_values_of_the_reference() -> None:
    assert sequential.beta_e_value([6, 7], [0, 0]) == pytest.approx([18.14, 31.87], abs=0.006)
    # The two-sided mixture 2^n B(b + 1, c + 1) is the mean of both one-sided ones.
    both = [(sequential.beta_e_value(b, 0) + sequential.beta_e_value(0, b)) / 2 for b in (7, 8)]
    assert both == pytest.approx([16.0, 28.44], abs=0.005)


def test_reference_is_the_mixture_it_claims_to_be() -> None:
    for b, c in [(0, 0), (3, 1), (10, 14), (40, 22)]:
        p = np.linspace(0.5, 1, 200_001)
        density = (2 * p) ** b * (2 * (1 - p)) ** c
        assert sequential.beta_e_value(b, c) == pytest.approx(np.trapezoid(density, p) * 2, rel=1e-6)


@pytest.mark.parametrize("null", [-0.3, -0.01, 0.0, 0.005, 0.4])
def test_agrees_with_the_product_of_bets(null: float) -> None:
    """Example by example, stake by stake, as the definition says, in three different orders."""
    rng = np.random.default_rng(1)
    for b, c, n in [(0, 0, 5), (4, 0, 30), (7, 9, 60), (20, 3, 23)]:
        outcomes = np.repeat([-1.0, 1.0, 0.0], [b, c, n - b - c])
        for _ in range(3):
            rng.shuffle(outcomes)
            total = 0.0
            for fraction, weight in zip(sequential._STAKES, sequential._PRIOR, strict=True):
                stake, capital = fraction / (1 - null), 1.0
                for x in outcomes:
                    capital *= 1 + stake * (null - x)
                total += weight * capital
            assert sequential.e_worse(b, c, n, null) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize("null", [-0.02, 0.0, 0.01])
def test_a_bet_is_fair_at_the_boundary_of_the_hypothesis(null: float) -> None:
    """Given any past, the expected capital after one more example is the present capital (a martingale)."""
    for b, c, n in [(0, 0, 1), (5, 2, 80), (30, 40, 900)]:
        for churn in (max(abs(null), 0.02), 0.3):
            p_broke, p_fixed = (churn - null) / 2, (churn + null) / 2
            after = (
                p_broke * sequential.e_worse(b + 1, c, n + 1, null)
                + p_fixed * sequential.e_worse(b, c + 1, n + 1, null)
                + (1 - churn) * sequential.e_worse(b, c, n + 1, null)
            )
            assert after == pytest.approx(float(sequential.e_worse(b, c, n, null)), rel=1e-9)
            better = churn + 0.05
            inside = (
                p_broke * sequential.e_worse(b + 1, c, n + 1, null)
                + (better - p_broke) * sequential.e_worse(b, c + 1, n + 1, null)
                + (1 - better) * sequential.e_worse(b, c, n + 1, null)
            )
            assert inside <= sequential.e_worse(b, c, n, null)


@given(paired(), st.floats(-0.5, 0.5))
@settings(deadline=None, max_examples=100)
def test_symmetry_and_monotony(counts: tuple[int, int, int], null: float) -> None:
    b, c, n = counts
    assert sequential.log_e_better(c, b, n, -null) == pytest.approx(float(sequential.log_e_worse(b, c, n, null)))
    assert sequential.log_e_worse(b, c, n, null + 0.01) >= sequential.log_e_worse(b, c, n, null)
    low, high = sequential.confidence_sequence(b, c, n)
    assert -1 <= low <= (c - b) / n + 1e-9
    assert (c - b) / n - 1e-9 <= high <= 1
    assert sequential.confidence_sequence(c, b, n) == pytest.approx((-high, -low), abs=1e-9)
    wider = sequential.confidence_sequence(b, c, n, 0.99)
    assert wider.low <= low + 1e-9
    assert high <= wider.high + 1e-9
    assert 0 <= sequential.anytime_p_worse(b, c, n) <= 1


@given(paired(), st.floats(-0.3, 0.3))
@settings(deadline=None, max_examples=80)
def test_interval_and_e_value_say_the_same(counts: tuple[int, int, int], null: float) -> None:
    b, c, n = counts
    rejected = bool(sequential.e_worse(b, c, n, null) >= 20)
    bound = float(sequential.upper_bound(b, c, n, 0.05))
    if abs(bound - null) > 1e-9:
        assert rejected == (bound < null)


def test_wider_than_the_fixed_sample_interval() -> None:
    for b, c, n in [(0, 0, 200), (8, 4, 200), (61, 36, 1000), (300, 280, 14_042)]:
        fixed, grown = intervals.tango(b, c, n), sequential.confidence_sequence(b, c, n)
        assert grown.low < fixed.low
        assert fixed.high < grown.high


@pytest.mark.parametrize("churn", [0.02, 0.06, 0.15, 0.4])
def test_type_one_error_when_looking_after_every_chunk(churn: float) -> None:
    """No change, 40 looks: the e-value keeps 5%; the fixed-sample mid-p does not."""
    b, c, n = paths(churn, 0.0, 4000, seed=13)
    ever = (sequential.log_e_worse(b, c, n) >= math.log(20)).any(axis=1)
    assert ever.mean() < 0.05 + 0.007
    if churn >= 0.06:
        assert (mcnemar.midp_worse(b, c) < 0.05).any(axis=1).mean() > 0.12


@pytest.mark.parametrize(("churn", "margin"), [(0.02, 0.01), (0.06, 0.01), (0.15, 0.02)])
def test_type_one_error_of_not_worse_than_the_margin(churn: float, margin: float) -> None:
    """A drop of exactly the margin is called "not worse" at most 5% of the time, at any look."""
    b, c, n = paths(churn, -margin, 4000, seed=17)
    ever = (sequential.log_e_better(b, c, n, -margin) >= math.log(20)).any(axis=1)
    assert ever.mean() < 0.05 + 0.007


@pytest.mark.parametrize(("churn", "difference"), [(0.05, 0.0), (0.08, -0.02), (0.1, 0.05)])
def test_covers_at_every_look_at_once(churn: float, difference: float) -> None:
    b, c, n = paths(churn, difference, 500, seed=19)
    low, high = sequential.confidence_sequence(b, c, n)
    covered = ((low <= difference) & (difference <= high)).all(axis=1)
    assert covered.mean() > 0.95 - 0.02
    width = (high - low).mean(axis=0)
    assert width[-1] < width[4] / 2


def test_scores_agree_with_counts() -> None:
    rng = np.random.default_rng(4)
    differences = rng.choice([-1.0, 0.0, 1.0], p=[0.08, 0.87, 0.05], size=700)
    b, c = int((differences < 0).sum()), int((differences > 0).sum())
    for null in (-0.02, 0.0, 0.03):
        assert sequential.log_e_worse_scores(differences, null) == pytest.approx(
            float(sequential.log_e_worse(b, c, 700, null)), rel=1e-9, abs=1e-9
        )
    assert sequential.confidence_sequence_scores(differences) == pytest.approx(
        tuple(sequential.confidence_sequence(b, c, 700)), abs=1e-9
    )
    # In another unit everything scales.
    scaled = sequential.confidence_sequence_scores(differences * 100, span=100)
    assert scaled == pytest.approx(tuple(100 * x for x in sequential.confidence_sequence(b, c, 700)), abs=1e-7)
    assert sequential.log_e_better_scores(-differences, 0.01) == pytest.approx(
        sequential.log_e_worse_scores(differences, -0.01)
    )


def test_scores_cover_at_every_look() -> None:
    rng = np.random.default_rng(23)
    misses = 0
    for _ in range(150):
        d = np.clip(rng.normal(-0.02, 0.2, size=600), -1, 1) * (rng.random(600) < 0.5)
        truth = -0.01
        misses += any(
            not low <= truth <= high
            for low, high in (sequential.confidence_sequence_scores(d[:n]) for n in range(100, 601, 100))
        )
    assert misses <= 15


def test_expected_examples_reach_the_threshold() -> None:
    for churn, drop in [(0.04, 0.02), (0.1, 0.05), (0.02, 0.02)]:
        n = int(sequential.examples_to_decide_sequential(churn, drop))
        b, c = n * (churn + drop) / 2, n * (churn - drop) / 2
        assert sequential.log_e_worse(math.ceil(b), math.floor(c), n) >= math.log(20) - 0.5
        assert sequential.log_e_worse(math.floor(b * 0.9), math.ceil(c * 0.9), n) < math.log(20)
    assert math.isinf(sequential.examples_to_decide_sequential(0.1, 0.0))
    assert math.isinf(sequential.examples_to_bound_sequential(0.1, 0.03, 0.02, side="worse"))
    assert math.isfinite(sequential.examples_to_bound_sequential(0.1, -0.03, 0.02, side="worse"))
    assert math.isinf(sequential.examples_to_bound_sequential(0.1, -0.03, 0.02, side="both"))
    grid = sequential.examples_to_decide_sequential([0.02, 0.05, 0.1], 0.02)
    assert (np.diff(grid) > 0).all()


def test_expected_examples_are_near_the_median_stopping_time() -> None:
    b, c, n = paths(0.08, -0.04, 2000, seed=29)
    crossed = sequential.log_e_worse(b, c, n) >= math.log(20)
    first = np.where(crossed.any(axis=1), n[crossed.argmax(axis=1)], n[-1] * 2)
    assert np.median(first) == pytest.approx(float(sequential.examples_to_decide_sequential(0.08, 0.04)), rel=0.15)


def test_extremes() -> None:
    assert math.isinf(sequential.e_worse(5000, 0, 5000))
    assert sequential.log_e_worse(5000, 0, 5000) > 3000
    assert sequential.anytime_p_worse(5000, 0, 5000) < 1e-300
    assert sequential.confidence_sequence(5000, 0, 5000).low == pytest.approx(-1, abs=1e-9)
    low, high = sequential.confidence_sequence(0, 0, 1)
    assert low < -0.9
    assert high > 0.9
    assert sequential.confidence_sequence(np.zeros(57), np.zeros(57), np.full(57, 200)).low.shape == (57,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sequential.e_worse(3, 3, 5), "more than n"),
        (lambda: sequential.e_worse(1, 1, 5, null=1.0), "between -1 and 1"),
        (lambda: sequential.lower_bound(1, 1, 5, alpha=0.0), "alpha"),
        (lambda: sequential.confidence_sequence_scores([0.1, 2.0]), "outside"),
        (lambda: sequential.confidence_sequence_scores([0.1, float("nan")]), "finite"),
        (lambda: sequential.confidence_sequence_scores([]), "at least one"),
    ],
)
def test_bad_input(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]
