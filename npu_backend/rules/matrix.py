"""Matrix products and convolutions."""

from __future__ import annotations

from assay.npu_backend.isa import Conv2d, DepthwiseConv2d, ElementwiseAdd, MatMul
from assay.npu_backend.lowering import Call, Result, UnsupportedError, rule


@rule("mm.default", "bmm.default", gives=["MATMUL"], limits="integers")
def product(call: Call) -> Result:
    """a b"""
    a, b = call.args[:2]
    call.floating(a)
    return call.emit(MatMul, a=a, b=b)


@rule("addmm.default", "baddbmm.default", gives=["MATMUL", "ELEMENTWISE_ADD"], limits="integers, alpha or beta not 1")
def product_and_sum(call: Call) -> Result:
    """bias + a b; a bias over the columns becomes the instruction's operand in fusion"""
    bias, a, b, beta, alpha = call.args[:5]
    if beta != 1 or alpha != 1:
        raise UnsupportedError("alpha or beta is not 1")
    call.floating(a)
    return call.emit(ElementwiseAdd, a=call.emit(MatMul, a=a, b=b), b=bias)


@rule(
    "convolution.default",
    gives=["CONV2D", "DEPTHWISE_CONV2D"],
    limits="transposed and three-dimensional convolutions; one-dimensional ones run as 2-D of height 1",
)
def convolution(call: Call) -> Result:
    """N, C, H, W and N, C, L"""
    x, weight, bias, stride, padding, dilation, transposed, _, groups = call.args
    if transposed or len(call.shape(weight)) not in (3, 4):
        raise UnsupportedError("transposed or three-dimensional")
    call.floating(x)
    # One number stands for all dimensions.
    stride, padding, dilation = (
        list(sizes) * (len(call.shape(weight)) - 2) if len(sizes) == 1 else list(sizes)
        for sizes in (stride, padding, dilation)
    )
    if len(call.shape(weight)) == 3:
        (n, c, length), (o, depth, taps) = call.shape(x), call.shape(weight)
        x, weight = call.reshape(x, (n, c, 1, length)), call.reshape(weight, (o, depth, 1, taps))
        stride, padding, dilation = [1, *stride], [0, *padding], [1, *dilation]
    kind = DepthwiseConv2d if groups > 1 and groups == call.shape(x)[1] else Conv2d
    out = call.emit(
        kind,
        x=x,
        weight=weight,
        bias=bias,
        stride=tuple(stride),
        padding=(padding[0], padding[0], padding[1], padding[1]),
        dilation=tuple(dilation),
        groups=groups,
    )
    return call.reshape(out, call.value.shape)
