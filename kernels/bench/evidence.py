"""From a lease to evidence of kind `kernel`: one record for the head, one for the base with its control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from assay.baselines.checkout import UNCOMMITTED
from assay.baselines.environment import capture
from assay.baselines.evidence import Environment, Evidence, Metric, Provenance, Scalar, Subject
from assay.baselines.kernel import CONTRACT, KIND, LATENCY, LEASE, NORM, REFUSED, SCHEMA, STANDS_STILL
from assay.baselines.record import Record
from assay.baselines.stats.speed import FEWEST_BLOCKS, median_interval, paired_change
from assay.kernels.bench.order import BASE, CONTROL, HEAD
from assay.kernels.bench.rotation import CACHES
from assay.kernels.bench.timed import Checkout, Lease, Row, Timed

HARNESS = "assay bench 1"
LIBRARIES = ("torch", "triton", "numpy", "nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13")


def records(
    lease: Lease,
    *,
    commits: Mapping[str, str | None],
    command: str,
    run_id: int | None = None,
    attempt: int | None = None,
    environment: Environment | None = None,
    created: datetime | None = None,
    changed: Mapping[str, int] | None = None,
) -> tuple[Record, Record | None]:
    """(head, base) as they are written; base is None when nothing was compared.

    `commits` maps `head` and `base` to the commits that were measured, and `changed` to how many files lay otherwise than in
    them. `command` repeats the measurement.
    """
    where = environment or capture(LIBRARIES)
    when = created or datetime.now(UTC)
    made = []
    for arm in (HEAD, BASE) if BASE in lease.checkouts else (HEAD,):
        arms = [arm, CONTROL] if arm == BASE or BASE not in lease.checkouts else [arm]
        rows = [row for timed in lease.timed.values() for row in timed.rows if row.arm in arms]
        evidence = Evidence(
            kind=KIND,
            subject=_subject(lease, lease.checkouts[arm]),
            protocol=_protocol(lease, lease.checkouts[arm]),
            environment=where,
            provenance=Provenance(commit=commits.get(arm), run_id=run_id, attempt=attempt, created=when),
            metrics=_metrics(lease, arm),
            attributes=_attributes(lease, arm, command)
            | ({UNCOMMITTED: changed[arm]} if changed is not None and changed.get(arm) else {}),
        )
        made.append(Record(evidence, table(rows)))
    return made[0], made[1] if len(made) > 1 else None


def table(rows: Sequence[Row]) -> pa.Table:
    """Rows as they are kept."""
    columns = {name: [getattr(row, name) for row in rows] for name in SCHEMA.names}
    return pa.table({f.name: pa.array(columns[f.name], type=f.type) for f in SCHEMA}, schema=SCHEMA)


def _subject(lease: Lease, checkout: Checkout) -> Subject:
    kernels = list(checkout.described)
    configuration: dict[str, Scalar] = {}
    for kernel, described in checkout.described.items():
        for flag, value in described["configuration"].items():
            configuration[f"{kernel}.{flag}" if lease.several else flag] = value
    dtypes = sorted({c["dtype"] for d in checkout.described.values() for c in d["cases"].values()})
    return Subject(
        name=kernels[0] if len(kernels) == 1 else lease.plan.file.stem,
        digest=checkout.source or "undeclared",
        format=", ".join(dtypes),
        backend="triton interpreter" if lease.plan.interpret else lease.plan.device.partition(":")[0],
        configuration=configuration,
    )


def _protocol(lease: Lease, checkout: Checkout) -> dict[str, Scalar]:
    facts: dict[str, Scalar] = {
        "harness": HARNESS,
        "device": lease.plan.device.partition(":")[0],
        "timer": lease.timer,
        "interpreter": lease.plan.interpret,
        "rotation": f"input sets over {CACHES} times the last-level cache, within {lease.plan.memory} bytes",
    }
    for label, case in _cases(lease, checkout):
        for fact in ("parameters", "tolerance", "inputs"):
            facts[f"task.{label}.{fact}"] = case[fact]
    return facts


def _cases(lease: Lease, checkout: Checkout) -> list[tuple[str, dict[str, Any]]]:
    return [
        (lease.label(kernel, case), facts)
        for kernel, described in checkout.described.items()
        for case, facts in described["cases"].items()
    ]


def _metrics(lease: Lease, arm: str) -> dict[str, Metric]:
    checkout = lease.checkouts[arm]
    found = {
        "import": _cost(checkout.import_seconds, "s"),
        "setup": _cost(checkout.setup_seconds, "s"),
    }
    for label, case in _cases(lease, checkout):
        found[f"model-bytes/{label}"] = _cost(case["bytes"], "B")
        found[f"model-flops/{label}"] = _cost(case["flops"], "FLOP")
        if label in checkout.first_seconds:
            found[f"first-use/{label}"] = _cost(1e3 * checkout.first_seconds[label], "ms")
        timed = lease.timed.get(label)
        if timed is not None and arm not in timed.faults:
            found |= _times(timed, arm, float(case["bytes"]), float(case["flops"]))
    for kernel, results in checkout.contract.items():
        for case_name, _, relative, largest, _ in results:
            label = lease.label(kernel, case_name)
            if relative == relative and relative != float("inf"):
                found[f"contract-error/{label}"] = _cost(float(relative), "")
                found[f"contract-largest/{label}"] = _cost(float(largest), "")
    return found


def _times(timed: Timed, arm: str, moved: float, flops: float) -> dict[str, Metric]:
    seconds = timed.seconds(arm)
    if len(seconds) < FEWEST_BLOCKS:
        return {}
    middle, low, high = median_interval(seconds)
    label = timed.label
    found = {
        f"{LATENCY}{label}": Metric(
            value=1e6 * middle,
            unit="us",
            direction="lower",
            low=1e6 * low,
            high=1e6 * high,
            n=len(seconds),
            primary=True,
        ),
        f"bandwidth/{label}": Metric(
            value=moved / middle / 1e9, unit="GB/s", low=moved / high / 1e9, high=moved / low / 1e9
        ),
    }
    if flops:
        found[f"throughput/{label}"] = Metric(value=flops / middle / 1e12, unit="TFLOP/s")
    if timed.roofline is not None:
        found[f"roofline/{label}"] = Metric(value=timed.roofline.floor(moved, flops) / middle, unit="proportion")
        found[f"ceiling-bandwidth/{label}"] = Metric(value=timed.roofline.bandwidth / 1e9, unit="GB/s")
        if timed.roofline.operations is not None:
            found[f"ceiling-operations/{label}"] = Metric(value=timed.roofline.operations / 1e12, unit="TFLOP/s")
    if timed.graph:
        found[f"eager/{label}"] = _cost(1e6 * timed.eager[arm], "us")
        found[f"launch-overhead/{label}"] = _cost(1e6 * max(0.0, timed.eager[arm] - middle), "us")
    return found


def _cost(value: float, unit: str) -> Metric:
    return Metric(value=value, unit=unit, direction="lower")


def _attributes(lease: Lease, arm: str, command: str) -> dict[str, Scalar]:
    plan, checkout = lease.plan, lease.checkouts[arm]
    found: dict[str, Scalar] = {
        "command": command,
        "blocks": plan.blocks,
        "rounds": plan.rounds,
        "margin_percent": 100 * plan.margin,
        "order_seed": plan.seed,
        "arms": ", ".join(lease.checkouts),
        "clocks": "read by NVML" if lease.clocks else "not available",
        STANDS_STILL: lease.stands_still,
    }
    if BASE in lease.checkouts:
        found[LEASE] = lease.id
        found["supplement"] = arm == BASE
    for kernel, results in checkout.contract.items():
        for case, passed, _, _, reason in results:
            label = lease.label(kernel, case)
            found[CONTRACT + label] = bool(passed)
            if reason:
                found[f"contract-reason.{label}"] = str(reason)[:300]
    for label, norm in checkout.norms.items():
        found[NORM + label] = norm
    for label, timed in lease.timed.items():
        if timed.launches:
            found[f"launches.{label}"] = timed.launches
            found[f"graph.{label}"] = timed.graph
        fault = timed.faults.get(arm) or (
            timed.faults.get(CONTROL) if arm != HEAD or BASE not in lease.checkouts else None
        )
        if fault is not None:
            found[REFUSED + label] = fault.code
            found[f"refused-detail.{label}"] = fault.detail[:300]
    if arm == HEAD and BASE in lease.checkouts:
        found["losing_regions"] = ", ".join(_losing(lease)) or "none"
    return found


def _losing(lease: Lease) -> list[str]:
    """Cases on which the head is shown to be slower at all."""
    lost = []
    for label, timed in lease.timed.items():
        base, head = timed.seconds(BASE), timed.seconds(HEAD)
        if not timed.faults and len(base) == len(head) >= FEWEST_BLOCKS and paired_change(base, head).low > 0:
            lost.append(label)
    return lost
