"""From rows to the table of an evaluation, and from the table to its metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assay.baselines.evaluation import KIND, SCHEMA, column_numpy, metric_key, number_occurrences
from assay.baselines.evidence import Environment, Evidence, Metric, Provenance, Scalar
from assay.quant.plan import MetricPlan, Plan, Row, TaskPlan

_ROW_COLUMNS = tuple(name for name in SCHEMA.names if name != "occurrence")


def build_table(rows: Sequence[Row], occurrences: Sequence[int] | None = None) -> pa.Table:
    """The table of `rows`, in their order; `occurrences` are numbered in that order when not given."""
    columns: dict[str, Any] = dict(zip(_ROW_COLUMNS, zip(*rows, strict=True), strict=True)) if rows else {}
    columns["occurrence"] = occurrences if occurrences is not None else number_occurrences(_keys(rows))
    arrays = [_array(columns.get(field.name, ()), field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def order_rows(
    table: pa.Table, ranks: Mapping[str, np.ndarray[Any, np.dtype[np.int64]]], heads: Mapping[str, int]
) -> pa.Table:
    """The rows whose example lies in the head of its task's permutation, in that order, with occurrences numbered.

    `ranks` gives for each task the position of each example in the permutation, `heads` how long the head is. Numbering
    duplicates along the permutation, and not in order of arrival, keeps a small sample a prefix of a larger one.
    """
    tasks = {name: number for number, name in enumerate(ranks)}
    codes = np.array([tasks.get(name, -1) for name in table.column("task").to_pylist()], dtype=np.int64)
    docs = column_numpy(table, "doc_id").astype(np.int64)
    position = np.full(table.num_rows, np.iinfo(np.int64).max)
    for name, number in tasks.items():
        mine = codes == number
        position[mine] = ranks[name][docs[mine]]
        position[mine & (position >= heads.get(name, 0))] = np.iinfo(np.int64).max
    kept = np.flatnonzero(position < np.iinfo(np.int64).max)
    order = kept[np.lexsort((position[kept], codes[kept]))]
    ordered = table.take(pa.array(order))
    numbers = pa.array(number_occurrences(series_keys(ordered)), type=pa.int32())
    index = SCHEMA.get_field_index("occurrence")
    return _canonical(ordered.set_column(index, SCHEMA.field(index), numbers))


def _canonical(table: pa.Table) -> pa.Table:
    """The table with dictionaries in order of appearance, so that equal measurements are equal files."""
    columns = []
    for field in SCHEMA:
        column = table.column(field.name)
        if pa.types.is_dictionary(field.type):
            column = column.cast(field.type.value_type).combine_chunks().dictionary_encode()
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=SCHEMA).combine_chunks()


def series_keys(table: pa.Table, *, occurrence: bool = False, doc: bool = False) -> list[bytes]:
    """One key per row: its series and its example (by content, or by the harness's number when `doc`)."""
    parts = [table.column(name).to_pylist() for name in ("task", "metric", "filter")]
    last = (
        [str(number).encode() for number in table.column("doc_id").to_pylist()]
        if doc
        else table.column("item").to_pylist()
    )
    keys = [
        f"{task}\0{metric}\0{name}\0".encode() + item for task, metric, name, item in zip(*parts, last, strict=True)
    ]
    if not occurrence:
        return keys
    numbers = table.column("occurrence").to_pylist()
    return [key + number.to_bytes(4, "big") for key, number in zip(keys, numbers, strict=True)]


def aggregate(table: pa.Table, tasks: Iterable[TaskPlan]) -> dict[str, Metric]:
    """The metrics of a table: means of scores, and perplexity exp(-sum of log-likelihoods / sum of weights).

    Metrics without rows are left out. `bits_per_byte` is -sum / sum / ln 2.
    """
    found: dict[str, Metric] = {}
    for task in tasks:
        mine = table.filter(pc.equal(table.column("task"), task.name))
        for metric in task.metrics:
            rows = mine.filter(
                pc.and_(pc.equal(mine.column("metric"), metric.name), pc.equal(mine.column("filter"), metric.filter))
            )
            if rows.num_rows:
                found[metric_key(task.name, metric.name, metric.filter)] = _metric(metric, rows)
    return found


def build_evidence(
    plan: Plan, table: pa.Table, environment: Environment, provenance: Provenance, facts: Mapping[str, Scalar]
) -> Evidence:
    """Evidence of a table: its metrics, with the plan's subject and protocol, and `facts` as attributes."""
    return Evidence(
        kind=KIND,
        subject=plan.subject,
        protocol=dict(plan.protocol),
        environment=environment,
        provenance=provenance,
        metrics=aggregate(table, plan.tasks),
        attributes=dict(facts),
    )


def _metric(plan: MetricPlan, rows: pa.Table) -> Metric:
    scores, weights = column_numpy(rows, "score"), column_numpy(rows, "weight")
    value = float(np.average(scores, weights=weights))
    if plan.scale == "loglik":
        # Clusters of absurdly bad documents overflow exp; a perplexity of e^700 is as good as any bound.
        nats = -float(scores.sum() / weights.sum())
        value = nats / math.log(2) if plan.name == "bits_per_byte" else math.exp(min(nats, 700.0))
    return Metric(
        value=value,
        unit=plan.unit,
        direction=plan.direction,
        scale=plan.scale,
        n=rows.num_rows,
        chance=plan.chance,
        low=plan.low,
        high=plan.high,
        primary=plan.primary,
    )


def _keys(rows: Sequence[Row]) -> Iterable[bytes]:
    return (f"{row.task}\0{row.metric}\0{row.filter}\0".encode() + row.item for row in rows)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, type=kind.value_type).dictionary_encode()
    return pa.array(values, type=kind)
