"""Causal attention in CUDA C++ for Hopper: TMA, wgmma, warp specialisation (source: `kernels/cuda/attention.cu`)."""

from __future__ import annotations

import ctypes
import functools
import math
from dataclasses import asdict, dataclass

import torch

from assay.baselines.errors import InputError
from assay.kernels.cuda.program import Build, Launch, TensorMapBytes, defines, tensor_map

HEAD_DIMENSION = 128
_THREADS = 384
_Q_STAGES = 2
_TILE_BYTES = 128 * 128 * 2
_L2_SHARE = 0.6
"""Share of the L2 cache that the keys and values of one section of heads may fill."""


@dataclass(frozen=True)
class Flags:
    """The transformations, each of which an ablation can switch off (see the head of the source)."""

    persistent: bool = True
    pingpong: bool = True
    overlap: bool = True
    lazy_rescale: bool = True
    stages: int = 2

    def build(self) -> Build:
        """The variant of the source that these flags name."""
        return Build.of("attention.cu", "attention_forward", **defines(asdict(self)))


@dataclass(frozen=True)
class _Device:
    processors: int
    l2_bytes: int


@functools.cache
def _device(index: int) -> _Device:
    found = torch.cuda.get_device_properties(index)
    return _Device(found.multi_processor_count, found.L2_cache_size)


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
    device = _device(index)
    kv_heads = k.shape[1]
    with torch.cuda.device(index):
        stream = torch.cuda.current_stream(index).cuda_stream
        pairs = batch * kv_heads
        section = max(1, min(pairs, int(_L2_SHARE * device.l2_bytes / (length * HEAD_DIMENSION * 4))))
        tiles = batch * heads * math.ceil(length / 128)
        blocks = min(tiles, device.processors) if flags.persistent else tiles
        factor = (HEAD_DIMENSION**-0.5 if scale is None else scale) * math.log2(math.e)
        _launch(flags, index)(
            blocks,
            stream,
            _map(q, 128),
            _map(k, 128),
            _map(v, 128),
            _map(output, 64),
            batch,
            heads,
            kv_heads,
            length,
            section,
            factor,
            _counter(index, stream).data_ptr(),
        )
    return output


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
        if tensor.stride(3) != 1 or any(stride % 8 for stride in tensor.stride()[:3]) or tensor.data_ptr() % 16:
            return f"{name} has strides {tuple(tensor.stride())}: the last must be 1, the others multiples of 8"
    if k.shape != v.shape or k.shape[0] != q.shape[0] or k.shape[2] != q.shape[2]:
        return f"shapes {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)} do not belong together"
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        return f"{k.shape[1]} key heads do not divide {q.shape[1]} heads"
    if torch.cuda.get_device_capability(q.device) != (9, 0):
        return "the GPU is no Hopper (compute capability 9.0)"
    return ""


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
