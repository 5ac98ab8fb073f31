"""Backward of RMSNorm and LayerNorm in Triton.

With n = columns, s = 1/deviation, h the normalised input, g = weight * dy and hats for (h - mean) s:
dh = s (g - hat mean(g hat) - mean(g) [LayerNorm only]); dweight = sum over rows of dy hat; dbias = sum over rows of dy
(Ba, Kiros and Hinton 2016; Zhang and Sennrich 2019, differentiated). The gradient of the sum that a residual norm hands
on is added to dh, which is the gradient of x and of the residual alike.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from assay.kernels.rowwise.portable import matrix

FUSED_LIMIT = 8_192
"""Longest row that one kernel keeps in registers while it forms dh and the sums over rows."""
LONG_LIMIT = 16_384
"""Longest row that one kernel reads again from the caches for dh, which leaves the registers to one sum over rows. Where the
bias needs a second one, and beyond, the sums over rows are a kernel of their own."""
LONG_WARPS = 16
PIECE = 4_096


@triton.jit
def _row_terms(
    h,
    dy,
    weight,
    row,
    columns,
    stride,
    dy_stride,
    mean,
    scale,
    start,
    lane,
    WEIGHT: tl.constexpr,
    KEEP: tl.constexpr = "",
):
    """`KEEP` is a hint to the first-level cache. Reads with different hints are also two reads: the compiler does not take the
    first one's registers for the second."""
    inside = start + lane < columns
    value = tl.load(h + row * stride + start + lane, mask=inside, other=0.0, eviction_policy=KEEP).to(tl.float32)
    hat = tl.where(inside, (value - mean) * scale, 0.0)
    slope = tl.load(dy + row * dy_stride + start + lane, mask=inside, other=0.0, eviction_policy=KEEP).to(tl.float32)
    g = slope
    if WEIGHT:
        g = slope * tl.load(weight + start + lane, mask=inside, other=0.0, eviction_policy=KEEP).to(tl.float32)
    return inside, hat, slope, g


@triton.jit
def _backward_fused(
    h, dy, dtotal, weight, statistics, dh, dweight, dbias, rows, columns, stride, dy_stride, dtotal_stride,
    CENTER: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, TOTAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    lane = tl.arange(0, BLOCK)
    weight_sum = tl.zeros([BLOCK], tl.float32)
    bias_sum = tl.zeros([BLOCK], tl.float32)
    for line in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(line, tl.int64)
        mean = tl.load(statistics + 2 * row)
        scale = tl.load(statistics + 2 * row + 1)
        inside, hat, slope, g = _row_terms(h, dy, weight, row, columns, stride, dy_stride, mean, scale, 0, lane, WEIGHT)
        out = g - hat * (tl.sum(g * hat, axis=0) / columns)
        if CENTER:
            out -= tl.sum(g, axis=0) / columns
        out *= scale
        if TOTAL:
            out += tl.load(dtotal + row * dtotal_stride + lane, mask=inside, other=0.0).to(tl.float32)
        tl.store(dh + row * columns + lane, out.to(dh.dtype.element_ty), mask=inside)
        if WEIGHT:
            weight_sum += slope * hat
        if BIAS:
            bias_sum += slope
    place = tl.program_id(0).to(tl.int64) * columns + lane
    if WEIGHT:
        tl.store(dweight + place, weight_sum, mask=lane < columns)
    if BIAS:
        tl.store(dbias + place, bias_sum, mask=lane < columns)


@triton.jit
def _backward_long(
    h, dy, dtotal, weight, statistics, dh, dweight, rows, columns, stride, dy_stride, dtotal_stride,
    CENTER: tl.constexpr, WEIGHT: tl.constexpr, TOTAL: tl.constexpr, PIECES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Piece by piece, so that only the sums over rows live from one piece to the next."""
    lane = tl.arange(0, BLOCK)
    zero = tl.zeros([BLOCK], tl.float32)
    sums = (zero,) * PIECES
    for line in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = tl.cast(line, tl.int64)
        mean = tl.load(statistics + 2 * row)
        scale = tl.load(statistics + 2 * row + 1)
        along = zero
        flat = zero
        for piece in tl.static_range(PIECES):
            start = piece * BLOCK
            _, hat, _, g = _row_terms(
                h, dy, weight, row, columns, stride, dy_stride, mean, scale, start, lane, WEIGHT, "evict_last"
            )
            along += g * hat
            flat += g
        slant = tl.sum(along, axis=0) / columns
        level = tl.sum(flat, axis=0) / columns
        grown = ()
        for piece in tl.static_range(PIECES):
            start = piece * BLOCK
            inside, hat, slope, g = _row_terms(
                h, dy, weight, row, columns, stride, dy_stride, mean, scale, start, lane, WEIGHT, "evict_first"
            )
            out = g - hat * slant
            if CENTER:
                out -= level
            out *= scale
            if TOTAL:
                out += tl.load(dtotal + row * dtotal_stride + start + lane, mask=inside, other=0.0).to(tl.float32)
            tl.store(dh + row * columns + start + lane, out.to(dh.dtype.element_ty), mask=inside)
            grown = grown + (sums[piece] + slope * hat,)  # type: ignore[assignment]  # noqa: RUF005 - Triton has no [*]
        sums = grown
    if WEIGHT:
        for piece in tl.static_range(PIECES):
            column = piece * BLOCK + lane
            place = tl.program_id(0).to(tl.int64) * columns + column
            tl.store(dweight + place, sums[piece], mask=column < columns)


@triton.jit
def _backward_rows(
    h, dy, dtotal, weight, statistics, dh, columns, stride, dy_stride, dtotal_stride,
    CENTER: tl.constexpr, WEIGHT: tl.constexpr, TOTAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    mean = tl.load(statistics + 2 * row)
    scale = tl.load(statistics + 2 * row + 1)
    along = tl.zeros([BLOCK], tl.float32)
    flat = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        _, hat, _, g = _row_terms(h, dy, weight, row, columns, stride, dy_stride, mean, scale, start, lane, WEIGHT)
        along += g * hat
        flat += g
    slant = tl.sum(along, axis=0) / columns
    level = tl.sum(flat, axis=0) / columns
    for start in range(0, columns, BLOCK):
        inside, hat, _, g = _row_terms(h, dy, weight, row, columns, stride, dy_stride, mean, scale, start, lane, WEIGHT)
        out = g - hat * slant
        if CENTER:
            out -= level
        out *= scale
        if TOTAL:
            out += tl.load(dtotal + row * dtotal_stride + start + lane, mask=inside, other=0.0).to(tl.float32)
        tl.store(dh + row * columns + start + lane, out.to(dh.dtype.element_ty), mask=inside)


@triton.jit
def _backward_columns(
    h, dy, statistics, dweight, dbias, rows, columns, stride, dy_stride, rows_each,
    WEIGHT: tl.constexpr, BIAS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    first = tl.program_id(1) * rows_each
    weight_sum = tl.zeros([BLOCK], tl.float32)
    bias_sum = tl.zeros([BLOCK], tl.float32)
    for line in range(first, min(first + rows_each, rows)):
        row = tl.cast(line, tl.int64)
        slope = tl.load(dy + row * dy_stride + column, mask=inside, other=0.0).to(tl.float32)
        if WEIGHT:
            mean = tl.load(statistics + 2 * row)
            scale = tl.load(statistics + 2 * row + 1)
            value = tl.load(h + row * stride + column, mask=inside, other=0.0).to(tl.float32)
            weight_sum += slope * (value - mean) * scale
        bias_sum += slope
    place = tl.program_id(1).to(tl.int64) * columns + column
    if WEIGHT:
        tl.store(dweight + place, weight_sum, mask=inside)
    if BIAS:
        tl.store(dbias + place, bias_sum, mask=inside)


def norm_backward(
    operator: str,
    h: torch.Tensor,
    dy: torch.Tensor,
    weight: torch.Tensor | None,
    statistics: torch.Tensor,
    *,
    dtotal: torch.Tensor | None = None,
    bias: bool = False,
    fused_limit: int = FUSED_LIMIT,
    long_limit: int = LONG_LIMIT,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Gradients of a norm: of its input, of the weight and of the bias (None where there is none).

    The bias's has the dtype of the weight, its fellow parameter, and that of `h` without one.

    `h`: what was normalised; `statistics`: float32 (rows, 2), as the forward wrote them; `dtotal`: the gradient of the sum
    with the residual. Sums over rows are float32 partial sums, added in a fixed order: the result is the same at every
    run.
    """
    rows, slopes = matrix(h), matrix(dy)
    count, columns = rows.shape
    dh = torch.empty(rows.shape, dtype=h.dtype, device=h.device)
    center = operator == "layernorm"
    if h.numel() == 0:
        empty = h.new_zeros(columns)
        kept = h.dtype if weight is None else weight.dtype
        return dh.view(h.shape), None if weight is None else empty.to(kept), empty.to(kept, copy=True) if bias else None
    handed = None if dtotal is None else matrix(dtotal)
    fused, long = columns <= fused_limit, fused_limit < columns <= long_limit and not bias
    warps = LONG_WARPS if long else max(1, min(32, triton.next_power_of_2(columns) // 512))
    parts = _parts(count, warps, h.device) if fused or long else min(count, 64)
    partial = torch.empty(2, parts, columns, dtype=torch.float32, device=h.device)
    common = (rows, slopes, rows if handed is None else handed, rows if weight is None else weight, statistics, dh)
    strides = (rows.stride(0), slopes.stride(0), 0 if handed is None else handed.stride(0))
    switches = {"WEIGHT": weight is not None, "TOTAL": handed is not None, "CENTER": center}
    if fused:
        _backward_fused[(parts,)](
            *common, partial[0], partial[1], count, columns, *strides, **switches, BIAS=bias,
            BLOCK=triton.next_power_of_2(columns), num_warps=warps,
        )  # fmt: skip
    elif long:
        _backward_long[(parts,)](
            *common, partial[0], count, columns, *strides, **switches, PIECES=triton.cdiv(columns, PIECE), BLOCK=PIECE,
            num_warps=warps,
        )  # fmt: skip
    else:
        _backward_rows[(count,)](*common, columns, *strides, **switches, BLOCK=PIECE, num_warps=8)
        if weight is not None or bias:
            _backward_columns[(triton.cdiv(columns, 1_024), parts)](
                rows, slopes, statistics, partial[0], partial[1], count, columns, *strides[:2],
                triton.cdiv(count, parts), WEIGHT=weight is not None, BIAS=bias, BLOCK=1_024, num_warps=4,
            )  # fmt: skip
    dweight = partial[0].sum(0).to(weight.dtype) if weight is not None else None
    kept = h.dtype if weight is None else weight.dtype
    return dh.view(h.shape), dweight, partial[1].sum(0).to(kept) if bias else None


def _parts(rows: int, warps: int, device: torch.device) -> int:
    """Programs of the fused kernel: enough for 16 warps on each multiprocessor, so that one's loads hide another's sums."""
    if device.type != "cuda":
        return min(rows, 4)
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    return min(rows, processors * max(1, 16 // warps))
