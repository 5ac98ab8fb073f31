"""Graphs that look like what a pass folds and are not: each one must keep its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.unit.npu.test_fusion import compiled
from torch import nn
from torch.nn.functional import conv2d, layer_norm

from assay.npu_backend import isa

Case = tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def far(*shape: int) -> torch.Tensor:
    """Nothing near zero."""
    return randn(*shape).abs() + 1


def root(x: torch.Tensor, epsilon: Any = 1e-3) -> torch.Tensor:
    return torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)


X, IMAGE, KERNEL = far(5, 12), randn(1, 3, 9, 9), randn(5, 3, 3, 3)

BATCHES: dict[str, Case] = {
    "rows turned after the product": (lambda x, w: (x.reshape(6, 4) @ w).t(), (randn(2, 3, 4),), (randn(4, 6),)),
    "a batch turned after the product": (
        lambda x, y: torch.bmm(x.reshape(6, 4, 5), y.reshape(6, 5, 4)).transpose(1, 2),
        (randn(2, 3, 4, 5), randn(2, 3, 5, 4)),
        (),
    ),
    "rows of a batch parted": (
        lambda x, y: torch.bmm(x.reshape(6, 4, 5), y.reshape(6, 5, 3)).reshape(12, 2, 3),
        (randn(2, 3, 4, 5), randn(2, 3, 5, 3)),
        (),
    ),
    "columns parted": (lambda x, w: (x.reshape(6, 4) @ w).reshape(6, 3, 2), (randn(2, 3, 4),), (randn(4, 6),)),
    "one row flattened": (lambda x, w: (x.reshape(1, 4) @ w).reshape(6), (randn(2, 2),), (randn(4, 6),)),
    "a batch that was turned": (
        lambda x, y: torch.bmm(x.transpose(0, 1), y.reshape(6, 5, 3)).reshape(2, 3, 4, 3),
        (randn(4, 6, 5), randn(2, 3, 5, 3)),
        (),
    ),
    "rows that were turned": (lambda x, w: (x.t() @ w).reshape(2, 3, 5), (randn(4, 6),), (randn(4, 5),)),
    "rows that are no view": (lambda x, w: (x @ w).reshape(2, 3, 5), (randn(6, 4),), (randn(4, 5),)),
    "a matrix that is a view": (
        lambda x, y: (x.reshape(6, 4) @ y.reshape(4, 5)).reshape(2, 3, 5), (randn(2, 3, 4), randn(20)), (),
    ),
    "a batch of what is computed": (
        lambda x, y: torch.bmm(torch.relu(x).reshape(6, 4, 5), torch.tanh(y).reshape(6, 5, 3)).reshape(3, 2, 4, 3),
        (randn(2, 3, 4, 5), randn(2, 3, 5, 3)),
        (),
    ),
}  # fmt: skip
NORMS: dict[str, Case] = {
    "epsilon is subtracted": (lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) - 0.1), (X,), ()),
    "epsilon is below zero": (lambda x: x * root(x, -0.1), (X,), ()),
    "epsilon is a weight": (lambda x, w: x * root(x, w), (X,), (far(1),)),
    "the mean has a bias": (
        lambda x, w: x * torch.rsqrt(torch.addmm(w, x * x, torch.full((12, 1), 1 / 12)) + 1e-3), (X,), (far(1),),
    ),
    "the mean is of something else": (
        lambda x, y: x * torch.rsqrt((x * y).mean(-1, keepdim=True) + 1e-3), (X, far(5, 12) + 1), (),
    ),
    "the mean is no square": (lambda x: x * torch.rsqrt(torch.relu(x).mean(-1, keepdim=True) + 1e-3), (X,), ()),
    "the mean lies along columns": (
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1).reshape(1, 12) + 1e-3), (far(12, 12),), (),
    ),
    "the means were turned": (
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True).permute(1, 0, 2) + 1e-3), (far(4, 4, 12),), (),
    ),
    "the sigmoid of a mean": (lambda x: x * torch.sigmoid(x.pow(2).mean(-1, keepdim=True) + 1e-3), (X,), ()),
    "divided by the root": (lambda x: x / root(x), (X,), ()),
    "divided by a weight": (lambda x, w: x * root(x) / w, (X,), (far(12),)),
    "times two weights": (lambda x, v, w: x * root(x) * v * w, (X,), (far(12), randn(12))),
    "times what is given": (lambda x, y: x * root(x) * y, (X, far(12)), ()),
    "a layer norm with a bias, times a weight": (
        lambda x, v, b, w: layer_norm(x, (12,), v, b) * w, (X,), (far(12), randn(12), randn(12) * 3),
    ),
    "a layer norm times a mask that is computed": (lambda x, y: layer_norm(x, (12,)) * (y + x > 2) * 2, (X, far(5, 12)), ()),
}  # fmt: skip
BIASES: dict[str, Case] = {
    "minus a weight": (lambda x, w, v: x @ w - v, (X,), (randn(12, 8), randn(8))),
    "a weight minus the product": (lambda x, w, v: v - x @ w, (X,), (randn(12, 8), randn(8))),
    "plus two weights": (lambda x, w, v, u: torch.addmm(v, x, w) + u, (X,), (randn(12, 8), randn(8), randn(8) * 3)),
    "plus a row that is given": (lambda x, y, w: x @ w + y, (X, randn(1, 8)), (randn(12, 8),)),
    "plus a column": (lambda x, w, v: x @ w + v, (X,), (randn(12, 8), randn(5, 1))),
    "plus a weight of more dimensions": (lambda x, w, v: x @ w + v, (X,), (randn(12, 8), randn(1, 1, 8))),
    "a convolution over a weight": (lambda x, k, v: conv2d(x, k) / v, (IMAGE,), (KERNEL, far(5, 1, 1))),
    "a given kernel, times a weight": (lambda x, k, v: conv2d(x, k) * v, (IMAGE, KERNEL), (far(5, 1, 1),)),
    "a convolution times columns": (lambda x, k, v: conv2d(x, k) * v, (IMAGE,), (KERNEL, randn(7))),
    "a convolution times more dimensions": (lambda x, k, v: conv2d(x, k) * v, (IMAGE,), (KERNEL, randn(1, 1, 5, 1, 1))),
    "a convolution minus a weight": (lambda x, k, v: conv2d(x, k) - v, (IMAGE,), (KERNEL, randn(5, 1, 1))),
    "a convolution plus what is given": (lambda x, y, k: conv2d(x, k) + y, (IMAGE, randn(5, 1, 1)), (KERNEL,)),
    "a convolution plus columns": (lambda x, k, v: conv2d(x, k) + v, (IMAGE,), (KERNEL, randn(7))),
    "a convolution plus more dimensions": (lambda x, k, v: conv2d(x, k) + v, (IMAGE,), (KERNEL, randn(1, 1, 5, 1, 1))),
    "a given bias, times a weight": (
        lambda x, b, k, v: conv2d(x, k, b) * v, (IMAGE, randn(5)), (KERNEL, far(5, 1, 1)),
    ),
    "a given bias, plus a weight": (
        lambda x, b, k, v: conv2d(x, k, b) + v, (IMAGE, randn(5)), (KERNEL, far(5, 1, 1)),
    ),
}  # fmt: skip
CASES = BATCHES | NORMS | BIASES


class Module(nn.Module):
    """A function of inputs and weights, the weights last."""

    def __init__(self, function: Callable[..., torch.Tensor], weights: tuple[torch.Tensor, ...]) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(weights)

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return self.function(*values, *self.weights)


@pytest.mark.parametrize("name", CASES)
def test_what_no_pass_may_fold_keeps_its_results(name: str) -> None:
    function, inputs, weights = CASES[name]
    model = Module(function, weights)
    _, got = compiled(model, *inputs)
    want = model(*inputs)
    assert got.shape == want.shape
    torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5)


def test_the_weight_of_an_rms_norm_is_its_operand() -> None:
    instructions, _ = compiled(Module(lambda x, w: x * root(x) * w, (far(12),)), X)
    work = [i for i in instructions if not isinstance(i, isa.LoadTile | isa.StoreTile)]
    assert [type(i) for i in work] == [isa.LayerNorm]
    assert work[0].weight
    assert not work[0].center
