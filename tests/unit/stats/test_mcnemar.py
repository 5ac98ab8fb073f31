"""McNemar's tests against published tables, statsmodels, SciPy's binomial, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar

from assay.baselines.errors import InputError
from assay.baselines.stats import mcnemar

counts = st.integers(0, 400)


# Fagerland, Lydersen and Laake 2013, BMC Med Res Methodol 13:91, tables of Bentur (2009) and Cavo (2012).
@pytest.mark.parametrize(
    ("broke", "fixed", "asymptotic", "continuity", "exact", "midp"),
    [(1, 7, 0.033895, 0.077100, 0.070312, 0.039062), (6, 16, 0.033006, 0.055009, 0.052479, 0.034690)],
    ids=["bentur", "cavo"],
)
def test_published_p_values(
    broke: int, fixed: int, asymptotic: float, continuity: float, exact: float, midp: float
) -> None:
    assert mcnemar.asymptotic(broke, fixed) == pytest.approx(asymptotic, abs=6e-7)
    assert mcnemar.asymptotic(broke, fixed, continuity=True) == pytest.approx(continuity, abs=6e-7)
    assert mcnemar.exact(broke, fixed) == pytest.approx(exact, abs=6e-7)
    assert mcnemar.midp(broke, fixed) == pytest.approx(midp, abs=6e-7)


def test_approval_ratings_of_agresti() -> None:
    # Agresti, Categorical Data Analysis (2nd ed. 2002), section 10.1: 794, 150, 86, 570; z^2 = 17.36.
    p = mcnemar.asymptotic(150, 86)
    assert p == pytest.approx(3.0993e-5, rel=1e-4)


# The trap: at 200 examples a drop of two points is four net flips.
@pytest.mark.parametrize(
    ("broke", "fixed", "exact", "midp_worse"), [(4, 0, 0.125, 0.031), (8, 4, 0.388, None), (12, 0, 0.0005, None)]
)
def test_four_net_flips(broke: int, fixed: int, exact: float, midp_worse: float | None) -> None:
    assert mcnemar.exact(broke, fixed) == pytest.approx(exact, abs=5e-4)
    if midp_worse is not None:
        assert mcnemar.midp_worse(broke, fixed) == pytest.approx(midp_worse, abs=5e-4)


def test_pooled_flips() -> None:
    assert mcnemar.exact([12, 18, 24], [0, 6, 12]) == pytest.approx([0.0005, 0.0227, 0.0652], abs=5e-5)


def test_fewest_one_way_flips_below_five_per_cent() -> None:
    flips = np.arange(1, 12)
    fewest = {
        name: int(flips[test(flips, 0) < 0.05][0])
        for name, test in [
            ("exact", mcnemar.exact),
            ("exact_worse", mcnemar.exact_worse),
            ("midp", mcnemar.midp),
            ("midp_worse", mcnemar.midp_worse),
        ]
    }
    assert fewest == {"exact": 6, "exact_worse": 5, "midp": 5, "midp_worse": 4}


def test_example_of_the_house_style() -> None:
    assert mcnemar.midp_worse(61, 36) == pytest.approx(0.0056, abs=5e-5)
    assert mcnemar.exact(61, 36) == pytest.approx(0.0144, abs=5e-5)


def test_agrees_with_statsmodels_on_every_small_table() -> None:
    for b in range(31):
        for c in range(31):
            if b + c == 0:
                continue
            table = [[5, b], [c, 5]]
            assert mcnemar.exact(b, c) == pytest.approx(statsmodels_mcnemar(table, exact=True).pvalue, rel=1e-10)
            plain = statsmodels_mcnemar(table, exact=False, correction=False).pvalue
            assert mcnemar.asymptotic(b, c) == pytest.approx(plain, rel=1e-10)
            if b != c:
                corrected = statsmodels_mcnemar(table, exact=False, correction=True).pvalue
                assert mcnemar.asymptotic(b, c, continuity=True) == pytest.approx(corrected, rel=1e-10)


def test_equal_counts_are_no_evidence_with_or_without_correction() -> None:
    # R's mcnemar.test does not correct a statistic of zero; statsmodels does, and finds p = 0.32 in one pair each way.
    assert mcnemar.asymptotic([1, 7, 0], [1, 7, 0], continuity=True) == pytest.approx([1.0, 1.0, 1.0])


def test_midp_of_equal_counts() -> None:
    # 1 - P[X = n/2] / 2: with 3 and 3, 1 - (20 / 64) / 2; with nothing discordant, 1 - 1/2.
    assert mcnemar.midp([3, 0], [3, 0]) == pytest.approx([1 - 10 / 64, 0.5])


@pytest.mark.parametrize("n", [0, 1, 2, 7, 20])
def test_agrees_with_enumeration(n: int) -> None:
    """Every one of the 2^n ways to assign n discordant pairs, counted."""
    patterns = np.arange(2**n, dtype=np.uint64)
    broken = np.zeros(patterns.size, dtype=int)
    for bit in range(n):
        broken += ((patterns >> np.uint64(bit)) & np.uint64(1)).astype(int)
    for b in range(n + 1):
        at_least, equal = np.mean(broken >= b), np.mean(broken == b)
        assert mcnemar.exact_worse(b, n - b) == pytest.approx(at_least, rel=1e-12)
        assert mcnemar.midp_worse(b, n - b) == pytest.approx(at_least - equal / 2, rel=1e-12)
        far = np.mean(np.abs(2 * broken - n) >= abs(2 * b - n))
        assert mcnemar.exact(b, n - b) == pytest.approx(far, rel=1e-12)


@given(counts, counts)
@settings(deadline=None, max_examples=200)
def test_swapping_base_and_head(b: int, c: int) -> None:
    for test in (mcnemar.exact, mcnemar.midp, mcnemar.asymptotic):
        assert test(b, c) == pytest.approx(test(c, b), rel=1e-12)
    assert mcnemar.midp_worse(b, c) == pytest.approx(mcnemar.midp_better(c, b), rel=1e-12)
    assert mcnemar.midp_worse(b, c) + mcnemar.midp_better(b, c) == pytest.approx(1.0, abs=1e-10)


@given(counts, counts)
@settings(deadline=None, max_examples=200)
def test_bounds_and_order(b: int, c: int) -> None:
    exact, midp = mcnemar.exact(b, c), mcnemar.midp(b, c)
    assert 0 < midp <= exact <= 1
    assert 0 < mcnemar.midp_worse(b, c) <= mcnemar.exact_worse(b, c) <= 1
    assert mcnemar.midp_worse(b + 1, c) < mcnemar.midp_worse(b, c) + 1e-15
    assert mcnemar.exact_worse(b, c) == pytest.approx(float(binom.sf(b - 1, b + c, 0.5)), rel=1e-9)


def test_arrays_broadcast_and_scalars_stay_scalars() -> None:
    grid = mcnemar.midp(np.arange(5)[:, None], np.arange(3))
    assert grid.shape == (5, 3)
    assert grid[4, 1] == mcnemar.midp(4, 1)
    assert isinstance(mcnemar.exact(3, 4), np.float64)


def test_large_counts_stay_accurate() -> None:
    b, c = 1_001_000, 1_000_000
    z = (b - c) / np.sqrt(b + c)
    assert mcnemar.midp_worse(b, c) == pytest.approx(float(binom.sf(b - 1, b + c, 0.5) - binom.pmf(b, b + c, 0.5) / 2))
    assert mcnemar.midp(b, c) == pytest.approx(float(mcnemar.asymptotic(b, c)), rel=1e-3)
    assert z == pytest.approx(0.7069, abs=1e-4)
    assert 0 < mcnemar.midp_worse(900, 0) < 1e-250


@pytest.mark.parametrize("discordant", [6, 12, 25, 60, 150])
def test_type_one_error_given_discordant_counts(discordant: int) -> None:
    """Exact sizes: the exact test never exceeds alpha; mid-p may, by little, at a fixed count."""
    b = np.arange(discordant + 1)
    chance = binom.pmf(b, discordant, 0.5)
    assert chance[mcnemar.exact(b, discordant - b) < 0.05].sum() <= 0.05
    assert chance[mcnemar.exact_worse(b, discordant - b) < 0.05].sum() <= 0.05
    assert chance[mcnemar.midp_worse(b, discordant - b) < 0.05].sum() <= 0.0735


@pytest.mark.parametrize(("n", "churn"), [(200, 0.06), (500, 0.1), (1000, 0.04), (2000, 0.16)])
def test_type_one_error_by_simulation(n: int, churn: float) -> None:
    rng = np.random.default_rng(7)
    discordant = rng.binomial(n, churn, size=40_000)
    broke = rng.binomial(discordant, 0.5)
    assert np.mean(mcnemar.midp_worse(broke, discordant - broke) < 0.05) < 0.0545
    assert np.mean(mcnemar.midp(broke, discordant - broke) < 0.05) < 0.0545
    assert np.mean(mcnemar.exact(broke, discordant - broke) < 0.05) < 0.05


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), 2.5, "three", [1, -2]])
def test_counts_that_are_none(bad: object) -> None:
    with pytest.raises(InputError, match="broke"):
        mcnemar.exact(bad, 3)  # type: ignore[arg-type]


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="shapes"):
        mcnemar.exact([1, 2], [1, 2, 3])
