"""Gathers whose places depend on sizes alone, such as upsampling, flips and repeats: ranges one after the other."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy
from torch import fx

from assay.npu_backend.lowering import Call, Result, UnsupportedError, rule
from assay.npu_backend.rules.shape import box, joined

Places = numpy.ndarray[Any, Any]
MOST_RUNS = 64
"""Ranges beyond which a gather runs on the host."""


def _along(call: Call, x: str, axis: int, places: list[int]) -> str:
    """Elements of an axis in the order of `places`."""
    if places == list(range(call.shape(x)[axis])):
        return x
    counts = [(place, len(list(same))) for place, same in groupby(places)]
    times = counts[0][1]
    if times > 1 and all(count == times for _, count in counts):
        # All repeat equally: gather them once, and repeat.
        once = _along(call, x, axis, [place for place, _ in counts])
        sizes = call.shape(once)
        opened = call.reshape(once, (*sizes[: axis + 1], 1, *sizes[axis + 1 :]))
        wide = call.broadcast(opened, (*sizes[: axis + 1], times, *sizes[axis + 1 :]))
        return call.reshape(wide, (*sizes[:axis], sizes[axis] * times, *sizes[axis + 1 :]))
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([place, place + 1])
    if len(runs) > MOST_RUNS:
        raise UnsupportedError(f"a gather of {len(runs)} ranges")
    return joined(call, [box(call, x, axis, start, stop) for start, stop in runs], axis)


def _places(found: Places | None, size: int) -> list[int]:
    if found is None or found.dtype == numpy.bool_:
        raise UnsupportedError("its places depend on data")
    return [int(place) % size for place in found.flatten().tolist()]


@rule(
    "index_select.default", gives=["LOAD_TILE", "CONCAT", "RESHAPE", "BROADCAST"], limits="places that depend on data"
)
def select_places(call: Call) -> Result:
    """Ranges of one axis"""
    x, axis = call.args[:2]
    if not call.shape(x):
        raise UnsupportedError("a tensor without dimensions")
    axis %= len(call.shape(x))
    source = call.node.args[2]
    found = call.known(source) if isinstance(source, fx.Node) else None
    return call.reshape(_along(call, x, axis, _places(found, call.shape(x)[axis])), call.value.shape)


@rule(
    "index.Tensor",
    "_unsafe_index.Tensor",
    gives=["LOAD_TILE", "CONCAT", "RESHAPE", "BROADCAST"],
    limits="places that depend on data, and that vary along several dimensions together",
)
def gather(call: Call) -> Result:
    """Ranges of each axis that has an index"""
    x, sources = call.args[0], call.node.args[1]
    assert isinstance(sources, list | tuple)
    indexed = [(axis, source) for axis, source in enumerate(sources) if isinstance(source, fx.Node)]
    found = [(axis, call.known(source)) for axis, source in indexed]
    # Several indices stand for a grid when each one varies along a dimension of its own, in the order of the axes.
    rank = max((0 if places is None else places.ndim for _, places in found), default=0)
    varying = [_dimension(places, rank) for _, places in found]
    if (len(found) > 1 and varying != list(range(rank))) or [axis for axis, _ in found] != _consecutive(found):
        raise UnsupportedError("places that vary along several dimensions together")
    for axis, places in found:
        x = _along(call, x, axis, _places(places, call.shape(x)[axis]))
    return call.reshape(x, call.value.shape)


def _dimension(places: Places | None, rank: int) -> int:
    """The one dimension along which an index may vary, counted in the common shape; -1 when there are several."""
    if places is None:
        raise UnsupportedError("its places depend on data")
    wide = [axis + rank - places.ndim for axis, size in enumerate(places.shape) if size > 1]
    return wide[0] if len(wide) == 1 else -1


def _consecutive(found: list[tuple[int, Places | None]]) -> list[int]:
    start = found[0][0] if found else 0
    return list(range(start, start + len(found)))


@rule("flip.default", gives=["LOAD_TILE", "CONCAT"], limits=f"axes of more than {MOST_RUNS} elements")
def flip(call: Call) -> Result:
    """The elements of an axis from the last to the first"""
    x, axes = call.args
    for axis in axes:
        axis %= max(1, len(call.shape(x)))
        x = _along(call, x, axis, list(reversed(range(call.shape(x)[axis])))) if call.shape(x) else x
    return str(x)
