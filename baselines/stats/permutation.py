"""Paired sign-flip permutation test, for scores that are not 0/1."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from assay.baselines.errors import InputError
from assay.baselines.stats.counts import Floats, Interval, fraction, settled

EXACT_UP_TO = 20
"""Nonzero differences up to which all 2^k sign patterns are enumerated."""
_BLOCK = 4_000_000
"""Random signs held in memory at a time."""


@dataclass(frozen=True)
class PairedPermutation:
    """A mean paired difference (head - base), its interval, and permutation p values."""

    difference: float
    interval: Interval
    p_worse: float
    p_better: float
    p_two_sided: float
    n: int
    nonzero: int
    """Pairs with different scores; the others carry no evidence."""
    exact: bool
    """Whether all sign patterns were enumerated; otherwise `draws` of them were drawn."""
    draws: int


def paired_permutation(
    base: npt.ArrayLike,
    head: npt.ArrayLike,
    *,
    confidence: float = 0.95,
    span: float = 1.0,
    draws: int = 10_000,
    seed: int = 0,
) -> PairedPermutation:
    """Compare paired scores of shape (n,) by flipping the signs of their differences (Fisher 1935).

    Up to 20 nonzero differences every pattern is counted; beyond, (k + 1) / (draws + 1) of seeded draws, which is a
    valid p value at any number of draws (Phipson and Smyth 2010). The interval is `mean_interval`. `span` is the range
    of one score. Raises `InputError` for unequal lengths, fewer than 2 pairs, and scores that are not finite.
    """
    d = _differences(base, head)
    moved = d[d != 0]
    if moved.size <= EXACT_UP_TO:
        below, above, beyond, patterns = _enumerate(moved)
    else:
        below, above, beyond = _draw(moved, draws, np.random.default_rng(seed))
        below, above, beyond, patterns = below + 1, above + 1, beyond + 1, draws + 1
    return PairedPermutation(
        difference=float(d.mean()),
        interval=mean_interval(d, confidence, span),
        p_worse=below / patterns,
        p_better=above / patterns,
        p_two_sided=beyond / patterns,
        n=d.size,
        nonzero=moved.size,
        exact=moved.size <= EXACT_UP_TO,
        draws=0 if moved.size <= EXACT_UP_TO else draws,
    )


def mean_interval(differences: npt.ArrayLike, confidence: float = 0.95, span: float = 1.0) -> Interval:
    """Interval of a mean difference of bounded scores: t after adding one difference of -span and one of +span.

    This carries Bonett and Price's adjustment (2012, J Educ Behav Stat 37:479) from 0/1 scores, where it is theirs, to
    scores of any values within `span`, so that differences without variance still get an interval, and rare large ones
    are allowed for. Coverage by simulation stands in docs/statistics.md.
    """
    d = np.asarray(differences, dtype=np.float64)
    if d.ndim != 1 or d.size < 2 or not np.isfinite(d).all():
        raise InputError("an interval of a mean needs at least 2 finite differences.")
    if not span > 0 or np.abs(d).max() > span * (1 + 1e-12):
        raise InputError(f"a difference is beyond {span}: give the range of one score as span.")
    n = d.size + 2
    mean = float(d.sum()) / n
    variance = (float(d @ d) + 2 * span**2 - n * mean**2) / (n - 1)
    half = float(stdtrit(d.size - 1, 0.5 + fraction(confidence, "confidence") / 2)) * math.sqrt(variance / n)
    return Interval(settled(max(mean - half, -span)), settled(min(mean + half, span)))


def _differences(base: npt.ArrayLike, head: npt.ArrayLike) -> Floats:
    a, b = np.asarray(base, dtype=np.float64), np.asarray(head, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or a.size < 2:
        raise InputError(f"base {a.shape} and head {b.shape} must be flat, of equal length and at least 2 long.")
    if not (np.isfinite(a) & np.isfinite(b)).all():
        raise InputError("a score is not finite: a failure is not a score; evaluate again.")
    return b - a


def _counted(sums: Floats, observed: float, slack: float) -> tuple[int, int, int]:
    """Sums at most, at least, and as far from 0 as the observed one; ties within rounding count."""
    return (
        int(np.count_nonzero(sums <= observed + slack)),
        int(np.count_nonzero(sums >= observed - slack)),
        int(np.count_nonzero(np.abs(sums) >= abs(observed) - slack)),
    )


def _enumerate(d: Floats) -> tuple[int, int, int, int]:
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate((sums - value, sums + value))
    return *_counted(sums, float(d.sum()), _slack(d)), sums.size


def _draw(d: Floats, draws: int, rng: np.random.Generator) -> tuple[int, int, int]:
    if draws < 100:
        raise InputError(f"{draws} draws cannot resolve a p value: give at least 100.")
    sizes, repeats = np.unique(np.abs(d), return_counts=True)
    observed, slack = float(d.sum()), _slack(d)
    totals = np.zeros(3, dtype=np.int64)
    # Scores on a grid repeat few sizes of difference: then one binomial draw per size replaces one sign per pair.
    grouped = sizes.size * 20 < d.size
    width = sizes.size if grouped else d.size
    block = max(1, _BLOCK // width)
    for start in range(0, draws, block):
        rows = min(block, draws - start)
        if grouped:
            sums = (2 * rng.binomial(repeats, 0.5, size=(rows, width)) - repeats) @ sizes
        else:
            packed = rng.integers(0, 256, size=(rows, -(-width // 8)), dtype=np.uint8)
            sums = 2 * (np.unpackbits(packed, axis=1, count=width) @ d) - observed
        totals += _counted(sums, observed, slack)
    below, above, beyond = (int(total) for total in totals)
    return below, above, beyond


def _slack(d: Floats) -> float:
    return 1e-12 * float(np.abs(d).sum())
