"""What the blocks of a lease say: the change of each case, whether rounds agree, whether the control stood still."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assay.baselines.compare.verdict import over
from assay.baselines.evidence import Evidence
from assay.baselines.kernel import Series
from assay.baselines.policy import Policy, TaskLimits, speed_limits
from assay.baselines.stats.multiplicity import holm
from assay.baselines.stats.speed import SpeedChange, paired_change, unpaired_change

MARGIN = "margin_percent"
DEFAULT_MARGIN = 0.02
Blocks = Mapping[tuple[str, str], Series]
"""(case, arm) -> its blocks."""


@dataclass(frozen=True)
class Measured:
    """One case of both sides."""

    case: str
    change: SpeedChange
    base: float
    head: float
    """Medians in seconds."""
    limits: TaskLimits
    rounds: Sequence[float]
    """The change in each round of fresh processes alone; one value where there was one round."""


def measured_of(
    base: Blocks, head: Blocks, cases: Sequence[str], policy: Policy, evidence: Evidence, paired: bool
) -> list[Measured]:
    """The cases that both sides timed, paired by block when they share a lease."""
    registered = registered_margin(evidence)
    found: list[Measured] = []
    for case in cases:
        # A baseline that was measured alone was a head itself.
        before, after = base.get((case, "base")) or base.get((case, "head")), head.get((case, "head"))
        if before is None or after is None:
            continue
        limits = speed_limits(policy, case, registered)
        if paired:
            blocks = sorted(before.seconds.keys() & after.seconds.keys())
            a, b = [before.seconds[i] for i in blocks], [after.seconds[i] for i in blocks]
            change = paired_change(a, b, threshold=limits.threshold, alpha=policy.alpha)
            rounds = by_round(np.log(b) - np.log(a), [after.rounds[i] for i in blocks])
        else:
            a, b = (list(series.seconds.values()) for series in (before, after))
            change = unpaired_change(a, b, threshold=limits.threshold, alpha=policy.alpha)
            rounds = [change.change]
        found.append(Measured(case, change, float(np.median(a)), float(np.median(b)), limits, rounds))
    return found


def by_round(log_ratios: npt.ArrayLike, rounds: Sequence[int]) -> list[float]:
    """The change that each round saw by itself, from the log-ratios of its blocks."""
    values, turns = np.asarray(log_ratios, dtype=np.float64), np.asarray(rounds)
    return [math.expm1(float(np.median(values[turns == turn]))) for turn in np.unique(turns)]


def registered_margin(evidence: Evidence) -> float:
    """The margin that was fixed before the measurement, as a proportion."""
    value = evidence.attributes.get(MARGIN)
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 100
    return float(value) / 100 if usable else DEFAULT_MARGIN  # type: ignore[arg-type]


def control_change(blocks: Blocks, case: str, alpha: float) -> SpeedChange | None:
    """Base against itself in the same lease; None without a control."""
    arm, control = blocks.get((case, "base"), Series()).seconds, blocks.get((case, "control"), Series()).seconds
    shared = sorted(arm.keys() & control.keys())
    if not shared:
        return None
    return paired_change([arm[i] for i in shared], [control[i] for i in shared], alpha=alpha)


def void(base: Blocks, measured: Sequence[Measured], policy: Policy) -> str:
    """Why the lease is void, or "": base against itself moved by more than half the margin, and not by chance."""
    controls = [(m, control_change(base, m.case, policy.alpha)) for m in measured]
    known = [(m, c) for m, c in controls if c is not None]
    if not known:
        return ""
    adjusted = holm([min(1.0, 2 * min(c.p_slower, c.p_faster)) for _, c in known])
    for (m, control), p in zip(known, adjusted, strict=True):
        if p < policy.alpha and abs(control.change) > m.limits.margin / 2:
            moved = f"{100 * control.change:+.1f}".replace("-", "−")
            return f"{m.case[:60]}: base against itself moved by {moved}%"
    return ""


def control_facts(base: Blocks, measured: Sequence[Measured], policy: Policy) -> list[str]:
    """What the control said, one phrase for the case on which it moved most."""
    controls = [c for m in measured if (c := control_change(base, m.case, policy.alpha)) is not None]
    if not controls:
        return []
    worst = max(controls, key=lambda c: abs(c.change))
    change, low, high = (
        f"{round(100 * x, 1) + 0.0:+.1f}".replace("-", "−") for x in (worst.change, worst.low, worst.high)
    )
    return [f"Control, base against itself in the same blocks: at most {change}% ({low}, {high})"]


def disagreements(measured: Sequence[Measured]) -> list[str]:
    """Cases on which one round of processes is beyond the threshold and another is not."""
    found = []
    for m in measured:
        beyond = [over(max(x, 1 / (1 + x) - 1), m.limits.threshold) for x in m.rounds]
        if any(beyond) and not all(beyond):
            listed = " and ".join(f"{100 * x:+.1f}%" for x in m.rounds[:4]).replace("-", "−")
            found.append(f"{m.case[:60]} changed by {listed} in rounds of fresh processes, which is no verdict")
    return found
