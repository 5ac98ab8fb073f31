"""Anytime-valid tests and confidence sequences of a paired difference, for samples that grow until decided.

Re-testing a fixed-sample p value after every chunk rejects a true "no change" 15 to 21% of the time. Here a gambler
bets against the hypothesis "the mean difference is at least m" with a stake lambda, and her capital after n examples,
the product of 1 + lambda (m - x_i) with x_i in {-1, 0, 1}, is a supermartingale when the hypothesis holds, for every
lambda that cannot bankrupt her (Waudby-Smith and Ramdas 2024, JRSS-B 86:1). A mixture over lambda is one too, so by
Ville's inequality it ever exceeds 1/alpha with probability at most alpha, whenever one looks and for whatever reason
one stops. The product depends only on the counts, so a comparison needs nothing but broke, fixed and n.

The examples must come in an order that the outcome did not choose: a seeded permutation of the task. Hypotheses are
about the mean over examples like these, as in the fixed-sample tests.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, betaln

from assay.baselines.errors import InputError
from assay.baselines.stats.counts import Floats, Interval, as_counts, as_paired, fraction, settled


def _share(weights: Floats) -> Floats:
    """`weights` over their sum."""
    return np.asarray(weights / weights.sum())


_STAKES = np.geomspace(0.01, 0.99, 40)
"""Stakes, as fractions of the largest that cannot go bankrupt. The best one is about effect / churn (Kelly)."""
_USUAL, _SPREAD = 0.2, 0.8
"""Where most gates are: a point or two of effect at a churn of 5 to 10%, give or take a factor of e^0.8."""
_PRIOR = 0.3 * _share(_STAKES**0.25) + 0.7 * _share(np.exp(-0.5 * (np.log(_STAKES / _USUAL) / _SPREAD) ** 2))
"""Weights of the stakes, fixed before any data: any weights keep the level, these reach a decision with few examples
over effects and churns from 0 to 30%. At the least favourable of them it takes twice the examples of the best
stake, which nobody knows in advance; usually 1.4 times."""
_HALVINGS = 44
_MANY = 1e12


def log_e_worse(broke: npt.ArrayLike, fixed: npt.ArrayLike, n: npt.ArrayLike, null: npt.ArrayLike = 0.0) -> Floats:
    """Natural log of the e-value against "the difference is at least `null`": large when head is worse than that.

    `null` lies in (-1, 1); -0.005 asks for evidence of a drop of more than half a point. Vectorised.
    """
    b, c, total = as_paired(broke, fixed, n)
    return settled(_log_capital(b, c, total, _hypothesis(null)))


def log_e_better(broke: npt.ArrayLike, fixed: npt.ArrayLike, n: npt.ArrayLike, null: npt.ArrayLike = 0.0) -> Floats:
    """Natural log of the e-value against "the difference is at most `null`"; with -margin, evidence of "not worse"."""
    return log_e_worse(fixed, broke, n, -_hypothesis(null))


def e_worse(broke: npt.ArrayLike, fixed: npt.ArrayLike, n: npt.ArrayLike, null: npt.ArrayLike = 0.0) -> Floats:
    """e-value against "the difference is at least `null`" (`inf` beyond e^709). Reject at 1 / alpha, at any time."""
    return _exp(log_e_worse(broke, fixed, n, null))


def e_better(broke: npt.ArrayLike, fixed: npt.ArrayLike, n: npt.ArrayLike, null: npt.ArrayLike = 0.0) -> Floats:
    """e-value against "the difference is at most `null`"."""
    return _exp(log_e_better(broke, fixed, n, null))


def anytime_p_worse(broke: npt.ArrayLike, fixed: npt.ArrayLike, n: npt.ArrayLike, null: npt.ArrayLike = 0.0) -> Floats:
    """p value of "head is worse than `null`" that stays valid under optional stopping: min(1, 1 / e)."""
    return settled(np.exp(-np.maximum(log_e_worse(broke, fixed, n, null), 0.0)))


def anytime_p_better(broke: npt.ArrayLike, fixed: npt.ArrayLike, n: npt.ArrayLike, null: npt.ArrayLike = 0.0) -> Floats:
    """p value of "head is better than `null`" that stays valid under optional stopping."""
    return settled(np.exp(-np.maximum(log_e_better(broke, fixed, n, null), 0.0)))


def lower_bound(broke: npt.ArrayLike, fixed: npt.ArrayLike, n: npt.ArrayLike, alpha: float = 0.05) -> Floats:
    """Anytime-valid lower bound of the difference: with probability 1 - alpha it is never above it, at any n.

    The smallest m that the e-value against "at most m" does not reject at `alpha`.
    """
    return settled(-_upper_limit(*_swapped(as_paired(broke, fixed, n)), -math.log(fraction(alpha, "alpha"))))


def upper_bound(broke: npt.ArrayLike, fixed: npt.ArrayLike, n: npt.ArrayLike, alpha: float = 0.05) -> Floats:
    """Anytime-valid upper bound of the difference; see `lower_bound`."""
    return settled(_upper_limit(*as_paired(broke, fixed, n), -math.log(fraction(alpha, "alpha"))))


def confidence_sequence(
    broke: npt.ArrayLike, fixed: npt.ArrayLike, n: npt.ArrayLike, confidence: float = 0.95
) -> Interval:
    """Two-sided confidence sequence of the difference: it covers at every n at once with probability `confidence`."""
    alpha = (1.0 - fraction(confidence, "confidence")) / 2
    return Interval(lower_bound(broke, fixed, n, alpha), upper_bound(broke, fixed, n, alpha))


def log_e_worse_scores(differences: npt.ArrayLike, null: float = 0.0, span: float = 1.0) -> float:
    """Natural log of the e-value against "the mean difference is at least `null`" for scores that are not 0/1.

    `differences` (head - base), shape (n,), lie in [-span, span], where span is the range of one score; `null` is in
    the same unit. Equals `log_e_worse` of the counts when every difference is -1, 0 or 1 and span is 1.
    """
    values, repeats = _distinct(differences, span)
    return float(_log_capital_scores(values, repeats, float(_hypothesis(null / span))))


def log_e_better_scores(differences: npt.ArrayLike, null: float = 0.0, span: float = 1.0) -> float:
    """Natural log of the e-value against "the mean difference is at most `null`"."""
    return log_e_worse_scores(-np.asarray(differences, dtype=np.float64), -null, span)


def confidence_sequence_scores(differences: npt.ArrayLike, confidence: float = 0.95, span: float = 1.0) -> Interval:
    """Two-sided confidence sequence of the mean difference of bounded scores, in the unit of the scores."""
    threshold = -math.log((1.0 - fraction(confidence, "confidence")) / 2)
    values, repeats = _distinct(differences, span)
    high = _upper_limit_scores(values, repeats, threshold)
    low = -_upper_limit_scores(-values, repeats, threshold)
    return Interval(settled(low * span), settled(high * span))


def examples_to_decide_sequential(
    churn: npt.ArrayLike, drop: npt.ArrayLike, alpha: float = 0.05, null: npt.ArrayLike = 0.0
) -> Floats:
    """Examples at which the e-value against "at least `null`" reaches 1 / alpha if the counts follow their rates.

    About the median stopping time of a true `drop` (positive proportion) at that churn; `inf` when it never does.
    """
    psi, delta = as_counts(integral=False, churn=churn, drop=np.maximum(drop, 0.0))
    psi = np.maximum(psi, delta)
    return _crossing((psi + delta) / 2, (psi - delta) / 2, _hypothesis(null), alpha)


def examples_to_bound_sequential(
    churn: npt.ArrayLike,
    drop: npt.ArrayLike,
    margin: npt.ArrayLike,
    alpha: float = 0.05,
    side: Literal["worse", "better", "both"] = "both",
) -> Floats:
    """Examples at which anytime-valid bounds fit inside the margin if the counts follow their rates.

    `drop` may be negative (a gain). `worse` asks for the lower bound above -margin, `better` for the upper one below
    margin, `both` for both; `inf` when the rates are outside the margin.
    """
    delta = np.asarray(drop, dtype=np.float64)
    psi, _ = as_counts(integral=False, churn=churn, drop=np.abs(delta))
    psi = np.maximum(psi, np.abs(delta))
    b, c, limit = (psi + delta) / 2, (psi - delta) / 2, _hypothesis(margin)
    worse, better = _crossing(c, b, limit, alpha), _crossing(b, c, limit, alpha)
    return settled({"worse": worse, "better": better, "both": np.maximum(worse, better)}[side])


def beta_e_value(broke: npt.ArrayLike, fixed: npt.ArrayLike) -> Floats:
    """The e-value against "a discordant example breaks with probability at most 1/2", from discordant counts only.

    2 * 2^n B(broke + 1, fixed + 1) (1 - I_1/2(broke + 1, fixed + 1)), a uniform mixture over (1/2, 1). It is the
    reference that `e_worse` is compared with: it cannot test a margin, because it does not see the agreeing examples.
    """
    b, c = as_counts(broke=broke, fixed=fixed)
    log_uniform = (b + c + 1) * math.log(2.0) + betaln(b + 1, c + 1)
    return settled(np.exp(log_uniform) * betainc(c + 1, b + 1, 0.5))


def _log_growth(null: Floats) -> tuple[Floats, Floats, Floats]:
    """Log growth of the capital on a broken, a fixed and an agreeing example, one stake per entry of the last axis.

    The largest stake is 1 / (1 - null), at which a fixed example (x = 1) loses everything.
    """
    m = null[..., None]
    stake = _STAKES / (1.0 - m)
    return np.log1p(stake * (1.0 + m)), np.broadcast_to(np.log1p(-_STAKES), stake.shape), np.log1p(stake * m)


def _log_capital(b: Floats, c: Floats, n: Floats, null: Floats) -> Floats:
    """Log of the mixture's capital; broadcasts the counts with `null`."""
    on_broke, on_fixed, on_same = _log_growth(null)
    same = np.maximum(n - b - c, 0.0)
    return _mixture(b[..., None] * on_broke + c[..., None] * on_fixed + same[..., None] * on_same)


def _mixture(log_capital: Floats) -> Floats:
    """Log of the prior-weighted sum over the last axis."""
    top = log_capital.max(axis=-1)
    return np.asarray(top + np.log(np.exp(log_capital - top[..., None]) @ _PRIOR))


def _upper_limit(b: Floats, c: Floats, n: Floats, threshold: float) -> Floats:
    """The largest difference in [D, 1] that the capital does not reject; the capital grows with the hypothesis.

    At D the capital is at most 1 for every stake (Jensen), so the limit is never below the observed difference.
    """
    low, high = np.asarray((c - b) / n), np.ones_like(n)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        inside = _log_capital(b, c, n, np.minimum(middle, 1.0 - 1e-12)) < threshold
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.asarray(high)


def _swapped(counts: tuple[Floats, Floats, Floats]) -> tuple[Floats, Floats, Floats]:
    b, c, n = counts
    return c, b, n


def _distinct(differences: npt.ArrayLike, span: float) -> tuple[Floats, Floats]:
    """Distinct differences over span, and how often each occurs."""
    d = np.asarray(differences, dtype=np.float64)
    if d.ndim != 1 or d.size == 0:
        raise InputError("differences must be a flat list of at least one paired difference.")
    if not span > 0 or not (np.abs(d) <= span * (1 + 1e-12)).all():
        raise InputError(
            f"a difference is outside [-{span}, {span}] or not finite: give the range of one score as span."
        )
    values, repeats = np.unique(np.clip(d / span, -1.0, 1.0), return_counts=True)
    return values, repeats.astype(np.float64)


def _log_capital_scores(values: Floats, repeats: Floats, null: float) -> Floats:
    """Log capital of bounded differences, in blocks so that memory stays bounded."""
    total = np.zeros(_STAKES.size)
    for start in range(0, values.size, 65_536):
        part = slice(start, start + 65_536)
        gain = (null - values[part]) / (1.0 - null)
        total += repeats[part] @ np.log1p(gain[:, None] * _STAKES)
    return _mixture(total)


def _upper_limit_scores(values: Floats, repeats: Floats, threshold: float) -> float:
    low, high = float(values @ repeats / repeats.sum()), 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _log_capital_scores(values, repeats, min(middle, 1.0 - 1e-12)) < threshold:
            low = middle
        else:
            high = middle
    return high


def _crossing(b: Floats, c: Floats, null: Floats, alpha: float) -> Floats:
    """The n at which the capital along the expected path (n b, n c) reaches 1 / alpha, rounded up.

    The log capital is convex in n and 0 at 0, so it crosses a positive threshold once, if at all.
    """
    threshold = -math.log(fraction(alpha, "alpha"))
    b, c, null = np.broadcast_arrays(b, c, null)
    low, high = np.zeros(b.shape), np.full(b.shape, math.log(_MANY))
    for _ in range(_HALVINGS):
        n = np.exp((low + high) / 2)
        short = _log_capital(n * b, n * c, n, null) < threshold
        low, high = np.where(short, np.log(n), low), np.where(short, high, np.log(n))
    return settled(np.where(high < math.log(_MANY), np.ceil(np.exp(high) * (1 - 1e-9)), np.inf))


def _hypothesis(null: npt.ArrayLike) -> Floats:
    m = np.asarray(null, dtype=np.float64)
    if not (np.abs(m) < 1).all():
        raise InputError(
            "a hypothesis or margin must lie between -1 and 1: give it as a proportion, 0.01 for one point."
        )
    return m


def _exp(values: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return settled(np.exp(values))
