"""Fits the rates of `htp_v75` to published latencies and says how far off it is on models that it has not seen.

`python -m benchmarks.npu_calibration --data ../shared/data/npu/perf.csv` compiles the torchvision models of the table at each
precision that has a latency on Galaxy S24 with every layer on the NPU (runtime qnn_dlc, else tflite, else onnx), fits by least
squares on relative error, and fits again without each model in turn to predict it. The estimators that know one number of a
program (multiply-accumulates, DRAM bytes, VTCM bytes) are fitted the same way.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import spearmanr

from assay.npu_backend.codegen import Program
from assay.npu_backend.htp import PEAK_DRAM, Rates, Work, dump_rates, work_of
from assay.npu_backend.layers import LayerGraph
from assay.npu_backend.liveness import in_place
from assay.npu_backend.machine import Unit, macs_of
from assay.npu_backend.precision import with_precision
from assay.npu_backend.tiling import tile
from assay.npu_backend.timeline import Timeline
from assay.npu_backend.validation import VTCM_BYTES, validate
from benchmarks.npu_models import PUBLISHED, UNSEEN, Built, layer_graphs
from benchmarks.npu_scatter import scatter

DEVICE = "Samsung Galaxy S24"
RUNTIMES = ("qnn_dlc", "qnn_context_binary", "tflite", "onnx")
POLICY = {"float": "float16", "w8a8": "w8a8", "w8a16": "w8a16"}
"""Precision of the published table -> policy: floats run in 16 bits."""
START = Rates(fixed_ms=0.1, instruction_us=1.4, float_gmacs=8.0, int8_gmacs=22.5, vtcm_gbs=220.0, dram_gbs=60.0)
"""Where the fit starts: 45 TOPS, the effective bandwidths of the anchors' fit."""
PRIOR = 0.02
"""Weight of a prior at `START`, in relative error for each e-fold: it only decides what the data leave open."""
_LOW, _HIGH = 1 / 20, 20.0
"""Factors of `START` between which rates are looked for; DRAM ends at its peak."""


@dataclass(frozen=True)
class Row:
    """A published latency."""

    model: str
    precision: str
    latency_ms: float
    runtime: str

    @property
    def label(self) -> str:
        """Model and precision."""
        return f"{self.model} {self.precision}"


@dataclass(frozen=True)
class Load:
    """One program, ready to be timed at many rates."""

    timeline: Timeline
    units: list[int]
    amounts: np.ndarray
    """Instructions x (1 / DRAM rate, 1 / VTCM rate, 1 / float rate, 1 / int8 rate, start): what each one is charged by."""

    def milliseconds(self, rates: Rates) -> float:
        """Length of the program."""
        each = [1e-6 / rates.dram_gbs, 1e-6 / rates.vtcm_gbs, 1e-9 / rates.float_gmacs, 1e-9 / rates.int8_gmacs,
                rates.instruction_us / 1e3]  # fmt: skip
        durations = (self.amounts @ np.array(each)).tolist()
        _, stops = self.timeline.run(self.units, durations, 0.0, capacity=VTCM_BYTES, overlap=True)
        return max(stops, default=0.0)


@dataclass(frozen=True)
class Sample:
    """A row and its programs."""

    row: Row
    loads: tuple[Load, ...]
    macs: int
    dram_bytes: int
    vtcm_bytes: int

    def milliseconds(self, rates: Rates) -> float:
        """Estimated latency."""
        return rates.fixed_ms + sum(load.milliseconds(rates) for load in self.loads)


def published(path: Path) -> list[Row]:
    """Rows of the table that can be compared: on the device, every layer on the NPU, one runtime for each precision."""
    found: dict[tuple[str, str], Row] = {}
    for entry in csv.DictReader(path.open()):
        name = entry["model"] + {"HfWhisperEncoder": "_encoder", "HfWhisperDecoder": "_decoder"}.get(
            entry["component"], ""
        )
        key, runtime = (name, entry["precision"]), entry["runtime"]
        whole = entry["layers_npu"] == entry["layers_total"] and entry["layers_npu"] not in ("", "0")
        if entry["device"] != DEVICE or not whole or not entry["latency_ms"] or runtime not in RUNTIMES:
            continue
        known = found.get(key)
        if entry["precision"] in POLICY and (known is None or RUNTIMES.index(runtime) < RUNTIMES.index(known.runtime)):
            found[key] = Row(name, entry["precision"], float(entry["latency_ms"]), runtime)
    return list(found.values())


def load_of(program: Program) -> Load:
    """A program ready to be timed."""
    timeline = Timeline(program, validate(program))
    order = {unit: number for number, unit in enumerate(Unit)}
    works = [
        Work(Unit.VECTOR) if in_place(i, program.tensors) else work_of(i, program.tensors) for i in program.instructions
    ]
    amounts = [(w.dram_bytes, w.vtcm_bytes, w.float_macs, w.int8_macs, w.starts) for w in works]
    return Load(timeline, [order[work.unit] for work in works], np.array(amounts, float).reshape(-1, 5))


def sample_of(row: Row, graphs: Iterable[LayerGraph]) -> Sample:
    """A row with its programs under the row's precision."""
    programs = [tile(with_precision(graph, POLICY[row.precision])) for graph in graphs]
    loads = tuple(load_of(program) for program in programs)
    macs = sum(macs_of(i, program.tensors) for program in programs for i in program.instructions)
    dram, vtcm = (sum(int(load.amounts[:, column].sum()) for load in loads) for column in (0, 1))
    return Sample(row, loads, macs, dram, vtcm)


def fit(samples: Sequence[Sample], start: Rates = START, steps: int = 15) -> Rates:
    """Rates that minimise relative error, with a soft knee at 20% so that no model alone decides."""
    names = list(vars(START))
    center = np.log([getattr(START, name) for name in names])
    high = center + np.log(_HIGH)
    high[names.index("dram_gbs")] = np.log(PEAK_DRAM)
    truth = np.array([sample.row.latency_ms for sample in samples])

    def rates(x: np.ndarray) -> Rates:
        return Rates(**dict(zip(names, np.exp(x).tolist(), strict=True)))

    def errors(x: np.ndarray) -> np.ndarray:
        made = rates(x)
        found = np.array([sample.milliseconds(made) for sample in samples])
        return np.concatenate([found / truth - 1, PRIOR * (x - center)])

    begin = np.log([getattr(start, name) for name in names])
    begin = np.clip(begin, center + np.log(_LOW) + 1e-9, high - 1e-9)
    solved = least_squares(
        errors, begin, bounds=(center + np.log(_LOW), high), loss="soft_l1", f_scale=0.2, diff_step=0.02, max_nfev=steps
    )
    return rates(solved.x)


def leave_one_out(samples: Sequence[Sample], whole: Rates) -> list[float]:
    """Estimates of each sample by a fit that has seen no precision of its model."""
    found: dict[int, float] = {}
    for model in dict.fromkeys(sample.row.model for sample in samples):
        rates = fit([s for s in samples if s.row.model != model], whole, steps=6)
        found |= {place: s.milliseconds(rates) for place, s in enumerate(samples) if s.row.model == model}
    return [found[place] for place in range(len(samples))]


def by_one_number(samples: Sequence[Sample], number: Callable[[Sample], float]) -> list[float]:
    """Estimates by intercept + slope x number, fitted to relative error without the sample's model."""
    x = np.array([number(sample) for sample in samples])
    y = np.array([sample.row.latency_ms for sample in samples])
    found = np.zeros(len(y))
    for model in dict.fromkeys(sample.row.model for sample in samples):
        out = np.array([sample.row.model == model for sample in samples])
        columns = np.stack([np.ones_like(x), x / x.max()], 1)
        weights, *_ = np.linalg.lstsq(columns[~out] / y[~out, None], np.ones((~out).sum()), rcond=None)
        found[out] = columns[out] @ weights
    return [float(value) for value in found]


def quality(samples: Sequence[Sample], estimates: Sequence[float]) -> dict[str, float]:
    """Mean and median absolute relative error in percent, and Spearman's rank correlation."""
    y = np.array([sample.row.latency_ms for sample in samples])
    error = np.abs(np.array(estimates) / y - 1)
    rank = float(spearmanr(estimates, y)[0])
    return {"mape": round(100 * float(error.mean()), 1), "median": round(100 * float(np.median(error)), 1),
            "spearman": round(rank, 3)}  # fmt: skip


def collect(rows: Sequence[Row], models: dict[str, Callable[[], Built]]) -> list[Sample]:
    """Samples of the rows whose model is known, each model compiled once."""
    samples = []
    for name, build in models.items():
        mine = [row for row in rows if row.model == name]
        if not mine:
            continue
        begin = time.perf_counter()
        graphs = layer_graphs(*build())
        samples += [sample_of(row, graphs) for row in mine]
        print(f"{name}: {len(mine)} rows, {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    return samples


def calibrate(samples: Sequence[Sample], unseen: Sequence[Sample]) -> tuple[Rates, dict[str, Any]]:
    """The rates, and what the page shows."""
    rates = Rates(**json.loads(dump_rates(fit(samples))))
    held_out = leave_one_out(samples, rates)
    estimators = {
        "htp_v75": held_out,
        "VTCM bytes": by_one_number(samples, lambda s: s.vtcm_bytes),
        "DRAM bytes": by_one_number(samples, lambda s: s.dram_bytes),
        "MACs": by_one_number(samples, lambda s: s.macs),
    }
    rows = [
        {"model": s.row.model, "precision": s.row.precision, "runtime": s.row.runtime, "published_ms": s.row.latency_ms,
         "held_out_ms": round(out, 3), "fitted_ms": round(s.milliseconds(rates), 3),
         "error_percent": round(100 * (out / s.row.latency_ms - 1), 1)}
        for s, out in zip(samples, held_out, strict=True)
    ]  # fmt: skip
    later = [
        {"model": s.row.model, "precision": s.row.precision, "runtime": s.row.runtime, "published_ms": s.row.latency_ms,
         "estimated_ms": round(s.milliseconds(rates), 3),
         "error_percent": round(100 * (s.milliseconds(rates) / s.row.latency_ms - 1), 1)}
        for s in unseen
    ]  # fmt: skip
    return rates, {
        "device": DEVICE,
        "rates": json.loads(dump_rates(rates)),
        "held_out": {name: quality(samples, found) for name, found in estimators.items()},
        "in_sample": quality(samples, [s.milliseconds(rates) for s in samples]),
        "rows": rows,
        "unseen": later,
    }


def table(result: dict[str, Any]) -> str:
    """The results as Markdown."""
    quality_, rows, later = result["held_out"], result["rows"], result["unseen"]
    lines = ["# `htp_v75` against published latencies", "",
             f"{DEVICE}, each model estimated by a fit that has not seen it. `make npu-calibrate` writes this page.", "",
             "| estimator | MAPE | median error | Spearman |", "|---|---|---|---|"]  # fmt: skip
    lines += [f"| {name} | {q['mape']}% | {q['median']}% | {q['spearman']} |" for name, q in quality_.items()]
    lines += ["", "| model | precision | published ms | estimated ms | error |", "|---|---|---|---|---|"]
    lines += [
        f"| {r['model']} | {r['precision']} | {r['published_ms']} | {r['held_out_ms']} | {r['error_percent']:+}% |"
        for r in rows
    ]
    if later:
        lines += ["", "Models of other kinds, by the rates that are shipped, none of which took part in the fit:", "",
                  "| model | precision | published ms | estimated ms | error |", "|---|---|---|---|---|"]  # fmt: skip
        lines += [
            f"| {r['model']} | {r['precision']} | {r['published_ms']} | {r['estimated_ms']} | {r['error_percent']:+}% |"
            for r in later
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes the coefficients and the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="perf.csv")
    parser.add_argument("--rates", type=Path, default=Path("npu_backend/htp_v75.json"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/npu"))
    parser.add_argument("--seen-alone", action="store_true", help="leave out the models of other kinds")
    chosen = parser.parse_args()
    rows = published(chosen.data)
    samples = collect(rows, PUBLISHED)
    rates, result = calibrate(samples, [] if chosen.seen_alone else collect(rows, UNSEEN))
    chosen.out.mkdir(parents=True, exist_ok=True)
    chosen.rates.write_text(dump_rates(rates))
    (chosen.out / "calibration.json").write_text(json.dumps(result, indent=1) + "\n")
    (chosen.out / "calibration.md").write_text(table(result))
    (chosen.out / "calibration.svg").write_text(scatter(result["rows"]))
    print(table(result))


if __name__ == "__main__":
    main()
