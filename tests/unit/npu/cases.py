"""Functions whose operators have a rule, with inputs: comparisons, selections, pools, gradients, quantization."""

from __future__ import annotations

import torch
import torch.ao.quantization.fx._decomposed
from tests.unit.npu.lowered import Function, positive, randn
from torch.nn import functional

aten = torch.ops.aten
quantized = torch.ops.quantized_decomposed
X4 = randn(2, 6, 9, 8)
ODD = torch.tensor([0.0, -0.0, 1.5, -2.5, torch.inf, -torch.inf, torch.nan, 3.0])
"""What comparisons must tell apart."""
BITS = torch.tensor([True, False, True, True, False, False, True, False])
TRUTHS = randn(40, 30) > 0
I8 = (torch.arange(240) % 256 - 128).to(torch.int8).view(12, 20)
SCALES = positive(12) / 50
ZEROS = torch.arange(12) - 6


def gradient(function: Function, *places: int) -> Function:
    """The gradients of a function's sum of squares by some of its arguments."""

    def found(*inputs: torch.Tensor) -> list[torch.Tensor]:
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_(place in places) for place, x in enumerate(inputs)]
            total = function(*leaves).square().sum()
            return list(torch.autograd.grad(total, [leaves[place] for place in places]))

    return found


def convolution_gradients(stride: int, padding: int, dilation: int, groups: int, transposed: bool = False) -> Function:
    """`convolution_backward` by all three."""

    def found(x: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
        outer = [0, 0]
        args = ([stride] * 2, [padding] * 2, [dilation] * 2, transposed, outer, groups)
        outs = weight.shape[1] * groups if transposed else weight.shape[0]
        out = aten.convolution(x, weight, None, *args)
        return list(aten.convolution_backward(out.sin(), x, weight, [outs], *args, [True] * 3))

    return found


def layer_norm_training(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    return list(aten.native_layer_norm(x, [6], w, w, 1e-5))


def batch_norm_training(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
    return list(aten._native_batch_norm_legit_functional(x, w, w, w, v, True, 0.1, 1e-5))


MORE: dict[str, tuple[Function, tuple[torch.Tensor, ...]]] = {
    "int8 product": (torch._int_mm, (I8[:, :16], I8[:8, :16].t().contiguous())),
    "addmm scaled": (lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), (randn(21), randn(7, 9), randn(9, 21))),
    "addmm without bias": (lambda b, x, y: torch.addmm(b, x, y, beta=0), (torch.full((21,), torch.nan), randn(7, 9), randn(9, 21))),
    "addmv": (torch.addmv, (randn(7), randn(7, 9), randn(9))),
    "addbmm": (torch.addbmm, (randn(7, 5), randn(3, 7, 9), randn(3, 9, 5))),
    "dot": (aten.dot, (randn(9), randn(9) + 1)),
    "mv": (aten.mv, (randn(7, 9), randn(9))),
    "equal": (torch.eq, (ODD, ODD.flip(0))),
    "unequal": (torch.ne, (ODD, ODD.roll(1))),
    "greater": (torch.gt, (ODD, ODD.roll(1))),
    "greater or equal": (torch.ge, (ODD, ODD.roll(1))),
    "less": (torch.lt, (ODD, ODD.roll(1))),
    "less or equal": (torch.le, (ODD, ODD.roll(1))),
    "compared with numbers": (
        lambda a: [a == 0, a != 1.5, a > 0, a >= 1.5, a < torch.inf, a <= -2.5], (ODD,),
    ),
    "compared integers": (lambda a: [a == 2**40, a > 3, a <= 7], (torch.tensor([2**40, 2**40 + 1, 3, 7, 8]),)),
    "compared truths": (torch.eq, (BITS, BITS.roll(1))),
    "is nan": (torch.isnan, (ODD,)),
    "is infinite": (aten.isinf, (ODD,)),
    "not": (lambda a, b: [torch.logical_not(a), ~b], (ODD, BITS)),
    "and": (lambda a, b, c: [torch.logical_and(a, b), b & c], (ODD, BITS, BITS.roll(1))),
    "or": (lambda a, b, c: [torch.logical_or(a, b), b | c], (ODD, BITS, BITS.roll(1))),
    "xor": (lambda a, b, c: [torch.logical_xor(a, b), b ^ c], (ODD, BITS, BITS.roll(1))),
    "any": (lambda a: [torch.any(a), torch.any(a, 1), torch.any(a, (0, 1))], (TRUTHS & TRUTHS.roll(1, 0) & TRUTHS.roll(1, 1),)),
    "where": (torch.where, (BITS, ODD, torch.arange(8.0))),
    "where of broadcasts": (torch.where, (TRUTHS, randn(30), randn(40, 1))),
    "where of one": (lambda c, a: torch.where(c, a, torch.zeros(())), (TRUTHS[:, :1], randn(1, 1))),
    "masked fill": (lambda a, m: a.masked_fill(m, -torch.inf), (randn(40, 30), TRUTHS)),
    "to truths": (lambda a, b: [a.bool(), b.bool()], (ODD, torch.arange(-4, 4))),
    "from truths": (lambda a, b: a.float() * b, (TRUTHS, randn(40, 30))),
    "times truths": (torch.mul, (randn(40, 30), TRUTHS)),
    "to half and back": (lambda a: (a.half() * 3).bfloat16().float(), (randn(40, 30),)),
    "integers to floats": (lambda a, b: a / 3 + b, (torch.arange(60).view(6, 10), torch.arange(10, dtype=torch.int32))),
    "half times a number that it does not hold": (lambda a: a * 1e6, (torch.tensor([0.0, 1e-3, 2.0]).half(),)),
    "half and float": (torch.add, (randn(40, 30).half(), randn(30))),
    "half mean": (lambda a: a.mean(0), (randn(40, 30).half(),)),
    "sum of truths in float": (lambda a: torch.sum(a, 1, dtype=torch.float32), (TRUTHS,)),
    "largest of all": (lambda a: [a.max(), a.min()], (randn(7, 13),)),
    "strided alike": (
        lambda a: [a.as_strided((7, 1, 13), (13, 99, 1)) * 2, a.as_strided((91,), (1,)) * 2], (randn(7, 13),),
    ),
    "strided alike, turned": (lambda a: a.as_strided((7, 13), (1, 7)) * 2, (randn(13, 7).t(),)),
    "largest": (lambda a: [a.amax(1), a.amin((0, 2), keepdim=True), a.amax()], (randn(7, 13, 5),)),
    "product of elements": (lambda a: [a.prod(1), a.prod()], (randn(4, 7),)),
    "variance": (lambda a: [a.var(1), a.std((0, 2), correction=0)], (randn(7, 13, 5),)),
    "variance and mean": (lambda a: list(torch.var_mean(a, (0, 2), keepdim=True)), (randn(7, 13, 5),)),
    "log softmax": (lambda a: [torch.log_softmax(a, 1), torch.log_softmax(a * 50, 0)], (randn(9, 11),)),
    "power 1": (lambda a: aten.pow.Tensor_Scalar(a, 1.0) + 1, (randn(4, 6),)),
    "clamp by tensors": (lambda a, b: torch.clamp(a, min=b, max=b + 1), (randn(4, 6), randn(6))),
    "leaky relu": (lambda a: functional.leaky_relu(a, 0.2), (ODD,)),
    "elu": (lambda a: [functional.elu(a, 1.5), functional.selu(a)], (randn(40, 30) * 3,)),
    "softplus": (lambda a: functional.softplus(a, 2, 3), (randn(40, 30) * 5,)),
    "mish": (functional.mish, (randn(40, 30) * 5,)),
    "prelu": (functional.prelu, (X4, randn(6))),
    "roundings": (lambda a: [a.floor(), a.ceil(), a.round(), a.trunc(), a.sign()], (torch.arange(-8, 9) / 4,)),
    "tables": (lambda a: [a.log1p(), a.expm1(), a.exp2(), a.log2(), a.erf()], (positive(40, 30) / 100,)),
    "training layer norm": (layer_norm_training, (randn(3, 40, 6), randn(6))),
    "training batch norm": (batch_norm_training, (X4, randn(6), positive(6))),
    "instance norm": (lambda a: functional.instance_norm(a), (X4,)),
    "group norm": (lambda a, w, b: functional.group_norm(a, 3, w, b), (X4, randn(6), randn(6))),
    "training group norm": (lambda a, w: list(aten.native_group_norm(a, w, w, 2, 6, 72, 3, 1e-5)), (X4, randn(6))),
    "average pool in borders": (lambda a: functional.avg_pool2d(a, 3, 2, 1, count_include_pad=False), (X4,)),
    "average pool, ceil": (lambda a: functional.avg_pool2d(a, 3, 2, 1, ceil_mode=True), (X4,)),
    "average pool, ceil and borders": (lambda a: functional.avg_pool2d(a, (2, 3), 2, (1, 0), True, False), (X4,)),
    "average pool, divisor": (lambda a: functional.avg_pool2d(a, 3, 2, 1, divisor_override=5), (X4,)),
    "average pool in half": (lambda a: functional.avg_pool2d(a, 3, 3), (X4.half(),)),
    "average pool without batch": (lambda a: functional.avg_pool2d(a, 3), (X4[0],)),
    "adaptive pool": (lambda a: functional.adaptive_avg_pool2d(a, (3, 4)), (X4,)),
    "pool gradients": (
        lambda g, x: [
            aten.avg_pool2d_backward(g[:, :, :5, :4], x, [3, 3], [2, 2], [1, 1], False, False, None),
            aten.avg_pool2d_backward(g[:, :, :4, :4], x, [2, 2], [2, 2], [0, 0], False, True, None),
            aten._adaptive_avg_pool2d_backward(g[:, :, :3, :4], x),
        ],
        (X4.sin(), X4),
    ),
    "interpolated": (lambda a: functional.interpolate(a, scale_factor=2), (X4,)),
    "interpolated to a size": (lambda a: functional.interpolate(a, (13, 11)), (X4,)),
    "interpolated linearly": (lambda a: functional.interpolate(a, scale_factor=2, mode="bilinear"), (X4,)),
    "gathered": (lambda a: a[:, torch.arange(5) * 2 % 5] + 1, (X4,)),
    "index select": (lambda a: torch.index_select(a, 1, torch.arange(4)) + 1, (X4,)),
    "flip": (lambda a: a.flip(1, 3) + 1, (X4,)),
    "pad": (lambda a: functional.pad(a, (1, 2, 0, 3), value=1.5), (X4,)),
    "pad and cut": (lambda a: functional.pad(a, (-1, 2, 3, -2)), (X4,)),
    "repeat": (lambda a: a.repeat(3, 1, 2), (randn(4, 5),)),
    "roll": (lambda a: [torch.roll(a, (1, -2), (2, 3)), torch.roll(a, 5)], (X4,)),
    "every second": (lambda a: [a[:, ::2] + 1, a[1::3, 2:7:2] + 1], (randn(40, 9),)),
    "put a slice": (lambda a, b: torch.slice_scatter(a, b, 1, 2, 5) + 1, (randn(40, 9), randn(40, 3))),
    "put a row": (lambda a, b: torch.select_scatter(a, b, 1, 3) + 1, (randn(40, 9), randn(40))),
    "copy": (lambda a, b: aten.copy(a, b) + 1, (randn(40, 9), randn(9).half())),
    "filled": (lambda a: torch.full_like(a, 2.5) + a, (randn(4, 9),)),
    "gathered weights": (lambda a: a.unbind(0)[0] + 1, (randn(2, 9),)),
    "conv transposed": (
        lambda x, w, b: functional.conv_transpose2d(x, w, b, 2, 1, 1), (X4[:, :, :4, :3], randn(6, 5, 3, 3), randn(5)),
    ),
    "conv transposed in groups": (
        lambda x, w: functional.conv_transpose2d(x, w, None, 3, (0, 2), 0, 3, 2), (X4[:, :, :4, :3], randn(6, 2, 3, 2)),
    ),
    "conv transposed and cut": (lambda x, w: functional.conv_transpose2d(x, w, None, 1, 2), (X4, randn(6, 2, 2, 2))),
    "conv1d transposed": (lambda x, w: functional.conv_transpose1d(x, w, None, 2), (randn(2, 6, 7), randn(6, 4, 3))),
    "conv gradients": (convolution_gradients(1, 1, 1, 1), (X4, randn(5, 6, 3, 3))),
    "conv gradients, strided": (convolution_gradients(2, 1, 2, 1), (X4, randn(5, 6, 3, 2))),
    "conv gradients, groups": (convolution_gradients(2, 0, 1, 3), (X4, randn(9, 2, 2, 3))),
    "conv gradients, depthwise": (convolution_gradients(1, 1, 1, 6), (X4, randn(6, 1, 3, 3))),
    "conv gradients, transposed": (convolution_gradients(2, 1, 1, 2, True), (X4[:, :, :4, :3], randn(6, 2, 3, 3))),
    "gradients of activations": (
        lambda a: [gradient(f, 0)(a)[0] for f in (torch.relu, functional.gelu, functional.hardswish, functional.elu)],
        (randn(40, 30) * 2,),
    ),
    "gradients of a softmax": (gradient(lambda a: torch.softmax(a, -1), 0), (randn(9, 11),)),
    "gradients of a layer norm": (
        gradient(lambda a, w: functional.layer_norm(a, (6,), w, w), 0, 1), (randn(3, 40, 6), randn(6)),
    ),
    "gradients of attention": (
        gradient(functional.scaled_dot_product_attention, 0, 1, 2),
        (randn(2, 3, 6, 4), randn(2, 3, 6, 4) + 1, randn(2, 3, 6, 4) - 1),
    ),
    "gradients of causal attention": (
        gradient(lambda q, k: functional.scaled_dot_product_attention(q, k, k, is_causal=True), 0, 1),
        (randn(2, 3, 6, 4), randn(2, 3, 6, 4)),
    ),
    "quantize": (lambda a: quantized.quantize_per_tensor(a, 0.03, 5, -128, 127, torch.int8), (randn(40, 30),)),
    "quantize ties": (
        lambda a: quantized.quantize_per_tensor(a, 0.5, -3, 0, 255, torch.uint8), (torch.arange(-9, 300) / 4,),
    ),
    "quantize narrowly": (lambda a: quantized.quantize_per_tensor(a, 0.03, 5, -127, 100, torch.int8), (randn(40, 30) * 3,)),
    "dequantize": (lambda a: quantized.dequantize_per_tensor(a, 0.03, 5, -128, 127, torch.int8), (I8,)),
    "quantize channels": (
        lambda a, s, z: quantized.quantize_per_channel(a, s, z, 0, -128, 127, torch.int8), (randn(12, 20), SCALES, ZEROS),
    ),
    "dequantize channels": (
        lambda a, s, z: quantized.dequantize_per_channel(a, s, z, 0, -128, 127, torch.int8), (I8, SCALES, ZEROS),
    ),
    "fake quantize": (lambda a: torch.fake_quantize_per_tensor_affine(a, 0.1, 3, -8, 7), (randn(40, 30),)),
}  # fmt: skip
