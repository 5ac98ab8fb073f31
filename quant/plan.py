"""What an evaluation will measure (`Plan`), how it answers (`Row`), and what measures it (`Adapter`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from assay.baselines.evidence import Metric, Scalar, Subject

NO_FILTER = "none"
"""Filter of a metric that is computed from the raw response (the name that lm-eval gives it)."""

Scale = Literal["binary", "bounded", "loglik"]


@dataclass(frozen=True)
class MetricPlan:
    """One metric of a task and how its rows compare (see `assay.baselines.evidence.Metric`)."""

    name: str
    filter: str = NO_FILTER
    scale: Scale = "binary"
    direction: Literal["higher", "lower"] = "higher"
    unit: str = ""
    chance: float | None = None
    low: float | None = None
    high: float | None = None
    primary: bool = False


@dataclass(frozen=True)
class TaskPlan:
    """One task: how many examples it has, and its metrics."""

    name: str
    examples: int
    metrics: tuple[MetricPlan, ...]
    clustered: bool = False
    """Whether examples come in dependent groups (`Row.cluster`)."""

    @property
    def growable(self) -> bool:
        """Whether the sample may stop early.

        The sequential test needs bounded and independent scores; sums of log-likelihoods and clustered examples are
        measured to the cap, so that their number does not depend on what was seen.
        """
        return not self.clustered and all(metric.scale != "loglik" for metric in self.metrics)


@dataclass(frozen=True)
class Plan:
    """Everything that is known before the model is loaded."""

    subject: Subject
    protocol: Mapping[str, Scalar]
    tasks: tuple[TaskPlan, ...]
    libraries: tuple[str, ...] = ()
    """Distributions whose versions belong to the environment."""
    notes: tuple[str, ...] = field(default=())
    """What the reader should know of the plan, for example metrics that have no score per example."""


class Row(NamedTuple):
    """One example under one metric. Columns as in `assay.baselines.evaluation.SCHEMA`, except `occurrence`."""

    task: str
    metric: str
    filter: str
    item: bytes
    doc_id: int
    score: float
    weight: float = 1.0
    cluster: str | None = None
    response: bytes | None = None
    answer: str | None = None
    margin: float | None = None
    text: str | None = None


class Adapter(Protocol):
    """A harness that measures examples by their number. Numbers of a task run from 0 to `examples - 1`."""

    def prepare(self) -> Plan:
        """The plan; cheap, and done before the weights are loaded. Raises `InputError` for what cannot be measured."""
        ...

    def measure(self, task: str, indices: Sequence[int]) -> list[Row]:
        """Rows of these examples, in any order; every example has a row for every metric of the plan.

        The rows of an example do not depend on which other examples are asked for, up to the rounding of a batch.
        Raises `InputError` when a response is not finite.
        """
        ...

    def measures(self) -> dict[str, Metric]:
        """Metrics without rows (size, latency, memory), by name."""
        ...

    def facts(self) -> dict[str, Scalar]:
        """Facts of the run for the record's attributes, for example how many prompts were cut."""
        ...

    def close(self) -> None:
        """Free the model."""
        ...
