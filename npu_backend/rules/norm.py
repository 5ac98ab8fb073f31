"""Norms over the last dimensions, over channels and over groups, in inference and in training."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import fx

from assay.npu_backend.isa import ElementwiseAdd, ElementwiseMul, Gelu, LayerNorm
from assay.npu_backend.lowering import Call, Result, UnsupportedError, dtype_of, rule
from assay.npu_backend.rules.reduction import moments

_SUMS = ["RESHAPE", "MATMUL", "ELEMENTWISE_ADD", "ELEMENTWISE_MUL", "GELU"]


def reciprocal_deviation(call: Call, variance: str, epsilon: float) -> str:
    """1 / sqrt(variance + epsilon)."""
    widened = call.emit(ElementwiseAdd, a=variance, b=call.number(epsilon, call.dtype(variance)))
    return call.emit(Gelu, x=widened, function="rsqrt")


def _statistics(call: Call, x: str, axes: Sequence[int], epsilon: float) -> tuple[str, str]:
    """Mean and reciprocal deviation, as the second and third result want them."""
    middle, variance, _ = moments(call, call.cast(x, "float32"), axes, 0)
    found = (middle, reciprocal_deviation(call, variance, epsilon))
    mean, deviation = (
        call.cast(call.reshape(part, value.shape), dtype_of(value))
        for part, value in zip(found, call.value[1:3], strict=True)
    )
    return mean, deviation


@rule("native_layer_norm.default", gives=["LAYERNORM", *_SUMS], limits="operands of two dtypes")
def layer_norm(call: Call) -> Result:
    """Over the last dimensions; in training the mean and the reciprocal deviation besides"""
    x, shape, weight, bias, epsilon = call.args
    axis = len(call.shape(x)) - len(shape)
    out = call.emit(LayerNorm, x=x, weight=weight, bias=bias, axis=axis, epsilon=epsilon)
    if not call.used - {0}:
        return out, None, None
    return (out, *_statistics(call, x, range(axis, len(call.shape(x))), epsilon))


@rule("native_group_norm.default", gives=["LAYERNORM", *_SUMS], limits="operands of two dtypes")
def group_norm(call: Call) -> Result:
    """A layer norm over each group, times a weight and plus a bias over the channels"""
    x, weight, bias, _, _, _, groups, epsilon = call.args
    sizes = call.shape(x)
    flat = call.reshape(x, (sizes[0] * groups, math.prod(sizes[1:]) // groups))
    out = call.reshape(call.emit(LayerNorm, x=flat, axis=1, epsilon=epsilon), sizes)
    channels = (sizes[1], *([1] * (len(sizes) - 2)))
    if weight is not None:
        out = call.emit(ElementwiseMul, a=out, b=call.reshape(weight, channels))
    if bias is not None:
        out = call.emit(ElementwiseAdd, a=out, b=call.reshape(bias, channels))
    return (out, *(_statistics(call, flat, [1], epsilon) if call.used - {0} else (None, None)))


def _scaled(call: Call, x: str, weight: str | None, bias: str | None, mean: str, scale: str) -> str:
    """x * s + t, where s and t follow from statistics over the channels."""
    shape = (call.shape(x)[1], *([1] * (len(call.shape(x)) - 2)))
    if weight is not None:
        scale = call.emit(ElementwiseMul, a=scale, b=weight)
    shift = call.emit(ElementwiseMul, a=mean, b=scale)
    none = call.number(0.0, call.dtype(shift))
    shift = call.emit(ElementwiseAdd, a=bias if bias is not None else none, b=shift, function="subtract")
    scale, shift = call.cast(scale, call.dtype(x)), call.cast(shift, call.dtype(x))
    scaled = call.emit(ElementwiseMul, a=x, b=call.reshape(scale, shape))
    return call.emit(ElementwiseAdd, a=scaled, b=call.reshape(shift, shape))


@rule("_native_batch_norm_legit_no_training.default", gives=[*_SUMS, "DEQUANTIZE"])
def batch_norm(call: Call) -> Result:
    """x * s + t, where s and t come from weights alone and are folded into a convolution before it"""
    x, weight, bias, mean, variance, _, epsilon = call.args
    if call.used - {0}:
        raise UnsupportedError("empty statistics are read")
    dtype = call.dtype(x)
    # As in PyTorch, statistics in float32; what folds into a convolution is rounded once, all else is computed there too.
    folds = isinstance(call.node.args[0], fx.Node) and str(call.node.args[0].target) == "aten.convolution.default"
    if dtype != "float32" and not folds:
        x = call.cast(x, "float32")
    weight, bias, mean, variance = (part and call.cast(part, "float32") for part in (weight, bias, mean, variance))
    out = _scaled(call, x, weight, bias, mean, reciprocal_deviation(call, variance, epsilon))
    return call.cast(out, dtype), None, None


@rule(
    "_native_batch_norm_legit_functional.default",
    "_native_batch_norm_legit.no_stats",
    gives=_SUMS,
    limits="16-bit floats, evaluation inside a training graph",
)
def batch_norm_in_training(call: Call) -> Result:
    """Statistics of the batch, and the running ones moved towards them"""
    if "functional" in str(call.node.target):
        x, weight, bias, running_mean, running_variance, training, momentum, epsilon = call.args
    else:
        x, weight, bias, training, momentum, epsilon = call.args
        running_mean = running_variance = None
    if not training or call.dtype(x) != "float32":
        raise UnsupportedError("16-bit floats, or evaluation inside a training graph")
    sizes = call.shape(x)
    axes, count = [0, *range(2, len(sizes))], math.prod(sizes) // sizes[1]
    middle, variance, centred = moments(call, x, axes, 0)
    deviation = reciprocal_deviation(call, variance, epsilon)
    shape = (sizes[1], *([1] * (len(sizes) - 2)))
    out = call.emit(ElementwiseMul, a=centred, b=deviation)
    if weight is not None:
        out = call.emit(ElementwiseMul, a=out, b=call.reshape(weight, shape))
    if bias is not None:
        out = call.emit(ElementwiseAdd, a=out, b=call.reshape(bias, shape))
    found: list[str | None] = [out, call.reshape(middle, sizes[1:2]), call.reshape(deviation, sizes[1:2])]
    if running_mean is not None:
        if count < 2:
            raise UnsupportedError("a variance of one element")
        for running, factor, new in ((running_mean, 1.0, middle), (running_variance, count / (count - 1), variance)):
            kept = call.emit(ElementwiseMul, a=running, b=call.number(1 - momentum, "float32"))
            moved = call.emit(ElementwiseMul, a=new, b=call.number(momentum * factor, "float32"))
            found.append(call.emit(ElementwiseAdd, a=kept, b=call.reshape(moved, sizes[1:2])))
    return tuple(found)
