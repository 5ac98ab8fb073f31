"""Elementwise operators and activations."""

from __future__ import annotations

import math
from typing import Any

import torch

from assay.npu_backend.isa import ElementwiseAdd, ElementwiseMul, Gelu, Instruction, Relu
from assay.npu_backend.lowering import Call, Result, UnsupportedError, dtype_of, rule
from assay.npu_backend.tensor import FLOATS


def exact(value: object, dtype: str) -> bool:
    """Whether a dtype holds a number, or rounds it as PyTorch does: 32 bits and integers do."""
    if dtype not in ("float16", "bfloat16") or not isinstance(value, int | float):
        return True
    return torch.tensor(float(value), dtype=getattr(torch, dtype)).item() == value


def binary(call: Call, a: Any, b: Any, kind: type[Instruction], function: str) -> str:
    """One instruction over two operands of the dtype of the result; numbers become constants.

    PyTorch computes in float32 with a number that a 16-bit float does not hold, so such a number makes the instruction wide.
    """
    dtype = dtype_of(call.value)
    wide = dtype if exact(a, dtype) and exact(b, dtype) else "float32"
    x, y = (call.cast(side, wide) if isinstance(side, str) else call.number(side, wide) for side in (a, b))
    return call.cast(call.emit(kind, a=x, b=y, function=function), dtype)


@rule("add.Tensor", "add.Scalar", gives=["ELEMENTWISE_ADD", "ELEMENTWISE_MUL"])
def add(call: Call) -> Result:
    """a + alpha b"""
    return _sum(call, call.args[0], call.args[1], call.args[2], "add")


@rule("sub.Tensor", "sub.Scalar", gives=["ELEMENTWISE_ADD", "ELEMENTWISE_MUL"])
def subtract(call: Call) -> Result:
    """a - alpha b"""
    return _sum(call, call.args[0], call.args[1], call.args[2], "subtract")


@rule("rsub.Scalar", "rsub.Tensor", gives=["ELEMENTWISE_ADD", "ELEMENTWISE_MUL"])
def reverse_subtract(call: Call) -> Result:
    """b - alpha a"""
    return _sum(call, call.args[1], call.args[0], call.args[2], "subtract")


def _sum(call: Call, left: object, right: object, alpha: float, function: str) -> Result:
    if dtype_of(call.value) == "bool":
        raise UnsupportedError("bool")
    if alpha != 1:
        right = binary(call, right, alpha, ElementwiseMul, "multiply")
    return binary(call, left, right, ElementwiseAdd, function)


@rule("mul.Tensor", "mul.Scalar", gives=["ELEMENTWISE_MUL"], limits="bool")
def multiply(call: Call) -> Result:
    """a b"""
    if dtype_of(call.value) == "bool":
        raise UnsupportedError("bool")
    return binary(call, call.args[0], call.args[1], ElementwiseMul, "multiply")


@rule("div.Tensor", "div.Scalar", gives=["ELEMENTWISE_MUL"], limits="rounding modes")
def divide(call: Call) -> Result:
    """a / b"""
    if dtype_of(call.value) not in FLOATS:
        raise UnsupportedError(f"{dtype_of(call.value)} is not floating")
    return binary(call, call.args[0], call.args[1], ElementwiseMul, "divide")


@rule("maximum.default", gives=["ELEMENTWISE_ADD"], limits="bool")
def maximum(call: Call) -> Result:
    """the larger of two"""
    return binary(call, call.args[0], call.args[1], ElementwiseAdd, "maximum")


@rule("minimum.default", gives=["ELEMENTWISE_ADD"], limits="bool")
def minimum(call: Call) -> Result:
    """the smaller of two"""
    return binary(call, call.args[0], call.args[1], ElementwiseAdd, "minimum")


@rule("clamp.default", "clamp.Tensor", "hardtanh.default", gives=["ELEMENTWISE_ADD", "RELU"], limits="bool")
def clamp(call: Call) -> Result:
    """0 to 6 is an instruction of its own"""
    x, low, high = call.args[:3]
    if low == 0 and high == 6 and call.dtype(x) == dtype_of(call.value) and call.dtype(x) in FLOATS:
        return call.emit(Relu, x=x, function="relu6")
    for bound, function in ((low, "maximum"), (high, "minimum")):
        if bound is not None:
            x = binary(call, x, bound, ElementwiseAdd, function)
    return str(x)


@rule("pow.Tensor_Scalar", gives=["ELEMENTWISE_MUL", "GELU"], limits="exponents other than 1, 2, 3, 0.5, -0.5, -1")
def power(call: Call) -> Result:
    """Products for 2 and 3, tables for roots and the reciprocal"""
    x, exponent = call.args[:2]
    if exponent == 1:
        return str(x)
    if exponent in (2, 3):
        y = call.emit(ElementwiseMul, a=x, b=x)
        return y if exponent == 2 else call.emit(ElementwiseMul, a=y, b=x)
    table = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    if exponent not in table:
        raise UnsupportedError(f"the exponent {exponent}")
    call.floating(x)
    return call.emit(Gelu, x=x, function=table[exponent])


@rule("gelu.default", gives=["GELU"], limits="integers")
def gelu(call: Call) -> Result:
    """Both forms"""
    x, form = call.args[:2]
    return call.emit(Gelu, x=x, function="tanh" if form == "tanh" else "erf")


def halves(call: Call, x: str) -> tuple[str, str]:
    """max(x, 0) and min(x, 0)."""
    call.floating(x)
    zero = call.number(0.0, call.dtype(x))
    return call.emit(Relu, x=x), call.emit(ElementwiseAdd, a=x, b=zero, function="minimum")


@rule("leaky_relu.default", gives=["RELU", "ELEMENTWISE_ADD", "ELEMENTWISE_MUL"], limits="integers")
def leaky_relu(call: Call) -> Result:
    """max(x, 0) + slope min(x, 0)"""
    above, below = halves(call, call.args[0])
    if not 0 <= call.args[1] < float("inf"):
        raise UnsupportedError(f"a slope of {call.args[1]}")
    return binary(call, above, binary(call, below, call.args[1], ElementwiseMul, "multiply"), ElementwiseAdd, "add")


@rule(
    "elu.default",
    gives=["RELU", "GELU", "ELEMENTWISE_ADD", "ELEMENTWISE_MUL"],
    limits="integers, factors that are not finite",
)
def elu(call: Call) -> Result:
    """scale (max(x, 0) + alpha (exp(input_scale min(x, 0)) - 1))"""
    x, alpha, scale, inner = call.args
    if not all(math.isfinite(factor) for factor in (alpha, scale, inner)):
        raise UnsupportedError("a factor that is not finite")  # times 0 it would be NaN
    above, below = halves(call, x)
    if inner != 1:
        below = binary(call, below, inner, ElementwiseMul, "multiply")
    below = binary(call, call.emit(Gelu, x=below, function="expm1"), alpha, ElementwiseMul, "multiply")
    y = binary(call, above, below, ElementwiseAdd, "add")
    return y if scale == 1 else binary(call, y, scale, ElementwiseMul, "multiply")


def _register(op: str, kind: type[Instruction], function: str) -> None:
    limits = "integers" if kind is Gelu else "bool"

    @rule(f"{op}.default", gives=[kind.OPCODE], limits=limits)
    def activation(call: Call) -> Result:
        x = call.args[0]
        if call.dtype(x) == "bool":
            raise UnsupportedError("bool")
        return call.emit(kind, x=x, function=function)


for _op, _function in {
    "relu": "relu",
    "hardsigmoid": "hardsigmoid",
    "hardswish": "hardswish",
    "abs": "abs",
    "neg": "negate",
    "sign": "sign",
    "floor": "floor",
    "ceil": "ceiling",
    "round": "round",
    "trunc": "truncate",
}.items():
    _register(_op, Relu, _function)
for _op, _function in {
    "silu": "silu",
    "sigmoid": "sigmoid",
    "tanh": "hyperbolic-tangent",
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "reciprocal": "reciprocal",
    "sin": "sin",
    "cos": "cos",
    "log1p": "log1p",
    "expm1": "expm1",
    "exp2": "exp2",
    "log2": "log2",
    "erf": "error-function",
}.items():
    _register(_op, Gelu, _function)
