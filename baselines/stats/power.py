"""How many examples decide, and what a given number of examples can show.

`churn` is the proportion of examples that change (broke + fixed, over n) and `drop` the loss of accuracy as a positive
proportion. A drop of d needs at least d of churn, so a smaller churn is raised to it. Everything is vectorised except
`detection_power` and `exact_examples_to_detect`.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import bdtrc, gammaln, ndtri, xlog1py, xlogy

from assay.baselines.errors import InputError
from assay.baselines.stats import intervals, mcnemar
from assay.baselines.stats.counts import Floats, as_counts, as_paired, fraction, one_sided_z, settled

Test = Literal["midp-worse", "exact-worse", "midp", "exact"]
Side = Literal["worse", "better", "both"]

_P_VALUE = {
    "midp-worse": mcnemar.midp_worse,
    "exact-worse": mcnemar.exact_worse,
    "midp": mcnemar.midp,
    "exact": mcnemar.exact,
}
_MANY = 1e12
"""More examples than anyone has; a search that reaches it answers `inf`."""


def detection_power(n: int, churn: float, drop: float, alpha: float = 0.05, test: Test = "midp-worse") -> float:
    """Exact unconditional probability that the test finds the drop (p < alpha, in the direction of worse).

    The number of discordant examples is Binomial(n, churn); of those, broken ones have probability
    (churn + drop) / (2 churn). Summed over all discordant counts that have probability above 1e-15.
    """
    fraction(alpha, "alpha")
    if n < 1 or n != int(n):
        raise InputError(f"n is {n}: give a positive whole number of examples.")
    psi, delta = (float(x) for x in _rates(churn, drop))
    if psi == 0:
        return 0.0
    spread = 9 * math.sqrt(n * psi * (1 - psi)) + 20
    m = np.arange(max(0.0, math.floor(n * psi - spread)), min(n, math.ceil(n * psi + spread)) + 1)
    log_chance = gammaln(n + 1) - gammaln(m + 1) - gammaln(n - m + 1) + xlogy(m, psi) + xlog1py(n - m, -psi)
    fewest = fewest_broke(m, alpha, test)
    found = bdtrc(np.minimum(fewest, m + 1) - 1, np.maximum(m, 1).astype(np.int64), (psi + delta) / (2 * psi))
    return float(np.minimum(np.sum(np.exp(log_chance) * np.where(fewest <= m, found, 0.0)), 1.0))


def fewest_broke(discordant: npt.ArrayLike, alpha: float = 0.05, test: Test = "midp-worse") -> Floats:
    """The fewest broken among `discordant` examples that give p < alpha; `discordant` + 1 where none do."""
    fraction(alpha, "alpha")
    p_value = _P_VALUE[_known(test)]
    (m,) = as_counts(discordant=discordant)
    sides = _sides(test)
    b = np.clip(np.ceil(m / 2 + one_sided_z(alpha / sides) * np.sqrt(m) / 2), np.ceil(m / 2), m)
    while (above := (b <= m) & (p_value(np.minimum(b, m), np.maximum(m - b, 0)) >= alpha)).any():
        b = np.where(above, b + 1, b)
    while (spare := (b - 1 >= m / 2) & (p_value(np.maximum(b - 1, 0), np.minimum(m - b + 1, m)) < alpha)).any():
        b = np.where(spare, b - 1, b)
    return settled(b)


def examples_to_detect(
    churn: npt.ArrayLike, drop: npt.ArrayLike, alpha: float = 0.05, power: float = 0.8, test: Test = "midp-worse"
) -> Floats:
    """Examples at which the drop is found with probability `power`, rounded up; `inf` where drop is not positive.

    Connor's closed form (1987, Biometrics 43:207): [z_alpha sqrt(churn) + z_power sqrt(churn - drop^2)]^2 / drop^2,
    with alpha halved for a two-sided test. For mid-p tests it is within a few per cent of the exact answer once some
    twenty examples change; `exact_examples_to_detect` does not approximate.
    """
    return settled(np.ceil(connor(churn, drop, alpha / _sides(test), power) - 1e-9))


def connor(churn: npt.ArrayLike, drop: npt.ArrayLike, tail: float, power: float) -> Floats:
    """Connor's number of examples before rounding, for a test that leaves `tail` in the tail it looks at."""
    psi, delta = _rates(churn, drop)
    above = float(ndtri(fraction(power, "power")))
    reach = one_sided_z(tail) * np.sqrt(psi) + above * np.sqrt(np.maximum(psi - delta**2, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        return settled(np.where(delta > 0, (np.maximum(reach, 0.0) / delta) ** 2, np.inf))


def exact_examples_to_detect(
    churn: float, drop: float, alpha: float = 0.05, power: float = 0.8, test: Test = "midp-worse"
) -> int:
    """Fewest examples from which on `detection_power` stays at `power`, to within the test's own sawtooth (about 1%).

    Searched by bisection around Connor's answer; a few milliseconds. Raises `InputError` when drop is not positive.
    """
    seed = float(examples_to_detect(churn, drop, alpha, power, test))
    if not math.isfinite(seed):
        raise InputError(f"drop is {drop}: only a positive drop can be detected.")
    low, high = 0, max(int(seed), 1)
    while detection_power(high, churn, drop, alpha, test) < power:
        low, high = high, high * 2
    low = max(low, 0 if low else int(0.5 * seed) - 10)
    if low > 0 and detection_power(low, churn, drop, alpha, test) >= power:
        low = 0
    while high - low > 1:
        middle = (low + high) // 2
        if detection_power(middle, churn, drop, alpha, test) >= power:
            high = middle
        else:
            low = middle
    return high


def smallest_detectable_drop(
    n: npt.ArrayLike, churn: npt.ArrayLike, alpha: float = 0.05, power: float = 0.8, test: Test = "midp-worse"
) -> Floats:
    """The smallest drop, as a positive proportion, that n examples find with probability `power` (Connor inverted).

    Where the drop would exceed `churn`, all changes are taken as broken. 1 where even that cannot be found.
    """
    total, psi = as_counts(integral=False, n=n, churn=churn)
    tail = alpha / _sides(test)
    low, high = np.zeros(total.shape), np.ones(total.shape)
    for _ in range(46):
        middle = (low + high) / 2
        enough = connor(np.maximum(psi, middle), middle, tail, power) <= total
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return settled(high)


def examples_to_bound(
    broke: npt.ArrayLike,
    fixed: npt.ArrayLike,
    n: npt.ArrayLike,
    margin: npt.ArrayLike,
    alpha: float = 0.05,
    side: Side = "both",
    power: float = 0.5,
) -> Floats:
    """Examples (in total) at which one-sided Tango bounds at level alpha fit inside the margin.

    `worse` asks that the lower bound is above -margin, `better` that the upper one is below margin, `both` (two
    one-sided tests, Schuirmann 1987) for both. The observed rates are taken to continue; `inf` where they are outside
    the margin. The score grows with sqrt(n) at constant rates, so no search is needed: N = n (z / score)^2. With
    `power` above 0.5 the bounds fit that often, not just on average, if the rates are the true ones.
    """
    b, c, total = as_paired(broke, fixed, n, integral=False)
    limit = np.asarray(margin, dtype=np.float64)
    if not ((limit > 0) & (limit < 1)).all():
        raise InputError("margin must lie between 0 and 1: give it as a proportion, 0.01 for one point.")
    worse = _examples_for_bound(b, c, total, limit, alpha, power)
    better = _examples_for_bound(c, b, total, limit, alpha, power)
    return settled({"worse": worse, "better": better, "both": np.maximum(worse, better)}[side])


def smallest_provable_margin(n: npt.ArrayLike, alpha: float = 0.05) -> Floats:
    """The margin that n examples without a single flip just prove at one-sided level alpha: z^2 / (n + z^2)."""
    (total,) = as_counts(n=n)
    square = one_sided_z(alpha) ** 2
    return settled(square / (total + square))


def examples_to_detect_mean(
    sd_of_difference: npt.ArrayLike, drop: npt.ArrayLike, alpha: float = 0.05, power: float = 0.8, sides: int = 1
) -> Floats:
    """Examples that find a drop of the mean paired score, rounded up; `inf` where drop is not positive.

    (z_alpha + z_power)^2 sd^2 / drop^2 (Miller 2024, arXiv 2411.00640, section 5), where sd^2 is the variance of the
    paired difference: his omega^2 + sigma_A^2 / K_A + sigma_B^2 / K_B when answers are sampled K times.
    """
    reach = one_sided_z(alpha / sides) + float(ndtri(fraction(power, "power")))
    sd, delta = as_counts(integral=False, sd_of_difference=sd_of_difference, drop=np.maximum(drop, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        return settled(np.where(delta > 0, np.maximum(np.ceil((reach * sd / delta) ** 2 - 1e-9), 1.0), np.inf))


def smallest_detectable_drop_mean(
    n: npt.ArrayLike, sd_of_difference: npt.ArrayLike, alpha: float = 0.05, power: float = 0.8, sides: int = 1
) -> Floats:
    """The smallest drop of a mean paired score that n examples find with probability `power` (same formula)."""
    reach = one_sided_z(alpha / sides) + float(ndtri(fraction(power, "power")))
    total, sd = as_counts(integral=False, n=n, sd_of_difference=sd_of_difference)
    return settled(reach * sd / np.sqrt(np.maximum(total, 1.0)))


def examples_to_bound_mean(
    difference: npt.ArrayLike,
    sd_of_difference: npt.ArrayLike,
    margin: npt.ArrayLike,
    alpha: float = 0.05,
    side: Side = "both",
    power: float = 0.5,
) -> Floats:
    """Examples at which one-sided normal bounds of a mean difference fit inside the margin, in the units of the score.

    `inf` where the difference is outside the margin on a side that is asked for.
    """
    reach = one_sided_z(alpha) + max(0.0, float(ndtri(fraction(power, "power"))))
    d, limit = np.asarray(difference, dtype=np.float64), np.asarray(margin, dtype=np.float64)
    (sd,) = as_counts(integral=False, sd_of_difference=sd_of_difference)
    room = {"worse": limit + d, "better": limit - d, "both": limit - np.abs(d)}[side]
    with np.errstate(divide="ignore", invalid="ignore"):
        return settled(np.where(room > 0, np.maximum(np.ceil((reach * sd / room) ** 2 - 1e-9), 1.0), np.inf))


def _examples_for_bound(b: Floats, c: Floats, n: Floats, margin: Floats, alpha: float, power: float) -> Floats:
    """Examples at which the lower bound of the difference is above -margin."""
    score = intervals.score(b, c, n, -margin)
    z, above = one_sided_z(alpha), max(0.0, float(ndtri(fraction(power, "power"))))
    gap = (c - b) / n + margin
    # Spread of one example's difference under the truth, against the spread that the score assumes at the margin.
    true_spread = np.sqrt(np.maximum((b + c) / n - ((b - c) / n) ** 2, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        null_spread = gap * np.sqrt(n) / score
        needed = ((z * null_spread + above * true_spread) / gap) ** 2
    return np.asarray(np.where((gap > 0) & (needed < _MANY), np.maximum(np.ceil(needed - 1e-9), 1.0), np.inf))


def _rates(churn: npt.ArrayLike, drop: npt.ArrayLike) -> tuple[Floats, Floats]:
    psi, delta = as_counts(integral=False, churn=churn, drop=np.maximum(drop, 0.0))
    if (psi > 1).any() or (delta > 1).any():
        raise InputError("churn and drop are proportions: give 0.02 for two points.")
    return np.maximum(psi, delta), delta


def _known(test: str) -> str:
    if test not in _P_VALUE:
        raise InputError(f"there is no test {test!r}: use one of {', '.join(_P_VALUE)}.")
    return test


def _sides(test: str) -> int:
    return 1 if _known(test).endswith("-worse") else 2
