"""The runner of evaluations: chunks along a seeded permutation, resuming, growth, and the record in the end.

It knows neither harness nor policy: an `Adapter` measures, a `Decide` says which tasks need no more examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from assay.baselines.errors import InputError
from assay.baselines.evaluation import KIND, SCHEMA, check_rows
from assay.baselines.evidence import Environment, Evidence, Provenance, Scalar
from assay.baselines.record import EVIDENCE_NAME, Record, check_folder, read_record, write_record
from assay.quant.partial import PartialRows, complete_rows, work_key
from assay.quant.plan import Adapter, Plan, TaskPlan
from assay.quant.progress import Progress, Silent
from assay.quant.sampling import Sampling, permutation, seeded
from assay.quant.supplement import Base, Supplement, supplement_folder
from assay.quant.table import build_evidence, order_rows

Preflight = Callable[[Plan], list[str]]
"""Called with the plan before the weights are loaded. Returns warnings, or raises `InputError` for a set-up that cannot work."""

Decide = Callable[[Evidence, pa.Table, pa.Table], AbstractSet[str]]
"""Called after each round of a growing sample with the evidence so far (metrics over the rows so far), the rows so far,
and the supplementary base rows so far (empty without a base checkpoint); returns the tasks that need no more examples."""

Capture = Callable[[Iterable[str]], Environment]


@dataclass(frozen=True)
class Outcome:
    """What an evaluation wrote."""

    record: Record
    supplement: Record | None
    resumed: int
    """Examples that an earlier, interrupted run had already measured."""


def run_evaluation(
    adapter: Adapter,
    sampling: Sampling,
    out: Path,
    *,
    provenance: Provenance,
    capture: Capture,
    base: Base | None = None,
    decide: Callable[[Plan], Decide] | None = None,
    preflight: Preflight | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
    attributes: Mapping[str, Scalar] | None = None,
) -> Outcome:
    """Measure `adapter` and write the record to `out` (the supplement of a base to `<out>.base`).

    Finished chunks are kept in `out/.partial`; the same command continues there after an interruption, and a changed
    subject or protocol starts over. Raises `InputError` for what cannot be measured.
    """
    told = progress or Silent()
    check_folder(out)  # hours of measuring are not for nothing
    if base is not None:
        check_folder(supplement_folder(out))
    plan = seeded(adapter.prepare(), sampling)
    for line in (*plan.notes, *(preflight(plan) if preflight else ())):
        told.note(line)
    rest = Supplement(base, sampling, out, fresh, told) if base is not None else None
    if rest is not None:
        rest.foresee(plan)
    run = _Run(adapter, plan, sampling, out)
    resumed = run.resume(fresh, told)
    told.start({task.name: sampling.target(task) for task in plan.tasks})
    environment = capture(plan.libraries)

    def evidence_of(table: pa.Table, extra: Mapping[str, Scalar]) -> Evidence:
        facts = {**_facts(sampling, plan, table), **(attributes or {}), **extra}
        return build_evidence(plan, table, environment, provenance, facts)

    try:
        stop = decide(plan) if decide is not None else None
        decided = _measure(run, rest, stop if sampling.grow else None, evidence_of, told)
        measures, facts = adapter.measures(), adapter.facts()
        table = check_rows(run.table(), "the evaluation")
        adapter.close()
        extra: dict[str, Scalar] = {
            "resumed": resumed,
            **facts,
            **{f"decided.{task}": True for task in sorted(decided)},
        }
        evidence = evidence_of(table, extra)
        evidence = evidence.model_copy(update={"metrics": {**evidence.metrics, **measures}})
        supplement = rest.finish(table, environment, provenance) if rest is not None else None
    except KeyboardInterrupt:
        told.note(f"{run.rows.table().num_rows:,} rows are kept in {out}: run the same command again to continue.")
        raise
    record = write_record(out, evidence, table)
    run.rows.discard()
    return Outcome(record, supplement, resumed)


def _measure(
    run: _Run,
    rest: Supplement | None,
    decide: Decide | None,
    evidence_of: Callable[[pa.Table, Mapping[str, Scalar]], Evidence],
    told: Progress,
) -> set[str]:
    """Measure round by round, one chunk of every open task a round. Returns the tasks that stopped early."""
    decided: set[str] = set()
    while True:
        open_tasks = [task for task in run.plan.tasks if task.name not in decided and run.open(task)]
        if not open_tasks:
            return decided
        for task in open_tasks:
            told.advance(task.name, run.step(task))
            if not run.open(task):
                told.finish(task.name, "done")
        growing = {task.name for task in open_tasks if task.growable and run.open(task)}
        if decide is None or not growing:
            continue
        table = run.table()
        extra = rest.measure(table) if rest is not None else SCHEMA.empty_table()
        for name in sorted(growing & set(decide(evidence_of(table, {}), table, extra))):
            decided.add(name)
            told.finish(name, f"decided after {run.heads[name]:,}")


class _Run:
    """Where a measurement stands: how far along each task's permutation, and the rows so far."""

    def __init__(self, adapter: Adapter, plan: Plan, sampling: Sampling, out: Path) -> None:
        self.plan = plan
        self.heads = {task.name: 0 for task in plan.tasks}
        self.key = work_key(plan)
        self.rows = PartialRows(out, self.key)
        self._adapter = adapter
        self._sampling = sampling
        self._out = out
        self._orders = {task.name: permutation(sampling.seed, task.name, task.examples) for task in plan.tasks}
        self._ranks = {name: _inverse(order) for name, order in self._orders.items()}

    def resume(self, fresh: bool, told: Progress) -> int:
        found, dropped = self.rows.load(fresh=fresh)
        if dropped:
            told.note("the subject or the protocol changed since the interrupted run: starting over")
        if not fresh and (self._out / EVIDENCE_NAME).exists():
            found += self._adopt(told)
        if found:
            told.note(f"continuing: {found:,} examples were measured by an earlier run")
        return found

    def _adopt(self, told: Progress) -> int:
        """Rows of the record that already lies at `out`, when it measured the same: asking for more examples is cheap."""
        try:
            record = read_record(self._out)
        except InputError:
            told.note(f"the record at {self._out} cannot be read and will be replaced")
            return 0
        same = record.evidence.subject.digest == self.plan.subject.digest and record.evidence.protocol == dict(
            self.plan.protocol
        )
        if not same or record.rows is None or record.evidence.kind != KIND:
            return 0
        table = check_rows(record.rows, str(self._out))
        known = set(self.heads)
        table = table.filter(pa.array([task in known for task in table.column("task").to_pylist()], type=pa.bool_()))
        self.rows.adopt(table)
        return len(set(zip(table.column("task").to_pylist(), table.column("doc_id").to_pylist(), strict=True)))

    def open(self, task: TaskPlan) -> bool:
        return self.heads[task.name] < self._sampling.target(task)

    def step(self, task: TaskPlan) -> int:
        """Measure the next chunk of a task; returns how many examples it has."""
        start = self.heads[task.name]
        stop = min(start + self._sampling.chunk, self._sampling.target(task))
        missing = self.rows.missing(task.name, self._orders[task.name][start:stop].tolist())
        if missing:
            self.rows.add(task.name, complete_rows(self._adapter, task, missing))
        self.heads[task.name] = stop
        return stop - start

    def table(self) -> pa.Table:
        return order_rows(self.rows.table(), self._ranks, self.heads)


def _facts(sampling: Sampling, plan: Plan, table: pa.Table) -> dict[str, Scalar]:
    counts: dict[str, set[int]] = {}
    for task, doc in zip(table.column("task").to_pylist(), table.column("doc_id").to_pylist(), strict=True):
        counts.setdefault(task, set()).add(doc)
    facts: dict[str, Scalar] = {
        "sampling": sampling.name,
        "seed": sampling.seed,
        "chunk": sampling.chunk,
        "cap": sampling.cap,
        "examples": sampling.examples,
    }
    for task in plan.tasks:
        facts[f"examples.{task.name}"] = len(counts.get(task.name, ()))
        facts[f"available.{task.name}"] = task.examples
    return facts


def _inverse(order: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    return ranks
