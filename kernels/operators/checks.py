"""What the operators refuse, on real and on fake tensors alike."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def in_forward_mode() -> bool:
    """Whether a call is made in a forward-mode level, whose tangents a registration drops without a word."""
    return bool(getattr(forward_ad, "_current_level", -1) >= 0)


def check_softmax(x: torch.Tensor) -> None:
    """Raises `ValueError` unless x is floating and has a last dimension, and `RuntimeError` in forward mode.

    The registration drops tangents without a word, and under `torch.func.jvp` they cannot be seen from here: any call in
    a forward-mode level is refused, so that no derivative is silently zero.
    """
    if in_forward_mode():
        raise RuntimeError(
            "assay's operators have no forward-mode derivative: use torch.nn.functional within torch.func.jvp or a dual level."
        )
    if not x.dtype.is_floating_point:
        raise ValueError(f"x is {_name(x)}: give a floating-point tensor.")
    if x.dim() == 0:
        raise ValueError("x has no dimension: give at least one, the last is the row.")


def check_norm(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor | None, bias: torch.Tensor | None
) -> None:
    """Raises `ValueError` unless the residual is shaped like x, in its dtype, and weight and bias are one row."""
    check_softmax(x)
    if residual is not None:
        if residual.shape != x.shape or residual.dtype != x.dtype:
            raise ValueError(
                f"residual is {_name(residual)} {tuple(residual.shape)}: give {_name(x)} {tuple(x.shape)}, as x is."
            )
        _same_device(x, "residual", residual)
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector is None:
            continue
        if vector.dim() != 1 or vector.shape[0] != x.shape[-1] or not vector.dtype.is_floating_point:
            raise ValueError(
                f"{name} is {_name(vector)} {tuple(vector.shape)}: give floating-point ({x.shape[-1]},), a row of x."
            )
        _same_device(x, name, vector)


def check_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Raises `ValueError` unless q is (batch, heads, length, head), k and v (batch, key heads, length, head) fit it."""
    check_softmax(q)
    if any(tensor.dim() != 4 for tensor in (q, k, v)):
        raise ValueError("q, k and v have 4 dimensions: (batch, heads, length, head).")
    if k.shape != v.shape or k.shape[0] != q.shape[0] or k.shape[2:] != q.shape[2:]:
        raise ValueError(f"shapes {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)} do not belong together.")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"{k.shape[1]} key heads do not divide {q.shape[1]} heads.")
    if k.dtype != q.dtype or v.dtype != q.dtype:
        raise ValueError(f"q, k and v are {_name(q)}, {_name(k)} and {_name(v)}: give one dtype.")
    _same_device(q, "k", k)
    _same_device(q, "v", v)


def _same_device(x: torch.Tensor, name: str, other: torch.Tensor) -> None:
    if other.device != x.device:
        raise ValueError(f"{name} is on {other.device}, the first tensor on {x.device}: move one of them.")


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
