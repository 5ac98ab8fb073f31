"""Row-wise operators in CUDA C++ (source: `kernels/cuda/rowwise.cu`)."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

import torch

from assay.baselines.errors import InputError
from assay.kernels.cuda.program import Build, Launch
from assay.kernels.rowwise.mapping import LIMIT, Mapping, choose, vector_width

OPERATORS = ("softmax", "rmsnorm", "layernorm")
_TYPES = [*[ctypes.c_void_p] * 7, ctypes.c_longlong, ctypes.c_int, *[ctypes.c_longlong] * 3, ctypes.c_float]


def softmax(
    x: torch.Tensor, *, online: bool = True, no_allocate: bool = False, mapping: Mapping | None = None
) -> torch.Tensor:
    """Softmax over the last dimension. `x`: bfloat16 or float32 on a GPU, rows of up to 131,072 elements."""
    rows = _rows(x)
    y = torch.empty_like(rows)
    _run("softmax", rows, None, None, None, y, None, None, 0.0, mapping, online=online, no_allocate=no_allocate)
    return y.view(x.shape)


def norm(
    operator: str,
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    *,
    residual: torch.Tensor | None = None,
    epsilon: float = 1e-6,
    statistics: bool = False,
    mapping: Mapping | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """RMSNorm or LayerNorm over the last dimension of x, or of x + residual.

    `operator`: `rmsnorm` or `layernorm`. `weight`, `bias`: (columns,), in x's dtype. Returns the result; the sum
    x + residual, rounded to x's dtype, where a residual is given; and float32 (rows, 2) of mean and reciprocal
    deviation where asked (the mean is 0 for RMSNorm).
    """
    rows = _rows(x)
    other = None if residual is None else _rows(residual)
    y = torch.empty_like(rows)
    total = None if other is None else torch.empty_like(rows)
    kept = torch.empty(rows.shape[0], 2, dtype=torch.float32, device=x.device) if statistics else None
    _run(operator, rows, other, weight, bias, y, total, kept, epsilon, mapping)
    return y.view(x.shape), None if total is None else total.view(x.shape), kept


def _rows(x: torch.Tensor) -> torch.Tensor:
    """x as a matrix of rows, without a copy where its strides allow it."""
    if x.dtype not in (torch.bfloat16, torch.float32) or x.device.type != "cuda" or x.dim() == 0:
        raise InputError(f"row-wise kernels take bfloat16 or float32 on a GPU, not {x.dtype} on {x.device.type}.")
    if x.shape[-1] > LIMIT:
        raise InputError(f"a row has {x.shape[-1]:,} elements: the limit is {LIMIT:,}.")
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 or rows.shape[1] == 1 else rows.contiguous()


Switches = tuple[tuple[str, int], ...]


def switches(
    columns: int,
    mapping: Mapping,
    *,
    online: bool = True,
    residual: bool = False,
    weight: bool = False,
    bias: bool = False,
    statistics: bool = False,
    no_allocate: bool = False,
) -> Switches:
    """Macros of the source that follow from the call."""
    return (
        ("BIAS", int(bias)),
        ("EXACT", int(columns == mapping.columns)),
        ("NO_ALLOCATE", int(no_allocate)),
        ("ONLINE", int(online)),
        ("PINNED", mapping.pinned),
        ("PREFETCH", mapping.prefetch),
        ("READ", mapping.read),
        ("REREAD", mapping.reread if online else 0),
        ("RESIDENT", mapping.resident),
        ("RESIDUAL", int(residual)),
        ("STATISTICS", int(statistics)),
        ("WEIGHT", int(weight)),
        ("WRITE", mapping.write),
    )


def build(operator: str, bf16: bool, mapping: Mapping, chosen: Switches) -> Build:
    """The variant of the source for a mapping and its switches."""
    return Build.of(
        "rowwise.cu",
        "rowwise",
        OPERATOR=OPERATORS.index(operator),
        BF16=int(bf16),
        VECTOR=mapping.vector,
        LOADS=mapping.loads,
        THREADS=mapping.threads,
        THREADS_PER_ROW=mapping.threads_per_row,
        CLUSTER=mapping.cluster,
        MIN_BLOCKS=mapping.min_blocks,
        **dict(chosen),
    )


@functools.cache
def _launch(operator: str, bf16: bool, mapping: Mapping, chosen: Switches, device: int) -> Launch:
    on = dict(chosen)
    slots = mapping.slots(1 + on["RESIDUAL"], on["WEIGHT"] + on["BIAS"])
    shared = slots * mapping.vector * (2 if bf16 else 4)
    made = build(operator, bf16, mapping, chosen)
    return Launch(made, _TYPES, threads=mapping.threads, shared=shared, cluster=mapping.cluster)


@dataclass(frozen=True)
class _Plan:
    launch: Launch
    blocks: int


@functools.lru_cache(maxsize=4096)
def _plan(
    operator: str,
    bf16: bool,
    count: int,
    columns: int,
    vector: int,
    residual: bool,
    weight: bool,
    bias: bool,
    statistics: bool,
    online: bool,
    no_allocate: bool,
    mapping: Mapping | None,
    device: int,
) -> _Plan:
    """What a call of this shape launches. Found once for each shape, so that the next call only looks it up."""
    if mapping is None:
        name = f"add_{operator}" if residual else operator
        mapping = choose(name, columns, 2 if bf16 else 4, vector)
    chosen = switches(
        columns,
        mapping,
        online=online,
        residual=residual,
        weight=weight,
        bias=bias,
        statistics=statistics,
        no_allocate=no_allocate,
    )
    launch = _launch(operator, bf16, mapping, chosen, device)
    blocks = -(-count // mapping.rows) * mapping.cluster
    return _Plan(launch, min(blocks, launch.capacity) if mapping.prefetch else blocks)


def _run(
    operator: str,
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    total: torch.Tensor | None,
    kept: torch.Tensor | None,
    epsilon: float,
    mapping: Mapping | None,
    *,
    online: bool = True,
    no_allocate: bool = False,
) -> None:
    count, columns = x.shape
    if x.numel() == 0:
        return
    index = x.device.index
    if index != torch.cuda.current_device():
        with torch.cuda.device(index):
            _run(
                operator,
                x,
                residual,
                weight,
                bias,
                y,
                total,
                kept,
                epsilon,
                mapping,
                online=online,
                no_allocate=no_allocate,
            )
        return
    itemsize = x.element_size()
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in (x, residual, weight, bias, y, total)]
    x_stride, y_stride = x.stride(0), y.stride(0)
    residual_stride = 0 if residual is None else residual.stride(0)
    bits = (x_stride | y_stride | residual_stride) * itemsize
    for address in addresses:
        bits |= address
    plan = _plan(
        operator,
        x.dtype == torch.bfloat16,
        count,
        columns,
        vector_width(columns, itemsize, bits & -bits if bits else 16),
        residual is not None,
        weight is not None,
        bias is not None,
        kept is not None,
        online,
        no_allocate,
        mapping,
        index,
    )
    plan.launch(
        plan.blocks,
        torch._C._cuda_getCurrentRawStream(index),
        *addresses,
        0 if kept is None else kept.data_ptr(),
        count,
        columns,
        x_stride,
        residual_stride,
        y_stride,
        epsilon,
    )
