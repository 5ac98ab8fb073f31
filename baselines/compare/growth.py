"""When a growing evaluation may stop, and what may be known before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.baselines.compare.chance import above_chance, chance_line
from assay.baselines.compare.verdict import over
from assay.baselines.errors import InputError
from assay.baselines.evidence import Evidence
from assay.baselines.policy import Policy, TaskLimits, limits_for, matches
from assay.baselines.stats import power, sequential


@dataclass(frozen=True)
class Tally:
    """What has been seen of one task: broke and fixed examples of n."""

    broke: int
    fixed: int
    n: int


@dataclass(frozen=True)
class PlannedTask:
    """A task before it is measured."""

    name: str
    examples: int
    chance: float | None = None
    perplexity: bool = False
    metric: str = ""


def decided(tallies: Mapping[str, Tally], policy: Policy, tasks: Mapping[str, str] | None = None) -> set[str]:
    """Tasks that need no more examples: blocked, improved, or inside the margin on the harmful side.

    A task stops only at the level that it would have if no other hypothesis of its family were rejected (alpha over the
    size of the family), so that examples of other tasks that are still to come cannot undo it. `tasks` is the whole set
    of names that form the families; the tallied ones if left out.
    """
    done: set[str] = set()
    for group in policy.family_groups().values():
        members = [task for task in (tasks or tallies) if matches(task, group.tasks)]
        family = len(members) + (1 if len(members) > 1 and group.pool.enabled and policy.pool.enabled else 0)
        for task in members:
            tally = tallies.get(task)
            if tally is None or not tally.n:
                continue
            limits = limits_for(policy, group, task, perplexity=False)
            if _settled(tally, limits, policy.alpha, policy.alpha / family):
                done.add(task)
    return done


def _settled(tally: Tally, limits: TaskLimits, alpha: float, step: float) -> bool:
    drop = (tally.broke - tally.fixed) / tally.n
    if over(drop, limits.threshold) and float(sequential.anytime_p_worse(tally.broke, tally.fixed, tally.n)) < step:
        return True
    if over(-drop, limits.threshold) and float(sequential.anytime_p_better(tally.broke, tally.fixed, tally.n)) < step:
        return True
    bounds = sequential.confidence_sequence(tally.broke, tally.fixed, tally.n, 1 - 2 * alpha)
    return float(-bounds.low) < limits.margin


def preflight(planned: list[PlannedTask], base: Evidence | None, policy: Policy) -> list[str]:
    """What is wrong with the set-up, known before anything expensive runs.

    Returns warnings. Raises `InputError` when the policy refuses: a baseline no better than guessing on all tasks
    together, or so few examples that not even zero changed answers would prove the margin.
    """
    warnings: list[str] = []
    for group in policy.family_groups().values():
        members = [t for t in planned if matches(t.name, group.tasks) and not t.perplexity]
        family = len(members) + (1 if len(members) > 1 and group.pool.enabled and policy.pool.enabled else 0)
        for task in members:
            limits = limits_for(policy, group, task.name, perplexity=False)
            warnings += _too_few(task, limits, policy, family)
        warnings += _guessing(members, base, policy)
    return warnings


def _too_few(task: PlannedTask, limits: TaskLimits, policy: Policy, family: int) -> list[str]:
    provable = float(power.smallest_provable_margin(task.examples, policy.alpha))
    if provable >= limits.margin:
        enough = int(power.examples_to_bound(0, 0, task.examples, limits.margin, policy.alpha))
        text = (
            f"{task.name[:80]}: {task.examples:,} examples cannot prove a margin of {100 * limits.margin:g} points even if no "
            f"answer changes; {enough:,} could."
        )
        if policy.too_few == "refuse":
            raise InputError(text + " Evaluate more, widen gate.margin, or set gate.too-few: warn.")
        return [text]
    seen = float(
        power.smallest_detectable_drop(
            task.examples, policy.expected_churn, policy.alpha / max(family, 1), policy.power
        )
    )
    if seen > limits.margin:
        return [
            f"{task.name[:80]}: {task.examples:,} examples show drops of {100 * seen:.1f} points or more "
            f"(power {policy.power:g}, {100 * policy.expected_churn:g}% churn); smaller ones will be inconclusive."
        ]
    return []


def _guessing(members: list[PlannedTask], base: Evidence | None, policy: Policy) -> list[str]:
    if base is None:
        return []
    known = []
    for task in members:
        metrics = [m for key, m in base.metrics.items() if key.startswith(f"{task.name}/") and m.scale == "binary"]
        metric = next((m for m in metrics if m.primary), metrics[0] if metrics else None)
        chance = task.chance if task.chance is not None else metric.chance if metric else None
        if metric is not None and metric.n and chance is not None:
            known.append((task.name, metric.value * metric.n, metric.n, chance))
    if not known:
        return []
    total = sum(n for _, _, n, _ in known)
    right = sum(r for _, r, _, _ in known)
    chance = sum(n * c for _, _, n, c in known) / total
    if above_chance(right, total, chance, policy.alpha):
        return []
    text = chance_line(known[0][0] if len(known) == 1 else "all tasks together", right / total, chance, total)
    if policy.at_chance == "refuse":
        raise InputError(text + " Gate a task that the baseline can do, or set gate.at-chance: warn.")
    return [text]
