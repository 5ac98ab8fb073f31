"""False alarms and detections of the A/B gate, on a real kernel with a slowdown put into it.

    python benchmarks/ab.py --device cuda --seconds 300 --out docs/results/ab.json

The kernel is a row softmax of `torch`; a head that is 2% slower does 2% more rows in the same launch. Base and heads are
worker processes of `assay bench`, started afresh several times, and every experiment is measured twice with as many
blocks: in turns, as the gate does it, and one arm after the other, as asv does, where a two-sided Mann-Whitney test with
p < 0.002 and a larger median is an alarm. Needs torch and NumPy only.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.baselines.stats.speed import paired_change
from assay.kernels.bench.arm import START_SECONDS, Arm
from assay.kernels.bench.order import turns
from assay.kernels.bench.rotation import CACHES, cache_bytes, launches_for
from assay.kernels.bench.wire import number

EFFECTS = (0.0, 0.01, 0.02, 0.05)
ASV_P = 0.002
ASV_FACTOR = 1.05
KERNEL = """
import torch
from assay.kernels.declaration import Declaration, Tolerance

SLOWDOWN = {slowdown}


def inputs(case, generator, device):
    rows = int(case["rows"] * 1.1)
    x = torch.randn(rows, case["columns"], generator=generator, device=device)
    return {{"x": x.to(getattr(torch, case["dtype"])), "rows": case["rows"]}}


def softmax(x, rows):
    return torch.softmax(x[: round(rows * (1 + SLOWDOWN))], -1)[:rows]


declared = Declaration(
    name="softmax",
    kernel=softmax,
    inputs=inputs,
    reference=lambda x, rows: torch.softmax(x[:rows], -1),
    tolerances={{"float32": Tolerance(1e-6, 1e-5), "bfloat16": Tolerance(4e-3, 1.6e-2)}},
    cases={{"rows": {{"rows": {rows}, "columns": {columns}, "dtype": "{dtype}"}}}},
    bytes=lambda case: 2 * case["rows"] * case["columns"] * 2,
    flops=lambda case: 5 * case["rows"] * case["columns"],
)
"""
SHAPES = {"cpu": (256, 1024, "float32"), "cuda": (16384, 4096, "bfloat16")}


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p of "both come from one distribution", by the normal approximation with continuity and ties."""
    values = np.concatenate([a, b])
    order = np.argsort(values, kind="stable")
    ranks = np.empty(len(values))
    ranks[order] = np.arange(1, len(values) + 1)
    unique, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.bincount(inverse, ranks) / counts)[inverse]
    n, m, total = len(a), len(b), len(values)
    u = float(ranks[:n].sum()) - n * (n + 1) / 2
    spread = n * m / 12 * (total + 1 - float((counts**3 - counts).sum()) / (total * (total - 1)))
    if len(unique) == 1 or spread <= 0:
        return 1.0
    z = max(abs(u - n * m / 2) - 0.5, 0.0) / math.sqrt(spread)
    return math.erfc(z / math.sqrt(2))


class Bench:
    """One base and one head for each effect, ready to be timed."""

    def __init__(self, stack: ExitStack, folder: Path, device: str, block_seconds: float) -> None:
        kind = device.partition(":")[0]
        rows, columns, dtype = SHAPES[kind]
        self.arms: dict[str, Arm] = {}
        for name, effect in {"base": 0.0, **{f"{e:g}": e for e in EFFECTS}}.items():
            root = folder / name
            root.mkdir(parents=True, exist_ok=True)
            (root / "bench.py").write_text(KERNEL.format(slowdown=effect, rows=rows, columns=columns, dtype=dtype))
            self.arms[name] = stack.enter_context(Arm(name, root, device, timeout=300, environment={}))
        self.launches = 0
        for name, arm in self.arms.items():
            versions = arm.ask("hello", seconds=START_SECONDS)
            arm.ask("load", file=str(folder / name / "bench.py"), root=str(folder / name), only=[])
            size = arm.ask("size", kernel="softmax", case="rows")
            if not self.launches:
                memory = (8192 if kind == "cuda" else 512) << 20
                self.launches = launches_for(
                    block_seconds,
                    number(size, "seconds"),
                    CACHES * cache_bytes(versions),
                    int(number(size, "bytes")),
                    memory,
                )
            arm.ask("prepare", kernel="softmax", case="rows", launches=self.launches)
            arm.ask("fill", seed=1)

    def time(self, name: str) -> float:
        """Seconds per launch of one block."""
        return number(self.arms[name].ask("time"), "seconds") / self.launches

    def in_turns(self, head: str, blocks: int, seed: int) -> tuple[list[float], list[float]]:
        """(base, head) times of blocks that took turns."""
        found: dict[str, list[float]] = {"base": [], head: []}
        for order in turns(("base", head), blocks, seed):
            for name in order:
                found[name].append(self.time(name))
        return found["base"], found[head]

    def in_sequence(self, head: str, blocks: int) -> tuple[list[float], list[float]]:
        """(base, head) times, all of the base first."""
        return [self.time("base") for _ in range(blocks)], [self.time(head) for _ in range(blocks)]


def state(base: Sequence[float], head: Sequence[float], margin: float) -> tuple[str, float]:
    """The gate's verdict on one case, and the change that it saw."""
    found = paired_change(base, head, threshold=margin)
    if found.p_slower < 0.05 and found.change > margin:
        return "slower", found.change
    if found.p_faster < 0.05 and found.change < 0:
        return "faster", found.change
    inside = -margin < found.bound_low and found.bound_high < margin
    return ("same" if inside else "ambiguous"), found.change


def rate(hits: int, of: int) -> dict[str, float]:
    """A rate with its 95% score interval (Wilson 1927)."""
    if not of:
        return {"rate": float("nan"), "low": 0.0, "high": 1.0}
    z, p = 1.96, hits / of
    middle, half = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return {
        "rate": p,
        "low": max(0.0, (middle - half) / (1 + z * z / of)),
        "high": min(1.0, (middle + half) / (1 + z * z / of)),
    }


def run(device: str, seconds: float, blocks: int, margin: float, restart: int, block_seconds: float) -> dict[str, Any]:
    """Experiments until the time is over; at least one round."""
    chance = random.Random(0)
    counts: dict[float, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    changes: dict[float, list[float]] = defaultdict(list)
    deadline, rounds, launches = time.monotonic() + seconds, 0, 0
    with tempfile.TemporaryDirectory(prefix="assay-ab-") as folder:
        while not rounds or time.monotonic() < deadline:
            with ExitStack() as stack:
                bench = Bench(stack, Path(folder), device, block_seconds)
                launches = bench.launches
                for _ in range(restart):
                    for effect in chance.sample(EFFECTS, len(EFFECTS)):
                        verdict, change = state(*bench.in_turns(f"{effect:g}", blocks, chance.getrandbits(32)), margin)
                        counts[effect][verdict] += 1
                        changes[effect].append(change)
                        base, head = bench.in_sequence(f"{effect:g}", blocks)
                        slower = statistics.median(head) / statistics.median(base)
                        counts[effect]["mann-whitney"] += mann_whitney(base, head) < ASV_P and slower > 1
                        counts[effect]["median over 5%"] += slower > ASV_FACTOR
                    rounds += 1
                    if time.monotonic() > deadline:
                        break
            print(f"{rounds} rounds", file=sys.stderr)
    names = ("slower", "same", "ambiguous", "faster", "mann-whitney", "median over 5%")
    return {
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else "cpu",
        "torch": torch.__version__,
        "shape": SHAPES[device.partition(":")[0]],
        "blocks": blocks,
        "launches": launches,
        "margin": margin,
        "restart": restart,
        "rounds": rounds,
        "effects": [
            {
                "true": effect,
                "seen": statistics.median(changes[effect]),
                **{name: rate(counts[effect][name], rounds) for name in names},
            }
            for effect in EFFECTS
        ],
    }


def table(found: dict[str, Any]) -> str:
    """The result as Markdown."""
    lines = [
        f"{found['device']}, torch {found['torch']}, softmax {found['shape']}, {found['blocks']} blocks of {found['launches']} "
        f"launches, margin {100 * found['margin']:g}%, {found['rounds']} experiments a row.",
        "",
        "| slowdown | seen | in turns: slower | same | ambiguous | faster | in sequence: Mann-Whitney p < 0.002 | median over 5% |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in found["effects"]:
        cells = [f"{100 * row['true']:+g}%", f"{100 * row['seen']:+.2f}%"]
        for name in ("slower", "same", "ambiguous", "faster", "mann-whitney", "median over 5%"):
            r = row[name]
            cells.append(f"{r['rate']:.3f} ({r['low']:.3f}, {r['high']:.3f})")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--margin", type=float, default=1.0, help="percent")
    parser.add_argument("--restart", type=int, default=10, help="rounds after which the workers are started afresh")
    parser.add_argument("--block-ms", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = run(given.device, given.seconds, given.blocks, given.margin / 100, given.restart, given.block_ms / 1e3)
    print(table(found))
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
