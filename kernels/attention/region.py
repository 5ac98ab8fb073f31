"""The region of the CUDA C++ attention, from metadata alone: what the kernel's TMA loads demand."""

from __future__ import annotations

from collections.abc import Sequence

HEAD_DIMENSION = 128
ALIGNMENT = 16
"""Bytes of which addresses and strides must be multiples."""


def no_tma(shape: Sequence[int], strides: Sequence[int]) -> str:
    """Why TMA cannot read a four-dimensional bfloat16 tensor of these sizes and strides (elements), or an empty string."""
    if strides[3] != 1:
        return "the last dimension is not of unit stride"
    if any(stride % (ALIGNMENT // 2) for stride in strides[:3]):
        return "a stride is not a multiple of 8 elements"
    return "a dimension is expanded" if any(s == 0 and n > 1 for s, n in zip(strides, shape, strict=True)) else ""
