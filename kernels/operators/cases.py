"""What the operators are proven on: their contracts, the shapes that are timed, and the graph around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from assay.kernels import operators
from assay.kernels.declaration import Declaration, Parameters, Tolerance
from assay.kernels.operators.proof import permuted

Call = Callable[..., Any]
NAMES = ("softmax", "rms_norm", "layer_norm", "causal_attention")
FALLS_BACK = "non-contiguous-falls-back"
"""Contract case whose inputs lie outside of every kernel's region."""
ENCLOSED = "c4096"
"""Case on which the graph around an operator is timed; the first one where it is not declared."""

_ROWS = {
    "float32": Tolerance(absolute=1e-5, relative=1e-5),
    "bfloat16": Tolerance(absolute=0.016, relative=0.016),
}
TOLERANCES: dict[str, dict[str, Tolerance]] = {
    "softmax": {
        "float32": Tolerance(absolute=1e-6, relative=1e-5),
        "bfloat16": Tolerance(absolute=0.004, relative=0.016),
    },
    "rms_norm": _ROWS,
    "layer_norm": _ROWS,
    "causal_attention": {
        "float32": Tolerance(absolute=1e-5, relative=1e-5),
        "bfloat16": Tolerance(absolute=0.02, relative=0.016),
    },
}
OURS: dict[str, Call] = {
    "softmax": lambda x: operators.softmax(x),
    "rms_norm": lambda x, residual, weight: operators.rms_norm(x, weight, residual=residual),
    "layer_norm": lambda x, residual, weight, bias: operators.layer_norm(x, weight, bias, residual=residual),
    "causal_attention": lambda q, k, v: operators.causal_attention(q, k, v),
}


def _framework_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> Any:
    h = x + residual
    return functional.rms_norm(h, h.shape[-1:], weight, 1e-6), h


def _framework_layer_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    h = x + residual
    return functional.layer_norm(h, h.shape[-1:], weight, bias, 1e-5), h


def _framework_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=k.shape[1] != q.shape[1])


FRAMEWORK: dict[str, Call] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "rms_norm": _framework_rms_norm,
    "layer_norm": _framework_layer_norm,
    "causal_attention": _framework_attention,
}


def declaration(name: str, device: str) -> Declaration:
    """Contract and timed cases of an operator: full sizes on a GPU, small ones on a CPU."""
    gpu = device.partition(":")[0] == "cuda"
    if name == "causal_attention":
        lengths = (512, 1024, 2048, 4096) if gpu else (32, 64)
        shape = {
            "batch": 2,
            "heads": 4,
            "key_heads": 2,
            "head": 128 if gpu else 16,
            "dtype": "bfloat16" if gpu else "float32",
        }
        cases = {f"s{n}": {**shape, "length": n} for n in lengths}
        contract: dict[str, Parameters] = {
            "random": {**shape, "length": 64},
            "odd-lengths": {**shape, "length": 61},
            FALLS_BACK: {**shape, "length": 24, "permuted": True},
        }
    else:
        dtype = "bfloat16" if gpu else "float32"
        columns = (128, 1023, 1024, 4096, 16384, 65536) if gpu else (128, 1023, 1024)
        cases = {f"c{n}": {"rows": 4096 if gpu else 64, "columns": n, "dtype": dtype} for n in columns}
        contract = {
            "random": {"rows": 16, "columns": 256, "dtype": dtype},
            "float32": {"rows": 16, "columns": 256, "dtype": "float32"},
            "odd-widths": {"rows": 3, "columns": 1021, "dtype": dtype},
            FALLS_BACK: {"rows": 16, "columns": 48, "dtype": dtype, "permuted": True},
        }
        if name == "softmax":
            contract["fully-masked-rows"] = {"rows": 16, "columns": 256, "dtype": dtype, "masked": True}
    return Declaration(
        name=name.replace("_", "-"),
        kernel=OURS[name],
        inputs=lambda case, generator, where: inputs(name, case, generator, where),
        reference=FRAMEWORK[name],
        tolerances=TOLERANCES[name],
        cases=cases,
        contract_cases=contract,
        bytes=lambda case: _bytes(name, case),
        flops=lambda case: 0.0,
    )


def inputs(name: str, case: Parameters, generator: torch.Generator, device: torch.device) -> dict[str, torch.Tensor]:
    """Standard normal inputs of a case."""
    dtype = getattr(torch, case["dtype"])

    def drawn(*shape: int) -> torch.Tensor:
        value = torch.randn(*shape, generator=generator, device=device).to(dtype)
        return permuted(value) if case.get("permuted") and len(shape) > 1 else value

    if name == "causal_attention":
        heads, length, head = (case[key] for key in ("heads", "length", "head"))
        q, k, v = (drawn(case["batch"], n, length, head) for n in (heads, case["key_heads"], case["key_heads"]))
        return {"q": q, "k": k, "v": v}
    rows, columns = case["rows"], case["columns"]
    x = drawn(rows, columns)
    if case.get("masked"):
        x[::2] = -torch.inf
    found = {"x": x}
    if name != "softmax":
        found |= {"residual": drawn(rows, columns), "weight": drawn(columns)}
    return found | ({"bias": drawn(columns)} if name == "layer_norm" else {})


def enclosing(call: Call | None) -> Call:
    """A graph around an operator: scaled inputs, the operator, a gate on its result. None leaves the operator out."""

    def graph(**values: torch.Tensor) -> torch.Tensor:
        name = next(iter(values))
        first = values[name] * 0.5 + 0.125
        result = first if call is None else call(**{**values, name: first})
        y = result if isinstance(result, torch.Tensor) else result[0]
        return torch.sigmoid(y) * first

    return graph


def gradient_inputs(name: str, device: torch.device) -> dict[str, torch.Tensor]:
    """Small float64 leaves for gradcheck."""
    generator = torch.Generator(device=device)
    generator.manual_seed(7)
    drawn: Mapping[str, torch.Tensor] = inputs(name, {"rows": 3, "columns": 5, "dtype": "float64"}, generator, device)
    return {key: value.requires_grad_() for key, value in drawn.items()}


def _bytes(name: str, case: Parameters) -> float:
    size = 2 if case["dtype"] == "bfloat16" else 4
    if name == "causal_attention":
        pairs = 2 * case["heads"] + 2 * case["key_heads"]
        return float(size * case["batch"] * pairs * case["length"] * case["head"])
    return float(size * case["rows"] * case["columns"] * (2 if name == "softmax" else 4))
