"""Cluster-robust paired difference against Miller's formula, the paired t test, statsmodels, and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.stats import ttest_rel

from assay.baselines.errors import InputError
from assay.baselines.stats import intervals
from assay.baselines.stats.clustered import clustered_difference


def reading_task(rng: np.random.Generator, passages: int, each: int, drop: float) -> tuple[np.ndarray, ...]:
    """0/1 scores of questions that share passages: a passage's questions change together."""
    codes = np.repeat(np.arange(passages), each)
    base = (rng.random(passages * each) < 0.6).astype(float)
    hit = (rng.random(passages) < 0.15)[codes]
    up = rng.random(passages)[codes] < 0.5 * (1 - drop)
    head = np.where(hit & (rng.random(codes.size) < 0.8), up.astype(float), base)
    return base, head, codes


def test_formula_of_miller() -> None:
    """n^-2 times the double sum over pairs within clusters, written as the paper writes it, times G / (G - 1)."""
    rng = np.random.default_rng(0)
    base, head, codes = rng.random(60), rng.random(60), rng.integers(0, 9, size=60)
    d = head - base
    residual = d - d.mean()
    double = sum(residual[i] * residual[j] for i in range(60) for j in range(60) if codes[i] == codes[j])
    groups = np.unique(codes).size
    result = clustered_difference(base, head, codes)
    assert result.standard_error == pytest.approx(math.sqrt(groups / (groups - 1) * double) / 60)
    assert result.clusters == groups
    assert result.difference == pytest.approx(d.mean())


def test_clusters_of_one_are_the_paired_t_test() -> None:
    rng = np.random.default_rng(1)
    base, head = rng.random(80), rng.random(80) - 0.05
    result = clustered_difference(base, head, np.arange(80))
    expected = ttest_rel(head, base, alternative="less")
    assert result.p_worse == pytest.approx(expected.pvalue, rel=1e-9)
    assert result.p_better == pytest.approx(1 - expected.pvalue, rel=1e-9)
    interval = ttest_rel(head, base).confidence_interval()
    assert result.interval == pytest.approx((interval.low, interval.high), abs=1e-12)
    assert result.design_effect == pytest.approx(1.0)


def test_agrees_with_statsmodels() -> None:
    rng = np.random.default_rng(2)
    base, head, codes = reading_task(rng, 30, 5, 0.0)
    fit = sm.OLS(head - base, np.ones(codes.size)).fit(cov_type="cluster", cov_kwds={"groups": codes})
    # statsmodels multiplies by G / (G - 1) * (n - 1) / (n - 1) for one regressor.
    assert clustered_difference(base, head, codes).standard_error == pytest.approx(fit.bse[0], rel=1e-9)


def test_swapping_base_and_head_and_relabelling() -> None:
    rng = np.random.default_rng(3)
    base, head, codes = reading_task(rng, 25, 4, 0.3)
    result, swapped = clustered_difference(base, head, codes), clustered_difference(head, base, codes)
    assert swapped.difference == pytest.approx(-result.difference)
    assert swapped.p_worse == pytest.approx(result.p_better)
    assert swapped.interval == pytest.approx((-result.interval.high, -result.interval.low))
    order = rng.permutation(codes.size)
    again = clustered_difference(base[order], head[order], 1000 - codes[order])
    assert again.standard_error == pytest.approx(result.standard_error)


def test_level_when_questions_share_passages() -> None:
    """The paired t test on questions rejects a true "no change" far too often; clustered errors do not."""
    rng = np.random.default_rng(4)
    clustered = plain = covered = 0
    for _ in range(1500):
        base, head, codes = reading_task(rng, 40, 6, 0.0)
        # The truth of this design is the mean of head - base: heads flip to 0 or 1 evenly, bases are 0.6.
        truth = 0.15 * 0.8 * (0.5 - 0.6)
        result = clustered_difference(base, head, codes)
        covered += result.interval.low <= truth <= result.interval.high
        shifted = clustered_difference(base + truth, head, codes, span=2.0)
        clustered += shifted.p_worse < 0.05
        plain += clustered_difference(base + truth, head, np.arange(codes.size), span=2.0).p_worse < 0.05
    assert clustered / 1500 < 0.085
    assert plain / 1500 > 0.11
    assert covered / 1500 > 0.9


def test_design_effect_counts_the_worth_of_an_example() -> None:
    base = np.zeros(100)
    head = np.repeat(np.array([1.0, 0.0] * 5), 10)
    result = clustered_difference(base, head, np.repeat(np.arange(10), 10))
    # Examples of a cluster are copies of each other: 100 are worth 10, up to the factor (n - 1) / (G - 1) * G / n.
    assert result.design_effect == pytest.approx(10 * 99 / 90)


def test_score_interval_of_deflated_counts_where_few_examples_flip() -> None:
    """1% broken in 200 passages of 5, several of a passage at a time: how often the lower bound is above the truth."""
    rng = np.random.default_rng(5)
    codes, runs = np.repeat(np.arange(200), 5), 1500
    by_t = by_score = 0
    for _ in range(runs):
        broken = (rng.random(200) < 0.01 / 0.6)[codes] & (rng.random(1000) < 0.6)
        result = clustered_difference(broken, np.zeros(1000), codes, confidence=0.9)
        worth = 1000 / result.design_effect
        score = intervals.tango(broken.sum() / result.design_effect, 0, worth, confidence=0.9)
        by_t += result.interval.low > -0.01
        by_score += score.low > -0.01
    assert by_t / runs > 0.08
    assert by_score / runs < 0.06


def test_no_flips_do_not_prove_equality() -> None:
    scores = np.ones(200)
    result = clustered_difference(scores, scores, np.arange(200) // 20)
    z2 = 1.959964**2
    assert result.interval == pytest.approx((-z2 / (10 + z2), z2 / (10 + z2)), abs=1e-6)
    assert (result.p_worse, result.p_better) == (0.5, 0.5)
    assert result.design_effect == 20


def test_few_clusters_cannot_be_significant_by_accident() -> None:
    """One example broken in each of two passages has no variance between clusters, and proves nothing."""
    base, head = np.ones(20), np.ones(20)
    head[[0, 10]] = 0
    result = clustered_difference(base, head, np.repeat([0, 1], 10))
    assert result.p_worse == 0.25
    assert result.interval.low < -0.5
    assert clustered_difference(head, base, np.repeat([0, 1], 10)).p_worse == 0.75


def test_p_values_go_no_further_than_flipping_whole_clusters() -> None:
    """Three passages lose nearly the same: t would give p < 0.001, and 3 signs can agree by chance once in 8."""
    head = np.repeat([0.50, 0.51, 0.52], 10)
    result = clustered_difference(np.ones(30), head, np.repeat([0, 1, 2], 10))
    assert result.standard_error < 0.01
    assert (result.p_worse, result.p_better) == (0.125, 0.875)


@pytest.mark.parametrize(
    ("base", "head", "codes", "message"),
    [
        ([1.0, 0.0], [1.0, 0.0], [3, 3], "at least 2"),
        ([], [], [], "at least 2"),
        ([1.0, 0.0], [1.0], [0, 1], "equal length"),
        ([1.0, 0.0], [1.0, 0.0], [0], "equal length"),
        ([1.0, float("nan")], [1.0, 0.0], [0, 1], "not finite"),
    ],
)
def test_bad_input(base: list[float], head: list[float], codes: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        clustered_difference(base, head, codes)
