"""Sign-flip permutation against enumeration by hand, McNemar, SciPy, and by simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import permutation_test, ttest_1samp

from assay.baselines.errors import InputError
from assay.baselines.stats import intervals, mcnemar
from assay.baselines.stats.permutation import mean_interval, paired_permutation

# Darwin's Zea mays: 15 pairs, cross- minus self-fertilised, in eighths of an inch (Fisher 1935, The Design of
# Experiments, section 21): 863 of 32,768 sign patterns have a sum of at least 314, one-sided.
DARWIN = np.array([49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48], dtype=float)


def test_fishers_count_for_darwins_maize() -> None:
    result = paired_permutation(np.zeros(15), DARWIN, span=100)
    assert result.exact
    assert result.p_better == 863 / 32_768
    assert result.p_two_sided == 1726 / 32_768
    assert result.difference == pytest.approx(314 / 15)


@given(st.lists(st.integers(-6, 6), min_size=2, max_size=9))
@settings(deadline=None, max_examples=60)
def test_agrees_with_enumeration(values: list[int]) -> None:
    d = np.array(values) / 4
    result = paired_permutation(np.zeros(d.size), d, span=2)
    sums = np.array([np.dot(signs, d) for signs in itertools.product([-1, 1], repeat=d.size)])
    assert result.p_worse == pytest.approx(np.mean(sums <= d.sum() + 1e-9))
    assert result.p_better == pytest.approx(np.mean(sums >= d.sum() - 1e-9))
    assert result.p_two_sided == pytest.approx(np.mean(np.abs(sums) >= abs(d.sum()) - 1e-9))


def test_sums_that_tie_up_to_rounding_count_as_ties() -> None:
    # 0.1 + 0.2 - 0.3 is 5.6e-17 in floating point; as tenths, 5 of the 8 sums are at most 0, and 5 at least 0.
    for d in ([0.1, 0.2, -0.3], [-0.1, -0.2, 0.3], [0.3, -0.1, -0.2], [-0.3, 0.2, 0.1]):
        result = paired_permutation(np.zeros(3), d)
        assert (result.p_worse, result.p_better, result.p_two_sided) == (0.625, 0.625, 1.0)


def test_binary_scores_are_mcnemars_exact_test() -> None:
    for b, c in [(8, 4), (0, 3), (12, 0), (0, 0)]:
        base = np.array([1] * b + [0] * c + [1] * 50)
        head = np.array([0] * b + [1] * c + [1] * 50)
        result = paired_permutation(base, head)
        assert result.p_worse == pytest.approx(float(mcnemar.exact_worse(b, c)))
        assert result.p_two_sided == pytest.approx(float(mcnemar.exact(b, c)))
        assert (result.nonzero, result.n) == (b + c, b + c + 50)


def test_agrees_with_scipy() -> None:
    rng = np.random.default_rng(0)
    base, head = rng.random(12), rng.random(12)
    expected = permutation_test(
        (head, base), lambda x, y: np.mean(x - y), permutation_type="samples", alternative="less"
    )
    assert paired_permutation(base, head).p_worse == pytest.approx(expected.pvalue)


@pytest.mark.parametrize("grid", [False, True], ids=["distinct", "repeated"])
def test_draws_agree_with_the_normal_limit(grid: bool) -> None:
    """Both ways of drawing: one sign per pair, and one binomial per size of difference."""
    rng = np.random.default_rng(1)
    head = rng.normal(-0.03, 0.3, size=400).clip(-1, 1)
    if grid:
        head = np.round(head * 4) / 4
    result = paired_permutation(np.zeros(400), head, draws=40_000, seed=3)
    z = head.sum() / np.sqrt(np.sum(head**2))
    assert not result.exact
    assert result.p_worse == pytest.approx(float(ndtr(z)), abs=0.01)
    assert result.p_better == pytest.approx(float(ndtr(-z)), abs=0.01)


def test_draws_are_seeded_and_never_zero() -> None:
    rng = np.random.default_rng(2)
    head = rng.random(100) * 0.5
    first = paired_permutation(np.full(100, 0.9), head, draws=999, seed=5)
    assert first == paired_permutation(np.full(100, 0.9), head, draws=999, seed=5)
    assert first.p_worse == 1 / 1000
    assert first.p_better == 1.0


def test_swapping_base_and_head() -> None:
    rng = np.random.default_rng(3)
    for n in (10, 200):
        base, head = rng.random(n), rng.random(n)
        result, swapped = paired_permutation(base, head), paired_permutation(head, base)
        assert swapped.p_worse == pytest.approx(result.p_better, abs=0.02)
        assert swapped.interval == pytest.approx((-result.interval.high, -result.interval.low))


def test_type_one_error_by_simulation() -> None:
    rng = np.random.default_rng(4)
    rejected = 0
    for _ in range(600):
        d = rng.choice([-0.75, -0.25, 0.0, 0.25, 0.75], p=[0.1, 0.15, 0.5, 0.15, 0.1], size=80)
        rejected += paired_permutation(np.zeros(80), d, draws=999).p_worse < 0.05
    assert rejected / 600 < 0.075


def test_interval_of_binary_scores_is_bonett_and_prices() -> None:
    d = np.repeat([-1.0, 1.0, 0.0], [61, 36, 903])
    assert mean_interval(d) == pytest.approx(tuple(intervals.bonett_price(61, 36, 1000)), abs=1e-4)


def test_interval_approaches_students_t() -> None:
    d = np.random.default_rng(5).normal(0.01, 0.2, size=4000).clip(-1, 1)
    expected = ttest_1samp(d, 0).confidence_interval()
    assert mean_interval(d) == pytest.approx((expected.low, expected.high), abs=1e-3)


@pytest.mark.parametrize("n", [40, 300])
@pytest.mark.parametrize("moved", [0.05, 0.4])
def test_coverage_by_simulation(n: int, moved: float) -> None:
    """Scores on a grid of quarters, of which few or many move."""
    rng = np.random.default_rng(6)
    steps, chances = np.array([-1.0, -0.5, -0.25, 0.25, 0.5]), np.array([0.15, 0.25, 0.2, 0.25, 0.15])
    truth = moved * float(steps @ chances)
    covered = 0
    for _ in range(1500):
        d = rng.choice(steps, p=chances, size=n) * (rng.random(n) < moved)
        low, high = mean_interval(d)
        covered += low <= truth <= high
    assert covered / 1500 > 0.935


def test_no_differences_prove_no_equality() -> None:
    low, high = mean_interval(np.zeros(200))
    assert low == pytest.approx(-high)
    assert 0.01 < high < 0.02
    assert mean_interval([0.5, 0.5], span=0.5).high <= 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: paired_permutation([1.0], [1.0]), "at least 2"),
        (lambda: paired_permutation([1.0, 2.0], [1.0]), "equal length"),
        (lambda: paired_permutation([1.0, float("inf")], [1.0, 0.0]), "not finite"),
        (lambda: paired_permutation(np.zeros(30), np.arange(30) / 30, draws=10), "at least 100"),
        (lambda: paired_permutation([0.0, 0.0], [5.0, 1.0]), "span"),
        (lambda: mean_interval([0.1]), "at least 2"),
    ],
)
def test_bad_input(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]
