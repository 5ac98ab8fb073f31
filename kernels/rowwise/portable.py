"""Row-wise operators in Triton: the known-good path, which runs on every GPU that Triton knows, and interpreted on a CPU.

A row that fits one block is read once. A longer one is read block by block: once for its statistics (softmax with the
online update of Milakov and Gimelshein 2018) and once more to write, so that it stops at 2/3 of copy bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

WHOLE_ROW = 32_768
"""Longest row that one program holds; beyond it registers spill."""


@dataclass(frozen=True)
class Flags:
    """The transformations, each of which an ablation can switch off."""

    online: bool = True
    """Maximum and sum in one reading of a long row; without, in two."""
    rows_per_program: int = 0
    """Short rows that one program takes together; 0: as many as make 4,096 elements, at most 8."""
    whole_row: int = WHOLE_ROW
    """Rows up to this length are held in one block; smaller values force the block-by-block path."""
    block: int = 4_096
    """Elements of a block of a long row."""


@triton.jit
def _softmax_whole(x, y, rows, columns, x_stride, y_stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    value = tl.load(x + row * x_stride + column, mask=inside, other=float("-inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, axis=1)[:, None])
    value = value / tl.sum(value, axis=1)[:, None]
    tl.store(y + row * y_stride + column, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _softmax_blocks(x, y, columns, x_stride, y_stride, ONLINE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        value = tl.load(x + row * x_stride + start + lane, mask=start + lane < columns, other=float("-inf"))
        value = value.to(tl.float32)
        if ONLINE:
            # max drops a NaN; the sum must not, so the value itself goes into it.
            grown = tl.maximum(top, value)
            anchor = tl.where(grown == float("-inf"), 0.0, grown)
            total = total * tl.exp(top - anchor) + tl.exp(value - anchor)
            top = grown
        else:
            top = tl.maximum(top, value)
    maximum = tl.max(top, axis=0)
    anchor = tl.where(maximum == float("-inf"), 0.0, maximum)
    if ONLINE:
        scale = tl.sum(total * tl.exp(top - anchor), axis=0)
    else:
        for start in range(0, columns, BLOCK):
            value = tl.load(x + row * x_stride + start + lane, mask=start + lane < columns, other=float("-inf"))
            total += tl.exp(value.to(tl.float32) - anchor)
        scale = tl.sum(total, axis=0)
    for start in range(0, columns, BLOCK):
        inside = start + lane < columns
        value = tl.load(x + row * x_stride + start + lane, mask=inside, other=float("-inf")).to(tl.float32)
        tl.store(
            y + row * y_stride + start + lane, (tl.exp(value - maximum) / scale).to(y.dtype.element_ty), mask=inside
        )


def softmax(x: torch.Tensor, *, flags: Flags = Flags()) -> torch.Tensor:
    """Softmax over the last dimension; any floating dtype, any length. A row of -inf alone gives NaN."""
    rows = matrix(x)
    y = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    count, columns = rows.shape
    if x.numel() == 0:
        return y.view(x.shape)
    if columns <= flags.whole_row:
        block = triton.next_power_of_2(columns)
        together = _together(block, flags)
        _softmax_whole[(triton.cdiv(count, together),)](
            rows, y, count, columns, rows.stride(0), y.stride(0), together, block, num_warps=_warps(block * together)
        )
    else:
        _softmax_blocks[(count,)](
            rows, y, columns, rows.stride(0), y.stride(0), flags.online, flags.block, num_warps=_warps(flags.block)
        )
    return y.view(x.shape)


@triton.jit
def _norm_forward(
    x, residual, weight, bias, y, total, statistics, columns, x_stride, residual_stride, epsilon,
    CENTER: tl.constexpr, RESIDUAL: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    mean = 0.0
    value = tl.zeros([BLOCK], tl.float32)
    summed = tl.zeros([BLOCK], tl.float32)
    # The sum with the residual is rounded and kept first: what is normalised is what the next layer will read.
    for start in range(0, columns, BLOCK):
        inside = start + lane < columns
        value = tl.load(x + row * x_stride + start + lane, mask=inside, other=0.0).to(tl.float32)
        if RESIDUAL:
            value += tl.load(residual + row * residual_stride + start + lane, mask=inside, other=0.0).to(tl.float32)
            rounded = value.to(total.dtype.element_ty)
            tl.store(total + row * columns + start + lane, rounded, mask=inside)
            value = rounded.to(tl.float32)
        summed += value if CENTER else value * value
    if CENTER:
        mean = tl.sum(summed, axis=0) / columns
        squares = tl.zeros([BLOCK], tl.float32)
        for start in range(0, columns, BLOCK):
            inside = start + lane < columns
            if not WHOLE:
                if RESIDUAL:
                    value = tl.load(total + row * columns + start + lane, mask=inside, other=0.0).to(tl.float32)
                else:
                    value = tl.load(x + row * x_stride + start + lane, mask=inside, other=0.0).to(tl.float32)
            squares += tl.where(inside, (value - mean) * (value - mean), 0.0)
        variance = tl.sum(squares, axis=0) / columns
    else:
        variance = tl.sum(summed, axis=0) / columns
    scale = 1.0 / tl.sqrt(variance + epsilon)
    tl.store(statistics + 2 * row, mean)
    tl.store(statistics + 2 * row + 1, scale)
    for start in range(0, columns, BLOCK):
        inside = start + lane < columns
        if not WHOLE:
            if RESIDUAL:
                value = tl.load(total + row * columns + start + lane, mask=inside, other=0.0).to(tl.float32)
            else:
                value = tl.load(x + row * x_stride + start + lane, mask=inside, other=0.0).to(tl.float32)
        out = (value - mean) * scale
        if WEIGHT:
            out *= tl.load(weight + start + lane, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            out += tl.load(bias + start + lane, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + row * columns + start + lane, out.to(y.dtype.element_ty), mask=inside)


def norm(
    operator: str,
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    *,
    residual: torch.Tensor | None = None,
    epsilon: float = 1e-6,
    flags: Flags = Flags(),
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """RMSNorm or LayerNorm over the last dimension of x, or of x + residual.

    Returns the result; the rounded sum where a residual is given; float32 (rows, 2) of mean and reciprocal deviation
    (the mean is 0 for RMSNorm).
    """
    rows = matrix(x)
    count, columns = rows.shape
    other = None if residual is None else matrix(residual)
    y = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    total = None if other is None else torch.empty_like(y)
    statistics = torch.empty(count, 2, dtype=torch.float32, device=x.device)
    if x.numel():
        whole = columns <= flags.whole_row
        block = triton.next_power_of_2(columns) if whole else flags.block
        _norm_forward[(count,)](
            rows,
            rows if other is None else other,
            rows if weight is None else weight,
            rows if bias is None else bias,
            y,
            y if total is None else total,
            statistics,
            columns,
            rows.stride(0),
            0 if other is None else other.stride(0),
            epsilon,
            CENTER=operator == "layernorm",
            RESIDUAL=other is not None,
            WEIGHT=weight is not None,
            BIAS=bias is not None,
            BLOCK=block,
            WHOLE=whole,
            num_warps=_warps(block),
        )
    return y.view(x.shape), None if total is None else total.view(x.shape), statistics


def matrix(x: torch.Tensor) -> torch.Tensor:
    """x as a matrix of rows of unit stride, without a copy where its strides allow it."""
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.shape[1] == 1 or rows.stride(1) == 1 else rows.contiguous()


def _together(block: int, flags: Flags) -> int:
    return flags.rows_per_program or max(1, min(8, 4_096 // block))


def _warps(elements: int) -> int:
    return max(1, min(32 if elements > 16_384 else 16, elements // 512))
