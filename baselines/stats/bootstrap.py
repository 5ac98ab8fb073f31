"""Paired bootstrap over documents: the relative change of perplexity."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from assay.baselines.errors import InputError
from assay.baselines.stats.counts import Floats, Interval, fraction, settled

FEW_DOCUMENTS = 20
_BLOCK = 4_000_000
"""Resampled document counts held in memory at a time."""
_WORK = 200_000_000
"""Resampled documents in all; longer evaluations get fewer draws, at least `_FEWEST_DRAWS`, and need fewer."""
_FEWEST_DRAWS = 2_000


@dataclass(frozen=True)
class PerplexityChange:
    """Relative change of perplexity, head over base, less 1: positive is worse, 0.01 is one per cent."""

    change: float
    interval: Interval
    p_worse: float
    p_better: float
    documents: int
    few_documents: bool
    """Fewer than 20 documents: the bootstrap has little to resample, and the interval should be read with caution."""
    draws: int


def perplexity_change(
    base_loglik: npt.ArrayLike,
    head_loglik: npt.ArrayLike,
    weight: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> PerplexityChange:
    """Compare summed log-likelihoods (nats) of the same documents; all of shape (n,), weights in words or tokens.

    change = exp(T) - 1 with T = sum(base - head) / sum(weight). Documents are resampled, each with its numerator and
    weight, and T is studentised by its linearised standard error in every resample (bootstrap-t, Efron and Tibshirani
    1993, sections 12.5 and 16.2), which keeps its level at a few dozen documents, where percentile intervals are too
    short. p values are (k + 1) / (draws + 1) of the studentised resamples beyond the observed one.

    Raises `InputError` for fewer than 2 documents, unequal lengths, and values that are not finite or weights <= 0.
    """
    base, head, w = (np.asarray(x, dtype=np.float64) for x in (base_loglik, head_loglik, weight))
    if base.ndim != 1 or base.shape != head.shape or base.shape != w.shape:
        raise InputError(f"base {base.shape}, head {head.shape} and weight {w.shape} must be flat and of equal length.")
    if base.size < 2:
        raise InputError(f"{base.size} document: perplexity is compared over documents; give at least 2, better 100.")
    if not (np.isfinite(base) & np.isfinite(head) & np.isfinite(w)).all() or (w <= 0).any():
        raise InputError("a log-likelihood is not finite or a weight is not positive: the model or harness failed.")
    if draws < 100:
        raise InputError(f"{draws} draws cannot resolve a p value: give at least 100.")
    tail = (1.0 - fraction(confidence, "confidence")) / 2
    x = base - head
    n, ratio = x.size, float(x.sum() / w.sum())
    draws = int(min(draws, max(_WORK // n, _FEWEST_DRAWS)))
    # Centred, so that the products below do not cancel: T in a resample is ratio + (resampled residual mean).
    residual = x - ratio * w
    error = math.sqrt(n / (n - 1) * float(residual @ residual)) / float(w.sum())
    if error <= 1e-15 * max(1.0, abs(ratio)):
        return _without_spread(ratio, n, draws)
    studentised = _studentised(residual, w, draws, np.random.default_rng(seed))
    observed = ratio / error
    # Where few documents changed, some resamples hold none of them and have no standard error. Their t, and so the
    # interval, is kept to what a t with one degree of freedom reaches.
    widest = float(stdtrit(1, 1.0 - tail))
    upper, lower = np.quantile(np.clip(studentised, -widest, widest), (1.0 - tail, tail))
    return PerplexityChange(
        change=math.expm1(ratio),
        interval=Interval(settled(np.expm1(ratio - upper * error)), settled(np.expm1(ratio - lower * error))),
        p_worse=float((np.count_nonzero(studentised >= observed) + 1) / (draws + 1)),
        p_better=float((np.count_nonzero(studentised <= observed) + 1) / (draws + 1)),
        documents=n,
        few_documents=n < FEW_DOCUMENTS,
        draws=draws,
    )


def _without_spread(ratio: float, n: int, draws: int) -> PerplexityChange:
    """Every document changed by the same ratio, most often not at all: no resample differs from the sample."""
    change = settled(math.expm1(ratio))
    least = 1.0 / (draws + 1)
    return PerplexityChange(
        change=float(change),
        interval=Interval(change, change),
        p_worse=1.0 if ratio <= 0 else least,
        p_better=1.0 if ratio >= 0 else least,
        documents=n,
        few_documents=n < FEW_DOCUMENTS,
        draws=draws,
    )


def _studentised(residual: Floats, w: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """(T* - T) / se* of `draws` resamples, shape (draws,)."""
    n = residual.size
    moments = np.column_stack((residual, w, residual * residual, residual * w, w * w))
    pieces = []
    block = max(1, _BLOCK // n)
    for start in range(0, draws, block):
        rows = min(block, draws - start)
        picks = rng.integers(0, n, size=(rows, n)) + n * np.arange(rows)[:, None]
        counts = np.bincount(picks.ravel(), minlength=rows * n).reshape(rows, n)
        r, weight, rr, rw, ww = (counts @ moments).T
        shift = r / weight
        spread = np.maximum(rr - 2 * shift * rw + shift**2 * ww, 0.0)
        error = np.sqrt(n / (n - 1) * spread) / weight
        with np.errstate(divide="ignore", invalid="ignore"):
            pieces.append(np.where(error > 0, shift / error, np.where(shift == 0, 0.0, np.copysign(np.inf, shift))))
    return np.concatenate(pieces)
