"""Holm and Benjamini-Hochberg against their published example and statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from statsmodels.stats.multitest import multipletests

from assay.baselines.errors import InputError
from assay.baselines.stats.multiplicity import benjamini_hochberg, holm

# Benjamini and Hochberg 1995, JRSS-B 57:289, section 4.2 (thrombolysis in myocardial infarction).
EXAMPLE = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528]
EXAMPLE += [0.7590, 1.0000]

families = st.lists(st.floats(0, 1), min_size=1, max_size=60)


def test_published_example() -> None:
    assert np.count_nonzero(holm(EXAMPLE) <= 0.05) == 3
    assert np.count_nonzero(benjamini_hochberg(EXAMPLE) <= 0.05) == 4


@given(families)
@settings(deadline=None, max_examples=40)
def test_agrees_with_statsmodels(p: list[float]) -> None:
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1], abs=1e-12)
    assert benjamini_hochberg(p) == pytest.approx(multipletests(p, method="fdr_bh")[1], abs=1e-12)


@given(families)
@settings(deadline=None, max_examples=60)
def test_order_does_not_matter_and_adjusting_never_helps(p: list[float]) -> None:
    order = np.random.default_rng(len(p)).permutation(len(p))
    for adjust in (holm, benjamini_hochberg):
        adjusted = adjust(p)
        assert (adjusted >= np.asarray(p) - 1e-15).all()
        assert (adjusted <= 1).all()
        assert adjust(np.asarray(p)[order]) == pytest.approx(adjusted[order])
    assert (holm(p) >= benjamini_hochberg(p) - 1e-12).all()


def test_family_of_one_and_of_none() -> None:
    assert holm([0.03]) == pytest.approx([0.03])
    assert holm([]).shape == (0,)
    assert benjamini_hochberg([]).shape == (0,)


def test_family_wise_error_with_correlated_members() -> None:
    """A pooled test is one more member of the family, made of the same examples; Holm keeps 5% regardless."""
    rng = np.random.default_rng(3)
    z = rng.standard_normal((20_000, 4))
    pooled = z.sum(axis=1, keepdims=True) / 2
    p = ndtr(-np.hstack((z, pooled)))
    assert np.mean([holm(row).min() < 0.05 for row in p]) < 0.053
    assert np.mean(p.min(axis=1) < 0.05) > 0.15


@pytest.mark.parametrize("bad", [[0.5, float("nan")], [-0.1], [1.1], [[0.1, 0.2]], 0.5])
def test_bad_families(bad: object) -> None:
    for adjust in (holm, benjamini_hochberg):
        with pytest.raises(InputError, match="p value"):
            adjust(bad)  # type: ignore[arg-type]
