"""Results of the suite as evidence of kind `kernel`: one record for each kernel and each peer."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from assay.baselines.environment import capture
from assay.baselines.evidence import Environment, Evidence, Metric, Provenance, Scalar, Subject
from assay.baselines.kernel import CONTRACT, KIND, LATENCY, SCHEMA
from assay.baselines.record import write_record
from assay.kernels.cuda.program import FOLDER
from assay.kernels.suite.contenders import COPY, OURS
from assay.kernels.suite.declarations import CONTRACT as CONTRACT_FILE
from assay.kernels.suite.timing import ratio

LIBRARIES = ("torch", "triton", "numpy", "nvidia-cudnn-cu13", "cuda-bindings", "nvidia-cuda-nvrtc")


def write_records(results: Mapping[str, Any], folder: Path, *, environment: Environment | None = None) -> int:
    """Writes one record for each kernel and contender; returns how many."""
    where = environment or capture(LIBRARIES)
    written = 0
    for (name, contender), cases in sorted(_grouped(results).items()):
        subject = name if contender == OURS else f"{name}-{contender}"
        evidence = Evidence(
            kind=KIND,
            subject=Subject(
                name=subject, digest=_digest() if contender == OURS else "undeclared", format="", backend="cuda"
            ),
            protocol={
                "harness": "assay.kernels.suite 1",
                "timer": "CUDA events around single launches, interleaved in random order",
                "contract": hashlib.sha256(CONTRACT_FILE.read_bytes()).hexdigest(),
            },
            environment=where,
            provenance=Provenance(created=datetime.now(UTC)),
            metrics=_metrics(results, name, contender, cases),
            attributes=_attributes(results, name, contender, cases),
        )
        write_record(folder / subject, evidence, _table(cases, contender))
        written += 1
    return written


def losing(results: Mapping[str, Any], name: str) -> list[str]:
    """Cases on which some peer is faster with its whole 95% interval, as `case (+x% against peer)`."""
    lost = []
    for case in _cases(results):
        if case["name"] != name:
            continue
        for peer, seconds in case["seconds"].items():
            if peer in (OURS, COPY) or OURS not in case["seconds"]:
                continue
            against = ratio(case["seconds"][OURS], seconds)
            if against.low > 1.0:
                lost.append(f"{case['case']} (+{100 * (against.value - 1):.1f}% against {peer})")
    return lost


def _cases(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*results.get("rowwise", []), *results.get("attention", []), *results.get("backward", [])]


def _grouped(results: Mapping[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for case in _cases(results):
        for contender in case["seconds"]:
            if contender != COPY:
                found[case["name"], contender].append(case)
    return found


def _metrics(results: Mapping[str, Any], name: str, contender: str, cases: list[dict[str, Any]]) -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    bandwidth, operations = results["ceilings"]["copy"], results["ceilings"]["matmul"]
    for case in cases:
        label, times = case["case"], np.asarray(case["seconds"][contender])
        middle, (low, high) = float(np.median(times)), np.quantile(times, [0.025, 0.975])
        found[f"{LATENCY}{label}"] = Metric(
            value=1e6 * middle, unit="us", direction="lower", low=1e6 * float(low), high=1e6 * float(high),
            n=len(times), primary=True,
        )  # fmt: skip
        found[f"model-bytes/{label}"] = Metric(value=case["bytes"], unit="B", direction="lower")
        found[f"model-flops/{label}"] = Metric(value=case["flops"], unit="FLOP", direction="lower")
        found[f"bandwidth/{label}"] = Metric(value=case["bytes"] / middle / 1e9, unit="GB/s")
        found[f"throughput/{label}"] = Metric(value=case["flops"] / middle / 1e12, unit="TFLOP/s")
        floor = max(case["bytes"] / bandwidth, case["flops"] / operations if "attention" in name else 0.0)
        found[f"roofline/{label}"] = Metric(value=floor / middle, unit="proportion")
        if contender == OURS and COPY in case["seconds"]:
            copy = case["copy_bytes"] / np.median(case["seconds"][COPY])
            found[f"share-of-copy/{label}"] = Metric(value=float(case["bytes"] / middle / copy), unit="proportion")
    for item in results.get("traffic", []):
        if item["name"] == name and contender == OURS and item["measured"] is not None:
            found[f"traffic/{item['case']}"] = Metric(value=item["measured"] / 1e6, unit="MB", direction="lower")
            found[f"traffic-model/{item['case']}"] = Metric(value=item["predicted"] / 1e6, unit="MB", direction="lower")
    return found


def _attributes(
    results: Mapping[str, Any], name: str, contender: str, cases: list[dict[str, Any]]
) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {"command": results["command"], "contender": contender}
    if contender == OURS:
        for result in results.get("contract", {}).get(name, []):
            found[CONTRACT + result["case"]] = bool(result["passed"])
        lost = losing(results, name)
        # Names alone, separated by commas, as the milestones read them; by how much stands beside them.
        found["losing_regions"] = ", ".join(dict.fromkeys(entry.split(" ")[0] for entry in lost)) or "none"
        found["losing_detail"] = "; ".join(lost)[:4000]
        for code in results.get("machine-code", []):
            if code["kernel"].split(",")[0] == name:
                place = code["kernel"].replace(", ", ".")
                found |= {f"sass.{place}.{key}": value for key, value in code.items() if isinstance(value, int)}
    else:
        launched = sorted({kernel for case in cases for kernel in case.get("kernels", {}).get(contender, [])})
        if launched:
            found["launched"] = "; ".join(launched)[:4000]
    return found


def _table(cases: list[dict[str, Any]], contender: str) -> pa.Table:
    rows = [
        {
            "case": case["case"],
            "block": block,
            "round": 0,
            "arm": "head",
            "position": 0,
            "seconds": seconds,
            "launches": 1,
            "wall": seconds,
            "clock_mhz": None,
            "throttled": None,
        }
        for case in cases
        for block, seconds in enumerate(case["seconds"][contender])
    ]
    return pa.table({field.name: pa.array([row[field.name] for row in rows], field.type) for field in SCHEMA}, SCHEMA)


def _digest() -> str:
    """Digest of the kernels' sources."""
    folder = FOLDER.parent
    sources = sorted([*folder.glob("cuda/*.cu"), *folder.glob("*/*.py")])
    return "sha256:" + hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
