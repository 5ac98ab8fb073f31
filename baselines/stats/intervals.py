"""Confidence intervals of a paired difference of proportions (head - base), and of one proportion.

`tango` is what verdicts use: it inverts the score test, so it is never empty, never leaves [-1, 1], and says something
even when nothing changed. The others stand beside it because readers know them, and to check it. All are two-sided at
`confidence`; for a one-sided bound at level alpha take the matching end at confidence 1 - 2 alpha. Comparison of them
all: Fagerland, Lydersen and Laake 2014, Stat Med 33:2850.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from assay.baselines.stats.counts import Floats, Interval, as_counts, as_paired, settled, two_sided_z

_HALVINGS = 46
"""2 * 2^-46 is 3e-14: the limits are as accurate as the score itself."""


def tango(broke: npt.ArrayLike, fixed: npt.ArrayLike, n: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Tango's score interval (Tango 1998, Stat Med 17:891), to about 1e-12.

    The limits are the differences d at which (fixed - broke - n d) / sqrt(n (2 q + d (1 - d))) is +-z, with q the
    maximum-likelihood probability of `broke` given d. With broke = fixed = 0 they are +-z^2 / (n + z^2). Fractional
    counts are allowed, so that counts divided by a design effect (Rao and Scott 1992) or projected to a larger n work.
    """
    b, c, total = as_paired(broke, fixed, n, integral=False)
    z = two_sided_z(confidence)
    low = -_upper_score_limit(c, b, total, z)
    return _interval(low, _upper_score_limit(b, c, total, z))


def newcombe(
    both_right: npt.ArrayLike,
    broke: npt.ArrayLike,
    fixed: npt.ArrayLike,
    both_wrong: npt.ArrayLike,
    confidence: float = 0.95,
) -> Interval:
    """Newcombe's square-and-add interval with corrected phi (Newcombe 1998, Stat Med 17:2635, method 10).

    The Wilson intervals of both accuracies are combined with their correlation phi, whose numerator A = ad - bc is
    reduced by n/2 when it is above n/2, and set to 0 between 0 and n/2.
    """
    a, b, c, d = as_counts(both_right=both_right, broke=broke, fixed=fixed, both_wrong=both_wrong)
    n = a + b + c + d
    as_paired(b, c, n)
    head, base = (a + c) / n, (a + b) / n
    head_ci, base_ci = wilson(a + c, n, confidence), wilson(a + b, n, confidence)
    numerator = a * d - b * c
    numerator = np.where(numerator > n / 2, numerator - n / 2, np.minimum(numerator, 0.0))
    product = (a + b) * (c + d) * (a + c) * (b + d)
    phi = np.where(product > 0, numerator / np.sqrt(np.maximum(product, 1.0)), 0.0)
    down_head, up_head = head - head_ci.low, head_ci.high - head
    down_base, up_base = base - base_ci.low, base_ci.high - base
    below = np.sqrt(np.maximum(down_head**2 - 2 * phi * down_head * up_base + up_base**2, 0.0))
    above = np.sqrt(np.maximum(up_head**2 - 2 * phi * up_head * down_base + down_base**2, 0.0))
    return _interval((c - b) / n - below, (c - b) / n + above)


def wald(broke: npt.ArrayLike, fixed: npt.ArrayLike, n: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """The textbook interval D +- z sqrt(broke + fixed - (broke - fixed)^2 / n) / n. Too short; here for comparison."""
    b, c, total = as_paired(broke, fixed, n)
    return _around(b, c, total, two_sided_z(confidence))


def agresti_min(broke: npt.ArrayLike, fixed: npt.ArrayLike, n: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Wald's interval after adding 1/2 to each of the four cells (Agresti and Min 2005, Stat Med 24:729)."""
    b, c, total = as_paired(broke, fixed, n)
    return _around(b + 0.5, c + 0.5, total + 2, two_sided_z(confidence))


def bonett_price(broke: npt.ArrayLike, fixed: npt.ArrayLike, n: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Wald's interval with 1 added to each discordant cell (Bonett and Price 2012, J Educ Behav Stat 37:479)."""
    b, c, total = as_paired(broke, fixed, n)
    return _around(b + 1.0, c + 1.0, total + 2, two_sided_z(confidence))


def wilson(successes: npt.ArrayLike, n: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of one proportion (Wilson 1927, JASA 22:209).

    Fractional successes are allowed: a proportion times n is one more often than not, and so are counts divided by a
    design effect.
    """
    k, _, total = as_paired(successes, 0, n, integral=False)
    z2 = two_sided_z(confidence) ** 2
    centre = (k + z2 / 2) / (total + z2)
    half = np.sqrt(z2 * (k * np.maximum(total - k, 0.0) / total + z2 / 4)) / (total + z2)
    # At 0 and n the limits are exactly 0 and 1; rounding would leave 1e-17 of a successful guess.
    return _interval(np.where(k == 0, 0.0, centre - half), np.where(k >= total, 1.0, centre + half))


def score(broke: Floats, fixed: Floats, n: Floats, difference: Floats) -> Floats:
    """Tango's score statistic at `difference`; decreasing, and infinite where the data are excluded."""
    # Swapping the roles of the discordant cells changes the sign of both, so only difference >= 0 needs solving.
    swap = difference < 0
    d = np.abs(difference)
    ups, downs = np.where(swap, broke, fixed), np.where(swap, fixed, broke)
    linear = (2 * n - ups + downs) * d - ups - downs
    constant = -downs * d * (1 - d)
    root = np.sqrt(np.maximum(linear**2 - 8 * n * constant, 0.0))
    q = (root - linear) / (4 * n)
    spread = np.sqrt(np.maximum(n * (2 * q + d * (1 - d)), 0.0))
    gap = ups - downs - n * d
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where(spread > 0, gap / spread, np.where(gap == 0, 0.0, np.copysign(np.inf, gap)))
    return np.asarray(np.where(swap, -value, value))


def _upper_score_limit(b: Floats, c: Floats, n: Floats, z: float) -> Floats:
    """The difference d in [D, 1] whose score is -z. Bisection: the score is monotone, and no start value can fail."""
    low, high = np.asarray((c - b) / n), np.ones_like(n)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        inside = score(b, c, n, middle) > -z
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.asarray((low + high) / 2)


def _around(b: Floats, c: Floats, n: Floats, z: float) -> Interval:
    half = z * np.sqrt(np.maximum(b + c - (b - c) ** 2 / n, 0.0)) / n
    return _interval(np.maximum((c - b) / n - half, -1.0), np.minimum((c - b) / n + half, 1.0))


def _interval(low: npt.ArrayLike, high: npt.ArrayLike) -> Interval:
    return Interval(settled(low), settled(high))
