"""The operators as functions, as models call them."""

from __future__ import annotations

from typing import overload

import torch

from assay.kernels.operators import library

_OPS = getattr(torch.ops, library.NAMESPACE)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension; differentiable. A row of -inf alone gives NaN, as in the framework."""
    y: torch.Tensor = _OPS.softmax(x)
    return y


@overload
def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, *, residual: None = None, epsilon: float = 1e-6
) -> torch.Tensor: ...
@overload
def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, *, residual: torch.Tensor, epsilon: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]: ...
def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    *,
    residual: torch.Tensor | None = None,
    epsilon: float = 1e-6,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm over the last dimension of x; differentiable once.

    With `residual` (shaped like x) the norm of h = x + residual, and h: (y, h). `weight`: (columns,).
    """
    if residual is None:
        y: torch.Tensor = _OPS.rms_norm(x, weight, epsilon)[0]
        return y
    y, h, _ = _OPS.add_rms_norm(x, residual, weight, epsilon)
    return y, h


@overload
def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    *,
    residual: None = None,
    epsilon: float = 1e-5,
) -> torch.Tensor: ...
@overload
def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    *,
    residual: torch.Tensor,
    epsilon: float = 1e-5,
) -> tuple[torch.Tensor, torch.Tensor]: ...
def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    *,
    residual: torch.Tensor | None = None,
    epsilon: float = 1e-5,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """LayerNorm over the last dimension of x; differentiable once. `weight`, `bias`: (columns,).

    With `residual` (shaped like x) the norm of h = x + residual, and h: (y, h).
    """
    if residual is None:
        y: torch.Tensor = _OPS.layer_norm(x, weight, bias, epsilon)[0]
        return y
    y, h, _ = _OPS.add_layer_norm(x, residual, weight, bias, epsilon)
    return y, h


def causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None = None) -> torch.Tensor:
    """softmax(scale Q K^T, causal) V, laid out like q; forward only: a gradient through it raises `RuntimeError`.

    `q`: (batch, heads, length, head); `k`, `v`: (batch, key heads, length, head), where key heads divide heads.
    `scale`: 1/sqrt(head) by default.
    """
    y: torch.Tensor = _OPS.causal_attention(q, k, v, scale)
    return y
