"""Speed of head against base from blocks that took turns: the median log-ratio and its block bootstrap.

Only NumPy, so that the benchmark itself can use it where nothing else is installed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from assay.baselines.errors import InputError

FEWEST_BLOCKS = 8
_WORK = 20_000_000
"""Resampled times held in memory; more blocks get fewer draws, and need fewer."""
_FEWEST_DRAWS = 200
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SpeedChange:
    """Relative change of the time, head over base, less 1: positive is slower, 0.01 is one per cent."""

    change: float
    low: float
    high: float
    """95% interval of the change."""
    log_ratio: float
    error: float
    """Standard error of the median log-ratio, from the bootstrap."""
    p_slower: float
    """One-sided p of "slower by more than the threshold"."""
    p_faster: float
    """One-sided p of "faster by more than the threshold"."""
    bound_low: float
    bound_high: float
    """One-sided bounds of the change, each at `alpha`."""
    blocks: int
    paired: bool


def paired_change(
    base: npt.ArrayLike,
    head: npt.ArrayLike,
    *,
    threshold: float = 0.0,
    alpha: float = 0.05,
    draws: int = 4000,
    seed: int = 0,
) -> SpeedChange:
    """Compare times (seconds, > 0, shape (n,)) of blocks that ran side by side: row i of both is block i.

    The statistic is the median over blocks of log(head / base). Its distribution comes from a circular block bootstrap
    (Politis and Romano 1992) with runs of about n^(1/3) neighbouring blocks, since neighbours share what disturbed
    them. `threshold` is a proportion (0.02): p values are those of a change beyond it.

    Raises `InputError` for unequal lengths, fewer than 8 blocks and times that are not positive.
    """
    b, h = _times(base, "base"), _times(head, "head")
    if b.shape != h.shape:
        raise InputError(f"base has {b.size} blocks and head has {h.size}: pairs need as many of both.")
    ratios = np.log(h) - np.log(b)
    medians = np.median(_resampled(ratios, draws, np.random.default_rng(seed)), axis=1)
    return _summary(float(np.median(ratios)), medians, threshold, alpha, b.size, True)


def unpaired_change(
    base: npt.ArrayLike,
    head: npt.ArrayLike,
    *,
    threshold: float = 0.0,
    alpha: float = 0.05,
    draws: int = 4000,
    seed: int = 0,
) -> SpeedChange:
    """The same for times of two leases, which share no block: the log-ratio of the medians, each resampled by itself.

    What differs between two days and machines is in the estimate and not in the interval.
    """
    b, h = np.log(_times(base, "base")), np.log(_times(head, "head"))
    chance = np.random.default_rng(seed)
    fewest = min(draws, max(_WORK // max(b.size, h.size), _FEWEST_DRAWS))
    medians = np.median(_resampled(h, fewest, chance), axis=1) - np.median(_resampled(b, fewest, chance), axis=1)
    return _summary(float(np.median(h) - np.median(b)), medians, threshold, alpha, min(b.size, h.size), False)


def median_interval(times: npt.ArrayLike, *, draws: int = 2000, seed: int = 0) -> tuple[float, float, float]:
    """Median of block times and its 95% interval, by the same bootstrap."""
    x = _times(times, "the arm")
    medians = np.median(_resampled(x, draws, np.random.default_rng(seed)), axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    middle = float(np.median(x))
    return middle, min(float(low), middle), max(float(high), middle)


def needed_blocks(found: SpeedChange, threshold: float, margin: float, alpha: float, power: float) -> int | None:
    """Blocks in all that would decide, when this change is the true one; None where none would.

    The interval narrows with the root of the blocks, and has to end on one side of the nearest limit: the threshold
    from above (slower, or faster), the margin from below (the same).
    """
    size = abs(found.log_ratio)
    gap = max(size - math.log1p(threshold), math.log1p(margin) - size)
    if gap <= 0.05 * math.log1p(margin) or found.error == 0:
        return None
    reach = (_z(alpha) + _z(1 - power)) * found.error
    return max(found.blocks + 1, math.ceil(found.blocks * (reach / gap) ** 2))


def detectable(found: SpeedChange, threshold: float, alpha: float, power: float) -> float:
    """The smallest slowdown that these blocks would show with this power, as a proportion."""
    return math.expm1(math.log1p(threshold) + (_z(alpha) + _z(1 - power)) * found.error)


def _summary(ratio: float, medians: Floats, threshold: float, alpha: float, blocks: int, paired: bool) -> SpeedChange:
    limit = math.log1p(threshold)
    count = medians.size
    low, bound_low, bound_high, high = np.quantile(medians, (0.025, alpha, 1 - alpha, 0.975))
    return SpeedChange(
        change=math.expm1(ratio),
        low=math.expm1(min(float(low), ratio)),
        high=math.expm1(max(float(high), ratio)),
        log_ratio=ratio,
        error=float(medians.std()),
        p_slower=float((np.count_nonzero(medians <= limit) + 1) / (count + 1)),
        p_faster=float((np.count_nonzero(medians >= -limit) + 1) / (count + 1)),
        bound_low=math.expm1(float(bound_low)),
        bound_high=math.expm1(float(bound_high)),
        blocks=blocks,
        paired=paired,
    )


def _resampled(values: Floats, draws: int, chance: np.random.Generator) -> Floats:
    """Resamples of circular runs of neighbours, one in each row."""
    n = values.size
    draws = max(min(draws, _WORK // n), _FEWEST_DRAWS)
    run = max(1, round(n ** (1 / 3)))
    starts = chance.integers(0, n, size=(draws, -(-n // run)))
    index = (starts[:, :, None] + np.arange(run)).reshape(draws, -1)[:, :n] % n
    found: Floats = values[index]
    return found


def _times(values: npt.ArrayLike, name: str) -> Floats:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size < FEWEST_BLOCKS:
        raise InputError(f"{name} has {x.size} blocks: an interval needs at least {FEWEST_BLOCKS}; measure more.")
    if not (np.isfinite(x) & (x > 0)).all():
        raise InputError(f"{name} has a time that is not positive: the clock failed; measure again.")
    return x


def _z(tail: float) -> float:
    """Standard normal quantile that leaves `tail` above it."""
    return NormalDist().inv_cdf(1 - tail)
