"""What the demonstration's kernel must compute, and what it moves: `assay bench demo/kernels/bench.py` times it."""

from __future__ import annotations

from typing import Any

import torch
from softmax import softmax

from assay.kernels.declaration import Declaration, Tolerance


def inputs(case: Any, generator: torch.Generator, device: torch.device) -> dict[str, torch.Tensor]:
    """Rows of standard normal numbers; large ones, or wholly masked, where the case says so."""
    x = torch.randn(case["rows"], case["columns"], generator=generator, device=device)
    if case.get("masked"):
        x[::2] = -torch.inf
    return {"x": x * case.get("scale", 1)}


row_softmax = Declaration(
    name="row-softmax",
    kernel=softmax,
    inputs=inputs,
    reference=lambda x: torch.softmax(x, -1),
    tolerances={"float32": Tolerance(absolute=1e-6, relative=1e-5)},
    cases={"c1024": {"rows": 256, "columns": 1024, "dtype": "float32"}},
    contract_cases={
        "tail": {"rows": 3, "columns": 61, "dtype": "float32"},
        "extreme": {"rows": 8, "columns": 256, "dtype": "float32", "scale": 1e4},
        "masked": {"rows": 8, "columns": 256, "dtype": "float32", "masked": True},
        "empty": {"rows": 0, "columns": 256, "dtype": "float32"},
    },
    bytes=lambda case: 2 * 4 * case["rows"] * case["columns"],
    flops=lambda case: 5 * case["rows"] * case["columns"],
)
