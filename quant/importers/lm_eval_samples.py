"""Samples that `lm-eval run --log_samples` wrote: `samples_<task>_<date>.jsonl`, with `results_<date>.json` beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.baselines.errors import InputError
from assay.baselines.evidence import Scalar
from assay.quant.importers.results import Results, json_lines, parse_object, tasks_of
from assay.quant.plan import MetricPlan, Row
from assay.quant.samples import WEIGHTED, example_rows, plan_metrics

_NAME = re.compile(r"^samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)\.jsonl$")
_NEEDED = ("doc_id", "target", "arguments", "resps", "metrics")


def read(source: Path) -> Results:
    """Rows of a samples file, or of the newest samples file of each task in a folder."""
    files = _files(source)
    rows: list[Row] = []
    metrics: dict[str, tuple[MetricPlan, ...]] = {}
    for task, path in files.items():
        found, plans = _read_task(task, path)
        rows += found
        metrics[task] = plans
    subject, facts = _results(next(iter(files.values())))
    return Results("lm-eval samples", rows, tasks_of(rows, metrics), subject, facts)


def _files(source: Path) -> dict[str, Path]:
    if source.is_file():
        match = _NAME.match(source.name)
        return {match["task"] if match else source.stem.removeprefix("samples_"): source}
    found: dict[str, tuple[str, Path]] = {}
    for path in sorted(source.rglob("samples_*.jsonl")):
        match = _NAME.match(path.name)
        task, date = (match["task"], match["date"]) if match else (path.stem.removeprefix("samples_"), "")
        if task in found and found[task][1].parent != path.parent:
            raise InputError(
                f"{source} has samples of {task} in {found[task][1].parent.name} and {path.parent.name}: give the"
                " folder of one model."
            )
        if task not in found or date >= found[task][0]:
            found[task] = (date, path)
    return {task: path for task, (_, path) in sorted(found.items())}


def _read_task(task: str, path: Path) -> tuple[list[Row], tuple[MetricPlan, ...]]:
    seen: set[tuple[int, str]] = set()
    documents: dict[int, dict[str, dict[str, Any]]] = {}
    for line, sample in json_lines(path):
        where = f"{path}, line {line},"
        missing = [key for key in _NEEDED if key not in sample]
        if missing:
            raise InputError(
                f"{where} has no {missing[0]!r}: is it a samples file of lm-eval (0.4 or newer, --log_samples)?"
            )
        doc_id, name = sample["doc_id"], str(sample.get("filter", "none"))
        if not isinstance(doc_id, int) or isinstance(doc_id, bool):
            raise InputError(
                f"{where} has doc_id {str(doc_id)[:40]!r}, not a whole number: is it a samples file of lm-eval?"
            )
        if (doc_id, name) in seen:
            raise InputError(
                f"{where} repeats document {doc_id} (filter {name}): two runs were written to one file; evaluate again."
            )
        seen.add((doc_id, name))
        documents.setdefault(doc_id, {})[name] = sample
    if not documents:
        raise InputError(f"{path} has no samples: was the evaluation interrupted?")
    first = next(iter(documents.values()))
    names = list(dict.fromkeys(str(metric) for sample in first.values() for metric in sample["metrics"]))
    kind = _output_type(next(iter(first.values())))
    plans, skipped = plan_metrics(names, list(first), output_type=kind, chance=_chance(documents, kind))
    if not plans:
        raise InputError(
            f"{path} has no metric with a score per example ({', '.join(skipped) or 'none at all'}): log acc or"
            " exact_match."
        )
    rows: list[Row] = []
    for doc_id in sorted(documents):
        rows += _rows(task, doc_id, documents[doc_id], plans, kind, path)
    return rows, plans


def _rows(
    task: str, doc_id: int, samples: dict[str, dict[str, Any]], plans: tuple[MetricPlan, ...], kind: str, path: Path
) -> list[Row]:
    first = next(iter(samples.values()))
    try:
        requests = _arguments(first["arguments"])
        choices = [str(request[1]).removeprefix(" ") for request in requests] if kind == "multiple_choice" else None
        restore = _parse if kind != "generate_until" else _as_is
        text = str(requests[0][0]).rsplit("\n\n", 1)[-1]
        return example_rows(
            task=task,
            doc_id=doc_id,
            arguments=requests,
            target=first["target"],
            responses=restore(first["resps"]),
            filtered={name: restore(sample.get("filtered_resps", [])) for name, sample in samples.items()},
            values=samples,
            metrics=plans,
            choices=choices,
            text=text,
        )
    except (IndexError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"{path}: document {doc_id} is not laid out as lm-eval does it: was the file edited?"
        ) from None


def _arguments(arguments: Any) -> list[list[Any]]:
    """Arguments as lists: lm-eval writes `{"gen_args_0": {"arg_0": ..., "arg_1": ...}}`."""
    requests = list(arguments.values()) if isinstance(arguments, Mapping) else list(arguments)
    return [list(request.values()) if isinstance(request, Mapping) else list(request) for request in requests]


def _parse(value: Any) -> Any:
    """Responses with their numbers restored: lm-eval writes them as strings."""
    if isinstance(value, list):
        return [_parse(part) for part in value]
    if value in ("True", "False"):
        return value == "True"
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _as_is(value: Any) -> Any:
    """Generated text is text, also when it reads `4` or `nan`."""
    return value


def _output_type(sample: Mapping[str, Any]) -> str:
    if any(name in WEIGHTED for name in sample["metrics"]):
        return "loglikelihood_rolling"
    responses = _parse(sample["resps"])
    pair = isinstance(responses, list) and bool(responses) and _is_pair(responses[0])
    if not pair:
        return "generate_until"
    return "multiple_choice" if len(responses) > 1 else "loglikelihood"


def _is_pair(response: Any) -> bool:
    while isinstance(response, list) and len(response) == 1:
        response = response[0]
    return (
        isinstance(response, list)
        and len(response) == 2
        and isinstance(response[0], float)
        and isinstance(response[1], bool)
    )


def _chance(documents: Mapping[int, Mapping[str, Mapping[str, Any]]], kind: str) -> float | None:
    if kind != "multiple_choice":
        return None
    counts = [len(next(iter(samples.values()))["resps"]) for samples in documents.values()]
    return sum(1 / max(count, 1) for count in counts) / len(counts)


def _results(samples: Path) -> tuple[str, dict[str, Scalar]]:
    """Model and a few settings from the results file beside a samples file, where there is one."""
    files = sorted(samples.parent.glob("results_*.json"))
    if not files:
        return "", {}
    document = parse_object(files[-1].read_bytes(), str(files[-1]))
    config = document.get("config")
    settings: Mapping[str, Any] = config if isinstance(config, Mapping) else {}
    arguments = settings.get("model_args")
    pretrained = (
        arguments.get("pretrained")
        if isinstance(arguments, Mapping)
        else re.sub(r"^.*pretrained=([^,]+).*$", r"\1", str(arguments or ""))
    )
    subject = str(pretrained or document.get("model_name") or "")
    facts: dict[str, Scalar] = {}
    for key in ("model", "batch_size", "limit", "model_dtype"):
        value = settings.get(key)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            facts[f"lm_eval.{key}"] = value
    return subject, facts
