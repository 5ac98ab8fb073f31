"""The work folder of an evaluation: finished chunks on disk, so that an interrupted run continues."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from assay.baselines.errors import InputError
from assay.baselines.evaluation import SCHEMA, check_rows
from assay.baselines.record import read_parquet, write_atomically
from assay.quant.plan import Adapter, Plan, Row, TaskPlan
from assay.quant.table import build_table

FOLDER = ".partial"


def work_key(plan: Plan) -> str:
    """Digest of what is measured and how; rows of one key may be mixed, rows of different keys never."""
    facts = {
        "subject": plan.subject.digest,
        "protocol": dict(plan.protocol),
        "tasks": [[task.name, task.examples, [[m.name, m.filter] for m in task.metrics]] for task in plan.tasks],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


class PartialRows:
    """Rows measured so far under one key, in memory and on disk."""

    def __init__(self, folder: Path, key: str) -> None:
        """`folder` is the record's folder; chunks lie in `folder/.partial/<key>/`."""
        self._root = folder / FOLDER
        self._folder = self._root / key
        self._tables: list[pa.Table] = []
        self._done: dict[str, set[int]] = {}

    def load(self, *, fresh: bool = False) -> tuple[int, bool]:
        """Read what an earlier run left; what another key or `fresh` makes useless is deleted.

        Returns the number of examples found, and whether the work of another protocol or subject was dropped. A chunk
        that cannot be read is measured again: each was written whole, so only outside damage makes one unreadable.
        """
        stale = [path for path in self._root.glob("*") if path != self._folder or fresh]
        for path in stale:
            shutil.rmtree(path, ignore_errors=True)
        for path in sorted(self._folder.glob("*.parquet")):
            try:
                self._keep(check_rows(read_parquet(path), str(path)))
            except InputError:
                path.unlink(missing_ok=True)
        return sum(len(done) for done in self._done.values()), bool(stale) and not fresh

    def adopt(self, table: pa.Table) -> None:
        """Count the rows of a finished record under the same key as measured."""
        self._keep(table)

    def missing(self, task: str, indices: Sequence[int]) -> list[int]:
        """Those of `indices` that are not measured yet, ascending."""
        done = self._done.get(task, set())
        return sorted(int(index) for index in set(indices) if int(index) not in done)

    def add(self, task: str, rows: Sequence[Row]) -> None:
        """Keep a chunk of one task; it is on disk, whole, when this returns."""
        table = build_table(rows, [0] * len(rows))
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd")
        data = buffer.getvalue()
        name = f"{hashlib.sha256(task.encode()).hexdigest()[:8]}-{hashlib.sha256(data).hexdigest()[:16]}.parquet"
        write_atomically(self._folder / name, data)
        self._keep(table)

    def table(self) -> pa.Table:
        """All rows so far, in order of arrival; occurrences are not numbered yet."""
        return pa.concat_tables(self._tables).unify_dictionaries() if self._tables else SCHEMA.empty_table()

    def discard(self) -> None:
        """Delete the work folder; the record now holds the rows."""
        shutil.rmtree(self._root, ignore_errors=True)

    def _keep(self, table: pa.Table) -> None:
        # An example may come twice when two chunk sizes overlap; the first measurement stays.
        tasks, docs = table.column("task").to_pylist(), table.column("doc_id").to_pylist()
        new = [doc is not None and doc not in self._done.get(task, ()) for task, doc in zip(tasks, docs, strict=True)]
        if not all(new):
            table = table.filter(pa.array(new, type=pa.bool_()))
        for task, doc, fresh in zip(tasks, docs, new, strict=True):
            if fresh:
                self._done.setdefault(task, set()).add(doc)
        self._tables.append(table)


def complete_rows(adapter: Adapter, task: TaskPlan, indices: Sequence[int]) -> list[Row]:
    """The adapter's rows of these examples, after a check that none is missing: an absent row would bias silently."""
    rows = adapter.measure(task.name, indices)
    expected = {(index, metric.name, metric.filter) for index in indices for metric in task.metrics}
    found = {(row.doc_id, row.metric, row.filter) for row in rows}
    if found != expected or len(rows) != len(expected):
        missing: list[object] = [*sorted(expected - found), *sorted(found - expected), "a row twice"]
        raise InputError(
            f"task {task.name}: the harness answered other rows than asked for, first {missing[0]}: report the task and"
            " its harness version."
        )
    return rows
