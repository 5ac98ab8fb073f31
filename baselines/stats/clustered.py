"""Paired difference of means when examples come in groups that share a passage, a conversation or a source."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from assay.baselines.errors import InputError
from assay.baselines.stats.counts import Interval, fraction, settled, two_sided_z


@dataclass(frozen=True)
class ClusteredDifference:
    """A mean paired difference (head - base) with its cluster-robust uncertainty, in the unit of the scores."""

    difference: float
    standard_error: float
    clusters: int
    interval: Interval
    p_worse: float
    p_better: float
    design_effect: float
    """Variance with clusters over variance without, at least 1. Counts divided by it give score intervals that respect
    the clusters (Rao and Scott 1992, Biometrics 48:577). Without any variance it is n / clusters, the worst case."""


def clustered_difference(
    base: npt.ArrayLike, head: npt.ArrayLike, clusters: npt.ArrayLike, confidence: float = 0.95, span: float = 1.0
) -> ClusteredDifference:
    """Compare paired scores of shape (n,) whose examples belong to `clusters`, shape (n,), integer codes.

    The squared standard error is n^-2 times the sum over clusters of the squared sum of residuals (Miller 2024, arXiv
    2411.00640, section 2.2), times G / (G - 1) for G clusters, which makes clusters of one the paired t test. The
    reference is t with G - 1 degrees of freedom. Two guards for few clusters: no p value is below 2^-G, the least that
    flipping the signs of whole clusters could give, and an interval without any variance is as wide as Tango's would
    be for G examples without a flip, z^2 / (G + z^2) of `span` (the range of one score).

    Raises `InputError` for fewer than 2 clusters, unequal lengths and scores that are not finite.
    """
    a, b = np.asarray(base, dtype=np.float64), np.asarray(head, dtype=np.float64)
    codes = np.asarray(clusters)
    if a.ndim != 1 or a.shape != b.shape or a.shape != codes.shape:
        raise InputError(f"base {a.shape}, head {b.shape} and clusters {codes.shape} must be flat and of equal length.")
    if not (np.isfinite(a) & np.isfinite(b)).all():
        raise InputError("a score is not finite: a failure is not a score; evaluate again.")
    groups, member = np.unique(codes, return_inverse=True)
    count = int(groups.size)
    if count < 2:
        raise InputError(f"{count} cluster: clustered errors need at least 2; compare without clusters instead.")
    d = b - a
    n, mean = d.size, float(d.mean())
    sums = np.bincount(member, weights=d - mean, minlength=count)
    variance = count / (count - 1) * float(sums @ sums) / n**2
    plain = float(np.sum((d - mean) ** 2)) / (n * (n - 1))
    error, least = math.sqrt(variance), 0.5**count
    if variance <= 1e-24 * max(span, 1.0) ** 2:
        error = 0.0
        z2 = two_sided_z(confidence) ** 2
        half = z2 / (count + z2) * span
        p_worse = 0.5 if mean == 0 else (least if mean < 0 else 1.0 - least)
    else:
        half = float(stdtrit(count - 1, 0.5 + fraction(confidence, "confidence") / 2)) * error
        p_worse = min(max(float(stdtr(count - 1, mean / error)), least), 1.0 - least)
    effect = variance / plain if plain > 0 else n / count
    return ClusteredDifference(
        difference=mean,
        standard_error=error,
        clusters=count,
        interval=Interval(settled(mean - half), settled(mean + half)),
        p_worse=p_worse,
        p_better=1.0 - p_worse,
        design_effect=max(effect, 1.0),
    )
