"""Implementation of causal attention on real tensors, forward only. The result is laid out like q on every path."""

from __future__ import annotations

import functools
from types import ModuleType

import torch
from torch.nn import functional

from assay.kernels.attention.region import ALIGNMENT
from assay.kernels.operators import dispatch
from assay.kernels.operators.eligibility import Path, attention


@functools.cache
def kernels(path: Path) -> ModuleType:
    """The module of a path, imported at its first use."""
    if path is Path.CUDA:
        from assay.kernels.attention import hopper

        return hopper
    from assay.kernels.attention import portable

    return portable


def causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None = None) -> torch.Tensor:
    """softmax(scale Q K^T, causal) V; `scale` is 1/sqrt(head dimension) by default."""
    choice = attention(
        dispatch.machine(q.device),
        (q.dtype, q.shape, q.stride()),
        (k.dtype, k.shape, k.stride()),
        (v.dtype, v.shape, v.stride()),
        not (q.data_ptr() | k.data_ptr() | v.data_ptr()) % ALIGNMENT,
    )
    dispatch.note("causal_attention", choice)
    if choice.path is Path.EMPTY:
        return torch.empty_like(q)
    y: torch.Tensor
    if choice.path is Path.TRITON:
        y = kernels(choice.path).attention(q, k, v, scale=scale)
        return y
    if choice.path is Path.CUDA:
        with dispatch.LAUNCHING:
            y = kernels(choice.path).attention(q, k, v, scale=scale)
        return y
    y = functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=scale, enable_gqa=k.shape[1] != q.shape[1]
    )
    wanted = torch.empty_like(q)
    return y if y.stride() == wanted.stride() else wanted.copy_(y)
