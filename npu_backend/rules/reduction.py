"""Sums, means, pooling, softmax and norms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import fx

from assay.npu_backend.isa import DepthwiseConv2d, ElementwiseAdd, ElementwiseMul, Gelu, LayerNorm, MatMul, Softmax
from assay.npu_backend.lowering import Call, Result, UnsupportedError, dtype_of, rule


def reduced(call: Call, x: str, axes: Sequence[int] | None, weight: float | None) -> Result:
    """Product with a column of `weight` (None: one over the number of elements): (rows, K) times (K, 1)."""
    call.floating(x)
    if call.dtype(x) != dtype_of(call.value):
        raise UnsupportedError("a change of dtype")
    sizes = call.shape(x)
    # PyTorch lets a tensor without dimensions be reduced along "axis 0".
    gone = sorted({axis % len(sizes) for axis in axes}) if axes and sizes else list(range(len(sizes)))
    kept = [axis for axis in range(len(sizes)) if axis not in gone]
    k = math.prod(sizes[axis] for axis in gone)
    flat = call.reshape(call.permute(x, [*kept, *gone]), (math.prod(sizes[axis] for axis in kept), k))
    column = call.graph.constant(1 / k if weight is None else weight, (k, 1), call.dtype(x))
    return call.reshape(call.emit(MatMul, a=flat, b=column), call.value.shape)


@rule("mean.dim", "mean.default", gives=["RESHAPE", "MATMUL"], limits="integers, 16-bit floats")
def mean(call: Call) -> Result:
    """A product with constants 1/K"""
    # A 16-bit 1/K is rounded, and the error grows with K: the host divides in float32.
    if call.dtype(call.args[0]) != "float32":
        raise UnsupportedError("1/K is not exact in 16 bits")
    return reduced(call, call.args[0], call.args[1] if str(call.node.target) == "aten.mean.dim" else None, None)


@rule("sum.dim_IntList", "sum.default", gives=["RESHAPE", "MATMUL"], limits="integers")
def total(call: Call) -> Result:
    """A product with ones"""
    return reduced(call, call.args[0], call.args[1] if str(call.node.target) == "aten.sum.dim_IntList" else None, 1.0)


@rule("avg_pool2d.default", gives=["DEPTHWISE_CONV2D"], limits="ceil_mode, padding that is not counted, 16-bit floats")
def average_pool(call: Call) -> Result:
    """A depthwise convolution with constants 1/(R S)"""
    x, kernel, stride, padding, ceil, counted, divisor = call.args
    padding = [padding[0], padding[-1]]
    if ceil or len(call.shape(x)) != 4 or (any(padding) and not counted) or call.dtype(x) != "float32":
        raise UnsupportedError("ceil_mode, padding that is not counted, or no batch")
    kernel = [kernel[0], kernel[-1]]
    stride = [stride[0], stride[-1]] if stride else kernel
    channels = call.shape(x)[1]
    weight = call.graph.constant(1 / (divisor or math.prod(kernel)), (channels, 1, *kernel), "float32")
    return call.emit(
        DepthwiseConv2d,
        x=x,
        weight=weight,
        stride=tuple(stride),
        padding=(padding[0], padding[0], padding[1], padding[1]),
        groups=channels,
    )


@rule("_softmax.default", gives=["SOFTMAX"], limits="integers, half to float")
def softmax(call: Call) -> Result:
    """Any axis"""
    x, axis, widened = call.args
    if widened or not call.shape(x):
        raise UnsupportedError("half to float, or no dimension")
    return call.emit(Softmax, x=x, axis=axis % len(call.shape(x)))


_SCORES = frozenset({"aten.bmm.default", "aten.mm.default", "aten.addmm.default"})
_VIEWS = frozenset({"aten.view.default", "aten.expand.default", "aten._unsafe_view.default"})


@rule(
    "_safe_softmax.default",
    gives=["SOFTMAX", "ELEMENTWISE_ADD", "ELEMENTWISE_MUL", "RELU", "GELU", "MATMUL"],
    limits="masked scores in 16 bits, masked along another axis than the last",
)
def attention_softmax(call: Call) -> Result:
    """SOFTMAX of scores; after a mask, rows in which all is masked (-inf) give zeros instead of NaN"""
    x, axis, dtype = call.args
    shape = call.shape(x)
    if dtype is not None and call.dtype(x) != dtype_of(call.value):
        raise UnsupportedError("a change of dtype")
    axis %= len(shape)
    if not _masked(call):
        return call.emit(Softmax, x=x, axis=axis)
    if axis != len(shape) - 1 or len(shape) < 2 or call.dtype(x) != "float32":
        raise UnsupportedError("masked scores in 16 bits or along another axis than the last")

    # present = 1 for each finite score and 0 for -inf: 1e-30 x + 1e9 is at least 6e8 for every finite x.
    present = call.emit(ElementwiseMul, a=x, b=call.number(1e-30, "float32"))
    present = call.emit(ElementwiseAdd, a=present, b=call.number(1e9, "float32"))
    for bound, function in ((0.0, "maximum"), (1.0, "minimum")):
        present = call.emit(ElementwiseAdd, a=present, b=call.number(bound, "float32"), function=function)
    ones = call.graph.constant(1.0, (shape[-1], 1), "float32")
    counted = call.emit(MatMul, a=present, b=ones)
    alive = call.emit(ElementwiseAdd, a=counted, b=call.number(1.0, "float32"), function="minimum")
    # log(1 - alive) is -inf for a row that lives, whose scores stay, and 0 for a dead one, whose scores become finite.
    dead = call.emit(ElementwiseAdd, a=call.number(1.0, "float32"), b=alive, function="subtract")
    floor = call.emit(Gelu, x=dead, function="log")
    scores = call.emit(ElementwiseAdd, a=x, b=floor, function="maximum")
    return call.emit(ElementwiseMul, a=call.emit(Softmax, x=scores, axis=axis), b=alive)


def _masked(call: Call) -> bool:
    """Whether the scores may hold -inf: unless they are a product, scaled or not."""
    source = call.node.args[0]
    while isinstance(source, fx.Node) and str(source.target) in _VIEWS:
        source = source.args[0]
    return not isinstance(source, fx.Node) or str(source.target) not in _SCORES


@rule("native_layer_norm.default", gives=["LAYERNORM"], limits="mean and deviation as results (training)")
def layer_norm(call: Call) -> Result:
    """Over the last dimensions"""
    x, shape, weight, bias, epsilon = call.args
    if call.used - {0}:
        raise UnsupportedError("mean and deviation are read: training")
    axis = len(call.shape(x)) - len(shape)
    return call.emit(LayerNorm, x=x, weight=weight, bias=bias, axis=axis, epsilon=epsilon), None, None


@rule(
    "_native_batch_norm_legit_no_training.default",
    gives=["ELEMENTWISE_MUL", "ELEMENTWISE_ADD", "GELU", "RESHAPE"],
    limits="training",
)
def batch_norm(call: Call) -> Result:
    """x * s + t, where s and t come from weights alone and are folded into a convolution before it"""
    x, weight, bias, mean_, variance, _, epsilon = call.args
    if call.used - {0}:
        raise UnsupportedError("statistics are read: training")
    channels = call.shape(x)[1]
    shape = (channels, *([1] * (len(call.shape(x)) - 2)))
    widened = call.emit(ElementwiseAdd, a=variance, b=call.number(epsilon, call.dtype(variance)))
    scale = call.emit(Gelu, x=widened, function="rsqrt")
    if weight is not None:
        scale = call.emit(ElementwiseMul, a=scale, b=weight)
    shift = call.emit(ElementwiseMul, a=mean_, b=scale)
    none = call.number(0.0, call.dtype(shift))
    shift = call.emit(ElementwiseAdd, a=bias if bias is not None else none, b=shift, function="subtract")
    scaled = call.emit(ElementwiseMul, a=x, b=call.reshape(scale, shape))
    return call.emit(ElementwiseAdd, a=scaled, b=call.reshape(shift, shape)), None, None
