"""The simulator against references calculated by hand from the equations of four layers.

Nothing here comes from the package but the programs and what is asked of them: sizes, rates and formulas are written out, as
docs/npu-compiler.md writes them.
"""

from __future__ import annotations

import json
import os
import re
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from assay.npu_backend.partition import Settings
from assay.npu_backend.register_backend import plan_model
from assay.npu_backend.simulator import Cost, preset, simulate

DOCS = Path(__file__).parents[3] / "docs" / "npu-compiler.md"
CLOCK = 1.37e9
RATES = json.loads(files("assay.npu_backend").joinpath("htp_v75.json").read_text())


class Attention(nn.Module):
    """softmax(Q K^T / 8) V of 8 heads, 256 positions, 64 columns."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """(1, 8, 256, 64) each."""
        return functional.scaled_dot_product_attention(q, k, v)


MODELS = {
    "MLP": (nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)), (torch.zeros(64, 512),)),
    "convolution": (nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()), (torch.zeros(1, 64, 56, 56),)),
    "depthwise": (
        nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.ReLU6()),
        (torch.zeros(1, 64, 112, 112),),
    ),
    "attention": (Attention(), tuple(torch.zeros(1, 8, 256, 64) for _ in range(3))),
}


def cost(name: str, machine: str, precision: str = "") -> Cost:
    model, inputs = MODELS[name]
    made = plan_model(model, *inputs, settings=Settings(precision=precision, strict=True))
    (program,) = made.programs
    return simulate(program, preset(machine))


SPEC = {
    # products + weight elements; biases, activations, ReLU and GELU are not charged
    "MLP": 64 * 512 * 2048 + 64 * 2048 * 512 + 512 * 2048 + 2048 * 512,
    "convolution": 64 * 56 * 56 * (64 * 3 * 3) + 64 * 64 * 3 * 3,
    "depthwise": 64 * 112 * 112 * (3 * 3) + 64 * 3 * 3,
    # scores and weighted sums
    "attention": 2 * 8 * 256 * 256 * 64,
}


@pytest.mark.parametrize("name", MODELS)
def test_cycles_on_the_machine_of_the_specification(name: str) -> None:
    assert cost(name, "spec").cycles == pytest.approx(SPEC[name], rel=0.05)


DRAM = {
    # 16 bits: input, weights, biases; output
    "MLP": (2 * (64 * 512 + 2 * 512 * 2048 + 2048 + 512), 2 * 64 * 512),
    "convolution": (2 * (64 * 56 * 56 + 64 * 64 * 9 + 64), 2 * 64 * 56 * 56),
    "depthwise": (2 * (64 * 112 * 112 + 64 * 9 + 64), 2 * 64 * 112 * 112),
    "attention": (2 * 3 * 8 * 256 * 64, 2 * 8 * 256 * 64),
}


@pytest.mark.parametrize("name", MODELS)
def test_dram_bytes_of_16_bit_floats(name: str) -> None:
    found = cost(name, "htp_v75", "float16")
    assert (found.read_bytes, found.written_bytes) == tuple(pytest.approx(n, rel=0.05) for n in DRAM[name])


def seconds(dram: float = 0, vtcm: float = 0, macs: float = 0, starts: int = 0) -> float:
    """Time of one step at the fitted rates, 16-bit floats."""
    return (
        dram / (RATES["dram_gbs"] * 1e9)
        + vtcm / (RATES["vtcm_gbs"] * 1e9)
        + macs / (RATES["float_gmacs"] * 1e12)
        + starts * 2 * RATES["instruction_us"] * 1e-6
    )


def by_hand() -> dict[str, float]:
    """Cycles on `htp_v75`, 16-bit floats: load, compute, store where nothing overlaps; what hides behind what, written out."""
    image, wide = 2 * 64 * 56 * 56, 2 * 64 * 112 * 112
    kernel = 2 * 64 * 64 * 9
    convolution = (
        seconds(dram=image + kernel)
        + seconds(vtcm=2 * image + kernel, macs=64 * 3136 * 576, starts=1)
        + seconds(dram=image)
    )
    # Depthwise sums are not for the matrix unit: they cost their bytes.
    depthwise = seconds(dram=wide) + seconds(vtcm=2 * wide, starts=1) + seconds(dram=wide)
    # The first product and its GELU, which reads and writes the hidden layer, run while the second weight arrives.
    token, hidden, weight = 2 * 64 * 512, 2 * 64 * 2048, 2 * 512 * 2048
    product = seconds(vtcm=token + weight + hidden, macs=64 * 512 * 2048, starts=1)
    gelu = seconds(vtcm=2 * hidden)
    mlp = seconds(dram=token + weight) + max(product + gelu, seconds(dram=weight)) + product + seconds(dram=token)
    # Values arrive while scores are computed. A softmax reads scores twice, and writes, reads and writes their exponentials.
    head, scores = 2 * 8 * 256 * 64, 2 * 8 * 256 * 256
    product = seconds(vtcm=2 * head + scores, macs=8 * 256 * 256 * 64, starts=1)
    attention = seconds(dram=2 * head) + product + seconds(vtcm=5 * scores) + product + seconds(dram=head)
    return {
        name: value * CLOCK
        for name, value in (
            ("convolution", convolution),
            ("depthwise", depthwise),
            ("MLP", mlp),
            ("attention", attention),
        )
    }


@pytest.mark.parametrize("name", by_hand())
def test_cycles_on_htp_v75(name: str) -> None:
    assert cost(name, "htp_v75", "float16").cycles == pytest.approx(by_hand()[name], rel=0.05)


def table() -> str:
    lines = [
        "| layer | machine | quantity | by hand | simulator | difference |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    ]
    for name in MODELS:
        small = cost(name, "htp_v75", "float16")
        pairs = [("spec", "cycles", SPEC[name], cost(name, "spec").cycles)]
        pairs += [("htp_v75", "DRAM bytes", sum(DRAM[name]), small.read_bytes + small.written_bytes)]
        if name in by_hand():
            pairs.append(("htp_v75", "cycles", round(by_hand()[name]), small.cycles))
        for machine, quantity, hand, found in pairs:
            lines.append(
                f"| {name} | `{machine}` | {quantity} | {hand:,} | {found:,} | {100 * (found / hand - 1):+.1f}% |"
            )
    return "\n".join(lines) + "\n"


def test_the_page_shows_both() -> None:
    text = DOCS.read_text(encoding="utf-8")
    pattern = re.compile(r"(<!-- by-hand -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
    if os.environ.get("ASSAY_GOLDEN") == "write":
        text = pattern.sub(lambda found: found[1] + table() + found[3], text)
        DOCS.write_text(text, encoding="utf-8")
    shown = pattern.search(text)
    assert shown is not None
    assert shown[2] == table()
