"""Causal attention in Triton: the known-good path, and the plainer variants that the ablation compares.

Tiles of queries against blocks of keys with the online softmax (Dao et al. 2022, algorithm 1; Milakov and Gimelshein
2018). `online=False` is the same arithmetic without tiling over keys: scores of a whole row at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from assay.baselines.errors import InputError

_LOG2E = 1.4426950408889634


@dataclass(frozen=True)
class Flags:
    """The transformations, each of which an ablation can switch off."""

    rows: int = 128
    """Queries of a tile."""
    keys: int = 128
    """Keys of a block."""
    warps: int = 8
    stages: int = 2
    """Depth of the software pipeline of key and value loads."""
    tma: bool = False
    """Loads by tensor descriptors (Hopper and later) in place of pointers."""
    split_diagonal: bool = True
    """Blocks below the diagonal are computed without a mask."""
    warp_specialize: bool = False
    """Leaves loads to warps of their own (needs `tma`, 4 warps, and Triton 3.6 or later on Hopper or later)."""


@triton.jit
def _blocks(
    accumulator, top, total, q, k, v, k_stride, v_stride, first, last, row, length, scale, k_map, v_map, pair_row,
    KEYS: tl.constexpr, HEAD: tl.constexpr, MASK: tl.constexpr, TMA: tl.constexpr, SPECIALIZE: tl.constexpr,
    WIDEN: tl.constexpr,
):  # fmt: skip
    lane = tl.arange(0, KEYS)
    element = tl.arange(0, HEAD)
    for start in tl.range(first, last, KEYS, warp_specialize=SPECIALIZE):
        key = start + lane
        if TMA:
            k_block = k_map.load([pair_row + start, 0]).T
        else:
            k_block = tl.load(
                k + key[None, :].to(tl.int64) * k_stride + element[:, None], mask=key[None, :] < length, other=0.0
            )
        if WIDEN:
            k_block = k_block.to(tl.float32)
        scores = tl.dot(q, k_block) * scale
        if MASK:
            scores = tl.where(row[:, None] >= key[None, :], scores, float("-inf"))
        grown = tl.maximum(top, tl.max(scores, axis=1))
        p = tl.exp2(scores - grown[:, None])
        factor = tl.exp2(top - grown)
        total = total * factor + tl.sum(p, axis=1)
        accumulator = accumulator * factor[:, None]
        if TMA:
            v_block = v_map.load([pair_row + start, 0])
        else:
            v_block = tl.load(
                v + key[:, None].to(tl.int64) * v_stride + element[None, :], mask=key[:, None] < length, other=0.0
            )
        if WIDEN:
            v_block = v_block.to(tl.float32)
        accumulator = tl.dot(p.to(v_block.dtype), v_block, accumulator)
        top = grown
    return accumulator, top, total


@triton.jit
def _attention(
    q, k, v, out, k_map, v_map, heads, group, length, scale,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, o_batch, o_head, o_row,
    ROWS: tl.constexpr, KEYS: tl.constexpr, HEAD: tl.constexpr, TMA: tl.constexpr, SPLIT: tl.constexpr,
    SPECIALIZE: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    # Long rows first, so that the last programs to start are the shortest.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    row = tile * ROWS + tl.arange(0, ROWS)
    element = tl.arange(0, HEAD)
    q += batch * q_batch + head * q_head
    k += batch * k_batch + head // group * k_head
    v += batch * v_batch + head // group * v_head
    query = tl.load(q + row[:, None].to(tl.int64) * q_row + element[None, :], mask=row[:, None] < length, other=0.0)
    if WIDEN:
        query = query.to(tl.float32)
    pair_row = ((batch * (heads // group) + head // group) * length).to(tl.int32)
    accumulator = tl.zeros([ROWS, HEAD], tl.float32)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    diagonal = tile * ROWS // KEYS * KEYS
    if SPLIT:
        accumulator, top, total = _blocks(
            accumulator, top, total, query, k, v, k_row, v_row, 0, diagonal, row, length, scale, k_map, v_map, pair_row,
            KEYS, HEAD, False, TMA, SPECIALIZE, WIDEN,
        )  # fmt: skip
    else:
        diagonal = 0
    accumulator, top, total = _blocks(
        accumulator, top, total, query, k, v, k_row, v_row, diagonal, min((tile + 1) * ROWS, length), row, length, scale,
        k_map, v_map, pair_row, KEYS, HEAD, True, TMA, SPECIALIZE, WIDEN,
    )  # fmt: skip
    accumulator = accumulator / total[:, None]
    out += batch * o_batch + head * o_head
    tl.store(
        out + row[:, None].to(tl.int64) * o_row + element[None, :],
        accumulator.to(out.dtype.element_ty),
        mask=row[:, None] < length,
    )


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None = None, flags: Flags = Flags()
) -> torch.Tensor:
    """softmax(scale Q K^T, causal) V.

    `q`: (batch, heads, length, head); `k`, `v`: (batch, key heads, length, head), where key heads divide heads and head
    is a power of two from 16 to 128. Returns a tensor laid out like `q`. `tma` needs contiguous keys and values whose
    length is a multiple of the block. Raises `InputError` for shapes that do not belong together.
    """
    batch, heads, length, head = q.shape
    if k.shape != v.shape or k.shape[0] != batch or k.shape[2:] != q.shape[2:] or heads % max(k.shape[1], 1):
        raise InputError(f"attention: shapes {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)} do not fit together.")
    if head not in (16, 32, 64, 128) or any(tensor.stride(3) != 1 for tensor in (q, k, v)):
        raise InputError("attention: heads of 16, 32, 64 or 128 elements with unit stride are supported.")
    out = torch.empty_like(q)
    if out.numel() == 0:
        return out
    k_map: object = k
    v_map: object = v
    if flags.tma:
        k_map, v_map = _descriptor(k, flags.keys), _descriptor(v, flags.keys)
    _attention[(triton.cdiv(length, flags.rows), batch * heads)](
        q, k, v, out, k_map, v_map, heads, heads // k.shape[1], length,
        (head**-0.5 if scale is None else scale) * _LOG2E,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3],
        ROWS=flags.rows, KEYS=flags.keys, HEAD=head, TMA=flags.tma, SPLIT=flags.split_diagonal,
        SPECIALIZE=flags.warp_specialize, WIDEN=q.device.type == "cpu" and q.dtype == torch.bfloat16,
        num_warps=flags.warps, num_stages=flags.stages,
    )  # fmt: skip
    return out


def _descriptor(tensor: torch.Tensor, keys: int) -> object:
    from triton.tools.tensor_descriptor import TensorDescriptor

    head = tensor.shape[3]
    if not tensor.is_contiguous() or tensor.shape[2] % keys:
        raise InputError("attention: tma needs contiguous keys and values, and a length that blocks divide.")
    return TensorDescriptor.from_tensor(tensor.view(-1, head), [keys, head])
