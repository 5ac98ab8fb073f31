"""Which path a call takes: pure functions of metadata, decided once for each kind of input and remembered.

A reason is a fixed phrase (no sizes of the call in it), so that the dispatch log stays small however many shapes pass.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import torch

from assay.kernels.attention.region import HEAD_DIMENSION, no_tma
from assay.kernels.rowwise.mapping import LIMIT

Layout = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]
"""dtype, shape and strides of a tensor."""

HOPPER = (9, 0)
LEAST_CAPABILITY = (8, 0)
"""Oldest compute capability for the Triton kernels: the first with bfloat16."""
ATTENTION_CAPABILITIES = ((8, 0), (9, 0), (10, 0))
"""Where a multiprocessor has the 160 KB of shared memory that the tiles of the Triton attention take."""
TRITON_HEADS = (16, 32, 64, 128)
MOST_PAIRS = 65_535
"""Most (batch, head) pairs of the Triton attention: CUDA's limit of a grid's second dimension."""
MOST_ROWS = 2**31 - 1
"""Most rows: CUDA's limit of a grid's first dimension."""

_CUDA_DTYPES = (torch.bfloat16, torch.float32)
_TRITON_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


class Path(StrEnum):
    """Who does the work."""

    CUDA = "CUDA C++"
    TRITON = "Triton"
    FRAMEWORK = "framework"
    EMPTY = "empty"


@dataclass(frozen=True)
class Machine:
    """What the tensors' device can run."""

    device: str
    """Device type: `cuda`, `cpu`, ..."""
    capability: tuple[int, int] = (0, 0)
    """Compute capability of the GPU."""
    compiler: bool = False
    """Whether the CUDA C++ kernels can be built (cuda-bindings is installed)."""
    triton: bool = False
    interpreter: bool = False
    """Whether Triton interprets on the CPU (TRITON_INTERPRET=1)."""
    off: frozenset[Path] = frozenset()
    """Paths that someone has switched off (`dispatch.without`)."""


class Choice(NamedTuple):
    """A path, why not a faster one (empty on the fastest), and the strides that a row-wise result has."""

    path: Path
    reason: str
    strides: tuple[int, ...] = ()


@functools.lru_cache(maxsize=4_096)
def rowwise(
    machine: Machine,
    x: Layout,
    residual: Layout | None = None,
    weight: Layout | None = None,
    bias: Layout | None = None,
) -> Choice:
    """The path of softmax or a norm over the last dimension of x."""
    dtype, shape, _ = x
    strides = contiguous_strides(shape)
    if 0 in shape:
        return Choice(Path.EMPTY, "no elements", strides)
    tensors = [layout for layout in (x, residual) if layout is not None]
    vectors = [layout for layout in (weight, bias) if layout is not None]
    reason = (
        _absent(machine, dtype)
        or _dtype(dtype, _TRITON_DTYPES)
        or _first(_uneven(layout) for layout in tensors)
        or _first("weight or bias is not of unit stride" if not _unit(layout) else "" for layout in vectors)
        or ("more than 2,147,483,647 rows" if _count(shape[:-1]) > MOST_ROWS else "")
    )
    if reason:
        return Choice(Path.FRAMEWORK, reason, strides)
    slower = (
        _no_hopper(machine)
        or _dtype(dtype, _CUDA_DTYPES)
        or _first("weight or bias has another dtype than x" if layout[0] != dtype else "" for layout in vectors)
        or (f"rows are longer than {LIMIT:,}" if shape[-1] > LIMIT else "")
    )
    if not slower:
        return Choice(Path.CUDA, "", strides)
    without = _no_triton(machine)
    return Choice(Path.FRAMEWORK, f"{slower}; {without}", strides) if without else Choice(Path.TRITON, slower, strides)


@functools.lru_cache(maxsize=4_096)
def attention(machine: Machine, q: Layout, k: Layout, v: Layout, aligned: bool) -> Choice:
    """The path of causal attention. `aligned`: whether all three addresses are multiples of 16 bytes."""
    if 0 in q[1]:
        return Choice(Path.EMPTY, "no elements")
    tensors = (q, k, v)
    batch, heads, _, head = q[1]
    slower = (
        _no_hopper(machine)
        or _first(_dtype(layout[0], (torch.bfloat16,)) for layout in tensors)
        or (f"heads are not of {HEAD_DIMENSION} elements" if head != HEAD_DIMENSION else "")
        or _first(no_tma(shape, strides) for _, shape, strides in tensors)
        or ("" if aligned else "an address is not a multiple of 16 bytes")
    )
    if not slower:
        return Choice(Path.CUDA, "")
    # On a GPU, Triton multiplies float32 in TF32: the framework is the right path there, not merely the slower one.
    kept = (torch.float32,) if machine.interpreter and machine.device == "cpu" else (torch.bfloat16, torch.float16)
    without = (
        _absent(machine, q[0])
        or _no_triton(machine)
        or _first(_dtype(layout[0], kept) for layout in tensors)
        or ("q, k and v differ in dtype" if len({layout[0] for layout in tensors}) > 1 else "")
        or ("" if head in TRITON_HEADS else "heads are not of 16, 32, 64 or 128 elements")
        or ("" if all(_unit(layout) for layout in tensors) else "the last dimension is not of unit stride")
        or (f"more than {MOST_PAIRS:,} pairs of batch and head" if batch * heads > MOST_PAIRS else "")
        or ("" if machine.device != "cuda" or machine.capability in ATTENTION_CAPABILITIES else _capability(machine))
    )
    if without:
        return Choice(Path.FRAMEWORK, without if without == slower else f"{slower}; {without}")
    return Choice(Path.TRITON, slower)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor, as torch gives them: a dimension of no elements counts as one."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _absent(machine: Machine, dtype: torch.dtype) -> str:
    if machine.device == "cuda":
        return ""
    if machine.interpreter and machine.device == "cpu":
        return _dtype(dtype, (torch.float32,))
    return f"on {machine.device}, not on a GPU"


def _no_hopper(machine: Machine) -> str:
    if machine.device != "cuda":
        return f"on {machine.device}, not on a GPU"
    if machine.capability != HOPPER:
        return _capability(machine)
    if Path.CUDA in machine.off:
        return "CUDA C++ is switched off"
    return "" if machine.compiler else "cuda-bindings is not installed"


def _no_triton(machine: Machine) -> str:
    if Path.TRITON in machine.off:
        return "Triton is switched off"
    if not machine.triton:
        return "Triton is not installed"
    if machine.device == "cuda" and machine.capability < LEAST_CAPABILITY:
        return f"below compute capability {LEAST_CAPABILITY[0]}.{LEAST_CAPABILITY[1]}"
    return ""


def _capability(machine: Machine) -> str:
    return f"compute capability {machine.capability[0]}.{machine.capability[1]}"


def _dtype(dtype: torch.dtype, wanted: tuple[torch.dtype, ...]) -> str:
    return "" if dtype in wanted else f"dtype {str(dtype).removeprefix('torch.')}"


def _uneven(layout: Layout) -> str:
    """Why a tensor is no matrix of evenly spaced rows of unit stride without a copy."""
    _, shape, strides = layout
    if not _unit(layout):
        return "the last dimension is not of unit stride"
    step: int | None = None
    for size, stride in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        if size == 1:
            continue
        if step is not None and stride != step:
            return "rows are not evenly spaced"
        step = stride * size
    return ""


def _unit(layout: Layout) -> bool:
    return layout[1][-1] <= 1 or layout[2][-1] == 1


def _count(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _first(reasons: Iterable[str]) -> str:
    return next((reason for reason in reasons if reason), "")
