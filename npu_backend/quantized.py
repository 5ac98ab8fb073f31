"""Integer products from quantized graphs, and chains of QUANTIZE and DEQUANTIZE that give nothing.

An exported quantized graph computes in floats: DEQUANTIZE of both operands, a product, QUANTIZE of the result. With operands
(q - z) s the product is s_a s_b sum((q_a - z_a) (q_b - z_b)), and the sum is exact in int32:

- a zero point of the activation becomes a bias, -z_a sum(q_b - z_b), that the preamble computes from the weight; the border of
  a convolution is padded with the zero point;
- a zero point of a weight, and of an activation beside another activation, is taken off first, which needs 16 bits;
- a product that could leave int32 stays as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from assay.npu_backend import isa
from assay.npu_backend.interpreter import LIMITS
from assay.npu_backend.isa import Instruction
from assay.npu_backend.layers import LayerGraph
from assay.npu_backend.rewriting import COMPARISONS, rename, sole
from assay.npu_backend.tensor import QUANTIZED, Role

_MOST = 1 << 31


@dataclass(frozen=True)
class _Side:
    """An operand (q - zero) scale, for its channels times a weight as well."""

    q: str
    scale: float
    zero: int
    channels: str | None = None
    """Scales along the channels of a weight, as its own shape broadcasts."""
    shift: str | None = None
    """Zero points along the channels."""


def fold_quantized(graph: LayerGraph) -> None:
    """All three rewrites."""
    _move_past_reshapes(graph)
    _drop_chains(graph)
    for layer in list(graph.layers):
        if isinstance(layer, isa.MatMul) and layer.accumulate is None:
            _matmul(graph, layer)
        elif isinstance(layer, isa.Conv2d) and layer.accumulate is None:
            _convolution(graph, layer)
    graph.prune()


def _move_past_reshapes(graph: LayerGraph) -> None:
    """A DEQUANTIZE before a RESHAPE goes behind it, a QUANTIZE behind one before it: next to the product."""
    for place in range(len(graph.layers)):
        layer = graph.layers[place]
        if isinstance(layer, isa.Reshape):
            head = graph.producer(layer.x)
            if isinstance(head, isa.Dequantize) and head.axis is None and graph.tensors[head.x].dtype in QUANTIZED:
                moved = _insert(graph, place, isa.Reshape, layer.x, x=head.x, shape=layer.shape,
                                function=layer.function, order=layer.order)  # fmt: skip
                graph.layers[place + 1] = replace(head, out=layer.out, x=moved)
    for layer in list(graph.layers):
        if isinstance(layer, isa.Quantize) and layer.axis is None:
            shaped = sole(graph, layer.x, (isa.Reshape,))
            if isinstance(shaped, isa.Reshape):
                place = next(index for index, other in enumerate(graph.layers) if other is shaped)
                made = _insert(graph, place, isa.Quantize, layer.out, x=shaped.x, dtype=layer.dtype, scale=layer.scale,
                               zero_point=layer.zero_point)  # fmt: skip
                graph.layers = [
                    replace(shaped, out=layer.out, x=made) if other is layer else other
                    for other in graph.layers
                    if other is not shaped
                ]
    graph.prune()


def _drop_chains(graph: LayerGraph) -> None:
    """QUANTIZE of a DEQUANTIZE with the same scale, and DEQUANTIZE of truth values that were just made."""
    for layer in list(graph.layers):
        if graph.tensors[layer.out].role != Role.INTERMEDIATE:
            continue
        before = graph.producer(layer.x) if isinstance(layer, isa.Quantize | isa.Dequantize) else None
        if isinstance(layer, isa.Quantize) and isinstance(before, isa.Dequantize):
            same = (layer.scale, layer.zero_point, layer.axis) == (before.scale, before.zero_point, before.axis)
            if same and graph.tensors[before.x].dtype == layer.dtype and layer.dtype in QUANTIZED:
                rename(graph, layer.out, before.x)
        elif isinstance(layer, isa.Dequantize) and isinstance(before, isa.Quantize) and before.dtype == "bool":
            plain = (layer.scale, layer.zero_point) == ((1.0,), (0,))
            if plain and graph.tensors[before.x].dtype == layer.dtype and _is_truth(graph, before.x):
                rename(graph, layer.out, before.x)
    graph.prune()


def _is_truth(graph: LayerGraph, name: str) -> bool:
    """Whether a tensor holds 1 and 0 alone: a comparison, 1 minus one, products and maxima of such."""
    layer = graph.producer(name)
    if isinstance(layer, isa.ElementwiseAdd) and layer.function in COMPARISONS:
        return True
    if isinstance(layer, isa.ElementwiseAdd) and layer.function == "subtract":
        return graph.constants.get(layer.a) == 1 and _is_truth(graph, layer.b)
    if isinstance(layer, isa.ElementwiseMul | isa.ElementwiseAdd) and layer.function in ("multiply", "maximum"):
        return _is_truth(graph, layer.a) and _is_truth(graph, layer.b)
    return isinstance(layer, isa.Dequantize) and graph.tensors[layer.x].dtype == "bool"


def _side(graph: LayerGraph, name: str, channel: int | None) -> _Side | None:
    """What an operand was dequantized from; `channel`: its axis along which scales may be a weight."""
    layer = graph.producer(name)
    if isinstance(layer, isa.Dequantize):
        if layer.axis is not None or graph.tensors[layer.x].dtype not in QUANTIZED or layer.dtype != "float32":
            return None
        return _Side(layer.x, layer.scale[0], layer.zero_point[0])
    if channel is None or not isinstance(layer, isa.ElementwiseMul) or layer.function != "multiply":
        return None
    if not _along(graph, layer.b, name, channel):
        return None
    inner, shift = graph.producer(layer.a), None
    if isinstance(inner, isa.ElementwiseAdd) and inner.function == "subtract":
        shift = inner.b
        if not _along(graph, shift, name, channel):
            return None
        inner = graph.producer(inner.a)
    if not isinstance(inner, isa.Dequantize) or (inner.scale, inner.zero_point) != ((1.0,), (0,)):
        return None
    if graph.tensors[inner.x].dtype not in QUANTIZED or not graph.is_weight(inner.x):
        return None
    return _Side(inner.x, 1.0, 0, layer.b, shift)


def _along(graph: LayerGraph, name: str, whole: str, channel: int) -> bool:
    """Whether a tensor varies along one axis of another alone."""
    shape, wide = graph.tensors[name].shape, graph.tensors[whole].shape
    wanted = tuple(size if axis == channel else 1 for axis, size in enumerate(wide))
    return shape == wanted and _fixed(graph, name)


def _fixed(graph: LayerGraph, name: str) -> bool:
    """Whether a tensor is a weight, or computed from weights alone."""
    if graph.is_weight(name):
        return True
    layer = graph.producer(name)
    return layer is not None and all(_fixed(graph, read) for read in layer.reads())


def _bound(graph: LayerGraph, side: _Side, *, centred: bool) -> int:
    """The largest size of q, or of q - zero."""
    low, high = LIMITS[graph.tensors[side.q].dtype]
    if side.shift is not None:
        return high - low
    zero = side.zero if centred else 0
    return max(abs(low - zero), abs(high - zero))


class _Writer:
    """Layers that take the place of one."""

    def __init__(self, graph: LayerGraph, layer: Instruction) -> None:
        self.graph, self.layer = graph, layer
        self.made: list[Instruction] = []

    def emit(self, kind: type[Instruction], **fields: object) -> str:
        """One more layer; the name of its output."""
        origin = self.graph.origin.get(self.layer.out, self.layer.out)
        out = self.graph.add(kind, self.layer.out, origin, **fields)
        self.made.append(self.graph.layers.pop())
        return out

    def centred(self, side: _Side) -> str:
        """q - zero, in 16 bits when there is a zero point."""
        if side.shift is None and side.zero == 0:
            return side.q
        x = self.emit(isa.Dequantize, x=side.q, dtype="float32", scale=(1.0,), zero_point=(side.zero,))
        if side.shift is not None:
            x = self.emit(isa.ElementwiseAdd, a=x, b=side.shift, function="subtract")
        return self.emit(isa.Quantize, x=x, dtype="int16", scale=(1.0,), zero_point=(0,))

    def finish(self, acc: str, scale: float, channels: str | None, shape: tuple[int, ...], bias: str | None) -> None:
        """int32 sums as floats, times the scales of the channels, plus a bias; in the place of the layer."""
        y = self.emit(isa.Dequantize, x=acc, dtype="float32", scale=(scale,), zero_point=(0,))
        for other, kind in ((channels, isa.ElementwiseMul), (bias, isa.ElementwiseAdd)):
            if other is not None:
                if self.graph.tensors[other].shape != shape:
                    other = self.emit(isa.Reshape, x=other, shape=shape)
                y = self.emit(kind, a=y, b=other)
        last = self.made.pop()
        del self.graph.tensors[y]
        self.graph.origin.pop(y, None)
        self.made.append(replace(last, out=self.layer.out))
        place = next(index for index, other in enumerate(self.graph.layers) if other is self.layer)
        self.graph.layers[place : place + 1] = self.made


def _matmul(graph: LayerGraph, layer: isa.MatMul) -> None:
    rank = len(graph.tensors[layer.b].shape)
    a, b = _side(graph, layer.a, None), _side(graph, layer.b, rank - 2 if layer.transpose_b else rank - 1)
    if a is None or b is None:
        return
    k, fixed = graph.tensors[layer.a].shape[-1], graph.is_weight(b.q) and rank == 2
    if not _holds(graph, a, b, k):
        return
    columns = graph.tensors[layer.out].shape[-1]
    if b.channels is not None and rank != 2:
        return
    writer = _Writer(graph, layer)
    right, correction = writer.centred(b), None
    left = a.q if fixed else writer.centred(a)
    if fixed and a.zero:
        row = graph.constant(-a.zero, (1, k), "int16")
        total = writer.emit(isa.MatMul, a=row, b=right, transpose_b=layer.transpose_b)
        correction = writer.emit(isa.Reshape, x=total, shape=(columns,))
    acc = writer.emit(isa.MatMul, a=left, b=right, bias=correction, transpose_b=layer.transpose_b)
    writer.finish(acc, a.scale * b.scale, b.channels, (columns,), layer.bias)


def _convolution(graph: LayerGraph, layer: isa.Conv2d) -> None:
    x, weight = _side(graph, layer.x, None), _side(graph, layer.weight, 0)
    outs, ins, *taps = graph.tensors[layer.weight].shape
    k = ins * math.prod(taps)
    if x is None or weight is None or not graph.is_weight(weight.q) or not _holds(graph, x, weight, k):
        return
    writer = _Writer(graph, layer)
    kernel, plane, padding, correction = writer.centred(weight), x.q, layer.padding, None
    if x.zero:
        if any(padding):
            plane, padding = _padded(writer, plane, padding, x.zero), (0, 0, 0, 0)
        rows = writer.emit(isa.Reshape, x=kernel, shape=(outs, k))
        total = writer.emit(isa.MatMul, a=rows, b=graph.constant(-x.zero, (k, 1), "int16"))
        correction = writer.emit(isa.Reshape, x=total, shape=(outs,))
    acc = writer.emit(
        type(layer),
        x=plane,
        weight=kernel,
        bias=correction,
        stride=layer.stride,
        padding=padding,
        dilation=layer.dilation,
        groups=layer.groups,
    )
    writer.finish(acc, x.scale * weight.scale, weight.channels, (outs, 1, 1), layer.bias)


def _padded(writer: _Writer, plane: str, padding: tuple[int, int, int, int], zero: int) -> str:
    """The zero point around a map: where a float map has zeros."""
    top, bottom, left, right = padding
    for axis, (before, behind) in ((2, (top, bottom)), (3, (left, right))):
        tensor = writer.graph.tensors[plane]
        parts = [plane]
        for place, count in ((0, before), (len(parts) + (before > 0), behind)):
            if count:
                shape = tuple(count if at == axis else size for at, size in enumerate(tensor.shape))
                parts.insert(place, writer.graph.constant(zero, shape, tensor.dtype))
        if len(parts) > 1:
            plane = writer.emit(isa.Concat, xs=tuple(parts), axis=axis)
    return plane


def _holds(graph: LayerGraph, a: _Side, b: _Side, k: int) -> bool:
    """Whether no sum of k products, nor a part of one, can leave int32, and no zero point needs more than 16 bits."""
    largest = max(_bound(graph, a, centred=True), _bound(graph, a, centred=False))
    wide = any(side.zero or side.shift for side in (a, b) if graph.tensors[side.q].dtype == "int16")
    return not wide and 2 * k * largest * _bound(graph, b, centred=True) < _MOST


def _insert(graph: LayerGraph, place: int, kind: type[Instruction], name: str, **fields: object) -> str:
    """A layer at a place in the order; the name of its output."""
    out = graph.add(kind, name, graph.origin.get(name, name), **fields)
    graph.layers.insert(place, graph.layers.pop())
    return out
