"""Evidence with chosen outcomes, for tests: real records made of real rows, only the scores are planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from assay.baselines.evaluation import SCHEMA, item_key, metric_key
from assay.baselines.evidence import Environment, Evidence, Metric, Provenance, Subject
from assay.baselines.record import Record

CREATED = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def outcomes(n: int, broke: int, fixed: int, base_accuracy: float = 0.5) -> tuple[list[int], list[int]]:
    """0/1 scores of base and head with exactly these flips and about this base accuracy."""
    right = min(max(broke, round(n * base_accuracy)), n - fixed)
    base = [1] * right + [0] * (n - right)
    head = list(base)
    head[:broke] = [0] * broke
    head[right : right + fixed] = [1] * fixed
    assert sum(b > h for b, h in zip(base, head, strict=True)) == broke
    assert sum(b < h for b, h in zip(base, head, strict=True)) == fixed
    order = np.random.default_rng(7).permutation(n)
    return [base[i] for i in order], [head[i] for i in order]


def evaluation(
    scores: Mapping[str, Sequence[float]],
    *,
    commit: str = "a" * 40,
    name: str = "model",
    scale: str = "binary",
    metric: str = "acc",
    chance: float | None = 0.25,
    protocol: Mapping[str, Any] | str | None = None,
    attributes: Mapping[str, Any] | None = None,
    weights: Sequence[float] | None = None,
    clusters: Sequence[str] | None = None,
    responses: bytes | None = None,
    texts: Mapping[str, Sequence[str]] | None = None,
    answers: Mapping[str, Sequence[str]] | None = None,
    costs: Mapping[str, tuple[float, float, float]] | None = None,
    run_id: int | None = None,
    attempt: int | None = None,
    created: datetime = CREATED,
    hardware: str = "test CPU",
    low: float | None = None,
    high: float | None = None,
) -> Record:
    """An evaluation record: task -> scores, example i of a task being the same example in every record."""
    columns: dict[str, list[Any]] = {field.name: [] for field in SCHEMA}
    metrics: dict[str, Metric] = {}
    for task, values in scores.items():
        for i, score in enumerate(values):
            text = texts[task][i] if texts else f"{task}: what is {i} plus {i}?"
            columns["task"].append(task)
            columns["metric"].append(metric)
            columns["filter"].append("none")
            columns["item"].append(item_key([task, str(i)], "target"))
            columns["occurrence"].append(0)
            columns["doc_id"].append(i)
            columns["score"].append(float(score))
            columns["weight"].append(float(weights[i]) if weights is not None else 1.0)
            columns["cluster"].append(clusters[i] if clusters is not None else None)
            columns["response"].append(responses)
            columns["answer"].append(answers[task][i] if answers else ("B" if score else "C"))
            columns["margin"].append(0.25 + (i * 37 % 100) / 50)
            columns["text"].append(text)
        metrics[metric_key(task, metric)] = Metric(
            value=float(np.mean(values)) if len(values) else 0.0,
            unit="proportion",
            scale=scale,  # type: ignore[arg-type]
            n=len(values),
            chance=chance if scale == "binary" else None,
            primary=True,
            low=low,
            high=high,
        )
    for axis, (value, lower, upper) in (costs or {}).items():
        metrics[axis] = Metric(
            value=value, unit={"latency": "ms"}.get(axis, "bytes"), direction="lower", low=lower, high=upper
        )
    rows = pa.table({field.name: pa.array(columns[field.name], type=field.type) for field in SCHEMA}, schema=SCHEMA)
    if protocol is None:
        protocol = {"harness": "lm-eval 0.4.13", "sampling.seed": 0, "batch_size": 16}
    evidence = Evidence(
        kind="evaluation",
        subject=Subject(name=name, digest=f"sha256:{name}", format="float32"),
        protocol=dict(protocol) if isinstance(protocol, Mapping) else "undeclared",
        environment=Environment(hardware=hardware, system="Linux", python="3.11", libraries={"lm-eval": "0.4.13"}),
        provenance=Provenance(commit=commit, run_id=run_id, attempt=attempt, created=created),
        metrics=metrics,
        attributes=dict(attributes or {"sampling": "fixed"}),
    )
    return Record(evidence, rows)
