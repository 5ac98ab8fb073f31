"""Quantize and dequantize of PyTorch's exported graphs (`quantized_decomposed`), and fake quantization.

Scales that are numbers are attributes of QUANTIZE and DEQUANTIZE. Scales that are tensors, as for channels of a weight, are
operands, whose values are known when the program runs.
"""

from __future__ import annotations

import torch

from assay.npu_backend.interpreter import LIMITS
from assay.npu_backend.isa import Dequantize, ElementwiseAdd, ElementwiseMul, Gelu, Quantize, Relu
from assay.npu_backend.lowering import Call, Result, UnsupportedError, rule
from assay.npu_backend.tensor import FLOATS, QUANTIZED

NAMESPACE = "quantized_decomposed"


def _held(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    if name not in QUANTIZED:
        raise UnsupportedError(f"{name} is no quantized dtype")
    return name


def _narrowed(call: Call, x: str, low: int, high: int, dtype: str) -> str:
    """Whole numbers in a floating dtype, held to low:high, as integers."""
    if (low, high) != LIMITS[dtype]:
        for bound, function in ((low, "maximum"), (high, "minimum")):
            x = call.emit(ElementwiseAdd, a=x, b=call.number(float(bound), "float32"), function=function)
    return call.emit(Quantize, x=x, dtype=dtype, scale=(1.0,), zero_point=(0,))


@rule(f"{NAMESPACE}::quantize_per_tensor.default", gives=["QUANTIZE", "RELU", "ELEMENTWISE_ADD", "ELEMENTWISE_MUL"])
def quantize(call: Call) -> Result:
    """One instruction when the range is the dtype's own; else roundings and bounds"""
    x, scale, zero, low, high, dtype = call.args[:6]
    held = _held(dtype)
    x = call.cast(x, "float32")
    if (low, high) == LIMITS[held]:
        return call.emit(Quantize, x=x, dtype=held, scale=(float(scale),), zero_point=(int(zero),))
    x = call.emit(ElementwiseMul, a=x, b=call.number(1.0 / scale, "float32"))
    x = call.emit(Relu, x=x, function="round")
    return _narrowed(call, call.emit(ElementwiseAdd, a=x, b=call.number(float(zero), "float32")), low, high, held)


@rule(f"{NAMESPACE}::dequantize_per_tensor.default", gives=["DEQUANTIZE"], limits="float64")
def dequantize(call: Call) -> Result:
    """(q - zero_point) scale"""
    q, scale, zero = call.args[:3]
    return call.emit(Dequantize, x=q, dtype="float32", scale=(float(scale),), zero_point=(int(zero),))


def _along(call: Call, name: str, axis: int, x: str) -> str:
    """A vector along an axis of an operand, in float32."""
    shape = [1] * len(call.shape(x))
    shape[axis] = call.shape(name)[0]
    return call.reshape(call.cast(name, "float32"), shape)


@rule(
    f"{NAMESPACE}::quantize_per_channel.default",
    gives=["GELU", "ELEMENTWISE_MUL", "RELU", "ELEMENTWISE_ADD", "QUANTIZE", "DEQUANTIZE", "RESHAPE"],
    limits="scales in float64",
)
def quantize_channels(call: Call) -> Result:
    """round(x / scale) + zero_point by instructions, as scales are operands"""
    x, scales, zeros, axis, low, high, dtype = call.args[:7]
    held, axis = _held(dtype), axis % len(call.shape(x))
    x = call.cast(x, "float32")
    factor = call.emit(Gelu, x=_along(call, scales, axis, x), function="reciprocal")
    x = call.emit(Relu, x=call.emit(ElementwiseMul, a=x, b=factor), function="round")
    if zeros is not None:
        x = call.emit(ElementwiseAdd, a=x, b=_along(call, zeros, axis, x))
    return _narrowed(call, x, low, high, held)


@rule(
    f"{NAMESPACE}::dequantize_per_channel.default",
    gives=["DEQUANTIZE", "ELEMENTWISE_ADD", "ELEMENTWISE_MUL", "RESHAPE"],
    limits="scales in float64",
)
def dequantize_channels(call: Call) -> Result:
    """(q - zero_point) scale by instructions, as scales are operands"""
    q, scales, zeros, axis = call.args[:4]
    axis %= len(call.shape(q))
    x = call.emit(Dequantize, x=q, dtype="float32", scale=(1.0,), zero_point=(0,))
    if zeros is not None:
        x = call.emit(ElementwiseAdd, a=x, b=_along(call, zeros, axis, q), function="subtract")
    return call.emit(ElementwiseMul, a=x, b=_along(call, scales, axis, q))


@rule(
    "fake_quantize_per_tensor_affine_cachemask.default",
    gives=["ELEMENTWISE_MUL", "ELEMENTWISE_ADD", "RELU"],
    limits="integers, the mask as a result (training)",
)
def fake_quantize(call: Call) -> Result:
    """Rounded and held to the range, in float32"""
    x, scale, zero, low, high = call.args
    if call.used - {0} or call.dtype(x) not in FLOATS:
        raise UnsupportedError("the mask is read: training")
    y = call.emit(ElementwiseMul, a=call.cast(x, "float32"), b=call.number(1.0 / scale, "float32"))
    y = call.emit(Relu, x=call.emit(ElementwiseAdd, a=y, b=call.number(float(zero), "float32")), function="round")
    for bound, function in ((low, "maximum"), (high, "minimum")):
        y = call.emit(ElementwiseAdd, a=y, b=call.number(float(bound), "float32"), function=function)
    y = call.emit(ElementwiseAdd, a=y, b=call.number(float(zero), "float32"), function="subtract")
    return call.cast(call.emit(ElementwiseMul, a=y, b=call.number(float(scale), "float32")), call.dtype(x)), None
