"""A plain table of results: CSV, TSV or Parquet with columns `id` and `score`.

More columns are understood: `task`, `metric`, `weight` (words or tokens of a document; scores are then log-likelihoods
in nats), `cluster`, `answer`, `text`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv

from assay.baselines.errors import InputError
from assay.baselines.evaluation import item_key, preview
from assay.baselines.record import MAX_ROWS, read_parquet
from assay.quant.importers.results import Results, check_size, judge_scale, number, tasks_of
from assay.quant.plan import MetricPlan, Row, TaskPlan

COLUMNS = ("id", "score", "task", "metric", "weight", "cluster", "answer", "text")


def read(source: Path, bounds: tuple[float, float] | None = None) -> Results:
    """Rows of a table. Raises `InputError` for missing or unknown columns, duplicate ids and scores that are no numbers."""
    table = _table(source)
    try:
        names = [name.strip().lower() for name in table.column_names]
    except UnicodeDecodeError:
        raise InputError(f"{source} has column names that are not UTF-8 text: save it as UTF-8.") from None
    if len(set(names)) != len(names):
        raise InputError(f"{source} has a column twice: give each of {', '.join(COLUMNS)} once.")
    for needed in ("id", "score"):
        if needed not in names:
            raise InputError(
                f"{source} has no column {needed!r} (it has {', '.join(names[:8])}): name the columns id and score."
            )
    if not table.num_rows:
        raise InputError(f"{source} has no rows: there is nothing to compare.")
    try:
        columns: dict[str, list[Any]] = {
            name: table.column(index).to_pylist() for index, name in enumerate(names) if name in COLUMNS
        }
    except UnicodeDecodeError:
        raise InputError(f"{source} has text that is not UTF-8: save it as UTF-8.") from None
    rows = _rows(columns, table.num_rows, source)
    metrics = _metrics(rows, "weight" in columns, bounds, source)
    tasks = tasks_of(rows, metrics)
    if "cluster" in columns:
        tasks = tuple(TaskPlan(task.name, task.examples, task.metrics, clustered=True) for task in tasks)
    return Results("table", rows, tasks)


def _rows(columns: dict[str, list[Any]], count: int, source: Path) -> list[Row]:
    seen: set[tuple[str, str, str]] = set()
    rows = []
    for index in range(count):
        where = f"{source}, row {index + 1}:"
        identity = columns["id"][index]
        if identity is None or identity == "":
            raise InputError(f"{where} the id is missing: every example needs one.")
        task = _text(columns, "task", index) or "table"
        metric = _text(columns, "metric", index) or "score"
        key = (task, metric, str(identity))
        if key in seen:
            raise InputError(
                f"{where} id {str(identity)[:60]} occurs twice in {task} ({metric}): each example must occur once."
            )
        seen.add(key)
        weight = number(columns["weight"][index], f"{where} weight") if "weight" in columns else 1.0
        if weight <= 0:
            raise InputError(f"{where} weight is {weight:g}: give the words or tokens of the document, more than 0.")
        text = _text(columns, "text", index)
        rows.append(
            Row(
                task,
                metric,
                "none",
                item_key(str(identity), None),
                index,
                number(columns["score"][index], f"{where} score"),
                weight,
                _text(columns, "cluster", index),
                answer=preview(answer) if (answer := _text(columns, "answer", index)) else None,
                text=preview(f"{identity}: {text}" if text else str(identity)),
            )
        )
    return rows


def _metrics(
    rows: Sequence[Row], weighted: bool, bounds: tuple[float, float] | None, source: Path
) -> dict[str, list[MetricPlan]]:
    scores: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        scores.setdefault(row.task, {}).setdefault(row.metric, []).append(row.score)
    found: dict[str, list[MetricPlan]] = {}
    for task, by_metric in scores.items():
        for metric, values in by_metric.items():
            first = task not in found
            if weighted:
                plan = MetricPlan(metric, scale="loglik", direction="lower", unit="per weight", primary=first)
            else:
                scale, low, high = judge_scale(values, bounds, f"{source}: task {task}")
                plan = MetricPlan(metric, scale=scale, low=low, high=high, primary=first)
            found.setdefault(task, []).append(plan)
    return found


def _text(columns: dict[str, list[Any]], name: str, index: int) -> str | None:
    value = columns[name][index] if name in columns else None
    return None if value is None or value == "" else str(value)


def _table(source: Path) -> pa.Table:
    check_size(source)
    if source.suffix.lower() == ".parquet":
        return read_parquet(source)
    delimiter = "\t" if source.suffix.lower() == ".tsv" else ","
    try:
        # Everything but the numbers is text: an id of 007 is not the number 7.
        kinds = {name: pa.string() for name in ("id", "task", "metric", "cluster", "answer", "text")}
        table = csv.read_csv(
            source,
            parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=csv.ConvertOptions(column_types=kinds, strings_can_be_null=True, null_values=[""]),
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{source} is not a readable table ({reason}): give a CSV with a header line.") from None
    if table.num_rows > MAX_ROWS:
        raise InputError(f"{source} has {table.num_rows:,} rows; assay reads at most {MAX_ROWS:,}: split it.")
    return table
