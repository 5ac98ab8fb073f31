"""Comparisons, logic and selection: 1 and 0 in the operands' dtype, a byte for each truth value in DRAM."""

from __future__ import annotations

import torch
from torch import fx

from assay.npu_backend.isa import ElementwiseAdd, ElementwiseMul, Quantize, Relu
from assay.npu_backend.lowering import Call, Result, UnsupportedError, dtype_of, rule
from assay.npu_backend.rules.pointwise import binary
from assay.npu_backend.rules.reduction import reduced
from assay.npu_backend.tensor import FLOATS

_COMPARE = ["ELEMENTWISE_ADD", "QUANTIZE", "DEQUANTIZE"]
ZERO_FILLED = ("aten.scalar_tensor.default", "aten.full.default", "aten.zeros.default", "aten.full_like.default")


def truth(call: Call, ones: str) -> str:
    """1 and 0 as truth values."""
    ones = call.cast(ones, "float32") if call.dtype(ones) not in FLOATS else ones
    return call.emit(Quantize, x=ones, dtype="bool", scale=(1.0,), zero_point=(0,))


def ones_of(call: Call, x: str) -> str:
    """1 where an operand is not 0, and 0 elsewhere, in a floating dtype."""
    if call.dtype(x) == "bool":
        return call.cast(x, "float32")
    x = call.cast(x, "float32") if call.dtype(x) not in FLOATS else x
    same = call.emit(ElementwiseAdd, a=x, b=call.number(0.0, call.dtype(x)), function="equal")
    return inverse(call, same)


def inverse(call: Call, ones: str) -> str:
    """0 for 1, and 1 for 0."""
    return call.emit(ElementwiseAdd, a=call.number(1.0, call.dtype(ones)), b=ones, function="subtract")


def _compared(call: Call, function: str, *, swapped: bool = False, inverted: bool = False) -> str:
    a, b = call.args[:2]
    common = torch.result_type(*(call.given(place) for place in (0, 1)))
    dtype = str(common).removeprefix("torch.")
    if dtype == "bool":
        dtype = "float32"
    x, y = (call.cast(side, dtype) if isinstance(side, str) else call.number(side, dtype) for side in (a, b))
    found = call.emit(ElementwiseAdd, a=y if swapped else x, b=x if swapped else y, function=function)
    found = call.cast(found, "float32") if dtype not in FLOATS else found
    return truth(call, inverse(call, found) if inverted else found)


@rule("eq.Tensor", "eq.Scalar", gives=_COMPARE, limits="float64")
def equal(call: Call) -> Result:
    """a = b"""
    return _compared(call, "equal")


@rule("ne.Tensor", "ne.Scalar", gives=_COMPARE, limits="float64")
def unequal(call: Call) -> Result:
    """1 - (a = b)"""
    return _compared(call, "equal", inverted=True)


@rule("gt.Tensor", "gt.Scalar", gives=_COMPARE, limits="float64")
def greater(call: Call) -> Result:
    """a > b"""
    return _compared(call, "greater")


@rule("ge.Tensor", "ge.Scalar", gives=_COMPARE, limits="float64")
def greater_or_equal(call: Call) -> Result:
    """a >= b"""
    return _compared(call, "greater-equal")


@rule("lt.Tensor", "lt.Scalar", gives=_COMPARE, limits="float64")
def less(call: Call) -> Result:
    """b > a"""
    return _compared(call, "greater", swapped=True)


@rule("le.Tensor", "le.Scalar", gives=_COMPARE, limits="float64")
def less_or_equal(call: Call) -> Result:
    """b >= a"""
    return _compared(call, "greater-equal", swapped=True)


@rule("isnan.default", gives=["ELEMENTWISE_ADD", "QUANTIZE"], limits="integers")
def is_nan(call: Call) -> Result:
    """1 - (x = x)"""
    x = call.args[0]
    call.floating(x)
    # An instruction does not read an operand twice in place: the second time it is plus 0.
    other = call.emit(ElementwiseAdd, a=x, b=call.number(0.0, call.dtype(x)))
    return truth(call, inverse(call, call.emit(ElementwiseAdd, a=other, b=x, function="equal")))


@rule("isinf.default", gives=["RELU", "ELEMENTWISE_ADD", "QUANTIZE"], limits="integers")
def is_infinite(call: Call) -> Result:
    """|x| = infinity"""
    x = call.args[0]
    call.floating(x)
    size = call.emit(Relu, x=x, function="abs")
    return truth(call, call.emit(ElementwiseAdd, a=size, b=call.number(float("inf"), call.dtype(x)), function="equal"))


@rule("logical_not.default", "bitwise_not.default", gives=_COMPARE, limits="bits of integers")
def negation(call: Call) -> Result:
    """1 - a"""
    _logical(call)
    return truth(call, inverse(call, ones_of(call, call.args[0])))


@rule("logical_and.default", "bitwise_and.Tensor", gives=[*_COMPARE, "ELEMENTWISE_MUL"], limits="bits of integers")
def conjunction(call: Call) -> Result:
    """a b"""
    _logical(call)
    a, b = (call.cast(ones_of(call, side), "float32") for side in call.args[:2])
    return truth(call, call.emit(ElementwiseMul, a=a, b=b))


@rule("logical_or.default", "bitwise_or.Tensor", gives=_COMPARE, limits="bits of integers")
def disjunction(call: Call) -> Result:
    """max(a, b)"""
    _logical(call)
    a, b = (call.cast(ones_of(call, side), "float32") for side in call.args[:2])
    return truth(call, call.emit(ElementwiseAdd, a=a, b=b, function="maximum"))


@rule("logical_xor.default", "bitwise_xor.Tensor", gives=_COMPARE, limits="bits of integers")
def exclusion(call: Call) -> Result:
    """1 - (a = b)"""
    _logical(call)
    a, b = (call.cast(ones_of(call, side), "float32") for side in call.args[:2])
    return truth(call, inverse(call, call.emit(ElementwiseAdd, a=a, b=b, function="equal")))


def _logical(call: Call) -> None:
    if dtype_of(call.value) != "bool" or not all(isinstance(side, str) for side in call.args[:2]):
        raise UnsupportedError("bits of integers")


@rule("any.default", "any.dim", "any.dims", gives=["RESHAPE", "MATMUL", *_COMPARE])
def some(call: Call) -> Result:
    """0 < the sum of 1 and 0"""
    op = str(call.node.target)
    axes = None if op.endswith("any.default") else call.args[1]
    ones = call.cast(ones_of(call, call.args[0]), "float32")
    count = reduced(call, ones, [axes] if isinstance(axes, int) else axes, 1.0, tuple(call.value.shape))
    return truth(call, call.emit(ElementwiseAdd, a=count, b=call.number(0.0, "float32"), function="greater"))


@rule("where.self", gives=["DEQUANTIZE", "ELEMENTWISE_ADD", "ELEMENTWISE_MUL"], limits="integers")
def choose(call: Call) -> Result:
    """a kept where the condition holds, plus b kept where it does not"""
    condition, a, b = call.args
    dtype = dtype_of(call.value)
    if dtype not in FLOATS:
        raise UnsupportedError(f"{dtype} is not floating")
    mask = call.cast(condition, dtype)
    parts = []
    for place, side in ((1, a), (2, b)):
        if _is_zero(call, place):
            continue
        chosen = mask if place == 1 else inverse(call, mask)
        parts.append(call.emit(ElementwiseMul, a=call.cast(side, dtype), b=chosen, function="keep"))
    if not parts:
        raise UnsupportedError("a choice between two zeros")
    found = parts[0] if len(parts) == 1 else binary(call, parts[0], parts[1], ElementwiseAdd, "add")
    return call.broadcast(found, tuple(call.value.shape))


def _is_zero(call: Call, place: int) -> bool:
    """Whether an argument is a tensor that its own node fills with 0."""
    source = call.node.args[place]
    if not isinstance(source, fx.Node) or str(source.target) not in ZERO_FILLED:
        return False
    filled = [value for value in source.args if isinstance(value, int | float)]
    return bool(filled) and filled[-1] == 0 and not isinstance(filled[-1], bool)
