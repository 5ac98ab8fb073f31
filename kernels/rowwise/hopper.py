"""Row-wise operators in CUDA C++ (source: `kernels/cuda/rowwise.cu`)."""

from __future__ import annotations

import ctypes
import functools

import torch

from assay.baselines.errors import InputError
from assay.kernels.cuda.program import Build, Launch
from assay.kernels.rowwise.mapping import LIMIT, Mapping, choose, vector_width

OPERATORS = ("softmax", "rmsnorm", "layernorm")
_TYPES = [*[ctypes.c_void_p] * 7, ctypes.c_longlong, ctypes.c_int, *[ctypes.c_longlong] * 3, ctypes.c_float]


def softmax(x: torch.Tensor, *, online: bool = True, mapping: Mapping | None = None) -> torch.Tensor:
    """Softmax over the last dimension. `x`: bfloat16 or float32 on a GPU, rows of up to 131,072 elements."""
    rows = _rows(x)
    y = torch.empty_like(rows)
    _run("softmax", rows, None, None, None, y, None, None, 0.0, mapping, online=online)
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
) -> Switches:
    """Macros of the source that follow from the call."""
    return (
        ("BIAS", int(bias)),
        ("EXACT", int(columns == mapping.columns)),
        ("ONLINE", int(online)),
        ("PREFETCH", mapping.prefetch),
        ("RESIDENT", mapping.resident),
        ("RESIDUAL", int(residual)),
        ("STATISTICS", int(statistics)),
        ("WEIGHT", int(weight)),
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
) -> None:
    count, columns = x.shape
    if x.numel() == 0:
        return
    tensors = [x, residual, weight, bias, y, total]
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
    if mapping is None:
        itemsize = x.element_size()
        alignment = 0
        for address in addresses:
            alignment |= address
        for tensor in (x, residual, y):
            if tensor is not None:
                alignment |= tensor.stride(0) * itemsize
        name = operator if residual is None else f"add_{operator}"
        width = vector_width(columns, itemsize, alignment & -alignment if alignment else 16)
        mapping = choose(name, columns, itemsize, width)
    chosen = switches(
        columns,
        mapping,
        online=online,
        residual=residual is not None,
        weight=weight is not None,
        bias=bias is not None,
        statistics=kept is not None,
    )
    index = x.device.index
    with torch.cuda.device(index):
        launch = _launch(operator, x.dtype == torch.bfloat16, mapping, chosen, index)
        blocks = -(-count // mapping.rows) * mapping.cluster
        launch(
            min(blocks, launch.capacity) if mapping.prefetch else blocks,
            torch.cuda.current_stream(index).cuda_stream,
            *addresses,
            0 if kept is None else kept.data_ptr(),
            count,
            columns,
            x.stride(0),
            0 if residual is None else residual.stride(0),
            y.stride(0),
            epsilon,
        )
