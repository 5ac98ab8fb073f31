"""Elementwise operators and activations."""

from __future__ import annotations

from assay.npu_backend.isa import ElementwiseAdd, ElementwiseMul, Gelu, Instruction, Relu
from assay.npu_backend.lowering import Call, Result, UnsupportedError, dtype_of, rule


def operands(call: Call, a: object, b: object) -> tuple[str, str]:
    """Both sides as tensors of one dtype; a number takes the dtype of the result."""
    dtype = dtype_of(call.value)
    first, second = (
        side if isinstance(side, str) else call.number(side, dtype)  # type: ignore[arg-type]
        for side in (a, b)
    )
    return first, second


def binary(call: Call, kind: type[Instruction], function: str) -> Result:
    """One instruction over the first two arguments."""
    a, b = operands(call, *call.args[:2])
    return call.emit(kind, a=a, b=b, function=function)


@rule("add.Tensor", "add.Scalar", gives=["ELEMENTWISE_ADD", "ELEMENTWISE_MUL"], limits="operands of two dtypes")
def add(call: Call) -> Result:
    """a + alpha b"""
    return _sum(call, call.args[0], call.args[1], call.args[2], "add")


@rule("sub.Tensor", "sub.Scalar", gives=["ELEMENTWISE_ADD", "ELEMENTWISE_MUL"], limits="operands of two dtypes")
def subtract(call: Call) -> Result:
    """a - alpha b"""
    return _sum(call, call.args[0], call.args[1], call.args[2], "subtract")


@rule("rsub.Scalar", "rsub.Tensor", gives=["ELEMENTWISE_ADD", "ELEMENTWISE_MUL"], limits="operands of two dtypes")
def reverse_subtract(call: Call) -> Result:
    """b - alpha a"""
    return _sum(call, call.args[1], call.args[0], call.args[2], "subtract")


def _sum(call: Call, left: object, right: object, alpha: float, function: str) -> Result:
    a, b = operands(call, left, right)
    if alpha != 1:
        b = call.emit(ElementwiseMul, a=b, b=call.number(alpha, call.dtype(b)))
    return call.emit(ElementwiseAdd, a=a, b=b, function=function)


@rule("mul.Tensor", "mul.Scalar", gives=["ELEMENTWISE_MUL"], limits="operands of two dtypes, bool")
def multiply(call: Call) -> Result:
    """a b"""
    if dtype_of(call.value) == "bool":
        raise UnsupportedError("bool")
    return binary(call, ElementwiseMul, "multiply")


@rule("div.Tensor", "div.Scalar", gives=["ELEMENTWISE_MUL"], limits="integers, rounding modes")
def divide(call: Call) -> Result:
    """a / b"""
    a, b = operands(call, *call.args[:2])
    call.floating(a)
    return call.emit(ElementwiseMul, a=a, b=b, function="divide")


@rule("maximum.default", gives=["ELEMENTWISE_ADD"], limits="operands of two dtypes")
def maximum(call: Call) -> Result:
    """the larger of two"""
    return binary(call, ElementwiseAdd, "maximum")


@rule("minimum.default", gives=["ELEMENTWISE_ADD"], limits="operands of two dtypes")
def minimum(call: Call) -> Result:
    """the smaller of two"""
    return binary(call, ElementwiseAdd, "minimum")


@rule("clamp.default", "hardtanh.default", gives=["ELEMENTWISE_ADD", "RELU"], limits="bounds that are no numbers")
def clamp(call: Call) -> Result:
    """0 to 6 is an instruction of its own"""
    x, low, high = call.args[:3]
    if low == 0 and high == 6 and call.dtype(x) == dtype_of(call.value):
        call.floating(x)
        return call.emit(Relu, x=x, function="relu6")
    for bound, function in ((low, "maximum"), (high, "minimum")):
        if bound is not None:
            x = call.emit(ElementwiseAdd, a=x, b=call.number(bound, call.dtype(x)), function=function)
    return str(x)


@rule("pow.Tensor_Scalar", gives=["ELEMENTWISE_MUL", "GELU"], limits="exponents other than 2, 3, 0.5, -0.5, -1")
def power(call: Call) -> Result:
    """Products for 2 and 3, tables for roots and the reciprocal"""
    x, exponent = call.args[:2]
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


def _register(op: str, kind: type[Instruction], function: str) -> None:
    limits = "integers" if kind is Gelu else "bool"

    @rule(f"{op}.default", gives=[kind.OPCODE], limits=limits)
    def activation(call: Call) -> Result:
        if call.dtype(call.args[0]) == "bool":
            raise UnsupportedError("bool")
        return call.emit(kind, x=call.args[0], function=function)


for _op, _function in {
    "relu": "relu",
    "hardsigmoid": "hardsigmoid",
    "hardswish": "hardswish",
    "abs": "abs",
    "neg": "negate",
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
}.items():
    _register(_op, Gelu, _function)
