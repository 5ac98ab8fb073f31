"""Base rows that a base record lacks, measured on the base checkpoint for exactly the examples of the head."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from assay.baselines.errors import InputError
from assay.baselines.evaluation import SCHEMA, check_rows
from assay.baselines.evidence import UNDECLARED, Environment, Provenance, Scalar
from assay.baselines.record import Record, write_record
from assay.quant.partial import PartialRows, complete_rows, work_key
from assay.quant.plan import Adapter, Plan
from assay.quant.progress import Progress
from assay.quant.sampling import Sampling, permutation, seeded
from assay.quant.table import build_evidence, series_keys


@dataclass(frozen=True)
class Base:
    """The other side: its record, and what measures the rows that the record lacks (None: nothing does)."""

    record: Record
    adapter: Adapter | None = None


def supplement_folder(out: Path) -> Path:
    """Where the supplement of a record lies: beside it."""
    return out.with_name(f"{out.name}.base")


class Supplement:
    """Base rows that the base record lacks, measured on the base checkpoint for exactly the examples of the head."""

    def __init__(self, base: Base, sampling: Sampling, out: Path, fresh: bool, told: Progress) -> None:
        rows = check_rows(base.record.rows, "--base")
        self._known = set(series_keys(rows, occurrence=True))
        self._base = base
        self._sampling = sampling
        self._tasks = set(rows.column("task").to_pylist())
        self._out = supplement_folder(out)
        self._told = told
        self._fresh = fresh
        self._plan: Plan | None = None
        self._rows: PartialRows | None = None
        self._table = SCHEMA.empty_table()

    def foresee(self, plan: Plan) -> None:
        """Raise `InputError` before anything is measured when a fixed sample has examples that the base lacks and nothing
        could measure; a growing one may be decided before it gets there."""
        declared = self._base.record.evidence.protocol != UNDECLARED
        if self._base.adapter is not None or self._sampling.grow or not declared or self._base.record.rows is None:
            return
        rows = self._base.record.rows
        known: dict[str, set[int]] = {}
        for name, doc in zip(rows.column("task").to_pylist(), rows.column("doc_id").to_pylist(), strict=True):
            known.setdefault(name, set()).add(doc)
        for task in plan.tasks:
            order = permutation(self._sampling.seed, task.name, task.examples)[: self._sampling.target(task)]
            lacking = len(set(order.tolist()) - known.get(task.name, set(order.tolist())))
            if lacking:
                raise InputError(_lacking(lacking, "examples", task.name))

    def measure(self, head: pa.Table) -> pa.Table:
        """All supplementary rows that the rows of `head` need, with the occurrence numbers of the head."""
        keys = series_keys(head, occurrence=True)
        lacking = [key not in self._known for key in keys]
        if not any(lacking):
            return self._table
        adapter = self._base.adapter
        wanted = head.filter(pa.array(lacking, type=pa.bool_()))
        if adapter is None:
            self._refuse(wanted)
            return self._table
        rows = self._prepared(adapter)
        assert self._plan is not None
        plans = {task.name: task for task in self._plan.tasks}
        docs: dict[str, list[int]] = {}
        for task, doc in zip(wanted.column("task").to_pylist(), wanted.column("doc_id").to_pylist(), strict=True):
            docs.setdefault(task, []).append(doc)
        for task, numbers in docs.items():
            missing = rows.missing(task, numbers)
            for start in range(0, len(missing), self._sampling.chunk):
                rows.add(task, complete_rows(adapter, plans[task], missing[start : start + self._sampling.chunk]))
        self._table = _align(rows.table(), wanted)
        return self._table

    def finish(self, head: pa.Table, environment: Environment, provenance: Provenance) -> Record | None:
        """Write the supplement as a record of its own, or return None when the base lacked nothing."""
        table = self.measure(head)
        if not table.num_rows or self._plan is None or self._rows is None or self._base.adapter is None:
            return None
        self._base.adapter.close()
        facts: dict[str, Scalar] = {"supplement": True, "supplements": self._base.record.digest}
        record = write_record(self._out, build_evidence(self._plan, table, environment, provenance, facts), table)
        self._rows.discard()
        return record

    def _refuse(self, wanted: pa.Table) -> None:
        """Raise `InputError` when examples of a task that the base has are missing: the comparison would refuse them."""
        names = [name for name in wanted.column("task").to_pylist() if name in self._tasks]
        if names:
            raise InputError(_lacking(len(names), "rows", names[0]))

    def _prepared(self, adapter: Adapter) -> PartialRows:
        if self._rows is not None:
            return self._rows
        plan = seeded(adapter.prepare(), self._sampling)
        evidence = self._base.record.evidence
        if plan.subject.digest != evidence.subject.digest:
            raise InputError(
                f"--base-checkpoint has digest {plan.subject.digest[:19]} and --base measured"
                f" {evidence.subject.digest[:19]} ({evidence.subject.name[:80]}): give the checkpoint that the base"
                " record measured."
            )
        self._told.note("the base lacks some of these examples: measuring them on the base checkpoint")
        self._plan = plan
        self._rows = PartialRows(self._out, work_key(plan))
        self._rows.load(fresh=self._fresh)
        return self._rows


def _lacking(count: int, what: str, task: str) -> str:
    return (
        f"--base lacks {count:,} {what} of this sample, first of task {task}: give --base-checkpoint so that they are"
        " measured, or evaluate no more examples than the base has."
    )


def _align(measured: pa.Table, wanted: pa.Table) -> pa.Table:
    """The rows of `measured` that `wanted` names, renumbered to its occurrences.

    Raises `InputError` when base and head see different prompts for the same example.
    """
    position = {key: i for i, key in enumerate(series_keys(measured, doc=True))}
    chosen = [position[key] for key in series_keys(wanted, doc=True)]
    rows = measured.take(pa.array(chosen, type=pa.int64()))
    if rows.column("item").to_pylist() != wanted.column("item").to_pylist():
        raise InputError(
            "base and head build different prompts for the same examples: their tokenizers or chat templates differ; "
            "evaluate both with the same prompts."
        )
    index = SCHEMA.get_field_index("occurrence")
    return rows.set_column(index, SCHEMA.field(index), wanted.column("occurrence"))
