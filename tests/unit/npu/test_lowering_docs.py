"""The page of the compiler says what the registries say, and its example prints what it shows.

`ASSAY_GOLDEN=write` rewrites the tables and the listings.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from assay.npu_backend.register_backend import get_npu_program
from assay.npu_backend.tables import TABLES

PAGE = Path(__file__).parents[3] / "docs" / "npu-compiler.md"


class Small(nn.Module):
    """The model that the page follows."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))  # type: ignore[no-any-return]


def listing(model: nn.Module, *inputs: torch.Tensor) -> str:
    return f"```\n{get_npu_program(model, *inputs)}```\n"


def calibration() -> str:
    """The estimators side by side, from the recorded results."""
    result = json.loads((PAGE.parent / "results" / "npu" / "calibration.json").read_text())
    rows = [f"| {name} | {q['mape']}% | {q['median']}% | {q['spearman']} |\n" for name, q in result["held_out"].items()]
    rates = result["rates"]
    return (
        "| estimator | MAPE | median error | Spearman |\n|---|---|---|---|\n" + "".join(rows) + "\n"
        f"The rates: {rates['fixed_ms']:.2f} ms for an inference, {rates['instruction_us']:.1f} µs to start an instruction on 8-bit\n"
        f"tensors (twice that on 16-bit ones), {rates['float_gmacs']:.1f} T multiply-accumulates a second in 16-bit floats,\n"
        f"{rates['int8_gmacs']:.1f} T in 8-bit integers, {rates['vtcm_gbs']:.0f} GB/s of VTCM, {rates['dram_gbs']:.1f} GB/s of DRAM.\n"
    )


PARTS = {
    **TABLES,
    "calibration": calibration,
    "sample": lambda: listing(nn.Sequential(nn.Linear(512, 512), nn.ReLU()), torch.zeros(8, 512)),
    "followed": lambda: listing(Small(), torch.zeros(1, 3, 8, 8)),
}


@pytest.mark.parametrize("name", PARTS)
def test_the_page_is_true(name: str) -> None:
    text = PAGE.read_text()
    pattern = re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
    made = PARTS[name]()
    if os.environ.get("ASSAY_GOLDEN") == "write":
        text = pattern.sub(lambda found: found[1] + made + found[3], text)
        PAGE.write_text(text)
    found = pattern.search(text)
    assert found is not None
    assert found[2] == made
