"""Which box of each operand a layer needs for a box of its output, and how a layer may be cut."""

from __future__ import annotations

import math
from dataclasses import replace

from assay.npu_backend import isa
from assay.npu_backend.isa import Instruction
from assay.npu_backend.layers import LayerGraph
from assay.npu_backend.tensor import Box, Range, Shape


class DoesNotFitError(Exception):
    """No tile of a group fits VTCM. `out` is the group's first layer's output; `length` the layers in the group."""

    def __init__(self, out: str, length: int) -> None:
        super().__init__(f"no tile of {out} fits VTCM")
        self.out = out
        self.length = length


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


def largest_window(layer: isa.Conv2d, graph: LayerGraph, box: Box, sizes: Shape) -> Box:
    """The largest box of the input that a box of the output reads anywhere: one that no border cuts."""
    x, kernel = graph.tensors[layer.x].shape, graph.tensors[layer.weight].shape[2:]
    rows, columns = (
        (0, min(x[2 + i], (sizes[2 + i] - 1) * layer.stride[i] + layer.dilation[i] * (kernel[i] - 1) + 1))
        for i in (0, 1)
    )
    return (*box[:2], rows, columns)


def cut(layer: Instruction, graph: LayerGraph, out: Box) -> Instruction:
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


def smallest(graph: LayerGraph, group: list[Instruction]) -> list[int]:
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


def depth_of(graph: LayerGraph, head: Instruction) -> tuple[int, int]:
    """Length of the sum that may be cut, and its smallest piece."""
    if isinstance(head, isa.MatMul):
        return graph.tensors[head.a].shape[-1], 1
    if isinstance(head, isa.Conv2d) and head.groups == 1:
        return graph.tensors[head.x].shape[1], 1
    return 0, 1


def moving_axes(graph: LayerGraph, layer: Instruction, name: str, box: Box, rank: int) -> set[int]:
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


def loop_order(head: Instruction, rank: int, *, rows_first: bool = False) -> list[int]:
    """Axes from the outermost loop in: the one that chooses the weight goes first, so that a weight tile stays.

    With `rows_first` it goes last, so that the rows stay.
    """
    axes = list(range(rank))
    if isinstance(head, isa.MatMul) and not rows_first:
        axes = [*axes[:-2], rank - 1, rank - 2]
    elif isinstance(head, isa.Conv2d):
        axes = [0, 2, 3, 1] if rows_first else [1, 0, 2, 3]
    return axes


def lengths(shape: Shape) -> set[int]:
    """Counts of consecutive elements that are boxes wherever they start at a multiple of themselves."""
    found, inner = {1}, 1
    for size in reversed(shape):
        for part in range(1, math.isqrt(size) + 1):
            if size % part == 0:
                found |= {inner * part, inner * (size // part)}
        inner *= size
    return found


def span_box(shape: Shape, start: int, count: int) -> Box:
    """The box of `count` consecutive elements in a shape, which `lengths` allows, from a multiple of `count` on."""
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
