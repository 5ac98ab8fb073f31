"""Every state of a kernel's section, as snapshots with real records: only the times are planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from assay.baselines.evidence import Environment, Evidence, Metric, Provenance, Subject
from assay.baselines.kernel import SCHEMA
from assay.baselines.record import Record
from assay.baselines.stats.speed import median_interval
from assay.bot.snapshot import BaselineFacts
from tests.evidence import CREATED
from tests.states import BASE, HEAD, HOSTILE, NOW, RUN, Scene, scene, stored

BLOCKS = 60
LEASE = "5d1f0c9e8b7a46d3a2c1b0f9e8d7c6b5"
TIMES = {"c1024": 31.4e-6, "c4096": 118.0e-6, "c131072": 3.9e-3}


def times(case: str, ratio: float, noise: float, blocks: int, arm: str) -> np.ndarray[Any, Any]:
    """Seconds of an arm's blocks: what disturbs a block disturbs every arm alike, and a little noise is its own."""
    shared = np.random.default_rng([len(case), 1]).normal(0, 0.02, blocks)
    own = np.random.default_rng([len(case), *arm.encode()]).normal(0, noise, blocks)
    own -= np.median(own)
    return TIMES.get(case, 50e-6) * ratio * np.exp(shared + own)


def record(
    arm: str,
    ratios: Mapping[str, float],
    *,
    noise: float = 0.004,
    blocks: int = BLOCKS,
    control: float = 1.0,
    lease: str | None = LEASE,
    contract: Mapping[str, str] | None = None,
    refused: Mapping[str, str] | None = None,
    attributes: Mapping[str, Any] | None = None,
    protocol: Mapping[str, Any] | None = None,
    untimed: bool = False,
    name: str = "row-softmax",
    throttled: int = 0,
) -> Record:
    """Evidence of one arm. `ratios`: case -> its time in units of main's; `contract`: case -> why it fails."""
    columns: dict[str, list[Any]] = {field.name: [] for field in SCHEMA}
    metrics: dict[str, Metric] = {}
    for case, ratio in ratios.items():
        metrics[f"model-bytes/{case}"] = Metric(value=1e8, unit="B", direction="lower")
        if untimed or case in (refused or {}):
            continue
        arms = {arm: ratio} | ({"control": ratio * control} if arm == "base" else {})
        for who, factor in arms.items():
            for block, seconds in enumerate(times(case, factor, noise, blocks, who)):
                row = (
                    case,
                    block,
                    2 * block // blocks,
                    who,
                    0,
                    float(seconds),
                    10,
                    11 * float(seconds),
                    1755.0,
                    block < throttled,
                )
                for column, value in zip(SCHEMA.names, row, strict=True):
                    columns[column].append(value)
        middle, low, high = (1e6 * x for x in median_interval(times(case, ratio, noise, blocks, arm)))
        metrics[f"latency/{case}"] = Metric(
            value=middle, unit="us", direction="lower", low=low, high=high, n=blocks, primary=True
        )
        metrics[f"bandwidth/{case}"] = Metric(value=1e8 / middle / 1e3, unit="GB/s")
        metrics[f"roofline/{case}"] = Metric(value=0.84, unit="proportion")
        metrics[f"launch-overhead/{case}"] = Metric(value=4.2, unit="us", direction="lower")
        metrics[f"first-use/{case}"] = Metric(value=812.0, unit="ms", direction="lower")
    facts: dict[str, Any] = {
        "blocks": blocks,
        "rounds": 2,
        "margin_percent": 2.0,
        "order_seed": 0,
        "clocks": "read by NVML",
    }
    facts |= {f"contract.{case}": case not in (contract or {}) for case in [*ratios, "tail"]}
    facts |= {f"contract-reason.{case}": why for case, why in (contract or {}).items()}
    facts |= {f"refused.{case}": code for case, code in (refused or {}).items()}
    facts |= {f"norm.{case}": 64.25 for case in ratios}
    if lease is not None:
        facts |= {"lease": lease, "supplement": arm == "base"}
    evidence = Evidence(
        kind="kernel",
        subject=Subject(name=name, digest=f"sha256:{arm}", format="bfloat16", backend="cuda"),
        protocol={
            "harness": "assay bench 1",
            "timer": "cuda-event",
            **{f"task.{case}.inputs": f"{len(case):016x}" for case in ratios},
            **(protocol or {}),
        },
        environment=Environment(
            hardware="NVIDIA H200",
            driver="NVIDIA 580.65",
            system="Linux",
            python="3.12",
            libraries={"torch": "2.11.0", "triton": "3.6.0"},
        ),
        provenance=Provenance(commit=HEAD if arm == "head" else BASE, run_id=RUN, attempt=1, created=CREATED),
        metrics=metrics,
        attributes={**facts, **(attributes or {})},
    )
    return Record(evidence, pa.table({f.name: pa.array(columns[f.name], type=f.type) for f in SCHEMA}, schema=SCHEMA))


def beside(head: Record, base: Record, **options: Any) -> Scene:
    """A run that left both sides of one lease."""
    made = scene(head, None, **options)
    kept = stored(base)
    [run] = made.snapshot.measurements
    run = run.model_copy(update={"supplements": (kept.digest,), "workflow": "assay bench"})
    return Scene(made.snapshot.model_copy(update={"measurements": (run,)}), {**made.records, kept.digest: kept})


def published(head: Record, base: Record | None) -> Scene:
    """A run that measured the head alone, and perhaps a baseline of another lease."""
    made = scene(head, None)
    if base is None:
        return made
    kept = stored(base)
    facts = BaselineFacts(
        kind="kernel",
        tag=f"baseline/main/{BASE[:12]}/kernel/{kept.digest[:12]}",
        digest=kept.digest,
        commit=BASE,
        distance=2,
        created=NOW - timedelta(days=1.3),
    )
    return Scene(made.snapshot.model_copy(update={"baselines": (facts,)}), {**made.records, kept.digest: kept})


EVEN = {"c1024": 1.0, "c4096": 1.0, "c131072": 1.0}


def pair(ratios: Mapping[str, float], *, base: Mapping[str, Any] | None = None, **options: Any) -> Sequence[Record]:
    """(head, base) of one lease."""
    return record("head", {**EVEN, **ratios}, **options), record("base", EVEN, **(base or {}))


STATES: dict[str, Callable[[], Scene]] = {
    "faster": lambda: beside(*pair({"c1024": 0.71, "c4096": 0.83})),
    "same": lambda: beside(*pair({})),
    "slower": lambda: beside(*pair({"c4096": 1.061, "c1024": 0.9}), policy="commands:\n  offer: true\n"),
    "ambiguous": lambda: beside(*pair({"c4096": 1.012}, noise=0.05, base={"noise": 0.05})),
    "void": lambda: beside(*pair({"c4096": 1.08}, base={"control": 1.05})),
    "contract-failed": lambda: beside(
        *pair(
            {},
            untimed=True,
            contract={"tail": "3 of 183 elements are NaN on one side alone (perhaps not written)"},
            base={"untimed": True},
        )
    ),
    "contract-failed-on-main-too": lambda: beside(
        *pair(
            {}, untimed=True, contract={"tail": "it raised"}, base={"untimed": True, "contract": {"tail": "it raised"}}
        )
    ),
    "cheat": lambda: beside(*pair({}, refused={"c1024": "wrong-output", "c4096": "clock"})),
    "base-refused": lambda: beside(*pair({}, base={"refused": {"c1024": "roofline"}})),
    "contract-only": lambda: beside(
        *pair(
            {}, untimed=True, protocol={"interpreter": True}, base={"untimed": True, "protocol": {"interpreter": True}}
        )
    ),
    "no-baseline": lambda: published(record("head", EVEN, lease=None), None),
    "two-leases": lambda: published(
        record("head", {**EVEN, "c4096": 1.3}, lease=None),
        record("head", EVEN, lease=None, attributes={"order_seed": 1}),
    ),
    "mismatch": lambda: beside(*pair({}, base={"protocol": {"task.c1024.inputs": "0" * 16}})),
    "another-reference": lambda: beside(*pair({}, attributes={"norm.c4096": 64.5})),
    "accepted": lambda: beside(
        *pair({"c4096": 1.061}),
        policy="gate:\n  accepted:\n"
        '    - {task: c4096, metric: latency, reason: "needed for 131,072 columns", by: "@octocat", expires: 2027-01-31}\n',
    ),
    "accepted-too-little": lambda: beside(
        *pair({"c4096": 1.061}),
        policy="gate:\n  accepted:\n"
        '    - {task: c4096, metric: latency, reason: "a little slower", by: "@octocat", up-to: 4, expires: 2027-01-31}\n',
    ),
    "policy-margin": lambda: beside(*pair({"c4096": 1.061}), policy="gate:\n  speed: {threshold: 5, margin: 10}\n"),
    "throttled": lambda: beside(*pair({}, throttled=7)),
    "not-stopped": lambda: beside(*pair({}, attributes={"arms_stand_still": False})),
    "hostile": lambda: beside(
        *pair(
            {},
            untimed=True,
            contract={"tail": HOSTILE[1]},
            name=HOSTILE[0],
            attributes={
                "clocks": HOSTILE[4],
                "contract.</details>|x": False,
                "contract-reason.</details>|x": HOSTILE[3],
            },
            base={"untimed": True},
        )
    ),
}
