"""What a team demands of a change: thresholds, margins, floors and accepted regressions.

Thresholds and margins are written as people say them: points of accuracy (0.5 is half a percentage point) and percent
of perplexity. Nothing here reads files; `assay.baselines.config` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from assay.baselines.errors import InputError

POOL = "pool"
SMALLEST_ALPHA = 1e-9

Points = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Pattern = Annotated[str, Field(min_length=1, max_length=200)]
Rise = Annotated[float, Field(ge=0, le=1_000_000)]


class Setting(BaseModel):
    """A part of `assay.yml`: kebab-case keys, unknown keys refused, values fixed after reading."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        populate_by_name=True,
        alias_generator=lambda name: name.replace("_", "-"),
    )


class Limits(Setting):
    """Limits of one task, group or pool; what is left out is inherited."""

    threshold: Points | None = Field(
        None, description="Drop in points (percent for perplexity) over which a significant change blocks."
    )
    margin: Annotated[float, Field(gt=0, le=100)] | None = Field(
        None, description="Equivalence margin in points (percent for perplexity)."
    )
    metric: Pattern | None = Field(
        None, description="The metric to gate, for example acc_norm; the task's primary one if left out."
    )
    floor: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Accuracy that the head must not be below, as a proportion."
    )


class PoolLimits(Setting):
    """Limits of the pooled comparison of a group."""

    enabled: bool = Field(True, description="Whether the pooled comparison is one more hypothesis of the group.")
    threshold: Points | None = Field(None, description="As for tasks, for the pooled drop.")
    margin: Annotated[float, Field(gt=0, le=100)] | None = Field(
        None, description="As for tasks, for the pooled change."
    )


class Group(Limits):
    """Tasks that form one Holm family together with their pool."""

    tasks: Annotated[list[Pattern], Field(min_length=1, max_length=1000)] = Field(
        description="Task names or patterns such as mmlu_*."
    )
    pool: PoolLimits = Field(
        default_factory=lambda: PoolLimits(), description="Limits of the group's pooled comparison."
    )


class Perplexity(Setting):
    """Limits of perplexity tasks, relative, in percent."""

    threshold: Points = Field(1.0, description="Rise of perplexity in percent over which a significant change blocks.")
    margin: Annotated[float, Field(gt=0, le=100)] = Field(2.0, description="Equivalence margin in percent.")


class Speed(Setting):
    """Limits of a kernel's time, relative, in percent."""

    threshold: Points | None = Field(
        None, description="Slowdown in percent over which a shown change blocks; the margin if left out."
    )
    margin: Annotated[float, Field(gt=0, le=100)] | None = Field(
        None,
        description="Change in percent inside which times are the same; what `assay bench --margin` fixed if left out.",
    )


class ModelLimits(Setting):
    """Limits of a compiled model; what is left out is inherited, or not asked."""

    cycles: Rise | None = Field(None, description="Rise of cycles in percent over which the gate blocks.")
    dram: Rise | None = Field(None, description="Rise of DRAM traffic in percent over which the gate blocks.")
    vtcm: Rise | None = Field(None, description="Rise of the VTCM peak in percent over which the gate blocks.")
    max_cycles: Annotated[int, Field(ge=0)] | None = Field(None, description="Budget of cycles.")
    max_latency_ms: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Budget of estimated latency, in ms; for machines with a clock."
    )
    max_dram_bytes: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Budget of DRAM traffic, read and written together, in bytes."
    )
    max_vtcm_bytes: Annotated[int, Field(ge=0)] | None = Field(None, description="Budget of the VTCM peak, in bytes.")
    min_share: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Least share of multiply-accumulates on the NPU, as a proportion."
    )
    fallbacks: Literal["block", "report"] | None = Field(
        None, description="Whether an operator that newly runs on the host blocks."
    )
    allowed: Annotated[list[Pattern], Field(max_length=1000)] | None = Field(
        None, description="Operators that may run on the host, as names or patterns such as aten.max_pool2d*."
    )


class Npu(ModelLimits):
    """Limits of compiled models; counts are exact, so that there is no significance to ask for."""

    cycles: Rise | None = Field(1.0, description="Rise of cycles in percent over which the gate blocks.")
    fallbacks: Literal["block", "report"] | None = Field(
        "block", description="Whether an operator that newly runs on the host blocks."
    )
    on_compiler_change: Literal["advise", "judge"] = Field(
        "advise", description="`judge` lets a difference block although another compiler made the baseline."
    )
    models: Annotated[dict[Pattern, ModelLimits], Field(max_length=1000)] = Field(
        default_factory=dict, description="Limits by model name or pattern; later entries win."
    )


class Accepted(Setting):
    """A regression that somebody accepted on purpose, until a day."""

    task: Pattern = Field(description="Task name or pattern; `pool` or `pool:<group>` for a pooled comparison.")
    metric: Pattern | None = Field(None, description="Only this metric; any if left out.")
    reason: Annotated[str, Field(min_length=3, max_length=500)] = Field(description="Why it is accepted.")
    by: Annotated[str, Field(min_length=1, max_length=100)] = Field(description="Who accepted it.")
    expires: date = Field(description="Last day on which it holds, YYYY-MM-DD.")
    up_to: Points | None = Field(None, description="Largest drop in points (percent for perplexity) that it covers.")


class Policy(Setting):
    """The `gate` part of `assay.yml`."""

    alpha: Annotated[float, Field(gt=0, lt=0.5)] = Field(0.05, description="Error rate of each Holm family, one-sided.")
    power: Annotated[float, Field(ge=0.5, lt=1)] = Field(
        0.8, description="Power for which needed examples are computed."
    )
    threshold: Points = Field(0.5, description="Drop in points of accuracy over which a significant change blocks.")
    margin: Annotated[float, Field(gt=0, le=100)] = Field(1.0, description="Equivalence margin in points of accuracy.")
    perplexity: Perplexity = Field(default_factory=lambda: Perplexity(), description="Limits of perplexity tasks.")
    speed: Speed = Field(default_factory=lambda: Speed(), description="Limits of kernels' times.")
    npu: Npu = Field(default_factory=lambda: Npu(), description="Limits and budgets of compiled models.")
    on_inconclusive: Literal["pass", "block"] = Field(
        "pass", description="`block` makes an inconclusive gate exit 1 and ask for action."
    )
    on_environment_change: Literal["report", "block"] = Field(
        "report", description="Whether another hardware or library version refuses the comparison."
    )
    at_chance: Literal["refuse", "warn"] = Field(
        "refuse", description="What to do when the baseline does no better than guessing."
    )
    too_few: Literal["refuse", "warn"] = Field(
        "warn", description="What to do when the examples cannot prove the margin even with no change."
    )
    expected_churn: Annotated[float, Field(gt=0, le=1)] = Field(
        0.06, description="Share of examples expected to flip, for planning before there is any measurement."
    )
    tasks: Annotated[dict[Pattern, Limits], Field(max_length=1000)] = Field(
        default_factory=dict, description="Limits by task name or pattern; later entries win."
    )
    groups: Annotated[dict[Pattern, Group], Field(max_length=100)] = Field(
        default_factory=dict, description="Holm families; one group of all tasks if left out."
    )
    pool: PoolLimits = Field(
        default_factory=lambda: PoolLimits(), description="Limits of the pool when no groups are declared."
    )
    accepted: Annotated[list[Accepted], Field(max_length=1000)] = Field(
        default_factory=list, description="Regressions accepted on purpose."
    )

    @model_validator(mode="after")
    def _margin_not_below_threshold(self) -> Policy:
        if self.margin < self.threshold:
            raise ValueError(_contradiction(self.margin, self.threshold))
        if self.alpha < SMALLEST_ALPHA:
            raise ValueError(
                f"alpha {self.alpha:g} is smaller than tests can resolve: give at least {SMALLEST_ALPHA:g}"
            )
        for name, limits in self._stated().items():
            if limits.margin is not None and limits.threshold is not None and limits.margin < limits.threshold:
                raise ValueError(f"{name}: {_contradiction(limits.margin, limits.threshold)}")
        return self

    @model_validator(mode="after")
    def _accepts_no_pool_that_is_not_compared(self) -> Policy:
        known = pools(self)
        for entry in self.accepted:
            if entry.task.partition(":")[0] == POOL and not any(matches(name, [entry.task]) for name in known):
                there = f"only {', '.join(known[:5])}" if known else "none"
                raise ValueError(
                    f"accepted: {entry.task[:80]!r} accepts a pooled comparison that this policy does not make (it has {there}); "
                    "enable the pool or remove the entry"
                )
        return self

    def _stated(self) -> dict[str, Limits | PoolLimits | Perplexity | Speed]:
        """Every part of the policy that may state a threshold and a margin of its own."""
        stated: dict[str, Limits | PoolLimits | Perplexity | Speed] = {
            "perplexity": self.perplexity,
            "speed": self.speed,
            "pool": self.pool,
        }
        stated |= {f"tasks.{name}": limits for name, limits in self.tasks.items()}
        stated |= {f"groups.{name}": group for name, group in self.groups.items()}
        return stated | {f"groups.{name}.pool": group.pool for name, group in self.groups.items()}

    def family_groups(self) -> dict[str, Group]:
        """The declared groups, or one group of all tasks."""
        return self.groups or {"all": Group(tasks=["*"], pool=self.pool)}


def has_pool(policy: Policy, group: Group) -> bool:
    """Whether the pooled comparison of a group is made, where the group has more than one task."""
    return policy.pool.enabled and group.pool.enabled


def pools(policy: Policy) -> list[str]:
    """The names by which pooled comparisons are accepted: `pool` for each of them, `pool:<group>` for one."""
    found = [f"{POOL}:{name}" for name, group in policy.family_groups().items() if has_pool(policy, group)]
    return [POOL, *found] if found else []


class TaskLimits(BaseModel):
    """Resolved limits of one hypothesis, as proportions (0.005 for half a point)."""

    model_config = ConfigDict(frozen=True)

    threshold: float
    margin: float
    metric: str | None = None
    floor: float | None = None


def _contradiction(margin: float, threshold: float) -> str:
    return f"margin {margin:g} is below threshold {threshold:g}; a drop between them could neither block nor be proven harmless"


def _resolved(where: str, threshold: float, margin: float, **others: Any) -> TaskLimits:
    """Limits in proportions. Raises `InputError` when those that meet in one hypothesis contradict each other."""
    if margin < threshold:
        raise InputError(
            f"the policy for {where[:80]}: {_contradiction(margin, threshold)}: set its margin beside its threshold."
        )
    return TaskLimits(threshold=threshold / 100, margin=margin / 100, **others)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name is one of the patterns (`*` and `?` as in file names, case matters)."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def limits_for(policy: Policy, group: Group, task: str, *, perplexity: bool) -> TaskLimits:
    """Limits of a task: the policy's defaults, then its group's, then each matching entry of `tasks` in order.

    Raises `InputError` when a threshold and a margin from different places contradict each other.
    """
    threshold, margin = (
        (policy.perplexity.threshold, policy.perplexity.margin) if perplexity else (policy.threshold, policy.margin)
    )
    floor: float | None = None
    for layer in _layers(policy, group, task):
        threshold = layer.threshold if layer.threshold is not None else threshold
        margin = layer.margin if layer.margin is not None else margin
        floor = layer.floor if layer.floor is not None else floor
    return _resolved(
        task, threshold, margin, metric=metric_for(policy, group, task), floor=None if perplexity else floor
    )


def metric_for(policy: Policy, group: Group, task: str) -> str | None:
    """The metric that the policy gates a task on, if it names one."""
    named = [layer.metric for layer in _layers(policy, group, task) if layer.metric]
    return named[-1] if named else None


def _layers(policy: Policy, group: Group, task: str) -> list[Limits]:
    return [group, *(limits for pattern, limits in policy.tasks.items() if matches(task, [pattern]))]


def speed_limits(policy: Policy, case: str, registered: float) -> TaskLimits:
    """Limits of a kernel's case: the margin that was registered before the measurement (a proportion), then the policy's
    `speed`, then each matching entry of `tasks` in order. Without a threshold of its own the margin is the threshold.

    Raises `InputError` when a threshold and a margin from different places contradict each other.
    """
    margin = policy.speed.margin if policy.speed.margin is not None else 100 * registered
    threshold = policy.speed.threshold
    for pattern, limits in policy.tasks.items():
        if matches(case, [pattern]):
            margin = limits.margin if limits.margin is not None else margin
            threshold = limits.threshold if limits.threshold is not None else threshold
    return _resolved(case, threshold if threshold is not None else margin, margin)


def model_limits(policy: Policy, model: str) -> ModelLimits:
    """Limits of a compiled model: those of `npu`, then each matching entry of `npu.models` in order."""
    whole = {name: getattr(policy.npu, name) for name in ModelLimits.model_fields}
    for pattern, limits in policy.npu.models.items():
        if matches(model, [pattern]):
            whole |= {name: value for name in whole if (value := getattr(limits, name)) is not None}
    return ModelLimits(**whole)


def pool_limits(policy: Policy, group: Group) -> TaskLimits:
    """Limits of a group's pooled comparison: its own, else the group's, else the policy's."""
    threshold = next(t for t in (group.pool.threshold, group.threshold, policy.threshold) if t is not None)
    margin = next(m for m in (group.pool.margin, group.margin, policy.margin) if m is not None)
    return _resolved("the pool of all tasks", threshold, margin)


def accepted_for(policy: Policy, task: str, metric: str, drop: float, today: date) -> Accepted | None:
    """The acceptance that covers this drop (a proportion) today, if any; expired ones cover nothing."""
    holding = _holding(policy, task, metric, today)
    return next((e for e in holding if e.up_to is None or drop <= e.up_to / 100 + 1e-12), None)


def exceeded_for(policy: Policy, task: str, metric: str, drop: float, today: date) -> Accepted | None:
    """The acceptance of the largest drop that is meant for this task today, where the drop is larger than any covers."""
    holding = _holding(policy, task, metric, today)
    covered = any(e.up_to is None or drop <= e.up_to / 100 + 1e-12 for e in holding)
    return None if covered else max(holding, key=lambda e: e.up_to or 0.0, default=None)


def _holding(policy: Policy, task: str, metric: str, today: date) -> list[Accepted]:
    """The acceptances of a task's metric that have not expired, whatever drop they cover."""
    return [e for e in policy.accepted if matches(task, [e.task]) and e.metric in (None, metric) and e.expires >= today]
