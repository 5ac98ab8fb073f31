"""The policy's part in an evaluation: what is refused before it starts, and when a growing sample may stop."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from assay.baselines.compare import growth, pairing
from assay.baselines.compare.protocol import check_protocol
from assay.baselines.evaluation import check_rows, column_numpy
from assay.baselines.evidence import Environment, Evidence, Provenance
from assay.baselines.policy import Policy, limits_for, matches
from assay.baselines.record import Record
from assay.quant.evaluation import Decide, Preflight
from assay.quant.plan import Plan, TaskPlan
from assay.quant.sampling import Sampling
from assay.quant.table import build_evidence, build_table


def preflight_of(policy: Policy, base: Evidence | None, sampling: Sampling, provenance: Provenance) -> Preflight:
    """A check of the plan before the weights are loaded.

    It refuses a protocol that differs from the base's, and whatever `growth.preflight` refuses: too few examples for
    the margin, a baseline at chance.
    """

    def check(plan: Plan) -> list[str]:
        if base is not None:
            empty = build_evidence(plan, build_table([]), Environment(), provenance, {})
            check_protocol(base, empty, [task.name for task in plan.tasks])
        planned = []
        for task in plan.tasks:
            metric = _gated(task, policy)
            series = next((m for m in task.metrics if m.name == metric), task.metrics[0])
            planned.append(
                growth.PlannedTask(
                    task.name, sampling.target(task), series.chance, perplexity=series.scale == "loglik", metric=metric
                )
            )
        return growth.preflight(planned, base, policy)

    return check


def stop_rule(policy: Policy, base: Record, tasks: tuple[TaskPlan, ...]) -> Decide:
    """Stop a task when its gated metric is decided against the base by the policy's anytime-valid rule.

    Tasks whose gated metric is not 0/1 have no such rule here and grow to the cap.
    """
    base_rows = check_rows(base.rows, "--base")
    wanted: dict[pairing.SeriesName, int] = {}
    for number, task in enumerate(tasks):
        metric = _gated(task, policy)
        series = [m for m in task.metrics if m.name == metric and m.scale == "binary"]
        if series and task.growable:
            chosen = next((m for m in series if m.primary), series[0])
            wanted[(task.name, chosen.name, chosen.filter)] = number
    names = {number: series for series, number in wanted.items()}

    def decide(_evidence: Evidence, rows: pa.Table, supplement: pa.Table) -> set[str]:
        known = pa.concat_tables([base_rows, supplement]).unify_dictionaries()
        pairs = pairing.pair(pairing.select(known, wanted), pairing.select(rows, wanted), names)
        before, after = column_numpy(known, "score")[pairs.base], column_numpy(rows, "score")[pairs.head]
        tallies = {}
        for number, series in names.items():
            mine = pairs.codes == number
            broke, fixed = np.sum(before[mine] > after[mine]), np.sum(before[mine] < after[mine])
            tallies[series[0]] = growth.Tally(int(broke), int(fixed), int(mine.sum()))
        return growth.decided(tallies, policy, {task.name: "" for task in tasks})

    return decide


def _gated(task: TaskPlan, policy: Policy) -> str:
    """Name of the metric that the policy gates: the one that it names, else the task's primary one."""
    for group in policy.family_groups().values():
        if matches(task.name, group.tasks):
            named = limits_for(policy, group, task.name, perplexity=not task.growable).metric
            if named is not None and any(metric.name == named for metric in task.metrics):
                return named
    return next((metric.name for metric in task.metrics if metric.primary), task.metrics[0].name)
