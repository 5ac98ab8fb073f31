"""From layers to a program: every group of fused layers becomes loads, computation and stores of tiles that fit VTCM.

A group is a layer and those that ride on it. Its output is cut into boxes, and each operand into the box that an output box
needs. Sizes of boxes start at the whole output and are halved, each time along the axis that costs the least DRAM traffic,
until the tiles take at most half of VTCM, so that the next tiles arrive while these compute; all of VTCM when half is too
little. Products and convolutions may cut their sum as well, with `accumulate`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from assay.npu_backend import isa
from assay.npu_backend.codegen import Program
from assay.npu_backend.isa import Instruction
from assay.npu_backend.layers import LayerGraph
from assay.npu_backend.tensor import BITS, Range, Role, Shape, Tensor
from assay.npu_backend.validation import VTCM_BYTES

Box = tuple[Range, ...]
_Kept = dict[tuple[int, int], tuple[str, Box, str]]
"""(layer of the group, operand) -> tensor, box and tile that were loaded last."""
MAX_TILES = 20_000
"""Boxes of one group beyond which the layer is refused: the program would be larger than its data."""


class DoesNotFitError(Exception):
    """No tile of a group fits VTCM. `out` is the group's first layer's output; `length` the layers in the group."""

    def __init__(self, out: str, length: int) -> None:
        super().__init__(f"no tile of {out} fits VTCM")
        self.out = out
        self.length = length


@dataclass(frozen=True)
class Tiling:
    """Sizes of the boxes along each axis of a group's output, and of the pieces of the sum (0: whole)."""

    sizes: Shape
    depth: int = 0


def tile(graph: LayerGraph, *, capacity: int = VTCM_BYTES) -> Program:
    """The program of a graph. Raises `DoesNotFitError`."""
    emitter = _Emitter(graph)
    for group in groups(graph):
        if isinstance(group[0], isa.Reshape) and group[0].function == "reshape":
            emitter.reshape(group[0], capacity)
        else:
            emitter.group(group, choose(graph, group, capacity))
    named = {name for layer in emitter.code for name in (*layer.reads(), layer.out)}
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name in named}
    return Program(graph.name, {**tensors, **emitter.tiles}, tuple(emitter.code))


def groups(graph: LayerGraph) -> list[list[Instruction]]:
    """Layers that are computed together, in order."""
    found: list[list[Instruction]] = []
    for layer in graph.layers:
        if layer.fused:
            found[-1].append(layer)
        else:
            found.append([layer])
    return found


def choose(graph: LayerGraph, group: list[Instruction], capacity: int) -> Tiling:
    """The tiling of a group. Raises `DoesNotFitError`."""
    for budget in (capacity // 2, capacity):
        tiling = _search(graph, group, budget)
        if tiling is not None:
            return tiling
    raise DoesNotFitError(group[0].out, len(group))


def _search(graph: LayerGraph, group: list[Instruction], budget: int) -> Tiling | None:
    shape = graph.tensors[group[0].out].shape
    steps = _steps(graph, group)
    tiling = Tiling(shape)
    depth, step = _depth(graph, group[0])
    while footprint(graph, group, tiling) > budget:
        smaller = [
            replace(tiling, sizes=(*tiling.sizes[:axis], _half(size, steps[axis]), *tiling.sizes[axis + 1 :]))
            for axis, size in enumerate(tiling.sizes)
            if size > steps[axis]
        ]
        if depth > step and (tiling.depth or depth) > step:
            smaller.append(replace(tiling, depth=_half(tiling.depth or depth, step)))
        before = footprint(graph, group, tiling)
        smaller = [other for other in smaller if other.depth or footprint(graph, group, other) < before]
        if not smaller:
            return None
        tiling = min(smaller, key=lambda other: (traffic(graph, group, other), footprint(graph, group, other)))
    return (
        tiling if math.prod(-(-n // size) for n, size in zip(shape, tiling.sizes, strict=True)) <= MAX_TILES else None
    )


def _half(size: int, step: int) -> int:
    return max(step, -(-size // (2 * step)) * step)


def _steps(graph: LayerGraph, group: list[Instruction]) -> list[int]:
    """Smallest box along each axis: the whole axis where the computation needs it."""
    shape = graph.tensors[group[0].out].shape
    steps = [1] * len(shape)
    for layer in group:
        if isinstance(layer, isa.Softmax | isa.Concat):
            steps[layer.axis] = max(1, shape[layer.axis])
        elif isinstance(layer, isa.Quantize | isa.Dequantize) and layer.axis is not None:
            steps[layer.axis] = shape[layer.axis]
        elif isinstance(layer, isa.LayerNorm):
            steps[layer.axis :] = shape[layer.axis :]
        elif isinstance(layer, isa.Conv2d):
            steps[3] = shape[3]
            if layer.groups > 1:
                steps[1] = shape[1] // layer.groups
    return steps


def _depth(graph: LayerGraph, head: Instruction) -> tuple[int, int]:
    """Length of the sum that may be cut, and its smallest piece."""
    if isinstance(head, isa.MatMul):
        return graph.tensors[head.a].shape[-1], 1
    if isinstance(head, isa.Conv2d) and head.groups == 1:
        return graph.tensors[head.x].shape[1], 1
    return 0, 1


def boxes(graph: LayerGraph, layer: Instruction, out: Box, part: Range | None = None) -> list[Box]:
    """What each operand of a layer must give for a box of its output; `part` of the sum for products."""
    tensors = graph.tensors
    if isinstance(layer, isa.MatMul):
        return _matmul_boxes(layer, graph, out, part)
    if isinstance(layer, isa.Conv2d):
        return _conv_boxes(layer, graph, out, part)
    if isinstance(layer, isa.LayerNorm):
        return [out, *(tuple((0, size) for size in tensors[name].shape) for name in layer.reads()[1:])]
    if isinstance(layer, isa.LoadTile):
        return [tuple((start + a, start + b) for (start, _), (a, b) in zip(layer.ranges, out, strict=True))]
    if isinstance(layer, isa.Concat):
        return [
            tuple((0, tensors[name].shape[axis]) if axis == layer.axis else r for axis, r in enumerate(out))
            for name in layer.xs
        ]
    if isinstance(layer, isa.Reshape):
        return [tuple(out[layer.order.index(axis)] for axis in range(len(layer.order)))]
    return [_aligned(tensors[name].shape, out) for name in layer.reads()]


def _aligned(shape: Shape, out: Box) -> Box:
    """The box of an operand that broadcasts."""
    tail = out[len(out) - len(shape) :]
    return tuple((0, 1) if size == 1 else r for size, r in zip(shape, tail, strict=True))


def _matmul_boxes(layer: isa.MatMul, graph: LayerGraph, out: Box, part: Range | None) -> list[Box]:
    a, b = graph.tensors[layer.a].shape, graph.tensors[layer.b].shape
    k = part or (0, a[-1])
    left = (*_aligned(a[:-2], out[:-2]), out[-2], k)
    right = (*_aligned(b[:-2], out[:-2]), *((out[-1], k) if layer.transpose_b else (k, out[-1])))
    return [left, right] + ([(out[-1],)] if layer.bias else [])


def _conv_boxes(layer: isa.Conv2d, graph: LayerGraph, out: Box, part: Range | None) -> list[Box]:
    x, weight = graph.tensors[layer.x].shape, graph.tensors[layer.weight].shape
    per_group = weight[0] // layer.groups
    channels = (out[1][0] // per_group * weight[1], -(-out[1][1] // per_group) * weight[1])
    if layer.groups == 1:
        channels = part or (0, x[1])
    rows, _ = _window(out[2], x[2], weight[2], layer.stride[0], layer.dilation[0], layer.padding[0])
    columns, _ = _window(out[3], x[3], weight[3], layer.stride[1], layer.dilation[1], layer.padding[2])
    inner = part or (0, weight[1])
    found: list[Box] = [(out[0], channels, rows, columns), (out[1], inner, (0, weight[2]), (0, weight[3]))]
    return found + ([(out[1],)] if layer.bias else [])


def _window(out: Range, size: int, kernel: int, stride: int, dilation: int, before: int) -> tuple[Range, Range]:
    """Input rows that a range of output rows reads, and the zeros before and after them."""
    start = out[0] * stride - before
    stop = (out[1] - 1) * stride - before + dilation * (kernel - 1) + 1
    low, high = min(max(0, start), size - 1), max(1, min(size, stop))
    return (low, high), (low - start, stop - high)


def _largest(layer: isa.Conv2d, graph: LayerGraph, box: Box, tiling: Tiling) -> Box:
    """The largest box of the input that a box of the output reads anywhere: one that no border cuts."""
    x, kernel = graph.tensors[layer.x].shape, graph.tensors[layer.weight].shape[2:]
    rows, columns = (
        (0, min(x[2 + i], (tiling.sizes[2 + i] - 1) * layer.stride[i] + layer.dilation[i] * (kernel[i] - 1) + 1))
        for i in (0, 1)
    )
    return (*box[:2], rows, columns)


def _cut(layer: Instruction, graph: LayerGraph, out: Box) -> Instruction:
    """A convolution with the padding and groups of a box; any other layer as it is."""
    if not isinstance(layer, isa.Conv2d):
        return layer
    x, weight = graph.tensors[layer.x].shape, graph.tensors[layer.weight].shape
    _, (top, bottom) = _window(out[2], x[2], weight[2], layer.stride[0], layer.dilation[0], layer.padding[0])
    _, (left, right) = _window(out[3], x[3], weight[3], layer.stride[1], layer.dilation[1], layer.padding[2])
    if min(top, bottom, left, right) < 0:
        raise DoesNotFitError(layer.out, 1)
    many = -(-(out[1][1] - out[1][0]) // (weight[0] // layer.groups)) if layer.groups > 1 else 1
    return replace(layer, padding=(top, bottom, left, right), groups=many)


def footprint(graph: LayerGraph, group: list[Instruction], tiling: Tiling) -> int:
    """Bytes of the tiles of one box that are live together, at most."""
    out = _first(graph, group, tiling)
    tensors = graph.tensors
    shapes = [tensors[layer.out] for layer in group]
    part = (0, tiling.depth) if tiling.depth else None
    total = _bytes(out, shapes[0].dtype) * (2 if part else 1)
    if isinstance(group[0], isa.LoadTile):
        return total
    loaded: set[tuple[str, Box]] = set()
    for place, layer in enumerate(group):
        needed = boxes(graph, layer, out, part if place == 0 else None)
        if isinstance(layer, isa.Conv2d):
            needed[0] = _largest(layer, graph, needed[0], tiling)
        loaded.update(list(zip(layer.reads(), needed, strict=True))[0 if place == 0 else 1 :])
    return total + sum(_bytes(box, tensors[name].dtype) for name, box in loaded)


def traffic(graph: LayerGraph, group: list[Instruction], tiling: Tiling) -> int:
    """DRAM bytes that a tiling loads, when a tile that the next box needs too is kept."""
    shape = graph.tensors[group[0].out].shape
    counts = [-(-n // size) for n, size in zip(shape, tiling.sizes, strict=True)]
    depth, _ = _depth(graph, group[0])
    parts = -(-depth // tiling.depth) if tiling.depth else 1
    order = _order(group[0], len(shape))
    out = _first(graph, group, tiling)
    part = (0, tiling.depth) if tiling.depth else None
    total = 0
    for place, layer in enumerate(group):
        needed = boxes(graph, layer, out, part if place == 0 else None)
        for name, box in list(zip(layer.reads(), needed, strict=True))[0 if place == 0 else 1 :]:
            varies = _axes(graph, layer, name, box, len(shape))
            last = max((order.index(axis) for axis in varies if counts[axis] > 1), default=-1)
            times = math.prod(counts[axis] for axis in order[: last + 1])
            if parts > 1 and place == 0:
                times = math.prod(counts) * parts
            total += times * _bytes(box, graph.tensors[name].dtype)
    return total


def _axes(graph: LayerGraph, layer: Instruction, name: str, box: Box, rank: int) -> set[int]:
    """Axes of the output along which an operand's box moves."""
    if isinstance(layer, isa.Conv2d):
        return {0, 1, 2} - ({1} if layer.groups == 1 else set()) if name == layer.x else {1}
    if isinstance(layer, isa.MatMul):
        lead = set(range(rank - 2))
        shape = graph.tensors[name].shape
        if name == layer.bias:
            return {rank - 1}
        lead = {axis for axis in lead if axis - (rank - len(shape)) >= 0 and shape[axis - (rank - len(shape))] > 1}
        return lead | ({rank - 2} if name == layer.a else {rank - 1})
    if isinstance(layer, isa.LayerNorm) and name != layer.x:
        return set()
    shape = graph.tensors[name].shape
    return {axis for axis in range(rank) if axis >= rank - len(shape) and (len(shape) != rank or shape[axis] > 1)}


def _order(head: Instruction, rank: int) -> list[int]:
    """Axes from the outermost loop in: the one that chooses the weight goes first, so that a weight tile stays."""
    axes = list(range(rank))
    if isinstance(head, isa.MatMul):
        axes = [*axes[:-2], rank - 1, rank - 2]
    elif isinstance(head, isa.Conv2d):
        axes = [1, 0, 2, 3]
    return axes


def _first(graph: LayerGraph, group: list[Instruction], tiling: Tiling) -> Box:
    """A box from the middle, which a convolution's border does not cut."""
    shape = graph.tensors[group[0].out].shape
    found = []
    for n, size in zip(shape, tiling.sizes, strict=True):
        start = size if 2 * size <= n else 0
        found.append((start, start + size))
    return tuple(found)


def _bytes(box: Box, dtype: str) -> int:
    return -(-math.prod(stop - start for start, stop in box) * BITS[dtype] // 8)


class _Emitter:
    """Writes a program's instructions and tiles."""

    def __init__(self, graph: LayerGraph) -> None:
        self._graph = graph
        self.tiles: dict[str, Tensor] = {}
        self.code: list[Instruction] = []
        self._numbers: dict[str, int] = {}

    def group(self, group: list[Instruction], tiling: Tiling) -> None:
        """All boxes of a group."""
        kept: _Kept = {}
        for out in self._boxes(group[0], tiling):
            if isinstance(group[0], isa.LoadTile):
                loaded = self._load(group[0].source, boxes(self._graph, group[0], out)[0])
                self._store(loaded, group[-1].out, out)
                continue
            last = self._compute(group, out, tiling, kept)
            self._store(last, group[-1].out, out)

    def _compute(self, group: list[Instruction], out: Box, tiling: Tiling, kept: _Kept) -> str:
        graph = self._graph
        riding = []
        for place, layer in enumerate(group[1:], 1):
            found = list(zip(layer.reads(), boxes(graph, layer, out), strict=True))[1:]
            riding.append([self._kept(kept, (place, slot), name, box) for slot, (name, box) in enumerate(found)])
        head, total = group[0], None
        depth, _ = _depth(graph, head)
        parts: list[Range | None] = [None]
        if tiling.depth:
            parts = [(start, min(depth, start + tiling.depth)) for start in range(0, depth, tiling.depth)]
        for number, part in enumerate(parts):
            final = number == len(parts) - 1
            layer = head if final or not isinstance(head, isa.MatMul | isa.Conv2d) else replace(head, bias=None)
            needed = boxes(graph, layer, out, part)
            names = [
                self._kept(kept, (0, slot), name, box)
                for slot, (name, box) in enumerate(zip(layer.reads(), needed, strict=True))
            ]
            layer = _reading(_cut(layer, graph, out), names)
            if total is not None:
                layer = replace(layer, accumulate=total)  # type: ignore[call-arg]
            total = self._write(layer, head.out, out)
        assert total is not None
        for layer, others in zip(group[1:], riding, strict=True):
            total = self._write(_reading(layer, [total, *others]), layer.out, out)
        return total

    def _boxes(self, head: Instruction, tiling: Tiling) -> Iterator[Box]:
        shape = self._graph.tensors[head.out].shape
        order = _order(head, len(shape))
        cuts = [
            [
                (start, min(shape[axis], start + tiling.sizes[axis]))
                for start in range(0, shape[axis], tiling.sizes[axis])
            ]
            for axis in order
        ]
        for found in itertools.product(*cuts):
            yield tuple(found[order.index(axis)] for axis in range(len(shape)))

    def _kept(self, kept: _Kept, slot: tuple[int, int], name: str, box: Box) -> str:
        """A tile of an operand: one that an operand of this box or of the box before has, when it is the same."""
        for known, where, loaded in kept.values():
            if (known, where) == (name, box):
                return loaded
        kept[slot] = (name, box, self._load(name, box))
        return kept[slot][2]

    def _tile(self, base: str, shape: Shape, dtype: str) -> str:
        number = self._numbers[base] = self._numbers.get(base, -1) + 1
        name = f"{base}.{number}"
        self.tiles[name] = Tensor(name, shape, dtype, Role.TILE)
        return name

    def _load(self, source: str, box: Box) -> str:
        name = self._tile(source, tuple(stop - start for start, stop in box), self._graph.tensors[source].dtype)
        self.code.append(isa.LoadTile(out=name, source=source, ranges=box))
        return name

    def _store(self, source: str, out: str, box: Box) -> None:
        self.code.append(isa.StoreTile(out=out, source=source, ranges=box))

    def _write(self, layer: Instruction, base: str, out: Box) -> str:
        shape = tuple(stop - start for start, stop in out)
        name = self._tile(base, shape, self._graph.tensors[base].dtype)
        changes: dict[str, object] = {"out": name}
        if isinstance(layer, isa.Broadcast | isa.Reshape):
            changes["shape"] = shape
        self.code.append(replace(layer, **changes))  # type: ignore[arg-type]
        return name

    def reshape(self, layer: isa.Reshape, capacity: int) -> None:
        """Blocks of elements that are boxes on both sides."""
        before, after = self._graph.tensors[layer.x], self._graph.tensors[layer.out]
        block = _block(before, after, capacity)
        if block is None or before.elements // block > MAX_TILES:
            raise DoesNotFitError(layer.out, 1)
        for start in range(0, before.elements, block):
            source, out = _span(before.shape, start, block), _span(after.shape, start, block)
            assert source is not None
            assert out is not None
            loaded = self._load(layer.x, source)
            done = self._write(replace(layer, x=loaded), layer.out, out)
            self._store(done, layer.out, out)


def _block(before: Tensor, after: Tensor, capacity: int) -> int | None:
    """The largest count of elements that is a box on both sides and of which two tiles fit."""
    total = before.elements
    found = [count for count in _lengths(before.shape) & _lengths(after.shape) if total % count == 0]
    fitting = [count for count in found if 2 * -(-count * BITS[before.dtype] // 8) <= capacity]
    return max(fitting, default=None)


def _lengths(shape: Shape) -> set[int]:
    """Counts of consecutive elements that are boxes wherever they start at a multiple of themselves."""
    found, inner = {1}, 1
    for size in reversed(shape):
        found |= {inner * part for part in range(1, size + 1) if size % part == 0}
        inner *= size
    return found


def _span(shape: Shape, start: int, count: int) -> Box | None:
    """The box of consecutive elements in a shape; None when they are none."""
    box: list[Range] = []
    inner = math.prod(shape)
    for size in shape:
        inner //= size
        if count >= inner:
            first = start // inner
            box.append((first, first + count // inner))
            start -= first * inner
            count = inner
        else:
            first = start // inner
            box.append((first, first + 1))
            start -= first * inner
    return tuple(box)


def _reading(layer: Instruction, names: list[str]) -> Instruction:
    """A layer over tiles: `names` in the order of `reads`."""
    changes: dict[str, object] = {}
    remaining = iter(names)
    for field in layer.OPERANDS:
        value = getattr(layer, field)
        if isinstance(value, tuple):
            changes[field] = tuple(next(remaining) for _ in value)
        elif value is not None:
            changes[field] = next(remaining)
    return replace(layer, **changes)  # type: ignore[arg-type]
