"""From statistics to states: the verdict order, the Holm family, and what would decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from assay.baselines.compare.verdict import Finding, State, over
from assay.baselines.policy import TaskLimits
from assay.baselines.stats import multiplicity, power, sequential


@dataclass(frozen=True)
class Measured:
    """What the examples say about one hypothesis, before any decision.

    `drop` and its one-sided bounds at the policy's alpha are oriented so that positive is worse. `churn` (binary) or
    `spread` (standard deviation of one example's paired difference, in the units of `drop`) says how much of it is noise.
    """

    group: str
    task: str
    metric: str
    scale: str
    n: int
    base: float
    head: float
    change: float
    low: float
    high: float
    drop: float
    drop_at_least: float
    drop_at_most: float
    p_worse: float
    p_better: float
    p_two_sided: float
    limits: TaskLimits
    broke: int | None = None
    fixed: int | None = None
    spread: float = 0.0
    pooled: bool = False
    growing: bool = False
    identical: bool = False
    clusters: int | None = None
    head_at_most: float | None = None
    """One-sided upper bound of the head's own score at alpha, for the floor."""


def judge(family: Sequence[Measured], alpha: float, target_power: float) -> list[Finding]:
    """Findings of one Holm family, in the order given.

    `regressed`: drop over the threshold and adjusted p under alpha, or the score is below its floor. `improved`: the
    same for a gain. `equivalent`: both one-sided bounds inside the margin, or the harmful one alone. Else
    `inconclusive`, with what would decide. The two directions are separate families, as a drop and a gain of one task
    cannot both be claimed.
    """
    if not family:
        return []
    worse = multiplicity.holm(np.array([m.p_worse for m in family]))
    better = multiplicity.holm(np.array([m.p_better for m in family]))
    return [
        _finding(m, float(w), float(b), _step(worse, i, alpha), _step(better, i, alpha), alpha, target_power)
        for i, (m, w, b) in enumerate(zip(family, worse, better, strict=True))
    ]


def _step(adjusted: np.ndarray[tuple[int], np.dtype[np.float64]], index: int, alpha: float) -> float:
    """The level at which Holm would test this hypothesis, given those that are rejected without it."""
    rejected = int((adjusted < alpha).sum()) - int(adjusted[index] < alpha)
    return alpha / (len(adjusted) - rejected)


def _finding(
    m: Measured, worse: float, better: float, worse_step: float, better_step: float, alpha: float, target_power: float
) -> Finding:
    below_floor = _below_floor(m)
    state, one_sided = _state(m, worse, better, alpha, below_floor is True)
    if below_floor is None and state in (State.EQUIVALENT, State.IMPROVED):
        state, one_sided = State.INCONCLUSIVE, False
    needed = None
    if state is State.INCONCLUSIVE and below_floor is None:
        needed = _to_show_floor(m, alpha, target_power)
    elif state is State.INCONCLUSIVE:
        needed = _needed(m, worse_step, better_step, alpha, target_power)
    return Finding(
        group=m.group,
        task=m.task,
        metric=m.metric,
        scale=m.scale,
        n=m.n,
        base=m.base,
        head=m.head,
        change=m.change,
        low=m.low,
        high=m.high,
        drop=m.drop,
        state=state,
        p_worse=m.p_worse,
        p_better=m.p_better,
        p_two_sided=m.p_two_sided,
        adjusted_worse=worse,
        adjusted_better=better,
        threshold=m.limits.threshold,
        margin=m.limits.margin,
        broke=m.broke,
        fixed=m.fixed,
        pooled=m.pooled,
        growing=m.growing,
        one_sided=one_sided,
        identical=m.identical,
        below_floor=below_floor is True,
        floor=m.limits.floor,
        needed=needed,
        detectable=_detectable(m, worse_step, target_power) if state is State.INCONCLUSIVE else None,
        clusters=m.clusters,
    )


def _state(m: Measured, worse: float, better: float, alpha: float, below_floor: bool) -> tuple[State, bool]:
    if below_floor or (over(m.drop, m.limits.threshold) and worse < alpha):
        return State.REGRESSED, False
    if over(-m.drop, m.limits.threshold) and better < alpha:
        return State.IMPROVED, False
    if m.identical:
        return State.EQUIVALENT, False
    if m.drop_at_most < m.limits.margin:
        return State.EQUIVALENT, m.drop_at_least <= -m.limits.margin
    return State.INCONCLUSIVE, False


def _below_floor(m: Measured) -> bool | None:
    """True: significantly below the floor. None: below it, but the examples do not show it. False: not below, or none."""
    if m.limits.floor is None or m.head >= m.limits.floor:
        return False
    return True if m.head_at_most is not None and m.head_at_most < m.limits.floor else None


def _needed(m: Measured, worse_step: float, better_step: float, alpha: float, target_power: float) -> int | None:
    """Fewest examples in all that would decide either way, if what was seen is the truth.

    A drop over the threshold can be shown to be one; a change inside the margin can be shown to stay there. None when
    neither can happen: the drop lies between the threshold and the margin, or nothing was measured.
    """
    candidates = []
    if over(m.drop, m.limits.threshold):
        candidates.append(_to_detect(m, m.drop, worse_step, target_power))
    if over(-m.drop, m.limits.threshold):
        candidates.append(_to_detect(m, -m.drop, better_step, target_power))
    if m.drop < m.limits.margin:
        candidates.append(_to_bound(m, alpha, target_power))
    usable = [c for c in candidates if c is not None and math.isfinite(c)]
    return max(math.ceil(min(usable)), m.n + 1) if usable else None


def _to_show_floor(m: Measured, alpha: float, target_power: float) -> int | None:
    """Fewest examples that would show a score below its floor, if what was seen is the truth (one-sided, one sample).

    The bound closes like an interval: its distance from the score at these n, and the score's own scatter for the power.
    """
    if m.limits.floor is None or m.head_at_most is None or not m.head_at_most > m.head:
        return None
    width = m.head_at_most - m.head
    return max(
        math.ceil(_to_fit(m.n, width, width / _z(alpha) * m.n**0.5, m.limits.floor - m.head, alpha, target_power)),
        m.n + 1,
    )


def _to_fit(n: int, width: float, spread: float, room: float, alpha: float, target_power: float) -> float:
    """Examples at which a bound that lies `width` from its estimate at `n` examples lies within `room`, with the power.

    Its squared distance at N examples is taken as z^2 spread^2 / N + (c / (N + c))^2. The second part is what the
    distance at `n` has beyond the spread of one example: the allowance that keeps bounds honest without any variance,
    which has the form of Tango's z^2 / (n + z^2). To the distance comes z_power spread / sqrt(N), as the estimate
    itself scatters.
    """
    z, above = _z(alpha), max(0.0, float(ndtri(target_power)))
    spread = min(spread, width * n**0.5 / z)
    allowance = min(math.sqrt(max(width**2 - (z * spread) ** 2 / n, 0.0)), 0.999)
    c = n * allowance / (1.0 - allowance)

    def reach(total: float) -> float:
        return math.sqrt((z * spread) ** 2 / total + (c / (total + c)) ** 2) + above * spread / math.sqrt(total)

    low, high = 1.0, float(n)
    while reach(high) > room:
        low, high = high, 2 * high
        if high > 1e12:
            return math.inf
    while high - low > 0.5:
        middle = (low + high) / 2
        low, high = (low, middle) if reach(middle) <= room else (middle, high)
    return high


def _z(alpha: float) -> float:
    return -float(ndtri(alpha))


def _to_detect(m: Measured, effect: float, alpha: float, target_power: float) -> float | None:
    if m.broke is not None and m.fixed is not None and m.clusters is None:
        churn = (m.broke + m.fixed) / m.n
        if m.growing:
            return float(sequential.examples_to_decide_sequential(churn, effect, alpha))
        return float(power.examples_to_detect(churn, effect, alpha, target_power))
    return float(power.examples_to_detect_mean(m.spread, effect, alpha, target_power)) if m.spread > 0 else None


def _to_bound(m: Measured, alpha: float, target_power: float) -> float | None:
    if m.broke is not None and m.fixed is not None and m.clusters is None:
        if m.growing:
            churn = (m.broke + m.fixed) / m.n
            return float(sequential.examples_to_bound_sequential(churn, m.drop, m.limits.margin, alpha, "worse"))
        return float(power.examples_to_bound(m.broke, m.fixed, m.n, m.limits.margin, alpha, "worse", target_power))
    width = m.drop_at_most - m.drop
    room = m.limits.margin - m.drop
    return _to_fit(m.n, width, m.spread, room, alpha, target_power) if width > 0 and room > 0 else None


def _detectable(m: Measured, alpha: float, target_power: float) -> float | None:
    """None for growing samples: what they show depends on when they stop, and no fixed size tells."""
    if m.growing:
        return None
    if m.broke is not None and m.fixed is not None and m.clusters is None:
        churn = (m.broke + m.fixed) / m.n
        return float(power.smallest_detectable_drop(m.n, churn, alpha, target_power)) if churn > 0 else None
    return float(power.smallest_detectable_drop_mean(m.n, m.spread, alpha, target_power)) if m.spread > 0 else None
