"""Intervals against published tables, a second solver, and by their coverage."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom, multinomial, norm
from statsmodels.stats.proportion import proportion_confint

from assay.baselines.errors import InputError
from assay.baselines.stats import intervals

# Fagerland, Lydersen and Laake 2014, Stat Med 33:2850: (both right, fixed, broke, both wrong), D = head - base.
CAVO = (59, 6, 16, 80)
BENTUR = (1, 1, 7, 12)


@st.composite
def paired(draw: st.DrawFn) -> tuple[int, int, int]:
    n = draw(st.integers(1, 3000))
    b = draw(st.integers(0, n))
    return b, draw(st.integers(0, n - b)), n


@pytest.mark.parametrize(
    ("method", "table", "low", "high"),
    [
        ("wald", CAVO, -0.1184, -0.0058),
        ("wald", BENTUR, -0.5197, -0.0517),
        ("agresti_min", CAVO, -0.1182, -0.0045),
        ("agresti_min", BENTUR, -0.4932, -0.0285),
        ("bonett_price", CAVO, -0.1195, -0.0032),
        ("bonett_price", BENTUR, -0.5084, -0.0134),
        ("tango", CAVO, -0.1240, -0.0054),
        ("tango", BENTUR, -0.5172, -0.0260),
    ],
)
def test_published_intervals(method: str, table: tuple[int, int, int, int], low: float, high: float) -> None:
    _, fixed, broke, _ = table
    interval = getattr(intervals, method)(broke, fixed, sum(table))
    assert interval == pytest.approx((low, high), abs=5.5e-5)


@pytest.mark.parametrize(("table", "low", "high"), [(CAVO, -0.1186, -0.0046), (BENTUR, -0.5069, -0.0256)])
def test_published_newcombe(table: tuple[int, int, int, int], low: float, high: float) -> None:
    both_right, fixed, broke, both_wrong = table
    assert intervals.newcombe(both_right, broke, fixed, both_wrong) == pytest.approx((low, high), abs=5.5e-5)


def test_approval_ratings_of_agresti() -> None:
    # Agresti 2002, section 10.1.1: -0.04 +- 1.96 * 0.0095, that is (-0.06, -0.02), at 794, 150, 86, 570.
    interval = intervals.wald(150, 86, 1600)
    assert interval == pytest.approx((-0.06, -0.02), abs=0.0015)
    assert (interval.high - interval.low) / 2 / 1.96 == pytest.approx(0.0095, abs=5e-5)


def test_example_of_the_house_style() -> None:
    assert intervals.tango(61, 36, 1000) == pytest.approx((-0.0449, -0.0058), abs=5e-5)


@pytest.mark.parametrize("n", [1, 2, 10, 200, 14_042])
@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95, 0.999])
def test_no_flips_gives_the_closed_form(n: int, confidence: float) -> None:
    z2 = norm.ppf(0.5 + confidence / 2) ** 2
    assert intervals.tango(0, 0, n, confidence) == pytest.approx((-z2 / (n + z2), z2 / (n + z2)), abs=1e-12)


def test_two_hundred_identical_examples_do_not_prove_a_margin_of_one_point() -> None:
    assert intervals.tango(0, 0, 200).low == pytest.approx(-0.0188, abs=5e-5)


def test_everything_flips() -> None:
    interval = intervals.tango([20, 0, 10], [0, 20, 10], 20)
    assert interval.low[0] == pytest.approx(-1, abs=1e-12)
    assert interval.high[1] == pytest.approx(1, abs=1e-12)
    assert -1 < interval.low[2] < 0 < interval.high[2] < 1
    assert interval.high[0] == pytest.approx(-interval.low[1], abs=1e-12)


@given(paired(), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
@settings(deadline=None, max_examples=150)
def test_tango_solves_its_equation(counts: tuple[int, int, int], confidence: float) -> None:
    """An independent statement of the score, solved by Brent's method."""
    b, c, n = counts
    z = norm.ppf(0.5 + confidence / 2)

    def score(d: float) -> float:
        big_b = -c - b + (2 * n - c + b) * d
        disc = max(big_b**2 - 8 * n * (-b * d * (1 - d)), 0.0)
        q = max((math.sqrt(disc) - big_b) / (4 * n), -min(d, 0.0), 0.0)
        spread = math.sqrt(max(n * (2 * q + d * (1 - d)), 0.0))
        return (c - b - n * d) / spread if spread > 1e-9 else math.copysign(1e9, c - b - n * d)

    low, high = intervals.tango(b, c, n, confidence)
    edge, estimate = 1 - 1e-9, (c - b) / n
    if high < edge:
        assert brentq(lambda d: score(d) + z, min(estimate + 1e-12, edge), edge, xtol=1e-13) == pytest.approx(
            float(high), abs=1e-8
        )
    if low > -edge:
        assert brentq(lambda d: score(d) - z, -edge, max(estimate - 1e-12, -edge), xtol=1e-13) == pytest.approx(
            float(low), abs=1e-8
        )


@given(paired())
@settings(deadline=None, max_examples=150)
def test_bounds_order_and_symmetry(counts: tuple[int, int, int]) -> None:
    b, c, n = counts
    estimate = (c - b) / n
    for method in (intervals.tango, intervals.wald, intervals.agresti_min, intervals.bonett_price):
        low, high = method(b, c, n)
        assert -1 <= low <= high <= 1
        assert method(c, b, n) == pytest.approx((-high, -low), abs=1e-12)
    low, high = intervals.tango(b, c, n)
    assert low <= estimate + 1e-12
    assert estimate <= high + 1e-12
    wide = intervals.tango(b, c, n, 0.99)
    assert wide.low <= low
    assert high <= wide.high
    right = (n - b - c) // 2
    square = intervals.newcombe(right, b, c, n - b - c - right)
    assert -1 - 1e-12 <= square.low <= estimate <= square.high <= 1 + 1e-12


@given(paired())
@settings(deadline=None, max_examples=60)
def test_tango_moves_with_the_data(counts: tuple[int, int, int]) -> None:
    b, c, n = counts
    if b + c == n:
        return
    before, after = intervals.tango(b, c, n), intervals.tango(b + 1, c, n)
    assert after.low < before.low + 1e-12
    assert after.high < before.high + 1e-12


@given(paired())
@settings(deadline=None, max_examples=100)
def test_tango_excludes_zero_as_the_score_test_does(counts: tuple[int, int, int]) -> None:
    """At zero the score is McNemar's z, so interval and asymptotic test cannot disagree."""
    b, c, n = counts
    z = (c - b) / math.sqrt(b + c) if b + c else 0.0
    if abs(abs(z) - 1.959964) < 1e-6:
        return
    low, high = intervals.tango(b, c, n)
    assert (low > 0 or high < 0) == (abs(z) > 1.959964)


def test_coverage_by_enumeration() -> None:
    """Every table of 40 examples, weighted by its probability: Tango keeps its level where Wald does not."""
    n = 40
    tables = np.array([(b, c) for b, c in itertools.product(range(n + 1), repeat=2) if b + c <= n])
    b, c = tables.T
    tango, wald = intervals.tango(b, c, n), intervals.wald(b, c, n)
    for p_broke, p_fixed in [(0.05, 0.05), (0.1, 0.02), (0.02, 0.2), (0.3, 0.1), (0.02, 0.001)]:
        weight = multinomial.pmf(np.column_stack((b, c, n - b - c)), n, [p_broke, p_fixed, 1 - p_broke - p_fixed])
        truth = p_fixed - p_broke
        assert weight[(tango.low <= truth) & (truth <= tango.high)].sum() > 0.925
        if p_fixed == 0.001:
            assert weight[(wald.low <= truth) & (truth <= wald.high)].sum() < 0.6


def test_one_sided_coverage_at_gate_sizes() -> None:
    """The bound that "not worse by more than" uses: 95% one-sided is the end of a 90% interval."""
    rng = np.random.default_rng(11)
    for n, churn, drop in [(500, 0.06, 0.01), (2000, 0.04, 0.005), (1000, 0.1, 0.0)]:
        counts = rng.multinomial(n, [(churn + drop) / 2, (churn - drop) / 2, 1 - churn], size=20_000)
        low = intervals.tango(counts[:, 0], counts[:, 1], n, 0.9).low
        assert np.mean(low <= -drop) == pytest.approx(0.95, abs=0.008)


@pytest.mark.parametrize(("n", "churn"), [(200, 0.06), (200, 0.16), (1000, 0.06), (1000, 0.16), (4000, 0.16)])
def test_a_drop_of_the_margin_is_called_harmless_in_five_per_cent(n: int, churn: float) -> None:
    """Exactly, over all numbers of discordant examples and all splits of them."""
    drop, total = 0.01, 0.0
    reach = 7 * math.sqrt(n * churn)
    for discordant in range(max(0, int(n * churn - reach)), int(n * churn + reach) + 1):
        broke = np.arange(discordant + 1)
        chance = binom.pmf(discordant, n, churn) * binom.pmf(broke, discordant, (churn + drop) / (2 * churn))
        low = intervals.tango(broke, discordant - broke, n, 0.9).low
        total += chance[low > -drop].sum()
    assert total == pytest.approx(0.05, abs=0.0015)


def test_fractional_counts_scale_with_the_design_effect() -> None:
    plain, halved = intervals.tango(40, 20, 1000), intervals.tango(20, 10, 500)
    assert intervals.tango(40 / 2, 20 / 2, 1000 / 2) == pytest.approx(halved, abs=1e-12)
    assert halved.low < plain.low


def test_wilson_against_statsmodels() -> None:
    for k, n in [(0, 10), (3, 10), (10, 10), (81, 263), (7, 14_042)]:
        expected = proportion_confint(k, n, method="wilson")
        assert intervals.wilson(k, n) == pytest.approx(expected, abs=1e-12)
    # Newcombe 1998, Stat Med 17:857, method 3: 81 of 263 gives 0.2553 to 0.3662.
    assert intervals.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 4, 5), "more than n"),
        ((0, 0, 0), "at least one"),
        ((-1, 0, 5), "negative"),
        ((1, 1, float("nan")), "finite"),
    ],
)
def test_bad_counts(arguments: tuple[float, float, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        intervals.tango(*arguments)


@pytest.mark.parametrize("confidence", [0, 1, 1.5, -0.1, float("nan")])
def test_bad_confidence(confidence: float) -> None:
    with pytest.raises(InputError, match="confidence"):
        intervals.tango(1, 2, 10, confidence)
