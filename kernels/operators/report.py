"""The operators' evidence as a page, and as records of kind `kernel`."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from assay.baselines.environment import capture
from assay.baselines.evidence import Environment, Evidence, Metric, Provenance, Scalar, Subject
from assay.baselines.kernel import CONTRACT, KIND, LATENCY
from assay.baselines.record import write_record
from assay.kernels.bench.evidence import LIBRARIES, table
from assay.kernels.bench.timed import Row
from assay.kernels.operators.evidence import FRAMEWORK, KERNEL, OPERATOR, Proven
from assay.kernels.operators.library import SCHEMAS

HARNESS = "assay.kernels.operators.evidence 1"


def markdown(found: Sequence[Proven]) -> str:
    """What was found, operator by operator."""
    lines = [
        "| operator | contract | opcheck | graph breaks | recompiled | dispatch, µs | first use, ms | share of the graph | gain of the graph |",
        "|---|---|---|---:|---|---:|---:|---:|---:|",
    ]
    for one in found:
        failed = [case for case, why in one.contract.items() if why]
        passed = f"{len(one.contract)} cases" if not failed else f"failed: {', '.join(failed)}"
        lines.append(
            f"| `assay::{one.name}` | {passed} | {one.contract['opcheck'] or 'passed'} | {one.graph_breaks} | "
            f"{one.recompiled or 'no'} | {one.dispatch_us:.1f} | {one.first_use_ms:.1f} | "
            f"{100 * one.graph_share:.0f}% | {one.graph_gain_percent:+.1f}% |"
        )
    for one in found:
        lines += [
            "",
            f"### assay::{one.name} on {one.device}",
            "",
            "| case | kernel, µs | operator, µs | framework, µs |",
        ]
        lines.append("|---|---:|---:|---:|")
        for case, times in one.seconds.items():
            cells = " | ".join(f"{1e6 * statistics.median(times[who]):,.1f}" for who in (KERNEL, OPERATOR, FRAMEWORK))
            lines.append(f"| {case} | {cells} |")
        lines += ["", "Dispatch log of the contract:", ""]
        lines += [f"- {case}: {'; '.join(paths)}" for case, paths in one.paths.items()]
        lines += ["", "The captured graph:", "", "```python", one.graph, "```"]
    return "\n".join(lines)


def write_records(found: Sequence[Proven], folder: Path, *, environment: Environment | None = None) -> int:
    """Three records for each operator: registered, the same kernel called directly, and the framework's own operator.

    The first two differ in the flag `registered` alone, which is the ablation. Returns how many were written.
    """
    where = environment or capture(LIBRARIES)
    when = datetime.now(UTC)
    for one in found:
        label = one.name.replace("_", "-")
        for subject, who, folder_name in (
            (f"{label}-operator", OPERATOR, f"{label}-operator"),
            (f"{label}-operator", KERNEL, f"{label}-direct"),
            (f"framework-{label}", FRAMEWORK, f"framework-{label}"),
        ):
            evidence = Evidence(
                kind=KIND,
                subject=Subject(
                    name=subject,
                    digest="undeclared" if who == FRAMEWORK else _digest(),
                    backend=one.device.partition(":")[0],
                    configuration={} if who == FRAMEWORK else {"registered": who == OPERATOR},
                ),
                protocol={
                    "harness": HARNESS,
                    "device": one.device.partition(":")[0],
                    "timer": "host clock around rounds of calls, contenders in random order, one thread",
                    "mode": "torch.inference_mode",
                    "compiler": one.compiler,
                    "graph": one.graph_case,
                },
                environment=where,
                provenance=Provenance(created=when),
                metrics=_metrics(one, who),
                attributes=_attributes(one, who),
            )
            rows = [
                Row(case, number, 0, "head", 0, seconds, 1, seconds, None, None)
                for case, times in one.seconds.items()
                for number, seconds in enumerate(times[who])
            ]
            write_record(folder / folder_name, evidence, table(rows))
    return 3 * len(found)


def _metrics(one: Proven, who: str) -> dict[str, Metric]:
    found = {
        f"{LATENCY}{case}": Metric(
            value=1e6 * statistics.median(times[who]), unit="us", direction="lower", n=len(times[who]), primary=True
        )
        for case, times in one.seconds.items()
    }
    if who == FRAMEWORK:
        found["graph-share"] = Metric(value=one.graph_share, unit="proportion")
    if who == OPERATOR:
        found |= {
            "dispatch": Metric(value=one.dispatch_us, unit="us", direction="lower"),
            "graph-breaks": Metric(value=float(one.graph_breaks), direction="lower"),
            "graph-gain-percent": Metric(value=one.graph_gain_percent, unit="%"),
            "first-use": Metric(value=one.first_use_ms, unit="ms", direction="lower"),
        }
    return found


def _attributes(one: Proven, who: str) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {
        "command": f"python -m assay.kernels.operators.evidence --device {one.device} --out DIR"
    }
    if who == FRAMEWORK:
        return found
    found["losing_regions"] = ", ".join(one.losing(who)) or "none"
    for case, why in one.contract.items():
        found[CONTRACT + case] = not why
        if why:
            found[f"contract-reason.{case}"] = why[:300]
    if who == OPERATOR:
        names = [name for name in SCHEMAS if name.removeprefix("add_") == one.name]
        found |= {
            "operator.schema": "; ".join(name + SCHEMAS[name] for name in names),
            "operator.opcheck": one.contract["opcheck"] or "passed",
            "operator.graph_breaks": one.graph_breaks,
            "operator.recompiled": one.recompiled or "no",
        }
        found |= {f"operator.dispatch.{case}": "; ".join(paths)[:4000] for case, paths in one.paths.items()}
    return found


def _digest() -> str:
    """Digest of the operators' and kernels' sources."""
    folder = Path(__file__).parents[1]
    sources = sorted(
        [
            *folder.glob("operators/*.py"),
            *folder.glob("rowwise/*.py"),
            *folder.glob("attention/*.py"),
            *folder.glob("cuda/*.cu"),
        ]
    )
    return "sha256:" + hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
