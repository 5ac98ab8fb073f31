"""The page of the compiler says what the registries say, and its example prints what it shows.

`ASSAY_GOLDEN=write` rewrites the tables and the listings.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from assay.npu_backend.conformance import load, summary
from assay.npu_backend.register_backend import get_npu_program
from assay.npu_backend.tables import TABLES

PAGE = Path(__file__).parents[3] / "docs" / "npu-compiler.md"
RESULTS = PAGE.parent / "results" / "npu"


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
    result = json.loads((RESULTS / "calibration.json").read_text())
    rows = [f"| {name} | {q['mape']}% | {q['median']}% | {q['spearman']} |\n" for name, q in result["held_out"].items()]
    rates = result["rates"]
    return (
        "| estimator | MAPE | median error | Spearman |\n|---|---|---|---|\n" + "".join(rows) + "\n"
        f"The rates: {rates['fixed_ms']:.2f} ms for an inference, {rates['instruction_us']:.1f} µs to start an instruction on 8-bit\n"
        f"tensors (twice that on 16-bit ones), {rates['float_gmacs']:.1f} T multiply-accumulates a second in 16-bit floats,\n"
        f"{rates['int8_gmacs']:.1f} T in 8-bit integers, {rates['vtcm_gbs']:.0f} GB/s of VTCM, {rates['dram_gbs']:.1f} GB/s of DRAM.\n"
    )


def speed() -> str:
    """Seconds of whole models, from the recorded results."""
    result = json.loads((RESULTS / "speed.json").read_text())
    head = "| model | products | instructions | compile | simulate | first call | Inductor's | ratio |\n"
    rows = "".join(
        f"| {name} | {q['gmacs']:.2f} G | {q['instructions']:,} | {q['compile_s']:.1f} s | {1e3 * q['simulate_s']:.0f} ms | "
        f"{q['first_call_s']:.1f} s | {q['inductor_first_call_s']:.1f} s | {q['ratio']:.2f} |\n"
        for name, q in result["models"].items()
    )
    return head + "|---|---:|---:|---:|---:|---:|---:|---:|\n" + rows


def scaling() -> str:
    """Chains of products in little VTCM, from the recorded results."""
    result = json.loads((RESULTS / "speed.json").read_text())
    rows = "".join(
        f"| {q['instructions']:,} | {1e3 * q['tile_s']:.0f} ms | {1e3 * q['validate_s']:.0f} ms | {1e3 * q['simulate_s']:.0f} ms | "
        f"{q['instructions_per_s']:,} |\n"
        for q in result["scaling"]
    )
    head = "| instructions | tiling | validation | simulation | instructions a second |\n"
    return head + "|---:|---:|---:|---:|---:|\n" + rows


def conformance() -> str:
    """Counts of PyTorch's operator database, from the recorded results."""
    return summary(load(RESULTS / "conformance.json"))


def models() -> str:
    """Families of models beside eager PyTorch, from the recorded results."""
    found = json.loads((RESULTS / "models.json").read_text())["models"]
    families: dict[str, list[dict[str, Any]]] = {}
    for name, entry in found.items():
        families.setdefault(family(name), []).append(entry)
    head = "| models | number | programs | products on the NPU | largest difference | on the host |\n|---|---:|---:|---:|---:|---|\n"
    rows = []
    for name, entries in sorted(families.items(), key=lambda pair: pair[0].lower()):
        host = (
            ", ".join(f"`{op}`" for op in sorted({op for entry in entries for op in entry["fallbacks"]})) or "nothing"
        )
        programs = sorted({entry["partitions"] for entry in entries})
        span = f"{programs[0]}" if len(programs) == 1 else f"{programs[0]} to {programs[-1]}"
        share, error = min(entry["share"] for entry in entries), max(entry["error"] for entry in entries)
        rows.append(f"| {name} | {len(entries)} | {span} | {100 * share:.2f}% | {error:.0e} | {host} |\n")
    return head + "".join(rows)


def family(name: str) -> str:
    """`resnet50` and its like are `ResNet`-like by their letters; Hugging Face models stand for themselves."""
    return name if "/" in name else re.match(r"[a-z]+(_v\d)?", name)[0]  # type: ignore[index]


PARTS = {
    "speed": speed,
    "scaling": scaling,
    "conformance": conformance,
    "models": models,
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
