"""Adjusted p values for a family of hypotheses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from assay.baselines.errors import InputError
from assay.baselines.stats.counts import Floats


def holm(p: npt.ArrayLike) -> Floats:
    """Holm's step-down adjusted p values, shape (k,), in the order given (Holm 1979, Scand J Stat 6:65).

    Rejecting where the result is below alpha keeps the family-wise error at alpha under any dependence.
    """
    values = _checked(p)
    order = np.argsort(values, kind="stable")
    steps = np.arange(values.size, 0, -1) * values[order]
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def benjamini_hochberg(p: npt.ArrayLike) -> Floats:
    """Step-up adjusted p values, shape (k,), that keep the false discovery rate (Benjamini and Hochberg 1995)."""
    values = _checked(p)
    order = np.argsort(values, kind="stable")[::-1]
    steps = values.size / np.arange(values.size, 0, -1) * values[order]
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.minimum.accumulate(steps), 1.0)
    return adjusted


def _checked(p: npt.ArrayLike) -> Floats:
    values = np.asarray(p, dtype=np.float64)
    if values.ndim != 1:
        raise InputError(f"p values have shape {values.shape}: give one flat list per family.")
    if not ((values >= 0) & (values <= 1)).all():
        raise InputError("a p value is not in [0, 1] (or is NaN): leave out the hypotheses that were not tested.")
    return values
