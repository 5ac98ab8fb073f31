"""Two kernels to register: a fused add and norm with two results, and a norm in place.

`assay bench --operator demo/kernels/add_norm.py:add-rms-norm --out evidence/spike` writes the scope decision.
"""

from __future__ import annotations

from typing import Any

import torch

from assay.kernels.declaration import Declaration, Tolerance


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm of x + residual, and the sum, in as few temporaries as the framework allows."""
    total = x + residual
    scale = total.square().mean(-1, keepdim=True).add_(epsilon).rsqrt_()
    return total.mul(scale).mul_(weight), total


def add_rms_norm_reference(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same by the framework's norm."""
    total = x + residual
    return torch.nn.functional.rms_norm(total, (total.shape[-1],), weight, epsilon), total


def rms_norm_in_place(x: torch.Tensor) -> None:
    """RMSNorm that overwrites its input."""
    x.mul_(x.square().mean(-1, keepdim=True).add_(1e-6).rsqrt_())


def inputs(case: Any, generator: torch.Generator, device: torch.device) -> dict[str, Any]:
    """Standard normal rows; the weight lies around 1."""
    rows, columns = case["rows"], case["columns"]
    x, residual = (torch.randn(rows, columns, generator=generator, device=device) for _ in range(2))
    return {
        "x": x,
        "residual": residual,
        "weight": 1 + 0.1 * torch.randn(columns, generator=generator, device=device),
        "epsilon": 1e-6,
    }


_CASES = {"c1024": {"rows": 256, "columns": 1024, "dtype": "float32"}}
_TAILS = {
    "tail": {"rows": 3, "columns": 61, "dtype": "float32"},
    "empty": {"rows": 0, "columns": 64, "dtype": "float32"},
}

fused = Declaration(
    name="add-rms-norm",
    kernel=add_rms_norm,
    inputs=inputs,
    reference=add_rms_norm_reference,
    tolerances={"float32": Tolerance(absolute=1e-5, relative=1e-5)},
    cases=_CASES,
    contract_cases=_TAILS,
    bytes=lambda case: 4 * 4 * case["rows"] * case["columns"],
    flops=lambda case: 5 * case["rows"] * case["columns"],
)
in_place = Declaration(
    name="rms-norm-in-place",
    kernel=rms_norm_in_place,
    inputs=lambda case, generator, device: {"x": inputs(case, generator, device)["x"]},
    reference=lambda x: torch.nn.functional.rms_norm(x, (x.shape[-1],), None, 1e-6),
    tolerances={"float32": Tolerance(absolute=1e-5, relative=1e-5)},
    cases=_CASES,
    contract_cases=_TAILS,
    mutates=frozenset({"x"}),
    bytes=lambda case: 2 * 4 * case["rows"] * case["columns"],
    flops=lambda case: 4 * case["rows"] * case["columns"],
)
