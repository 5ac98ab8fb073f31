"""Functional case of the attention capstone, for readers without the GPU: the algorithm in NumPy, its bytes counted.

    python functional.py FOLDER        writes evidence of kind `kernel` to FOLDER

Every tile that the algorithm loads or stores is counted, and the count is compared with the closed form of the tile
model. These are bytes that tiles ask for, not bytes that cross HBM: on a GPU, L2 answers most repeated loads of K and V.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from assay.baselines.environment import capture
from assay.baselines.evidence import Evidence, Metric, Provenance, Subject
from assay.baselines.record import write_record

D = 32
BLOCK = 16
LENGTHS = (64, 100, 128)
"""100 is no multiple of the tile: its last tiles are partly empty."""
BYTES = 4
TOLERANCE = 1e-5

Array = NDArray[np.float32]


@dataclass
class Traffic:
    """Bytes that tiles loaded and stored."""

    count: int = 0

    def tile(self, part: Array) -> Array:
        self.count += part.nbytes
        return part


def attention(q: Array, k: Array, v: Array, visible: NDArray[np.bool_], traffic: Traffic) -> Array:
    """Causal attention over tiles with an online softmax (Milakov and Gimelshein 2018, arXiv:1805.02867, algorithm 3).

    q, k, v: (S, D). `visible` (S, S) is True where a query may look at a key; a row that sees nothing gives zeros.
    """
    length = len(q)
    out = np.zeros_like(q)
    for top in range(0, length, BLOCK):
        rows = slice(top, min(top + BLOCK, length))
        query = traffic.tile(q[rows])
        n = len(query)
        running_max = np.full(n, -np.inf, np.float32)
        running_sum = np.zeros(n, np.float32)
        total = np.zeros((n, D), np.float32)
        for left in range(0, rows.stop, BLOCK):  # tiles right of the diagonal are never loaded
            columns = slice(left, min(left + BLOCK, length))
            key, value = traffic.tile(k[columns]), traffic.tile(v[columns])
            scores = np.where(visible[rows, columns], query @ key.T / np.float32(np.sqrt(D)), -np.inf)
            new_max = np.maximum(running_max, scores.max(axis=1))
            safe = np.where(np.isfinite(new_max), new_max, 0)  # exp(-inf - -inf) is no number
            weights = np.exp(scores - safe[:, None])
            rescale = np.exp(running_max - safe)
            running_sum = running_sum * rescale + weights.sum(axis=1)
            total = total * rescale[:, None] + weights @ value
            running_max = new_max
        seen = running_sum > 0
        out[rows][seen] = total[seen] / running_sum[seen, None]
        traffic.tile(out[rows])
    return out


def reference(q: Array, k: Array, v: Array, visible: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The same in float64, all scores at once."""
    scores = np.where(visible, q.astype(np.float64) @ k.T.astype(np.float64) / np.sqrt(D), -np.inf)
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(axis=1, keepdims=True)
    out = np.zeros((len(q), D))
    np.divide(weights @ v.astype(np.float64), total, out=out, where=total > 0)
    return out


def tile_bytes(length: int) -> int:
    """The tile model: Q and O once, and for each row of tiles K and V up to the diagonal."""
    ends = [min(top + BLOCK, length) for top in range(0, length, BLOCK)]
    return BYTES * D * (2 * length + 2 * sum(ends))


def cases(length: int, rng: np.random.Generator) -> dict[str, tuple[Array, Array, Array, NDArray[np.bool_]]]:
    """The inputs of the contract."""
    q, k, v = (rng.standard_normal((length, D)).astype(np.float32) for _ in range(3))
    causal = np.tril(np.ones((length, length), np.bool_))
    blind = causal.copy()
    blind[::3] = False
    large = np.float32(60)  # scores of some thousands: exp overflows unless the maximum is taken out first
    return {"random": (q, k, v, causal), "extreme": (q * large, k, v, causal), "all-masked": (q, k, v, blind)}


def main(folder: Path) -> None:
    rng = np.random.default_rng(0)
    metrics: dict[str, Metric] = {}
    passed: dict[str, bool] = {}
    for length in LENGTHS:
        for name, inputs in cases(length, rng).items():
            traffic = Traffic()
            error = float(np.abs(attention(*inputs, traffic) - reference(*inputs)).max())
            case = "tail" if length % BLOCK and name == "random" else name
            passed[case] = passed.get(case, True) and error <= TOLERANCE * max(1.0, float(np.abs(inputs[2]).max()))
            if name == "random":
                metrics[f"tile-bytes/s{length}"] = Metric(value=traffic.count, unit="B", direction="lower")
                metrics[f"tile-bytes-model/s{length}"] = Metric(value=tile_bytes(length), unit="B", direction="lower")
    evidence = Evidence(
        kind="kernel",
        subject=Subject(name="online-softmax-functional", digest="undeclared", format="float32", backend="numpy"),
        protocol={"head_dimension": D, "tile": BLOCK, "seed": 0},
        environment=capture(["numpy"]),
        provenance=Provenance(created=datetime.now(UTC)),
        metrics=metrics,
        attributes={
            **{f"contract.{case}": ok for case, ok in passed.items()},
            "command": "python functional.py FOLDER",
        },
    )
    print(f"{write_record(folder, evidence, None).digest[:12]}: {', '.join(f'{c} {ok}' for c, ok in passed.items())}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
