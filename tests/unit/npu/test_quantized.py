"""Quantized graphs: integer products, bit for bit, against sums in int64; chains that give nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.npu.lowered import SMALL, randn
from tests.unit.npu.test_fusion import compiled
from torch import nn
from torch.nn import functional

from assay.npu_backend import isa

quantized = torch.ops.quantized_decomposed
LIMITS = {torch.int8: (-128, 127), torch.uint8: (0, 255)}


def q(x: torch.Tensor, scale: float, zero: int, dtype: torch.dtype) -> torch.Tensor:
    return quantized.quantize_per_tensor(x, scale, zero, *LIMITS[dtype], dtype)  # type: ignore[no-any-return]


def dq(x: torch.Tensor, scale: float, zero: int) -> torch.Tensor:
    return quantized.dequantize_per_tensor(x, scale, zero, *LIMITS[x.dtype], x.dtype)  # type: ignore[no-any-return]


class Layer(nn.Module):
    """Dequantize, a product, a bias, RELU, quantize: what an exported quantized layer is."""

    weight: torch.Tensor
    bias: torch.Tensor

    def __init__(
        self, shape: tuple[int, ...], zero: int, dtype: torch.dtype, channels: bool, **convolution: Any
    ) -> None:
        super().__init__()
        self.zero, self.dtype, self.convolution = zero, dtype, convolution
        whole = torch.randint(-127, 128, shape, dtype=torch.int8, generator=torch.Generator().manual_seed(3))
        self.register_buffer("weight", whole)
        self.register_buffer("bias", randn(shape[0]))
        self.channels = channels
        if channels:
            self.register_buffer("scales", torch.linspace(0.01, 0.03, shape[0]))
            self.register_buffer("zeros", torch.arange(shape[0]) % 3 - 1)

    def weights(self) -> torch.Tensor:
        if self.channels:
            return quantized.dequantize_per_channel(  # type: ignore[no-any-return]
                self.weight, self.scales, self.zeros, 0, -128, 127, torch.int8
            )
        return dq(self.weight, 0.02, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        plain = dq(x, 0.04, self.zero)
        if self.convolution:
            y = functional.conv2d(plain, self.weights(), self.bias, **self.convolution)
        else:
            y = functional.linear(plain, self.weights(), self.bias)
        return q(torch.relu(y), 0.5, self.zero, self.dtype)

    def reference(self, x: torch.Tensor) -> torch.Tensor:
        """The sum in int64, then one float32 for each step that the program names, in its order."""
        scales = self.scales if self.channels else None
        shift = self.zeros.view(-1, *([1] * (self.weight.dim() - 1))) if self.channels else 0
        centred, weight = x.long() - self.zero, self.weight.long() - shift
        if self.convolution:
            total = functional.conv2d(centred.double(), weight.double(), None, **self.convolution).long()
            shape: tuple[int, ...] = (-1, 1, 1)
        else:
            total, shape = centred @ weight.t(), (-1,)
        factor = 0.04 if self.channels else 0.04 * 0.02
        y = total.float() * torch.tensor(factor, dtype=torch.float32)
        if scales is not None:
            y = y * scales.view(shape)
        return q(torch.relu(y + self.bias.view(shape)), 0.5, self.zero, self.dtype)


def whole(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    low, high = LIMITS[dtype]
    return torch.randint(low, high + 1, shape, dtype=dtype, generator=torch.Generator().manual_seed(5))


LAYERS = {
    "linear": (lambda z, d, c: Layer((9, 14), z, d, c), (5, 14)),
    "linear of three dimensions": (lambda z, d, c: Layer((9, 14), z, d, c), (2, 5, 14)),
    "conv": (lambda z, d, c: Layer((5, 3, 3, 2), z, d, c, stride=2, padding=(1, 2)), (2, 3, 8, 7)),
    "conv in groups": (lambda z, d, c: Layer((6, 2, 3, 3), z, d, c, groups=3), (2, 6, 8, 7)),
    "depthwise": (lambda z, d, c: Layer((6, 1, 3, 3), z, d, c, groups=6, padding=1, dilation=2), (1, 6, 8, 7)),
}


@pytest.mark.parametrize("vtcm", [8 << 20, SMALL])
@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize(("dtype", "zero"), [(torch.int8, 0), (torch.int8, -7), (torch.uint8, 131)])
@pytest.mark.parametrize("name", LAYERS)
def test_quantized_layers_are_integer_products_bit_for_bit(
    name: str, dtype: torch.dtype, zero: int, channels: bool, vtcm: int
) -> None:
    make, shape = LAYERS[name]
    layer, x = make(zero, dtype, channels), whole(shape, dtype)
    code, got = compiled(layer, x, vtcm=vtcm)
    products = [i for i in code if isinstance(i, isa.MatMul | isa.Conv2d)]
    assert products
    torch.testing.assert_close(got, layer.reference(x), rtol=0, atol=0)
    # PyTorch sums in float32 and rounds: at most one step away, and seldom.
    away = (got.int() - layer(x).int()).abs()
    assert away.max() <= 1
    assert away.float().mean() < 0.02
    if vtcm != SMALL:
        alone = Counter(i.OPCODE for i in code if not i.fused)
        assert alone["DEQUANTIZE"] == alone["QUANTIZE"] == 0, "all of it rides on the product"


def test_the_pass_makes_products_of_integers_and_can_be_switched_off() -> None:
    layer, x = Layer((9, 14), 3, torch.int8, False), whole((5, 14), torch.int8)

    def floats(without: tuple[str, ...]) -> int:
        code, got = compiled(layer, x, without=without)
        assert (got.int() - layer.reference(x).int()).abs().max() <= 1
        first = next(place for place, i in enumerate(code) if isinstance(i, isa.MatMul))
        return sum(isinstance(i, isa.Dequantize) for i in code[:first])

    assert floats(()) == 0
    assert floats(("quantize",)) == 1


class Scores(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return dq(a, 0.1, 4) @ dq(b, 0.2, -3).transpose(-1, -2)


def test_two_activations_with_zero_points() -> None:
    a, b = whole((2, 5, 14), torch.int8), whole((2, 6, 14), torch.int8).flip(0)
    _, got = compiled(Scores(), a, b)
    exact = (a.long() - 4) @ (b.long() + 3).transpose(-1, -2)
    torch.testing.assert_close(got, exact.float() * torch.tensor(0.1 * 0.2), rtol=0, atol=0)


class Sixteen(nn.Module):
    def __init__(self, zero: int) -> None:
        super().__init__()
        self.zero = zero
        self.register_buffer("weight", torch.full((2, 9000), 127, dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        plain = quantized.dequantize_per_tensor(x, 1e-4, self.zero, -32768, 32767, torch.int16)
        return functional.linear(plain, dq(self.weight, 1e-2, 0))


@pytest.mark.parametrize("zero", [0, 5])
def test_a_sum_that_could_leave_32_bits_stays_in_floats(zero: int) -> None:
    x = torch.full((1, 9000), 32767, dtype=torch.int16)
    _, got = compiled(Sixteen(zero), x)
    torch.testing.assert_close(got, Sixteen(zero)(x))


class Again(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(q(dq(x, 0.1, 3).reshape(-1), 0.1, 3, torch.int8))


class Requantized(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(q(dq(x, 0.1, 3), 0.07, -4, torch.int8))


def test_quantizing_what_was_dequantized_by_the_same_scale_gives_nothing_to_do() -> None:
    x = whole((4, 6), torch.int8)
    code, got = compiled(Again(), x)
    assert not any(isinstance(i, isa.Quantize | isa.Dequantize) for i in code)
    torch.testing.assert_close(got, Again()(x))
    code, got = compiled(Requantized(), x)
    assert any(isinstance(i, isa.Quantize) for i in code), "another scale is work"
    torch.testing.assert_close(got, Requantized()(x))


@settings(deadline=None, max_examples=60)
@given(scale=st.floats(1e-4, 1e3), zero=st.integers(-128, 127))
def test_dropping_a_chain_is_exact_for_every_scale(scale: float, zero: int) -> None:
    x = torch.arange(-128, 128, dtype=torch.int8)
    torch.testing.assert_close(q(dq(x, scale, zero), scale, zero, torch.int8), x)


class Chosen(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where((x > y) & ~(y == 0), x, y)


def test_truth_values_between_a_comparison_and_a_choice_need_no_bytes() -> None:
    x, y = randn(6, 5), randn(6, 5).round()
    code, got = compiled(Chosen(), x, y)
    assert not any(isinstance(i, isa.Quantize | isa.Dequantize) for i in code)
    torch.testing.assert_close(got, Chosen()(x, y))
    code, got = compiled(Chosen(), x, y, without=("quantize",))
    assert any(isinstance(i, isa.Quantize) for i in code)
    torch.testing.assert_close(got, Chosen()(x, y))
