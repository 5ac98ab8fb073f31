"""Kernel evidence with chosen numbers, and the attention example at every stage of its life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.states import NOW, Scene, equivalent, stored

from assay.baselines.evidence import Environment, Evidence, Metric, Provenance, Subject
from assay.baselines.record import Record
from assay.bot.milestones.proposal import Capstone, parse_capstone
from assay.bot.milestones.shelf import Kept, Shelf
from assay.bot.snapshot import CapstoneEvidence, CapstoneFacts

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs" / "examples"
ATTENTION = (EXAMPLES / "attention" / "capstone.yml").read_text()
SHAPES = ("s512", "s1024", "s2048", "s4096")
CASES = ("random", "extreme", "all-masked", "tail")
CREATED = datetime(2026, 11, 20, tzinfo=UTC)
REPORT = ("Results", "Losing regions", "Limitations", "Reproduce one table")
Value = float | tuple[float, float, float]


def kernel(
    name: str,
    metrics: Mapping[str, Value] = {},
    *,
    kind: str = "kernel",
    contract: Mapping[str, bool] | None = None,
    configuration: Mapping[str, Any] | None = None,
    protocol: Mapping[str, Any] | None = None,
    environment: Environment | None = None,
    day: int = 0,
    unit: str = "us",
    direction: Any = "lower",
    attributes: Mapping[str, Any] | None = None,
) -> Record:
    """A record of a kernel: metric -> value, or (value, low, high). `day` counts from `CREATED`."""
    measured = {}
    for key, value in metrics.items():
        middle, low, high = value if isinstance(value, tuple) else (value, None, None)
        of = "MB" if key.startswith("traffic") else unit
        measured[key] = Metric(value=middle, low=low, high=high, unit=of, direction=direction)
    contracts = {f"contract.{case}": passed for case, passed in (contract or {}).items()}
    evidence = Evidence(
        kind=kind,
        subject=Subject(name=name, digest="undeclared", configuration=dict(configuration or {})),
        protocol=dict(protocol or {"timer": "cuda events", "clock": "locked"}),
        environment=environment
        or Environment(
            hardware="NVIDIA H200", driver="NVIDIA 580.1", system="Linux", python="3.12", libraries={"torch": "2.11.0"}
        ),
        provenance=Provenance(created=CREATED + timedelta(days=day), commit="b" * 40),
        metrics=measured,
        attributes={**contracts, **(attributes or {})},
    )
    return stored(Record(evidence, None))


def shelf(*records: Record, files: Mapping[str, tuple[str, ...] | None] | None = None, **more: Any) -> Shelf:
    """These records on a shelf."""
    return Shelf(
        tuple(Kept(r.digest, r.evidence, f"ledger/{r.evidence.subject.name}") for r in records), files or {}, **more
    )


def attention(text: str = ATTENTION) -> Capstone:
    """The example, or a variant of its text."""
    return parse_capstone(text.encode())


def latencies(*values: Value, name: str = "latency") -> dict[str, Value]:
    """One value for each required shape."""
    return {f"{name}/{shape}": value for shape, value in zip(SHAPES, values, strict=True)}


PASSED = dict.fromkeys(CASES, True)
FUNCTIONAL = kernel(
    "online-softmax-functional",
    {"tile-bytes/s128": 180224.0, "tile-bytes-model/s128": 180224.0},
    contract=PASSED,
    unit="B",
)
LIBRARY = kernel("attention-library", latencies((50.0, 49.0, 51.0), (80.0, 79.0, 81.0), (140.0, 138.0, 142.0), 260.0))
UNFUSED = kernel("attention-unfused", latencies(1342.0, 2416.0, 4563.0, 8858.0, name="traffic"))
ROW = kernel("row-softmax", {"latency": 30.0}, contract=PASSED)


def ours(
    *,
    traffic: Sequence[float] = (270.0, 269.0, 272.0, 275.0),
    on: bool = True,
    contract: Mapping[str, bool] = PASSED,
    **more: Any,
) -> Record:
    """The tiled kernel: wins at s512 and loses from s1024 on."""
    metrics = {
        **latencies(*traffic, name="traffic"),
        **latencies((45.0, 44.0, 46.0), (90.0, 88.0, 92.0), (190.0, 186.0, 194.0), (380.0, 375.0, 385.0)),
    }
    options: dict[str, Any] = {
        "configuration": {"online-softmax": on, "block": 128},
        "attributes": {"losing_regions": "s1024, s2048, s4096", "command": "assay bench attention"},
        "day": 3 if on else 2,
    }
    return kernel("online-softmax", metrics, contract=contract, **{**options, **more})


WITHOUT = ours(on=False, traffic=(1342.0, 2416.0, 4563.0, 8858.0))
DECODER = kernel("decoder-forward", {"latency": 900.0}, day=4)
FIRST_TWO = (ROW, FUNCTIONAL, LIBRARY, UNFUSED)
ALL = (*FIRST_TWO, WITHOUT, ours(), DECODER)


def pull(
    *records: Record,
    base: str = ATTENTION,
    head: str | None = ATTENTION,
    files: Mapping[str, tuple[str, ...] | None] | None = None,
    **facts: Any,
) -> Scene:
    """A pull request with an equivalent evaluation, in a repository that has a capstone."""
    made = equivalent()
    capstone = CapstoneFacts(
        base=base,
        head=head,
        evidence=tuple(
            CapstoneEvidence(
                digest=r.digest,
                place=f"https://github.com/acme/widgets/releases/tag/baseline/main/{'b' * 12}/kernel/{r.digest[:12]}",
            )
            for r in records
        ),
        files=dict(files or {"report.md": None}),
        files_at=f"https://github.com/acme/widgets/blob/{'4' * 40}/",
        **facts,
    )
    snapshot = made.snapshot.model_copy(update={"capstone": capstone, "now": NOW})
    return Scene(snapshot, {**made.records, **{r.digest: r for r in records}})
