"""Convolutions, transposed ones, and the gradients of both.

A gradient by the input is a transposed convolution, which is a convolution over a map with zeros between its elements and a
weight whose taps are turned round. A gradient by the weight is a convolution of the input with the gradient as its kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.npu_backend.isa import Broadcast, Concat, Conv2d, DepthwiseConv2d
from assay.npu_backend.lowering import Call, Result, UnsupportedError, rule
from assay.npu_backend.rules.reduction import reduced
from assay.npu_backend.rules.shape import box
from assay.npu_backend.tensor import Shape

MOST_TAPS = 32
"""Taps along an axis beyond which a kernel is not turned round: each one is a part of its own."""
_GIVES = ["CONV2D", "DEPTHWISE_CONV2D", "CONCAT", "LOAD_TILE", "RESHAPE"]


def plain(
    call: Call,
    x: str,
    weight: str,
    bias: str | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> str:
    """A convolution; `padding` is (rows, columns) on both sides, or (top, bottom, left, right)."""
    around = tuple(padding) if len(padding) == 4 else (padding[0], padding[0], padding[1], padding[1])
    kind = DepthwiseConv2d if groups > 1 and groups == call.shape(x)[1] else Conv2d
    return call.emit(
        kind,
        x=x,
        weight=weight,
        bias=bias,
        stride=tuple(stride),
        padding=around,
        dilation=tuple(dilation),
        groups=groups,
    )


def spread(call: Call, x: str, factors: Sequence[int], *, repeat: bool = False) -> str:
    """(..., H f, W g): f - 1 rows and g - 1 columns of zeros, or of the same, behind each one."""
    for axis, factor in ((-2, factors[0]), (-1, factors[1])):
        if factor == 1:
            continue
        sizes = call.shape(x)
        place = len(sizes) + axis
        opened = (*sizes[: place + 1], 1, *sizes[place + 1 :])
        x = call.reshape(x, opened)
        wanted = (*sizes[: place + 1], factor, *sizes[place + 1 :])
        if repeat:
            x = call.emit(Broadcast, x=x, shape=wanted)
        else:
            rest = (*sizes[: place + 1], factor - 1, *sizes[place + 1 :])
            x = call.emit(Concat, xs=(x, call.graph.constant(0.0, rest, call.dtype(x))), axis=place + 1)
        x = call.reshape(x, (*sizes[:place], sizes[place] * factor, *sizes[place + 1 :]))
    return x


def turned(call: Call, weight: str, groups: int, *, symmetric: bool = False) -> str:
    """(O, I / g, R, S) as (I, O / g, R, S) with its taps in the opposite order; `symmetric` ones keep theirs."""
    outs, ins, *taps = call.shape(weight)
    if not symmetric:
        if max(taps) > MOST_TAPS:
            raise UnsupportedError(f"a kernel of more than {MOST_TAPS} taps is turned round")
        for axis in (2, 3):
            size = call.shape(weight)[axis]
            if size > 1:
                parts = tuple(box(call, weight, axis, place, place + 1) for place in reversed(range(size)))
                weight = call.emit(Concat, xs=parts, axis=axis)
    grouped = call.reshape(weight, (groups, outs // groups, ins, *taps))
    return call.reshape(call.permute(grouped, (0, 2, 1, 3, 4)), (groups * ins, outs // groups, *taps))


def transposed(
    call: Call,
    x: str,
    weight: str,
    bias: str | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    out: Sequence[int],
    *,
    symmetric: bool = False,
) -> str:
    """A transposed convolution whose map has the rows and columns `out`; the weight is (C, O / groups, R, S)."""
    spreading = spread(call, x, stride)
    for axis in (2, 3):
        spreading = box(call, spreading, axis, 0, (call.shape(x)[axis] - 1) * stride[axis - 2] + 1)
    around = []
    for axis in (2, 3):
        reach = dilation[axis - 2] * (call.shape(weight)[axis] - 1)
        before = reach - padding[axis - 2]
        behind = out[axis - 2] + reach - before - call.shape(spreading)[axis]
        cut = (max(0, -before), call.shape(spreading)[axis] - max(0, -behind))
        spreading = box(call, spreading, axis, *cut)
        around += [max(0, before), max(0, behind)]
    return plain(
        call, spreading, turned(call, weight, groups, symmetric=symmetric), bias, (1, 1), around, dilation, groups
    )


def weight_gradient(
    call: Call,
    x: str,
    gradient: str,
    shape: Shape,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> str:
    """sum over n, y, x of gradient[n, o, y, x] input[n, i, y stride + r dilation - padding, ...], as (O, I / g, R, S)."""
    n, ins, *sizes = call.shape(x)
    parted = call.permute(call.reshape(x, (n, groups, ins // groups, *sizes)), (2, 1, 0, 3, 4))
    maps = call.reshape(parted, (ins // groups, groups * n, *sizes))
    found = plain(call, maps, call.permute(gradient, (1, 0, 2, 3)), None, dilation, padding, stride, groups)
    for axis in (2, 3):
        found = box(call, found, axis, 0, shape[axis])
    return call.permute(found, (1, 0, 2, 3))


def _plane(call: Call, name: str) -> str:
    """(N, C, L) as (N, C, 1, L); (N, C, H, W) as it is."""
    shape = call.shape(name)
    return call.reshape(name, (*shape[:2], 1, shape[2])) if len(shape) == 3 else name


def _both(sizes: Sequence[int], rank: int, one: int) -> list[int]:
    """Rows and columns: one number stands for all dimensions, and a one-dimensional convolution has one row."""
    sizes = list(sizes) * (rank - 2) if len(sizes) == 1 else list(sizes)
    return [one, *sizes] if rank == 3 else sizes


def _checked(call: Call, x: str, weight: str) -> int:
    rank = len(call.shape(weight))
    if rank not in (3, 4):
        raise UnsupportedError("three-dimensional")
    call.floating(x)
    return rank


@rule("convolution.default", gives=_GIVES, limits="three dimensions; one is run as two, of height 1")
def convolution(call: Call) -> Result:
    """N, C, H, W and N, C, L; a transposed one over a map with zeros between its elements"""
    x, weight, bias, stride, padding, dilation, backwards, _, groups = call.args
    rank = _checked(call, x, weight)
    stride, padding, dilation = _both(stride, rank, 1), _both(padding, rank, 0), _both(dilation, rank, 1)
    x, weight = _plane(call, x), _plane(call, weight)
    if backwards:
        out = (1, *call.value.shape[2:]) if rank == 3 else tuple(call.value.shape[2:])
        found = transposed(call, x, weight, bias, stride, padding, dilation, groups, out)
    else:
        found = plain(call, x, weight, bias, stride, padding, dilation, groups)
    return call.reshape(found, call.value.shape)


@rule("convolution_backward.default", gives=[*_GIVES, "MATMUL"], limits="three dimensions")
def convolution_gradients(call: Call) -> Result:
    """By the input, the weight and the bias; only those that are read"""
    gradient, x, weight, _, stride, padding, dilation, backwards, _, groups, _ = call.args
    rank = _checked(call, x, weight)
    stride, padding, dilation = _both(stride, rank, 1), _both(padding, rank, 0), _both(dilation, rank, 1)
    plane, kernel, above = (_plane(call, name) for name in (x, weight, gradient))
    found: list[str | None] = [None, None, None]
    if 0 in call.used:
        if backwards:
            made = plain(call, above, kernel, None, stride, padding, dilation, groups)
        else:
            made = transposed(call, above, kernel, None, stride, padding, dilation, groups, call.shape(plane)[2:])
        found[0] = call.reshape(made, call.value[0].shape)
    if 1 in call.used:
        first, second = (above, plane) if backwards else (plane, above)
        shape = call.shape(kernel)
        made = weight_gradient(call, first, second, shape, stride, padding, dilation, groups)
        found[1] = call.reshape(made, call.value[1].shape)
    if 2 in call.used:
        found[2] = reduced(call, above, [0, 2, 3], 1.0, tuple(call.value[2].shape))
    return tuple(found)
