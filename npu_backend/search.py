"""The tiling of a group: sizes of output boxes that fit VTCM and cost the least.

A group is a layer and those that ride on it. Its output is cut into boxes, and each operand into the box that an output
box needs. Tilings form a lattice: from the whole output down, each step halves one axis. All the largest ones that fit are
looked at, in both orders of loops, and the cheapest one is taken: DRAM bytes that it loads, and for each piece a share of
VTCM, because instructions take time to start. Tiles take at most half of VTCM, so that the next ones arrive while these
compute, unless all of it is much cheaper. Products and convolutions may cut their sum as well, with `accumulate`, when
nothing else fits. What stays in VTCM (`resident`) is read and written where it lies: it takes no tile and no traffic.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from assay.npu_backend import isa
from assay.npu_backend.boxes import (
    DoesNotFitError,
    boxes,
    depth_of,
    largest_window,
    lengths,
    loop_order,
    moving_axes,
    smallest,
)
from assay.npu_backend.isa import Instruction
from assay.npu_backend.layers import LayerGraph
from assay.npu_backend.tensor import Box, Shape, box_bytes

Group = list[Instruction]
MAX_TILES = 20_000
"""Boxes of one group beyond which the layer is refused: the program would be larger than its data."""
PIECES = 128
"""A piece more costs as much as this part of VTCM in DRAM bytes: 64 KiB of 8 MiB, what DRAM moves in about a microsecond."""
ALL_OF_IT = 0.8
"""All of VTCM is taken when it costs less than this part of what half of it costs."""


@dataclass(frozen=True)
class Tiling:
    """Sizes of the boxes along each axis of a group's output, and of the pieces of the sum (0: whole)."""

    sizes: Shape
    depth: int = 0
    block: int = 0
    """For a change of shape: elements of a block that is a box on both sides. `sizes` says nothing then."""
    rows_first: bool = False
    """Whether the loop over rows is outside that over columns or channels, so that rows stay and weights come again."""


def groups(graph: LayerGraph) -> list[Group]:
    """Layers that are computed together, in order."""
    found: list[Group] = []
    for layer in graph.layers:
        if layer.fused:
            found[-1].append(layer)
        else:
            found.append([layer])
    return found


def choose(
    graph: LayerGraph, group: Group, capacity: int, *, room: int | None = None, resident: Collection[str] = ()
) -> Tiling:
    """The tiling of a group whose tiles may take `room` bytes of `capacity`. Raises `DoesNotFitError`."""
    room = capacity if room is None else room
    reshaping = isinstance(group[0], isa.Reshape) and group[0].function == "reshape"
    find = _search_block if reshaping else _search
    found = [
        (price(graph, group, tiling, capacity, resident), tiling)
        for budget in dict.fromkeys((min(room, capacity // 2), room))
        if (tiling := find(graph, group, budget, capacity, resident)) is not None
    ]
    if not found:
        raise DoesNotFitError(group[0].out, len(group))
    return found[-1][1] if found[-1][0] < ALL_OF_IT * found[0][0] else found[0][1]


def price(graph: LayerGraph, group: Group, tiling: Tiling, capacity: int, resident: Collection[str]) -> int:
    """DRAM bytes that a tiling loads, and its pieces as DRAM bytes."""
    depth, _ = depth_of(graph, group[0])
    parts = -(-depth // tiling.depth) if tiling.depth else 1
    number = pieces(graph, group, tiling) * parts * len(group)
    return traffic(graph, group, tiling, resident) + number * max(1, capacity // PIECES)


def _search(graph: LayerGraph, group: Group, budget: int, capacity: int, resident: Collection[str]) -> Tiling | None:
    whole = Tiling(graph.tensors[group[0].out].shape)
    if footprint(graph, group, whole, resident) <= budget:
        return whole
    depth, _ = depth_of(graph, group[0])
    return _largest(graph, group, budget, capacity, resident, whole) or (
        _largest(graph, group, budget, capacity, resident, replace(whole, depth=depth)) if depth > 1 else None
    )


def _largest(
    graph: LayerGraph, group: Group, budget: int, capacity: int, resident: Collection[str], start: Tiling
) -> Tiling | None:
    """The cheapest of the tilings that fit and of which no larger one fits, from `start` down."""
    steps = smallest(graph, group)
    level, seen, fitting = [start], {start}, []
    while level:
        below: list[Tiling] = []
        for tiling in level:
            if footprint(graph, group, tiling, resident) <= budget:
                if pieces(graph, group, tiling) <= MAX_TILES:
                    fitting.append(tiling)
                continue
            smaller = [
                replace(tiling, sizes=(*tiling.sizes[:axis], _half(size, steps[axis]), *tiling.sizes[axis + 1 :]))
                for axis, size in enumerate(tiling.sizes)
                if size > steps[axis]
            ]
            if tiling.depth > 1:
                smaller.append(replace(tiling, depth=_half(tiling.depth, 1)))
            below += [other for other in smaller if other not in seen]
            seen.update(smaller)
        level = list(dict.fromkeys(below))
    if isinstance(group[0], isa.MatMul | isa.Conv2d):
        fitting += [replace(tiling, rows_first=True) for tiling in fitting]
    return min(
        fitting,
        key=lambda tiling: (
            price(graph, group, tiling, capacity, resident),
            footprint(graph, group, tiling, resident),
        ),
        default=None,
    )


def _search_block(
    graph: LayerGraph, group: Group, budget: int, capacity: int, resident: Collection[str]
) -> Tiling | None:
    """The largest count of elements that is a box on both sides and whose tiles fit."""
    (layer,) = group
    assert isinstance(layer, isa.Reshape)
    before, after = graph.tensors[layer.x], graph.tensors[layer.out]
    total = before.elements
    for count in sorted(lengths(before.shape) & lengths(after.shape), reverse=True):
        tiling = Tiling(after.shape, block=count)
        if total % count == 0 and footprint(graph, group, tiling, resident) <= budget:
            return tiling if total // count <= MAX_TILES else None
    return None


def _half(size: int, step: int) -> int:
    return max(step, -(-size // (2 * step)) * step)


def pieces(graph: LayerGraph, group: Group, tiling: Tiling) -> int:
    """How many boxes a group's output is written in."""
    out = graph.tensors[group[0].out]
    if tiling.block:
        return out.elements // tiling.block
    return math.prod(-(-n // size) for n, size in zip(out.shape, tiling.sizes, strict=True))


def footprint(graph: LayerGraph, group: Group, tiling: Tiling, resident: Collection[str] = ()) -> int:
    """Bytes of the tiles of one box that are live together, at most."""
    tensors = graph.tensors
    if tiling.block:
        sides = [name for name in (group[0].reads()[0], group[0].out) if name not in resident]
        return sum(-(-tiling.block * tensors[name].element_bits // 8) for name in sides)
    out = _first(graph, group, tiling)
    part = (0, tiling.depth) if tiling.depth else None
    total = box_bytes(out, tensors[group[0].out]) * _copies(graph, group, tiling, resident)
    if isinstance(group[0], isa.LoadTile):
        return total if group[0].source not in resident else 0
    loaded: set[tuple[str, Box]] = set()
    for place, layer in enumerate(group):
        needed = boxes(graph, layer, out, part if place == 0 else None)
        if isinstance(layer, isa.Conv2d):
            needed[0] = largest_window(layer, graph, needed[0], tiling.sizes)
        loaded.update(list(zip(layer.reads(), needed, strict=True))[0 if place == 0 else 1 :])
    return total + sum(box_bytes(box, tensors[name]) for name, box in loaded if name not in resident)


def _copies(graph: LayerGraph, group: Group, tiling: Tiling, resident: Collection[str]) -> int:
    """Output boxes that are live together: a sum in pieces has one more, and what stays is counted as a whole already."""
    depth, _ = depth_of(graph, group[0])
    parts = -(-depth // tiling.depth) if tiling.depth else 1
    if group[-1].out not in resident:
        return min(parts, 2)
    # Of three pieces of a sum the second is complete before the last one, which alone is written where it stays.
    return min(parts - 1, 1 if pieces(graph, group, tiling) == 1 else 2)


def traffic(graph: LayerGraph, group: Group, tiling: Tiling, resident: Collection[str] = ()) -> int:
    """DRAM bytes that a tiling loads, when a tile that the next box needs too is kept."""
    tensors = graph.tensors
    if tiling.block:
        source = group[0].reads()[0]
        return 0 if source in resident else tensors[source].bytes
    shape = tensors[group[0].out].shape
    counts = [-(-n // size) for n, size in zip(shape, tiling.sizes, strict=True)]
    depth, _ = depth_of(graph, group[0])
    parts = -(-depth // tiling.depth) if tiling.depth else 1
    order = loop_order(group[0], len(shape), rows_first=tiling.rows_first)
    out = _first(graph, group, tiling)
    part = (0, tiling.depth) if tiling.depth else None
    total = 0
    for place, layer in enumerate(group):
        needed = boxes(graph, layer, out, part if place == 0 else None)
        for name, box in list(zip(layer.reads(), needed, strict=True))[0 if place == 0 else 1 :]:
            if name in resident:
                continue
            varies = moving_axes(graph, layer, name, box, len(shape))
            last = max((order.index(axis) for axis in varies if counts[axis] > 1), default=-1)
            times = math.prod(counts[axis] for axis in order[: last + 1])
            if parts > 1 and place == 0:
                times = math.prod(counts) * parts
            total += times * box_bytes(box, tensors[name])
    return total


def _first(graph: LayerGraph, group: Group, tiling: Tiling) -> Box:
    """A box from the middle, which a convolution's border does not cut."""
    shape = graph.tensors[group[0].out].shape
    found = []
    for n, size in zip(shape, tiling.sizes, strict=True):
        start = size if 2 * size <= n else 0
        found.append((start, start + size))
    return tuple(found)
