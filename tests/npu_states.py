"""Every state of a compiled model's section, as snapshots with real records: only the counts are planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.baselines.evidence import Environment, Evidence, Metric, Provenance, Subject
from assay.baselines.npu import COMPILER, HOST_ROW, LAYER_ROW, Row, table
from assay.baselines.record import Record
from tests.evidence import CREATED
from tests.kernel_states import beside, published
from tests.states import BASE, HEAD, HOSTILE, RUN, Scene

LEASE = "1b0f9e8d7c6b55d1f0c9e8b7a46d3a2c"
Layers = Mapping[str, tuple[int, int]]
"""`path operator` -> (cycles, DRAM bytes)."""

NET: Layers = {
    "features.0.0 convolution": (4_064_256, 1_204_224),
    "features.1.block.0.0 convolution": (602_112, 802_816),
    "features.1.block.1 add": (200_704, 1_605_632),
    "classifier.0 addmm": (590_848, 2_363_392),
    "classifier.3 addmm": (1_025_000, 4_104_000),
}
ENCODER: Layers = {
    "layers.0.attn bmm": (884_736, 3_145_728),
    "layers.0.attn _softmax": (147_456, 589_824),
    "layers.0.mlp addmm": (2_359_296, 1_050_624),
}
POOL = ("aten.max_pool2d_with_indices.default", "there is no rule for it", "features.2")


def record(
    side: str,
    models: Mapping[str, Layers],
    *,
    host: Mapping[str, Sequence[tuple[str, str, str]]] | None = None,
    host_macs: int = 0,
    failed: Mapping[str, str] | None = None,
    unstable: Mapping[str, str] | None = None,
    vtcm: int = 6 << 20,
    machine: str = "htp_v75",
    latency: bool = True,
    lease: str | None = LEASE,
    compiler: str = "91d0c3aa5e21",
    protocol: Mapping[str, Any] | None = None,
    name: str = "models",
) -> Record:
    """Evidence of one side. `host`: model -> (operator, why, module) of each node there; `failed`, `unstable`: model -> why."""
    rows: list[Row] = []
    metrics: dict[str, Metric] = {}
    for model, layers in models.items():
        if model in (failed or {}):
            continue
        for label, (cycles, moved) in layers.items():
            path, _, op = label.rpartition(" ")
            line = f"net.py:{len(rows) + 10}: x = self.{path}(x)"
            rows.append(
                Row(model, LAYER_ROW, path, op, line, "", "matrix", cycles, moved * 3 // 4, moved // 4, 4 * cycles, 6)
            )
        nodes = (host or {}).get(model, ())
        rows += [Row(model, HOST_ROW, path, op, "net.py:12: x = self.pool(x)", why) for op, why, path in nodes]
        cycles, moved = (sum(layer[i] for layer in layers.values()) for i in (0, 1))
        share = 4 * cycles / (4 * cycles + host_macs)
        found = {
            "cycles": (cycles, "cycles"),
            "dram-read": (moved * 3 // 4, "B"),
            "dram-written": (moved // 4, "B"),
            "vtcm-peak": (vtcm, "B"),
            "npu-share": (share, "proportion"),
            "macs": (4 * cycles, "MAC"),
            "host-operators": (len(nodes), "operators"),
        }
        if latency:
            found["latency"] = (0.09 + cycles / 1.37e7, "ms")
        for metric, (value, unit) in found.items():
            direction: Any = "higher" if metric == "npu-share" else "lower"
            metrics[f"{metric}/{model}"] = Metric(
                value=value, unit=unit, direction=direction, primary=metric == "cycles"
            )
    facts: dict[str, Any] = {"compilations": 2, "command": "assay compile models.py --base BASE --out DIR"}
    facts |= {f"failed.{model}": why for model, why in (failed or {}).items()}
    facts |= {f"unstable.{model}": how for model, how in (unstable or {}).items()}
    if lease is not None:
        facts |= {"lease": lease, "supplement": side == "base"}
    evidence = Evidence(
        kind="npu",
        subject=Subject(name=name, digest=f"sha256:{side}", format="float16", backend=f"mock NPU, {machine}"),
        protocol={
            "harness": "assay compile 1",
            "machine": machine,
            "vtcm_bytes": 8 << 20,
            # As assay compile writes it: a model that failed says nothing of its inputs.
            **{f"task.{model}.inputs": "1x3x224x224" for model in models if model not in (failed or {})},
            **(protocol or {}),
        },
        environment=Environment(
            system="Linux", python="3.11.9", libraries={"torch": "2.14.1", "torchvision": "0.29.1", COMPILER: compiler}
        ),
        provenance=Provenance(commit=HEAD if side == "head" else BASE, run_id=RUN, attempt=1, created=CREATED),
        metrics=metrics,
        attributes=facts,
    )
    return Record(evidence, table(rows))


BOTH: Mapping[str, Layers] = {"mobilenet": NET, "encoder": ENCODER}


def together(head: Record, base: Record, **options: Any) -> Scene:
    """A run that compiled both sides."""
    made = beside(head, base, **options)
    [run] = made.snapshot.measurements
    run = run.model_copy(update={"workflow": "assay npu"})
    return Scene(made.snapshot.model_copy(update={"measurements": (run,)}), made.records)


def alone(head: Record, base: Record | None) -> Scene:
    """A run that compiled the head alone, and perhaps a baseline of another run."""
    made = published(head, base)
    facts = tuple(
        b.model_copy(update={"kind": "npu", "tag": b.tag.replace("/kernel/", "/npu/")}) for b in made.snapshot.baselines
    )
    return Scene(made.snapshot.model_copy(update={"baselines": facts}), made.records)


def changed(layers: Layers, changes: Mapping[str, tuple[int, int] | None]) -> Layers:
    """Layers with some replaced, added or (None) removed."""
    made: dict[str, tuple[int, int] | None] = {**layers, **changes}
    return {label: counts for label, counts in made.items() if counts is not None}


def deep(factor: float) -> Layers:
    return {f"layers.{i}.attn bmm": (100_000 + int(factor * i), 4096 * (i + 1)) for i in range(160)}


FASTER = changed(NET, {"features.1.block.1 add": None, "features.1.block.0.0 convolution": (602_112, 401_408)})
SLOWER = changed(NET, {"classifier.0 addmm": (1_181_696, 4_726_784), "classifier.1 hardswish": (1_024, 8_192)})
BUDGET = (
    "gate:\n  npu:\n    max-vtcm-bytes: 5000000\n    models:\n      mob*: {max-latency-ms: 0.5, max-cycles: 7000000}\n"
)

STATES: dict[str, Callable[[], Scene]] = {
    "better": lambda: together(record("head", {**BOTH, "mobilenet": FASTER}), record("base", BOTH)),
    "same": lambda: together(record("head", BOTH), record("base", BOTH)),
    "worse": lambda: together(
        record("head", {**BOTH, "mobilenet": SLOWER}), record("base", BOTH), policy="commands:\n  offer: true\n"
    ),
    "within-the-limit": lambda: together(
        record("head", {**BOTH, "mobilenet": changed(NET, {"classifier.1 hardswish": (1_024, 8_192)})}),
        record("base", BOTH),
    ),
    "fallback-gained": lambda: together(
        record(
            "head",
            {"mobilenet": changed(NET, {"features.1.block.1 add": None})},
            host={"mobilenet": [POOL, POOL]},
            host_macs=900_000,
        ),
        record("base", {"mobilenet": NET}),
    ),
    "fallback-allowed": lambda: together(
        record("head", {"mobilenet": NET}, host={"mobilenet": [POOL]}),
        record("base", {"mobilenet": NET}),
        policy="gate:\n  npu:\n    allowed: [aten.max_pool2d*]\n",
    ),
    "fallback-lost": lambda: together(
        record("head", {"mobilenet": NET}), record("base", {"mobilenet": NET}, host={"mobilenet": [POOL]})
    ),
    "over-budget": lambda: together(record("head", BOTH), record("base", BOTH), policy=BUDGET),
    "new-model-within-budget": lambda: together(
        record("head", {"mobilenet": NET}), record("base", {}), policy="gate:\n  npu: {max-cycles: 7000000}\n"
    ),
    "new-model": lambda: together(record("head", {"mobilenet": NET}), record("base", {})),
    "no-baseline": lambda: alone(record("head", BOTH, lease=None), None),
    "nondeterministic": lambda: together(
        record("head", BOTH, unstable={"encoder": "program 1 of 2 is not the same"}), record("base", BOTH)
    ),
    "does-not-compile": lambda: together(
        record("head", BOTH, failed={"encoder": "aten.max_pool3d would run on the host (there is no rule for it)."}),
        record("base", BOTH),
    ),
    "compiles-on-neither": lambda: together(
        record("head", BOTH, failed={"encoder": "making the model raised ValueError: 3 heads"}),
        record("base", BOTH, failed={"encoder": "making the model raised ValueError: 3 heads"}),
    ),
    "another-compiler": lambda: alone(
        record("head", {**BOTH, "mobilenet": SLOWER}, lease=None),
        record("head", BOTH, lease=None, compiler="5e21aa0c3d91"),
    ),
    "mismatch": lambda: together(record("head", BOTH, machine="spec"), record("base", BOTH)),
    "accepted": lambda: together(
        record("head", {**BOTH, "mobilenet": SLOWER}),
        record("base", BOTH),
        policy="gate:\n  accepted:\n"
        '    - {task: mobilenet, metric: cycles, reason: "a wider head", by: "@octocat", up-to: 12, expires: 2027-01-31}\n',
    ),
    "many-layers": lambda: together(
        record("head", {"decoder": deep(700.0)}, latency=False, machine="spec"),
        record("base", {"decoder": deep(0.0)}, latency=False, machine="spec"),
    ),
    "many-models": lambda: together(
        record("head", {f"model-{i}": NET if i % 5 else SLOWER for i in range(30)}),
        record("base", {f"model-{i}": NET for i in range(30)}),
    ),
    "hostile": lambda: together(
        record(
            "head",
            {HOSTILE[0][:60]: NET, "b|</details>": {HOSTILE[1][:80]: (5, 5)}},
            host={HOSTILE[0][:60]: [(HOSTILE[2], HOSTILE[3], HOSTILE[4])]},
            failed={"b|</details>": HOSTILE[3]},
            name=HOSTILE[0],
        ),
        record("base", {HOSTILE[0][:60]: NET, "b|</details>": NET}),
    ),
}
