"""The paired bootstrap of perplexity: what it estimates, its level, its coverage and its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ttest_rel

from assay.baselines.errors import InputError
from assay.baselines.stats.bootstrap import perplexity_change


def documents(rng: np.random.Generator, n: int, shift: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Documents of uneven length whose per-word loss rises by `shift` nats on average, unevenly."""
    words = np.ceil(rng.lognormal(5, 0.8, size=n))
    base = -words * rng.normal(3.0, 0.4, size=n)
    head = base - words * rng.normal(shift, 0.03, size=n)
    return base, head, words


def test_change_is_the_ratio_of_perplexities() -> None:
    rng = np.random.default_rng(0)
    base, head, words = documents(rng, 50, 0.01)
    result = perplexity_change(base, head, words)
    before, after = math.exp(-base.sum() / words.sum()), math.exp(-head.sum() / words.sum())
    assert result.change == pytest.approx(after / before - 1)
    assert result.interval.low < result.change < result.interval.high
    assert result.documents == 50
    assert not result.few_documents


def test_equal_weights_agree_with_the_paired_t_test() -> None:
    rng = np.random.default_rng(1)
    base = -rng.normal(300, 30, size=200)
    head = base - rng.normal(0.05, 1.0, size=200)
    result = perplexity_change(base, head, np.full(200, 100.0), draws=40_000)
    expected = ttest_rel(base, head)
    assert result.p_worse == pytest.approx(
        expected.pvalue / 2 if expected.statistic > 0 else 1 - expected.pvalue / 2, abs=0.01
    )
    low, high = expected.confidence_interval()
    assert result.interval == pytest.approx((math.expm1(low / 100), math.expm1(high / 100)), abs=2e-4)


def test_seeded() -> None:
    data = documents(np.random.default_rng(2), 40, 0.0)
    first = perplexity_change(*data, seed=1)
    assert first == perplexity_change(*data, seed=1)
    assert first != perplexity_change(*data, seed=2)


def test_swapping_base_and_head() -> None:
    base, head, words = documents(np.random.default_rng(3), 60, 0.01)
    result, swapped = perplexity_change(base, head, words), perplexity_change(head, base, words)
    assert 1 + swapped.change == pytest.approx(1 / (1 + result.change))
    assert swapped.p_better == pytest.approx(result.p_worse, abs=0.01)
    assert 1 + swapped.interval.low == pytest.approx(1 / (1 + result.interval.high), abs=1e-3)


def test_units_of_the_weight_only_scale() -> None:
    base, head, words = documents(np.random.default_rng(4), 60, 0.01)
    result, doubled = perplexity_change(base, head, words), perplexity_change(base, head, 2 * words)
    assert 1 + doubled.change == pytest.approx(math.sqrt(1 + result.change))
    assert doubled.p_worse == result.p_worse


@pytest.mark.parametrize("n", [25, 100])
def test_level_and_coverage_by_simulation(n: int) -> None:
    rng = np.random.default_rng(5)
    runs, rejected, covered = 500, 0, 0
    for seed in range(runs):
        result = perplexity_change(*documents(rng, n, 0.0), draws=800, seed=seed)
        rejected += result.p_worse < 0.05
        covered += result.interval.low <= 0 <= result.interval.high
    assert rejected / runs < 0.08
    assert covered / runs > 0.92


def test_a_real_loss_is_found() -> None:
    rng = np.random.default_rng(6)
    found = sum(perplexity_change(*documents(rng, 100, 0.01), draws=800).p_worse < 0.05 for _ in range(100))
    assert found > 75


def test_bit_identical_documents() -> None:
    base, _, words = documents(np.random.default_rng(7), 30, 0.0)
    result = perplexity_change(base, base, words)
    assert (result.change, *result.interval) == (0.0, 0.0, 0.0)
    assert (result.p_worse, result.p_better) == (1.0, 1.0)


def test_one_changed_document_does_not_prove_a_loss() -> None:
    base, _, words = documents(np.random.default_rng(8), 30, 0.0)
    head = base.copy()
    head[3] -= 5.0
    result = perplexity_change(base, head, words)
    assert result.change > 0
    assert result.p_worse > 0.05
    assert result.interval.low <= 0
    assert math.isfinite(result.interval.high)


def test_few_documents_are_said() -> None:
    assert perplexity_change(*documents(np.random.default_rng(9), 12, 0.0)).few_documents


def test_many_documents_stay_in_bounds() -> None:
    result = perplexity_change(*documents(np.random.default_rng(10), 100_000, 0.0), draws=10_000)
    assert result.draws == 2000
    assert result.interval.high - result.interval.low < 1e-3


@pytest.mark.parametrize(
    ("base", "head", "weight", "message"),
    [
        ([-1.0], [-1.0], [1.0], "at least 2"),
        ([-1.0, -2.0], [-1.0], [1.0, 1.0], "equal length"),
        ([-1.0, float("nan")], [-1.0, -2.0], [1.0, 1.0], "not finite"),
        ([-1.0, -2.0], [-1.0, float("-inf")], [1.0, 1.0], "not finite"),
        ([-1.0, -2.0], [-1.0, -2.0], [1.0, 0.0], "not positive"),
    ],
)
def test_bad_input(base: list[float], head: list[float], weight: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        perplexity_change(base, head, weight)
