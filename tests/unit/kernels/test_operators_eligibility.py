"""Which path a call takes: exactly inside and exactly outside of every boundary, decided from metadata alone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.kernels.attention.hopper import ineligible
from assay.kernels.operators.eligibility import (
    MOST_PAIRS,
    Layout,
    Machine,
    Path,
    attention,
    contiguous_strides,
    rowwise,
)
from assay.kernels.rowwise.mapping import LIMIT

H200 = Machine("cuda", (9, 0), compiler=True, triton=True)
A100 = replace(H200, capability=(8, 0))
T4 = replace(H200, capability=(7, 5))
CPU = Machine("cpu", triton=True)
INTERPRETED = replace(CPU, interpreter=True)
BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64


def dense(dtype: torch.dtype, *shape: int) -> Layout:
    return dtype, shape, contiguous_strides(shape)


X = dense(BF16, 4, 4096)


@pytest.mark.parametrize(
    ("machine", "x", "path", "reason"),
    [
        (H200, X, Path.CUDA, ""),
        (H200, dense(F32, 4, 4096), Path.CUDA, ""),
        (H200, dense(F16, 4, 4096), Path.TRITON, "dtype float16"),
        (H200, dense(F64, 4, 4096), Path.FRAMEWORK, "dtype float64"),
        (H200, dense(torch.float8_e4m3fn, 4, 4096), Path.FRAMEWORK, "dtype float8_e4m3fn"),
        (H200, dense(BF16, 4, LIMIT), Path.CUDA, ""),
        (H200, dense(BF16, 4, LIMIT + 1), Path.TRITON, "rows are longer than 131,072"),
        (H200, dense(BF16, 1), Path.CUDA, ""),
        (H200, dense(BF16, 0, 8), Path.EMPTY, "no elements"),
        (H200, dense(BF16, 8, 0), Path.EMPTY, "no elements"),
        (H200, dense(BF16, 2**31 - 1, 1), Path.CUDA, ""),
        (H200, dense(BF16, 2**31, 1), Path.FRAMEWORK, "more than 2,147,483,647 rows"),
        # Rows with a gap between them, and rows of an expanded tensor, are read as they lie.
        (H200, (BF16, (4, 100), (128, 1)), Path.CUDA, ""),
        (H200, (BF16, (4, 100), (0, 1)), Path.CUDA, ""),
        (H200, (BF16, (2, 3, 100), (384, 128, 1)), Path.CUDA, ""),
        (H200, (BF16, (2, 3, 100), (385, 128, 1)), Path.FRAMEWORK, "rows are not evenly spaced"),
        (H200, (BF16, (1, 3, 100), (7, 128, 1)), Path.CUDA, ""),
        (H200, (BF16, (3, 2, 100), (100, 300, 1)), Path.FRAMEWORK, "rows are not evenly spaced"),
        (H200, (BF16, (4, 100), (1, 4)), Path.FRAMEWORK, "the last dimension is not of unit stride"),
        (H200, (BF16, (4, 100), (200, 2)), Path.FRAMEWORK, "the last dimension is not of unit stride"),
        (H200, (BF16, (4, 1), (1, 4)), Path.CUDA, ""),
        (A100, X, Path.TRITON, "compute capability 8.0"),
        (replace(H200, capability=(10, 0)), X, Path.TRITON, "compute capability 10.0"),
        (T4, X, Path.FRAMEWORK, "compute capability 7.5; below compute capability 8.0"),
        (replace(H200, compiler=False), X, Path.TRITON, "cuda-bindings is not installed"),
        (replace(A100, triton=False), X, Path.FRAMEWORK, "compute capability 8.0; Triton is not installed"),
        (replace(H200, triton=False), X, Path.CUDA, ""),
        (replace(H200, off=frozenset({Path.CUDA})), X, Path.TRITON, "CUDA C++ is switched off"),
        (
            replace(H200, off=frozenset({Path.CUDA, Path.TRITON})),
            X,
            Path.FRAMEWORK,
            "CUDA C++ is switched off; Triton is switched off",
        ),
        (CPU, X, Path.FRAMEWORK, "on cpu, not on a GPU"),
        (Machine("mps", triton=True), X, Path.FRAMEWORK, "on mps, not on a GPU"),
        (INTERPRETED, dense(F32, 4, 8), Path.TRITON, "on cpu, not on a GPU"),
        # bfloat16 is silently wrong in the interpreter.
        (INTERPRETED, dense(BF16, 4, 8), Path.FRAMEWORK, "dtype bfloat16"),
    ],
)
def test_the_edge_of_the_row_wise_region(machine: Machine, x: Layout, path: Path, reason: str) -> None:
    assert rowwise(machine, x)[:2] == (path, reason)


@pytest.mark.parametrize(
    ("residual", "weight", "path", "reason"),
    [
        (X, dense(BF16, 4096), Path.CUDA, ""),
        ((BF16, (4, 4096), (8192, 1)), None, Path.CUDA, ""),
        ((BF16, (4, 4096), (1, 4)), None, Path.FRAMEWORK, "the last dimension is not of unit stride"),
        (None, dense(F32, 4096), Path.TRITON, "weight or bias has another dtype than x"),
        (None, (BF16, (4096,), (2,)), Path.FRAMEWORK, "weight or bias is not of unit stride"),
    ],
)
def test_the_edge_for_residual_and_weight(
    residual: Layout | None, weight: Layout | None, path: Path, reason: str
) -> None:
    assert rowwise(H200, X, residual, weight, None)[:2] == (path, reason)
    assert rowwise(H200, X, residual, None, weight)[:2] == (path, reason)


Q = dense(BF16, 2, 4, 512, 128)


def heads_of(size: int, dtype: torch.dtype = BF16) -> Layout:
    return dense(dtype, 2, 4, 512, size)


@pytest.mark.parametrize(
    ("machine", "q", "aligned", "path", "reason"),
    [
        (H200, Q, True, Path.CUDA, ""),
        (H200, Q, False, Path.TRITON, "an address is not a multiple of 16 bytes"),
        (H200, dense(F16, 2, 4, 512, 128), True, Path.TRITON, "dtype float16"),
        (H200, dense(F32, 2, 4, 512, 128), True, Path.FRAMEWORK, "dtype float32"),
        (H200, heads_of(64), True, Path.TRITON, "heads are not of 128 elements"),
        (
            H200,
            heads_of(127),
            True,
            Path.FRAMEWORK,
            "heads are not of 128 elements; heads are not of 16, 32, 64 or 128 elements",
        ),
        (
            H200,
            heads_of(256),
            True,
            Path.FRAMEWORK,
            "heads are not of 128 elements; heads are not of 16, 32, 64 or 128 elements",
        ),
        # (batch, length, heads, head) seen as (batch, heads, length, head): the usual layout of a model.
        (H200, (BF16, (2, 4, 512, 128), (262144, 128, 512, 1)), True, Path.CUDA, ""),
        (
            H200,
            (BF16, (2, 4, 512, 128), (512 * 132 * 4, 512 * 132, 132, 1)),
            True,
            Path.TRITON,
            "a stride is not a multiple of 8 elements",
        ),
        (H200, (BF16, (2, 4, 512, 128), (512 * 136 * 4, 512 * 136, 136, 1)), True, Path.CUDA, ""),
        (H200, (BF16, (2, 4, 512, 128), (0, 65536, 128, 1)), True, Path.TRITON, "a dimension is expanded"),
        (H200, (BF16, (1, 4, 512, 128), (0, 65536, 128, 1)), True, Path.CUDA, ""),
        (
            H200,
            (BF16, (2, 4, 512, 128), (262144, 65536, 1, 512)),
            True,
            Path.FRAMEWORK,
            "the last dimension is not of unit stride",
        ),
        (H200, dense(BF16, 0, 4, 512, 128), True, Path.EMPTY, "no elements"),
        (A100, Q, True, Path.TRITON, "compute capability 8.0"),
        (replace(H200, capability=(8, 6)), Q, True, Path.FRAMEWORK, "compute capability 8.6"),
        (A100, dense(BF16, 1, MOST_PAIRS, 8, 128), True, Path.TRITON, "compute capability 8.0"),
        (
            A100,
            dense(BF16, 1, MOST_PAIRS + 1, 8, 128),
            True,
            Path.FRAMEWORK,
            "compute capability 8.0; more than 65,535 pairs of batch and head",
        ),
        (H200, dense(BF16, 1, MOST_PAIRS + 1, 8, 128), True, Path.CUDA, ""),
        (CPU, Q, True, Path.FRAMEWORK, "on cpu, not on a GPU"),
        (INTERPRETED, heads_of(16, F32), True, Path.TRITON, "on cpu, not on a GPU"),
    ],
)
def test_the_edge_of_the_attention_region(machine: Machine, q: Layout, aligned: bool, path: Path, reason: str) -> None:
    assert attention(machine, q, q, q, aligned) == (path, reason, ())


def test_each_of_the_three_is_looked_at() -> None:
    other = (BF16, Q[1], (512 * 132 * 4, 512 * 132, 132, 1))
    for tensors in ((other, Q, Q), (Q, other, Q), (Q, Q, other)):
        assert attention(H200, *tensors, True).reason == "a stride is not a multiple of 8 elements"


@st.composite
def _layouts(draw: st.DrawFn) -> Layout:
    shape = (draw(st.integers(1, 2)), draw(st.sampled_from([1, 2])), 8, draw(st.sampled_from([64, 128])))
    order = draw(st.permutations(range(4)))
    strides, step = [0, 0, 0, 0], 1
    for place in reversed(order):
        strides[place] = step
        step = step * shape[place] + draw(st.sampled_from([0, 4, 8]))
    if draw(st.booleans()):
        strides[3] = 1
    return draw(st.sampled_from([BF16, F32])), shape, tuple(strides)


def _stand_in(layout: Layout, address: int) -> Any:
    """What `ineligible` reads of a tensor: its metadata alone."""
    dtype, shape, strides = layout
    return SimpleNamespace(
        device=torch.device("cuda"), dtype=dtype, shape=shape, stride=lambda i=None: strides if i is None else strides[i],
        dim=lambda: len(shape), data_ptr=lambda: address,
    )  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(_layouts(), st.sampled_from([0, 8, 16]))
def test_what_is_sent_to_the_kernel_is_what_the_kernel_accepts(layout: Layout, address: int) -> None:
    choice = attention(H200, layout, layout, layout, address % 16 == 0)
    tensor = _stand_in(layout, address)
    try:
        refused = bool(ineligible(tensor, tensor, tensor).replace("the GPU is no Hopper (compute capability 9.0)", ""))
    except (RuntimeError, AssertionError):
        refused = False  # every look at the metadata was passed: the next asks the driver, which this machine lacks
    assert (choice.path is Path.CUDA) == (not refused)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_promised_strides_are_torchs(shape: list[int]) -> None:
    assert contiguous_strides(shape) == torch.empty(shape).stride()


def test_reasons_name_no_size_of_the_call() -> None:
    # The dispatch log counts by reason: a reason with a size in it would grow it with every new shape.
    reasons = {rowwise(H200, dense(BF16, 2, LIMIT + more)).reason for more in range(1, 20)}
    assert len(reasons) == 1
