"""Causal attention in CUDA C++ for Hopper: TMA, wgmma, warp specialisation (source: `kernels/cuda/attention.cu`)."""

from __future__ import annotations

import ctypes
import functools
import math
from dataclasses import asdict, dataclass

import torch

from assay.baselines.errors import InputError
from assay.kernels.attention.region import ALIGNMENT, HEAD_DIMENSION, no_tma
from assay.kernels.cuda.program import Build, Launch, TensorMapBytes, defines, tensor_map

_THREADS = 384
_LOG2E = math.log2(math.e)
_Q_STAGES = 2
_TILE_BYTES = 128 * 128 * 2


@dataclass(frozen=True)
class Flags:
    """The transformations, each of which an ablation can switch off (see the head of the source)."""

    persistent: bool = True
    pingpong: bool = True
    overlap: bool = True
    lazy_rescale: bool = True
    stages: int = 2
    l2_percent: int = 45
    """Share of the L2 cache that the keys and values of one section of heads may fill, in percent."""

    def build(self) -> Build:
        """The variant of the source that these flags name."""
        macros = {name: value for name, value in asdict(self).items() if name != "l2_percent"}
        return Build.of("attention.cu", "attention_forward", **defines(macros))


@functools.cache
def _launch(flags: Flags, device: int) -> Launch:
    shared = (_Q_STAGES + 2 * flags.stages) * _TILE_BYTES + 1024 + 1024
    types = [*[TensorMapBytes] * 4, *[ctypes.c_int] * 5, ctypes.c_float, ctypes.c_void_p]
    return Launch(flags.build(), types, threads=_THREADS, shared=shared)


@functools.cache
def _counter(device: int, stream: int) -> torch.Tensor:
    """The tile counter of a stream; the kernel leaves it at zero, so it is cleared once."""
    return torch.zeros(2, dtype=torch.int32, device=torch.device("cuda", device))


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float | None = None,
    flags: Flags = Flags(),
) -> torch.Tensor:
    """softmax(scale Q K^T, causal) V.

    `q`: (batch, heads, length, 128); `k`, `v`: (batch, key heads, length, 128), where key heads divide heads. bfloat16
    on one Hopper GPU; any strides with the last one 1 and the others multiples of 8 elements. `scale`: 1/sqrt(128) by
    default. Returns a tensor laid out like `q`. Raises `InputError` outside this region.
    """
    if reason := ineligible(q, k, v):
        raise InputError(f"attention: {reason}.")
    batch, heads, length, _ = q.shape
    output = torch.empty_like(q)
    if output.numel() == 0:
        return output
    index = q.device.index
    if index != torch.cuda.current_device():
        with torch.cuda.device(index):
            return attention(q, k, v, scale=scale, flags=flags)
    plan = _plan(flags, batch, heads, k.shape[1], length, index)
    stream = torch._C._cuda_getCurrentRawStream(index)
    plan.launch(
        plan.blocks,
        stream,
        _map(q, 128),
        _map(k, 128),
        _map(v, 128),
        _map(output, 64),
        batch,
        heads,
        k.shape[1],
        length,
        plan.section,
        (HEAD_DIMENSION**-0.5 if scale is None else scale) * _LOG2E,
        _counter(index, stream).data_ptr(),
    )
    return output


@dataclass(frozen=True)
class _Plan:
    launch: Launch
    blocks: int
    section: int


@functools.lru_cache(maxsize=4096)
def _plan(flags: Flags, batch: int, heads: int, kv_heads: int, length: int, device: int) -> _Plan:
    """What a call of this shape launches, found once for each."""
    found = torch.cuda.get_device_properties(device)
    held = 2 * 2 * length * HEAD_DIMENSION  # bytes of one head's keys and values
    section = max(1, min(batch * kv_heads, flags.l2_percent * found.L2_cache_size // (100 * held)))
    tiles = batch * heads * math.ceil(length / 128)
    blocks = min(tiles, found.multi_processor_count) if flags.persistent else tiles
    return _Plan(_launch(flags, device), blocks, section)


def ineligible(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> str:
    """Why these inputs are outside the supported region, or an empty string. Reads only metadata."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.device.type != "cuda":
            return f"{name} is on {tensor.device.type}, not on a GPU"
        if tensor.dtype != torch.bfloat16:
            return f"{name} is {str(tensor.dtype).removeprefix('torch.')}, not bfloat16"
        if tensor.dim() != 4:
            return f"{name} has {tensor.dim()} dimensions, not (batch, heads, length, {HEAD_DIMENSION})"
        if tensor.shape[3] != HEAD_DIMENSION:
            return f"{name} has heads of {tensor.shape[3]} elements, not {HEAD_DIMENSION}"
        if reason := no_tma(tensor.shape, tensor.stride()):
            return f"{name}: {reason}"
        if tensor.data_ptr() % ALIGNMENT:
            return f"{name} starts at an address that is not a multiple of {ALIGNMENT} bytes"
    if k.shape != v.shape or k.shape[0] != q.shape[0] or k.shape[2] != q.shape[2]:
        return f"shapes {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)} do not belong together"
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        return f"{k.shape[1]} key heads do not divide {q.shape[1]} heads"
    if _capability(q.device.index) != (9, 0):
        return "the GPU is no Hopper (compute capability 9.0)"
    return ""


@functools.cache
def _capability(device: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def _map(tensor: torch.Tensor, rows: int) -> bytes:
    batch, heads, length, head = tensor.shape
    strides = [2 * tensor.stride(dimension) for dimension in (2, 1, 0)]
    return _encoded(tensor.data_ptr(), (head, length, heads, batch), tuple(strides), (64, rows, 1, 1))


@functools.lru_cache(maxsize=256)
def _encoded(address: int, sizes: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]) -> bytes:
    # A dimension of size 1 may carry any stride; TMA wants a multiple of 16 that is not zero.
    mended = [
        stride if size > 1 else 16 * max(1, stride // 16) for stride, size in zip(strides, sizes[1:], strict=True)
    ]
    return tensor_map(address, sizes, mended, box)
