"""Average pooling and its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

from assay.npu_backend.isa import DepthwiseConv2d, ElementwiseMul
from assay.npu_backend.lowering import Call, Result, UnsupportedError, rule
from assay.npu_backend.rules.convolution import spread, transposed


def _window(
    call: Call, sizes: Sequence[int], outs: Sequence[int], args: Sequence[object]
) -> tuple[list[list[int]], list[int]]:
    """(kernel, stride, padding) as two numbers each, and the rows and columns that `ceil_mode` adds behind."""
    kernel, stride, padding = (list(size) if isinstance(size, list | tuple) else [] for size in args)
    kernel = [kernel[0], kernel[-1]]
    stride = [stride[0], stride[-1]] if stride else kernel
    padding = [padding[0], padding[-1]]
    behind = [max(0, (outs[i] - 1) * stride[i] + kernel[i] - sizes[i] - 2 * padding[i]) for i in (0, 1)]
    return [kernel, stride, padding], behind


def _divisors(
    call: Call, window: list[list[int]], behind: list[int], sizes: Sequence[int], counted: bool
) -> str | None:
    """Elements under each output's kernel, (1, 1, rows, columns); None when all are the kernel's."""
    kernel, stride, padding = window
    if not any(behind) and (counted or not any(padding)):
        return None
    edge = [0, 0] if counted else padding
    inner = [size + (2 * pad if counted else 0) for size, pad in zip(sizes, padding, strict=True)]
    ones = call.graph.constant(1.0, (1, 1, *inner), "float32")
    taps = call.graph.constant(1.0, (1, 1, *kernel), "float32")
    around = (edge[0], edge[0] + behind[0], edge[1], edge[1] + behind[1])
    return call.emit(DepthwiseConv2d, x=ones, weight=taps, stride=tuple(stride), padding=around, groups=1)


@rule("avg_pool2d.default", gives=["DEPTHWISE_CONV2D", "ELEMENTWISE_MUL", "DEQUANTIZE", "RESHAPE"], limits="integers")
def average_pool(call: Call) -> Result:
    """A depthwise convolution with constants 1/(R S); at borders with ones, over the elements that are counted"""
    x, kernel, stride, padding, _, counted, divisor = call.args
    dtype, sizes, out = call.dtype(x), call.shape(x), tuple(call.value.shape)
    call.floating(x)
    window, behind = _window(call, sizes[-2:], out[-2:], (kernel, stride, padding))
    (kernel, stride, padding), channels = window, sizes[-3]
    x = call.reshape(call.cast(x, "float32"), (math.prod(sizes[:-3]), *sizes[-3:]))
    divisors = None if divisor else _divisors(call, window, behind, sizes[-2:], counted)
    factor = 1.0 if divisors is not None else 1 / (divisor or math.prod(kernel))
    pooled = call.emit(
        DepthwiseConv2d,
        x=x,
        weight=call.graph.constant(factor, (channels, 1, *kernel), "float32"),
        stride=tuple(stride),
        padding=(padding[0], padding[0] + behind[0], padding[1], padding[1] + behind[1]),
        groups=channels,
    )
    if divisors is not None:
        pooled = call.emit(ElementwiseMul, a=pooled, b=divisors, function="divide")
    return call.cast(call.reshape(pooled, out), dtype)


@rule(
    "avg_pool2d_backward.default",
    gives=["CONCAT", "RESHAPE", "DEPTHWISE_CONV2D", "ELEMENTWISE_MUL"],
    limits="ceil_mode, 16-bit floats",
)
def average_pool_gradient(call: Call) -> Result:
    """A transposed depthwise convolution with constants"""
    gradient, x, kernel, stride, padding, ceil, counted, divisor = call.args
    sizes, outs = call.shape(x), call.shape(gradient)
    if ceil or len(sizes) != 4 or call.dtype(x) != "float32":
        raise UnsupportedError("ceil_mode, 16-bit floats, or no batch")
    window, behind = _window(call, sizes[2:], outs[2:], (kernel, stride, padding))
    (kernel, stride, padding), channels = window, sizes[1]
    divisors = None if divisor else _divisors(call, window, behind, sizes[2:], counted)
    factor = 1.0 if divisors is not None else 1 / (divisor or math.prod(kernel))
    if divisors is not None:
        gradient = call.emit(ElementwiseMul, a=gradient, b=divisors, function="divide")
    weight = call.graph.constant(factor, (channels, 1, *kernel), "float32")
    return transposed(call, gradient, weight, None, stride, padding, [1, 1], channels, sizes[2:], symmetric=True)


def _even(sizes: Sequence[int], outs: Sequence[int]) -> list[int]:
    """Elements that each output averages; they must be the same everywhere."""
    if any(size % out for size, out in zip(sizes, outs, strict=True)):
        raise UnsupportedError(f"{tuple(sizes)} does not divide into {tuple(outs)}")
    return [size // out for size, out in zip(sizes, outs, strict=True)]


@rule(
    "_adaptive_avg_pool2d.default",
    gives=["DEPTHWISE_CONV2D", "DEQUANTIZE", "RESHAPE"],
    limits="sizes that do not divide",
)
def adaptive_pool(call: Call) -> Result:
    """An average pool whose stride is its kernel"""
    x, sizes, out = call.args[0], call.shape(call.args[0]), tuple(call.value.shape)
    call.floating(x)
    kernel, channels = _even(sizes[-2:], out[-2:]), sizes[-3]
    flat = call.reshape(call.cast(x, "float32"), (math.prod(sizes[:-3]), *sizes[-3:]))
    weight = call.graph.constant(1 / math.prod(kernel), (channels, 1, *kernel), "float32")
    pooled = call.emit(DepthwiseConv2d, x=flat, weight=weight, stride=tuple(kernel), groups=channels)
    return call.cast(call.reshape(pooled, out), call.dtype(x))


@rule(
    "_adaptive_avg_pool2d_backward.default",
    gives=["RESHAPE", "BROADCAST", "ELEMENTWISE_MUL"],
    limits="sizes that do not divide, 16-bit floats",
)
def adaptive_pool_gradient(call: Call) -> Result:
    """Every element gets its share of its output's gradient"""
    gradient, x = call.args
    sizes, outs = call.shape(x), call.shape(gradient)
    if call.dtype(x) != "float32":
        raise UnsupportedError("16-bit floats")
    kernel = _even(sizes[-2:], outs[-2:])
    share = call.emit(ElementwiseMul, a=gradient, b=call.number(1 / math.prod(kernel), "float32"))
    return spread(call, share, kernel, repeat=True)
