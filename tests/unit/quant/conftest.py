"""An adapter whose answers are arithmetic, so that the runner can be watched without a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from assay.baselines.environment import capture
from assay.baselines.evaluation import item_key, response_key
from assay.baselines.evidence import Metric, Provenance, Subject
from assay.quant.evaluation import Outcome, run_evaluation
from assay.quant.plan import MetricPlan, Plan, Row, TaskPlan


@dataclass
class Arithmetic:
    """Example i is right when `right(i)`; examples i and i + 1 are the same when i is divisible by `twins`."""

    sizes: dict[str, int] = field(default_factory=lambda: {"t": 100})
    right: Callable[[int], bool] = lambda i: i % 3 != 0
    name: str = "model"
    protocol: dict[str, Any] = field(default_factory=dict)
    twins: int = 0
    loglik: tuple[str, ...] = ()
    break_after: int | None = None
    error: BaseException | None = None
    asked: list[tuple[str, int]] = field(default_factory=list)
    closed: int = 0

    def prepare(self) -> Plan:
        tasks = [
            TaskPlan(
                name,
                size,
                (
                    (MetricPlan("word_perplexity", scale="loglik", direction="lower", primary=True),)
                    if name in self.loglik
                    else (MetricPlan("acc", chance=0.25), MetricPlan("acc_norm", chance=0.25, primary=True))
                ),
            )
            for name, size in self.sizes.items()
        ]
        return Plan(
            Subject(name=self.name, digest=f"sha256:{self.name}"), {"batch_size": 1, **self.protocol}, tuple(tasks)
        )

    def measure(self, task: str, indices: Sequence[int]) -> list[Row]:
        if self.break_after is not None and len(self.asked) >= self.break_after:
            assert self.error is not None
            raise self.error
        self.asked += [(task, index) for index in indices]
        rows = []
        for index in indices:
            content = index - 1 if self.twins and index % self.twins == 1 else index
            key = item_key([f"question {content}"], "target")
            if task in self.loglik:
                rows.append(Row(task, "word_perplexity", "none", key, index, -2.0 * (index + 1), float(index + 1)))
                continue
            score = float(self.right(content))
            found = {"response": response_key(score), "text": f"question {content}"}
            rows += [Row(task, metric, "none", key, index, score, **found) for metric in ("acc", "acc_norm")]
        return rows

    def measures(self) -> dict[str, Metric]:
        return {"size": Metric(value=10.0, unit="bytes", direction="lower")}

    def facts(self) -> dict[str, Any]:
        return {"truncated.t": 3}

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def arithmetic() -> type[Arithmetic]:
    return Arithmetic


@pytest.fixture
def run() -> Callable[..., Outcome]:
    def start(adapter: Any, sampling: Any, out: Any, **options: Any) -> Outcome:
        return run_evaluation(
            adapter, sampling, out, provenance=Provenance(created=datetime.now(UTC)), capture=capture, **options
        )

    return start
