"""Matrix products."""

from __future__ import annotations

from assay.npu_backend.isa import ElementwiseAdd, ElementwiseMul, MatMul
from assay.npu_backend.lowering import Call, Result, UnsupportedError, dtype_of, rule
from assay.npu_backend.rules.pointwise import binary


@rule("mm.default", "bmm.default", gives=["MATMUL"], limits="integers")
def product(call: Call) -> Result:
    """a b"""
    a, b = call.args[:2]
    call.floating(a)
    return call.emit(MatMul, a=a, b=b)


@rule("_int_mm.default", gives=["MATMUL"])
def integer_product(call: Call) -> Result:
    """a b in 8 bits, with sums of 32"""
    return call.emit(MatMul, a=call.args[0], b=call.args[1])


def _first(call: Call) -> bool:
    """Whether alpha scales the operand: a sum of products may overflow a 16-bit float that its multiple does not."""
    return dtype_of(call.value) == "float16" and abs(call.args[4]) < 1


def _scaled(call: Call, a: str) -> str:
    return binary(call, a, call.args[4], ElementwiseMul, "multiply") if _first(call) else a


def _plus(call: Call, product: str, bias: str) -> Result:
    """alpha product + beta bias; a factor of 0 drops its side, even when that is not finite."""
    beta, alpha = call.args[3:5]
    if alpha != 1 and not _first(call):
        product = binary(call, product, alpha, ElementwiseMul, "multiply")
    if beta == 0:
        return call.broadcast(product, tuple(call.value.shape))
    if beta != 1:
        bias = binary(call, bias, beta, ElementwiseMul, "multiply")
    return call.emit(ElementwiseAdd, a=product, b=bias)


@rule("addmm.default", "baddbmm.default", gives=["MATMUL", "ELEMENTWISE_ADD", "ELEMENTWISE_MUL"], limits="integers")
def product_and_sum(call: Call) -> Result:
    """bias + a b; a bias over the columns becomes the instruction's operand in fusion"""
    bias, a, b = call.args[:3]
    call.floating(a)
    return _plus(call, call.emit(MatMul, a=_scaled(call, a), b=b), bias)


@rule("addmv.default", gives=["MATMUL", "RESHAPE", "ELEMENTWISE_ADD", "ELEMENTWISE_MUL"], limits="integers")
def vector_product_and_sum(call: Call) -> Result:
    """bias + a b, where b is a column"""
    bias, a, b = call.args[:3]
    call.floating(a)
    column = call.emit(MatMul, a=_scaled(call, a), b=call.reshape(b, (call.shape(b)[0], 1)))
    return _plus(call, call.reshape(column, (call.shape(a)[0],)), bias)


@rule("addbmm.default", gives=["MATMUL", "RESHAPE", "ELEMENTWISE_ADD", "ELEMENTWISE_MUL"], limits="integers")
def summed_products(call: Call) -> Result:
    """bias + the sum of products: one product whose sum runs over the batch as well"""
    bias, a, b = call.args[:3]
    call.floating(a)
    batch, n, m = call.shape(a)
    p = call.shape(b)[2]
    wide = call.reshape(call.permute(_scaled(call, a), (1, 0, 2)), (n, batch * m))
    return _plus(call, call.emit(MatMul, a=wide, b=call.reshape(b, (batch * m, p))), bias)


@rule("dot.default", "mv.default", gives=["MATMUL", "RESHAPE"], limits="integers")
def vector_product(call: Call) -> Result:
    """a b, where b is a column"""
    a, b = call.args[:2]
    if len(call.shape(b)) != 1:
        raise UnsupportedError("the right side is no vector")
    call.floating(a)
    k = call.shape(b)[0]
    rows = call.reshape(a, (-1 if not k else call.graph.tensors[a].elements // k, k))
    return call.reshape(call.emit(MatMul, a=rows, b=call.reshape(b, (k, 1))), call.value.shape)
