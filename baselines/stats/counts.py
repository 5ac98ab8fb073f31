"""Counts of a paired comparison, and the interval type that every estimate returns.

Conventions of the whole package: a difference is `head - base` in proportions, so a drop is negative; `broke` counts
examples that base had right and head has wrong, `fixed` the other way round; `n` counts all paired examples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from assay.baselines.errors import InputError

Floats = npt.NDArray[np.float64]


class Interval(NamedTuple):
    """Lower and upper limit, each of the broadcast shape of the inputs (`numpy.float64` for scalars)."""

    low: Floats
    high: Floats


def as_counts(*, integral: bool = True, **named: npt.ArrayLike) -> tuple[Floats, ...]:
    """The named counts as float64 arrays of one common shape.

    Raises `InputError` for negative, non-finite or (with `integral`) fractional counts and for shapes that do not
    broadcast.
    """
    arrays = []
    for name, value in named.items():
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"{name} must be a number or an array of numbers, not {type(value).__name__}.") from None
        if not (np.isfinite(array) & (array >= 0)).all():
            raise InputError(f"{name} has a negative or non-finite value: give counts of examples, which are >= 0.")
        if integral and not (array == np.floor(array)).all():
            raise InputError(f"{name} has a fractional value: give whole counts of examples.")
        arrays.append(array)
    try:
        return tuple(np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip(named, arrays, strict=True))
        raise InputError(f"shapes do not fit together ({shapes}): give one count per task in each array.") from None


def as_paired(
    broke: npt.ArrayLike, fixed: npt.ArrayLike, n: npt.ArrayLike, *, integral: bool = True
) -> tuple[Floats, Floats, Floats]:
    """`broke`, `fixed` and `n` checked together: n is positive and at least broke + fixed (slack 1e-9)."""
    b, c, total = as_counts(integral=integral, broke=broke, fixed=fixed, n=n)
    if not (total > 0).all():
        raise InputError("n is 0: a comparison needs at least one paired example.")
    if not (b + c <= total * (1 + 1e-9)).all():
        raise InputError("broke + fixed is more than n: n counts all paired examples, the agreeing ones included.")
    return b, c, total


def settled(values: npt.ArrayLike) -> Floats:
    """float64 values as functions return them: `numpy.float64` for a scalar, any other array as it is."""
    result: Floats = np.asarray(values, dtype=np.float64)[()]
    return result


def fraction(value: float, name: str) -> float:
    """`value` when it lies strictly between 0 and 1, else an `InputError` that names it."""
    number = float(value)
    if not 0.0 < number < 1.0:
        raise InputError(f"{name} is {value}: give a number strictly between 0 and 1.")
    return number


def two_sided_z(confidence: float) -> float:
    """Standard normal quantile that leaves (1 - confidence) / 2 in each tail."""
    return float(ndtri(0.5 + fraction(confidence, "confidence") / 2))


def one_sided_z(alpha: float) -> float:
    """Standard normal quantile that leaves `alpha` in the upper tail."""
    return float(-ndtri(fraction(alpha, "alpha")))
