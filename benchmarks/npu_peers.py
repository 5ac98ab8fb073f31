"""The NPU simulator beside two compilers of real accelerators, on the same single layers in 8-bit integers.

`python -m benchmarks.npu_peers --python PEERS --out DIR`, where PEERS is the interpreter of an environment with
requirements/peers.txt (`make npu-peers` does both). Qualcomm's compiler says which bytes a layer moves on Hexagon V75; Arm's
Vela estimates cycles on Ethos-U. Each question is a process of its own. Writes peers.json and peers.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from scipy.stats import spearmanr
from torch import nn

from assay.baselines.environment import capture
from assay.npu_backend.machine import Machine
from assay.npu_backend.partition import Settings
from assay.npu_backend.register_backend import plan_model
from assay.npu_backend.simulator import preset, simulate
from assay.npu_backend.validation import VTCM_BYTES
from benchmarks.peers.layers import LAYERS, Layer

Row = dict[str, Any]
_U55 = Machine(
    name="256 a cycle",
    vtcm_bytes=VTCM_BYTES,
    macs_per_cycle={"int8": 256.0, "float32": 256.0},
    load_per_cycle=lambda tensor, elements: 0.0,
    store_per_cycle=lambda tensor, elements: 0.0,
    vector_per_cycle=0.0,
    overlap=False,
    source="256 multiply-accumulates a cycle is what the name Ethos-U55-256 says; nothing else is charged",
)


def main() -> None:
    """Asks everybody, writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", type=Path, required=True, help="interpreter of the peers' environment")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    rows = []
    for number, layer in enumerate(LAYERS):
        print(f"[{number + 1}/{len(LAYERS)}] {layer.name}", file=sys.stderr, flush=True)
        rows.append(
            {
                "layer": layer.name,
                "assay": ours(layer),
                "qnn": _asked(chosen.python, "qnn", number),
                "vela": _asked(chosen.python, "vela", number),
            }
        )
    chosen.out.mkdir(parents=True, exist_ok=True)
    found = capture()
    document = {"environment": {"python": found.python, "system": found.system, "torch": torch.__version__,
                                "peers": _versions()}, "rows": rows}  # fmt: skip
    (chosen.out / "peers.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    text = page(rows)
    (chosen.out / "peers.md").write_text(text, encoding="utf-8")
    print(text)


def ours(layer: Layer) -> Row:
    """What the simulator says of a layer under w8a8: bytes and cycles on htp_v75, and cycles at 256 products a cycle."""
    model: nn.Module
    if layer.kernel:
        model = nn.Conv2d(
            layer.channels, layer.outputs, layer.kernel, stride=layer.stride, padding=layer.kernel // 2,
            groups=layer.groups,
        )  # fmt: skip
    else:
        model = nn.Linear(layer.channels, layer.outputs)
    made = plan_model(model.eval(), torch.zeros(layer.inputs), settings=Settings(precision="w8a8", strict=True))
    (program,) = made.programs
    cost = simulate(program, preset("htp_v75"))
    return {
        "macs": cost.macs, "cycles": cost.cycles, "dram_read": cost.read_bytes, "dram_written": cost.written_bytes,
        "vtcm_peak": cost.vtcm_peak, "cycles_256": simulate(program, _U55).cycles,
    }  # fmt: skip


def page(rows: list[Row]) -> str:
    """The table in Markdown, with what explains the differences."""
    reads = [_share(row, "dram_read") for row in rows]
    writes = [_share(row, "dram_written") for row in rows]
    ranks = {
        name: spearmanr([r["assay"]["cycles"] for r in rows], [r["vela"][name]["npu"] for r in rows]).statistic
        for name in rows[0]["vela"]
    }
    lines = [
        "# The simulator beside two compilers\n",
        "Single layers, 8-bit weights and activations, batch 1. `make npu-peers` writes this page.\n",
        "## Bytes: Qualcomm's compiler for Hexagon V75\n",
        "| layer | DRAM read | QNN | ratio | DRAM written | QNN | ratio | VTCM peak | QNN |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row, read, written in zip(rows, reads, writes, strict=True):
        a, q = row["assay"], row["qnn"]
        lines.append(
            f"| {row['layer']} | {a['dram_read']:,} | {q['dram_read']:,} | {read:.3f} | {a['dram_written']:,} | "
            f"{q['dram_written']:,} | {written:.3f} | {a['vtcm_peak'] / 2**20:.2f} MiB | {q['vtcm_peak'] / 2**20:.2f} MiB |"
        )
    lines += [
        f"\nDRAM reads are {min(reads):.3f} to {max(reads):.3f} of QNN's, writes {min(writes):.3f} to {max(writes):.3f}. "
        "QNN reads two 32-bit words for each output channel, bias and rescaling, in blocks of 2 KB, where this compiler reads "
        "the bias alone; and it pads the weights of the depthwise convolution from 576 bytes to 4,096. That is all of the "
        "difference. Its peak in VTCM is larger: it keeps further copies of the input in layouts with 32 channels together and "
        "borders for the window, and this compiler has one layout.\n",
        "## Cycles: Vela for Ethos-U\n",
        "| layer | MACs | htp_v75 | U55-256 | U85-2048 | at 256 MACs a cycle | ratio to U55-256 |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        a, v = row["assay"], row["vela"]
        first = v["ethos-u55-256"]["npu"]
        lines.append(
            f"| {row['layer']} | {a['macs'] / 1e6:.1f} M | {a['cycles']:,} | {first:,} | {v['ethos-u85-2048']['npu']:,} | "
            f"{a['cycles_256']:,} | {a['cycles_256'] / first:.2f} |"
        )
    dense = [row["assay"]["cycles_256"] / row["vela"]["ethos-u55-256"]["npu"] for row in rows if _dense(row["layer"])]
    other = [
        row["vela"]["ethos-u55-256"]["npu"] / row["assay"]["cycles_256"] for row in rows if not _dense(row["layer"])
    ]
    lines.append(
        "\nVela's cycles are those of its NPU alone; the machines differ, so that only the last two columns compare. At the "
        f"same rate of products the simulator gives {min(dense):.2f} to {max(dense):.2f} of Vela's cycles on dense convolutions. "
        f"Depthwise convolutions and products of matrices take Ethos-U {min(other):.0f} to {max(other):.0f} times longer than "
        "that: a depthwise convolution uses one input channel of its array, and a product reads each weight through the decoder "
        "for few rows. A plain rate knows neither; `htp_v75` charges both by their bytes. Rank correlation of the cycles of htp_v75, "
        "another machine, with " + ", ".join(f"{name}: {rank:.2f}" for name, rank in ranks.items()) + ".\n"
    )
    return "\n".join(lines)


def _dense(layer: str) -> bool:
    return layer.startswith("conv")


def _share(row: Mapping[str, Any], name: str) -> float:
    return float(row["assay"][name] / row["qnn"][name])


def _asked(python: Path, peer: str, number: int) -> Row:
    done = subprocess.run(
        [str(python), "-m", f"benchmarks.peers.{peer}", str(number)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{peer}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    found: Row = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _versions() -> list[str]:
    pinned = (Path(__file__).parent.parent / "requirements" / "peers.txt").read_text(encoding="utf-8").split()
    return [name for name in pinned if name.startswith(("ethos", "onnxruntime"))]


if __name__ == "__main__":
    main()
