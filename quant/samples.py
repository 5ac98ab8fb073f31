"""One example of lm-eval as rows: shared by the live harness and by the import of its samples files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from assay.baselines.errors import InputError
from assay.baselines.evaluation import item_key, preview, response_key
from assay.quant.plan import MetricPlan, Row, Scale

BINARY = {"acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match"}
WEIGHTED = {"word_perplexity": "per word", "byte_perplexity": "per byte", "bits_per_byte": "bits per byte"}
SAMPLE_FREE = {"f1", "mcc", "brier_score", "likelihood", "bleu", "chrf", "chrf++", "ter", "acc_all", "bypass"}
"""Metrics of lm-eval that exist over a whole set only: there is no score per example to pair."""

_PRIMARY = ("acc_norm", "acc", "exact_match", "word_perplexity", "byte_perplexity", "perplexity")


def plan_metrics(
    names: Sequence[str],
    filters: Sequence[str],
    *,
    output_type: str,
    chance: float | None,
    lower_is_better: Sequence[str] = (),
) -> tuple[tuple[MetricPlan, ...], list[str]]:
    """The metrics of a task that have a score per example, and the names of those that have none.

    `bits_per_byte` is left out beside `byte_perplexity`: the same rows. The first filter of the best-known metric is
    the primary one.
    """
    usable = [
        name
        for name in names
        if name not in SAMPLE_FREE and not (name == "bits_per_byte" and "byte_perplexity" in names)
    ]
    skipped = [name for name in names if name in SAMPLE_FREE]
    if not usable:
        return (), skipped
    primary = next((name for name in _PRIMARY if name in usable), usable[0])
    plans = []
    for name in usable:
        scale = scale_of(name, output_type)
        for index, filter_name in enumerate(filters):
            lower = scale == "loglik" or name in lower_is_better
            plans.append(
                MetricPlan(
                    name=name,
                    filter=filter_name,
                    scale=scale,
                    direction="lower" if lower else "higher",
                    unit=WEIGHTED.get(name, "per target" if scale == "loglik" else ""),
                    chance=chance if scale == "binary" and name != "exact_match" else None,
                    low=0.0 if scale == "bounded" else None,
                    high=1.0 if scale == "bounded" else None,
                    primary=name == primary and index == 0,
                )
            )
    return tuple(plans), skipped


def scale_of(metric: str, output_type: str) -> Scale:
    """How the rows of a metric compare; an unknown metric is a score in [0, 1]."""
    if metric in WEIGHTED or (metric == "perplexity" and output_type == "loglikelihood"):
        return "loglik"
    return "binary" if metric in BINARY else "bounded"


def example_rows(
    *,
    task: str,
    doc_id: int,
    arguments: Sequence[Sequence[Any]],
    target: Any,
    responses: Any,
    filtered: Mapping[str, Sequence[Any]],
    values: Mapping[str, Mapping[str, Any]],
    metrics: Sequence[MetricPlan],
    choices: Sequence[str] | None,
    text: str,
    cluster: str | None = None,
) -> list[Row]:
    """The rows of one document, one per metric.

    `arguments` are those of all its requests; `filtered` and `values` give, by filter, the filtered responses and the
    metrics' values. The example is keyed by all arguments, because lm-eval's own `prompt_hash` covers the first choice
    only. Raises `InputError` when a response or value is not a finite number: a model that answers NaN has failed.
    """
    check_finite(responses, task, doc_id)
    item = item_key([[_argument(part) for part in request] for request in arguments], str(target))
    response = response_key(responses)
    rows = []
    for metric in metrics:
        if metric.filter not in values or metric.name not in values[metric.filter]:
            raise InputError(
                f"task {task}: document {doc_id} has no value of metric {metric.name} (filter {metric.filter}): its"
                " metrics differ between documents."
            )
        score, weight = _score(values[metric.filter][metric.name], metric, task, doc_id)
        answer, margin = _answer(metric, filtered.get(metric.filter, ()), choices)
        rows.append(
            Row(
                task,
                metric.name,
                metric.filter,
                item,
                doc_id,
                score,
                weight,
                cluster,
                response,
                answer,
                margin,
                preview(text),
            )
        )
    return rows


def check_finite(value: Any, task: str, doc_id: int) -> None:
    """Raise `InputError` when a number in a nested response is NaN or infinite."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(
            f"task {task}: document {doc_id} got {value} as log-likelihood: the model is broken (NaN weights, overflow"
            " of its dtype); a failure is not a score."
        )
    if isinstance(value, list | tuple):
        for part in value:
            check_finite(part, task, doc_id)


def plain(value: Any) -> Any:
    """A response as plain Python lists, floats, booleans and strings, so that its digest does not depend on NumPy."""
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        return value.item()
    return value


def _score(value: Any, metric: MetricPlan, task: str, doc_id: int) -> tuple[float, float]:
    where = f"task {task}: metric {metric.name} of document {doc_id}"
    value = plain(value)
    weight = 1.0
    if metric.name in WEIGHTED and isinstance(value, list) and len(value) == 2:
        value, weight = value[0], float(value[1])
    if isinstance(value, bool):
        value = float(value)
    if not isinstance(value, int | float):
        raise InputError(
            f"{where} is {str(value)[:60]!r}, not a number: assay compares scores of single examples; remove the metric"
            " from the task."
        )
    score = float(value)
    if not math.isfinite(score):
        raise InputError(f"{where} is {score}: the model or the harness failed; a failure is not a score.")
    if metric.scale == "binary" and score not in (0.0, 1.0):
        raise InputError(f"{where} is {score:g} where 0 or 1 is expected: give the metric another name in the task.")
    if metric.low is not None and metric.high is not None and not metric.low <= score <= metric.high:
        raise InputError(
            f"{where} is {score:g}, outside [{metric.low:g}, {metric.high:g}]: scale the metric to that range, or"
            " remove it from the task."
        )
    if not (math.isfinite(weight) and weight > 0):
        raise InputError(f"{where} has weight {weight:g}: the document is empty; remove it from the data.")
    return score, weight


def _answer(
    metric: MetricPlan, filtered: Sequence[Any], choices: Sequence[str] | None
) -> tuple[str | None, float | None]:
    """What the model chose, and by how much: the letter of the best choice and its lead over the next.

    The lead is in nats; for `acc_norm` and `acc_bytes` in nats per character and byte, the score that they compare.
    """
    if metric.scale == "loglik":
        return None, None
    if choices is None:
        return (preview(str(filtered[0])), None) if filtered else (None, None)
    scores = [float(pair[0]) for pair in filtered[: len(choices)] if isinstance(pair, list | tuple)]
    if len(scores) != len(choices) or not scores:
        return None, None
    if metric.name == "acc_norm":
        scores = [score / max(len(choice), 1) for score, choice in zip(scores, choices, strict=True)]
    elif metric.name == "acc_bytes":
        scores = [score / max(len(choice.encode()), 1) for score, choice in zip(scores, choices, strict=True)]
    elif metric.name == "acc_mutual_info" and len(filtered) == 2 * len(choices):
        scores = [score - float(aside[0]) for score, aside in zip(scores, filtered[len(choices) :], strict=True)]
    best = max(range(len(scores)), key=scores.__getitem__)
    ranked = sorted(scores, reverse=True)
    return letter(best), ranked[0] - ranked[1] if len(ranked) > 1 else None


def letter(index: int) -> str:
    """A, B, ... Z, then the number of the choice."""
    return chr(ord("A") + index) if index < 26 else str(index + 1)


def _argument(part: Any) -> str:
    return part if isinstance(part, str) else json.dumps(part, sort_keys=True, default=str)
