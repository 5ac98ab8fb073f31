"""Comparator of evaluations: pair the examples, test each task and its group's pool, and say what changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
import pyarrow as pa

from assay.baselines.compare import pairing
from assay.baselines.compare.chance import at_chance
from assay.baselines.compare.flips import list_flips
from assay.baselines.compare.judge import Measured, judge
from assay.baselines.compare.protocol import check_protocol
from assay.baselines.compare.samples import Sample, measure, on_scale, pool
from assay.baselines.compare.verdict import MAX_FLIPS, Comparison, Finding, Flip, State, summarise
from assay.baselines.environment import differences
from assay.baselines.errors import InputError
from assay.baselines.evaluation import KIND, check_rows, column_numpy, metric_key
from assay.baselines.evidence import UNDECLARED, Evidence, Metric
from assay.baselines.policy import (
    Group,
    Policy,
    accepted_for,
    exceeded_for,
    has_pool,
    limits_for,
    matches,
    metric_for,
    pool_limits,
)
from assay.baselines.record import Record


@dataclass(frozen=True)
class _Wanted:
    """One series that the policy gates, in one group."""

    group: str
    series: pairing.SeriesName
    metric: Metric


def compare(
    head: Record,
    base: Record,
    policy: Policy,
    today: date,
    *,
    intersect: bool = False,
    some_tasks: bool = False,
    max_flips: int = MAX_FLIPS,
) -> Comparison:
    """Head against base.

    Raises `InputError` for invalid tables, unequal example sets and baselines at chance (unless the policy only warns),
    and `ProtocolMismatchError` when the two were measured differently. A head that was measured on fewer examples of
    the same seeded order than the base is compared on those; `intersect` allows any common part of undeclared results.
    """
    base_rows, head_rows = check_rows(base.rows, "base"), check_rows(head.rows, "head")
    tasks, warnings = _common_tasks(base_rows, head_rows, some_tasks)
    check_protocol(base.evidence, head.evidence, tasks)
    if UNDECLARED in (base.evidence.protocol, head.evidence.protocol):
        warnings.append("how the results were measured is undeclared, so that agreement could not be checked")
    environment = differences(base.evidence.environment, head.evidence.environment)
    if environment and policy.on_environment_change == "block":
        raise InputError(
            f"the environment changed ({environment[0]}) and the policy blocks that: measure the base again in this environment."
        )
    wanted = _wanted(head.evidence, base.evidence, head_rows, tasks, policy)
    numbers = {w.series: i for i, w in enumerate({w.series: w for w in wanted}.values())}
    names = {number: series for series, number in numbers.items()}
    pairs = pairing.pair(pairing.select(base_rows, numbers), pairing.select(head_rows, numbers), names)
    _check_sets(pairs, names, head.evidence, base.evidence, intersect)
    samples = _samples(wanted, numbers, pairs, base_rows, head_rows, policy)
    warnings += _ranges(wanted)
    warnings += at_chance(samples, {(w.group, w.series[0]): w.metric.chance for w in wanted}, policy)
    growing = head.evidence.attributes.get("sampling") == "growing"
    findings, sizes = _judge_groups(samples, policy, today, growing)
    broke, fixed, flips = _flips(samples, numbers, pairs, base_rows, head_rows, findings, max_flips)
    return Comparison(
        kind=KIND,
        overall=summarise(findings),
        findings=findings,
        flips=flips,
        broke=broke,
        fixed=fixed,
        examples=len(pairs.codes),
        environment=environment,
        warnings=warnings,
        alpha=policy.alpha,
        power=policy.power,
        hypotheses=sizes,
        growing=growing,
    )


def _common_tasks(base: pa.Table, head: pa.Table, some: bool) -> tuple[set[str], list[str]]:
    """Tasks to compare. A task that only the head has is named; one that the head dropped refuses the comparison, unless
    only `some` were asked for."""
    before = {name[0] for name in pairing.series_names(base)}
    after = {name[0] for name in pairing.series_names(head)}
    if not before & after:
        raise InputError(
            f"base and head share no task (base has {_some(before)}, head has {_some(after)}): evaluate the same tasks."
        )
    if before - after and not some:
        raise InputError(
            f"the head has no results for {_some(before - after)}, which the base has: evaluate the same tasks."
        )
    verb = "has" if len(after - before) == 1 else "have"
    return before & after, [f"{_some(after - before)} {verb} no baseline yet"] if after - before else []


def _some(names: set[str]) -> str:
    listed = sorted(names)
    return ", ".join(name[:60] for name in listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")


def _wanted(head: Evidence, base: Evidence, rows: pa.Table, tasks: set[str], policy: Policy) -> list[_Wanted]:
    available: dict[str, list[pairing.SeriesName]] = {}
    keys: dict[str, pairing.SeriesName] = {}
    for series in pairing.series_names(rows):
        available.setdefault(series[0], []).append(series)
        if keys.setdefault(metric_key(*series), series) != series:
            raise InputError(
                f"two series of the head go by the name {metric_key(*series)[:120]}: rename the task or the metric."
            )
    found: list[_Wanted] = []
    for group_name, group in policy.family_groups().items():
        for task in sorted(tasks):
            if matches(task, group.tasks):
                series, metric = _choose(head, base, task, available[task], group, policy)
                found.append(_Wanted(group_name, series, metric))
    if not found:
        raise InputError(
            f"no group of the policy matches a measured task ({_some(tasks)}): name them under gate.groups."
        )
    return found


def _choose(
    head: Evidence, base: Evidence, task: str, available: list[pairing.SeriesName], group: Group, policy: Policy
) -> tuple[pairing.SeriesName, Metric]:
    """The series that a task is gated on: the policy's metric, else the one its evidence calls primary, else the only one."""
    described = [(s, head.metrics[key]) for s in available if (key := metric_key(*s)) in head.metrics]
    if not described:
        raise InputError(f"the head's evidence describes no metric of {task[:60]}: evaluate or import it again.")
    named = metric_for(policy, group, task)
    if named is not None:
        described = [(s, m) for s, m in described if named in (s[1], f"{s[1]}@{s[2]}")]
        if not described:
            have = ", ".join(sorted({s[1] for s in available}))
            raise InputError(
                f"the policy gates {task[:60]} on {named!r}, and the evidence has {have[:120]}: name one of these."
            )
    series, metric = next(((s, m) for s, m in described if m.primary), described[0])
    other = base.metrics.get(metric_key(*series))
    if other is None:
        raise InputError(f"the base has no {metric_key(*series)[:120]}: evaluate both with the same assay.")
    if other.direction != metric.direction:
        raise InputError(
            f"{metric_key(*series)[:120]} counts as better when {other.direction} in base and {metric.direction} in head: evaluate both the same way."
        )
    if other.scale != metric.scale or metric.scale == "measure":
        raise InputError(
            f"{metric_key(*series)[:120]} is {other.scale} in base and {metric.scale} in head: evaluate both the same way."
        )
    if metric.scale == "bounded" and (other.low, other.high) != (metric.low, metric.high):
        raise InputError(f"{metric_key(*series)[:120]} has another range in base than in head: declare the same range.")
    return series, _with_chance(metric, other)


def _with_chance(head: Metric, base: Metric) -> Metric:
    """The head's metric with the base's chance level where the head does not know one."""
    return head if head.chance is not None or base.chance is None else head.model_copy(update={"chance": base.chance})


def _check_sets(
    pairs: pairing.Pairs, names: dict[int, pairing.SeriesName], head: Evidence, base: Evidence, intersect: bool
) -> None:
    if intersect and UNDECLARED in (head.protocol, base.protocol):
        return
    if pairs.missing_in_base:
        number, count = max(pairs.missing_in_base.items(), key=lambda entry: entry[1])
        raise InputError(
            f"{count:,} examples of {names[number][0][:60]} are in head and not in base: measure them on the base checkpoint "
            "(assay evaluate --base-checkpoint), or compare the common part of imported results with --intersect."
        )
    seeded = isinstance(head.protocol, dict) and "sampling.seed" in head.protocol
    if pairs.missing_in_head and not seeded:
        number, count = max(pairs.missing_in_head.items(), key=lambda entry: entry[1])
        raise InputError(
            f"{count:,} examples of {names[number][0][:60]} are in base and not in head: evaluate the same examples, "
            "or compare the common part of imported results with --intersect."
        )


def _ranges(wanted: Sequence[_Wanted]) -> list[str]:
    """What is said of graded scores that do not run from 0 to 1: the report shows shares of their range."""
    said = []
    for series, metric in {w.series: w.metric for w in wanted}.items():
        low, high = _range(metric)
        if (low, high) != (0.0, 1.0):
            said.append(f"{metric_key(*series)[:120]} is shown as a share of its range, {low:g} to {high:g}")
    return said


def _samples(
    wanted: Sequence[_Wanted],
    numbers: dict[pairing.SeriesName, int],
    pairs: pairing.Pairs,
    base: pa.Table,
    head: pa.Table,
    policy: Policy,
) -> list[Sample]:
    base_score, head_score = column_numpy(base, "score"), column_numpy(head, "score")
    weight, base_weight = column_numpy(head, "weight"), column_numpy(base, "weight")
    cluster_codes, clusters = pairing.dictionary_codes(head, "cluster")
    same = _same_response(base, head, pairs)
    starts = np.searchsorted(pairs.codes, np.arange(len(numbers) + 1))
    groups = policy.family_groups()
    samples = []
    for want in wanted:
        number = numbers[want.series]
        part = slice(int(starts[number]), int(starts[number + 1]))
        rows, base_at = pairs.head[part], pairs.base[part]
        if not len(rows):
            raise InputError(f"base and head share no example of {want.series[0][:60]}: evaluate the same examples.")
        if not np.array_equal(weight[rows], base_weight[base_at]):
            raise InputError(
                f"the same documents of {want.series[0][:60]} have other weights in base than in head: count words the same way."
            )
        codes = cluster_codes[rows]
        samples.append(
            on_scale(
                Sample(
                    group=want.group,
                    task=want.series[0],
                    metric=want.series[1] if want.series[2] in ("", "none") else f"{want.series[1]}@{want.series[2]}",
                    scale=want.metric.scale,
                    base=base_score[base_at],
                    head=head_score[rows],
                    weight=weight[rows],
                    limits=limits_for(
                        policy, groups[want.group], want.series[0], perplexity=want.metric.scale == "loglik"
                    ),
                    clusters=_densify(codes) if clusters and (codes >= 0).any() else None,
                    identical=bool(same[part].all()),
                ),
                *_range(want.metric),
                lower_is_better=want.metric.direction == "lower",
            )
        )
    return samples


def _range(metric: Metric) -> tuple[float, float]:
    """What a score can be: 0 or 1, or the declared range of a graded one."""
    if metric.scale != "bounded":
        return 0.0, 1.0
    return metric.low if metric.low is not None else 0.0, metric.high if metric.high is not None else 1.0


def _densify(codes: pairing.IntArray) -> pairing.IntArray:
    """Cluster codes from 0; an example without a cluster is a cluster of its own."""
    lonely = codes < 0
    codes = codes.copy()
    codes[lonely] = codes.max() + 1 + np.arange(int(lonely.sum()))
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)


def _same_response(base: pa.Table, head: pa.Table, pairs: pairing.Pairs) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each pair's raw responses are known and the same in every bit."""
    words = []
    for table, rows in ((base, pairs.base), (head, pairs.head)):
        column = table.column("response").combine_chunks()
        column = column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
        known = np.asarray(column.is_valid())
        filled = column.fill_null(bytes(8))
        values = np.frombuffer(filled.buffers()[1], dtype=np.uint64, count=filled.offset + len(filled))[filled.offset :]
        words.append((known[rows], values[rows]))
    (known_base, value_base), (known_head, value_head) = words
    same: np.ndarray[tuple[int], np.dtype[np.bool_]] = known_base & known_head & (value_base == value_head)
    return same


def _judge_groups(
    samples: Sequence[Sample], policy: Policy, today: date, growing: bool
) -> tuple[list[Finding], dict[str, int]]:
    """Findings of all groups: each scale of a group is one Holm family with its pool."""
    findings: list[Finding] = []
    sizes: dict[tuple[str, str], int] = {}
    for name, group in policy.family_groups().items():
        for scale in ("binary", "bounded", "loglik"):
            members = [s for s in samples if s.group == name and s.scale == scale]
            if not members:
                continue
            pooled = has_pool(policy, group) and scale != "loglik" and len(members) > 1
            hypotheses = [*members, pool(members, pool_limits(policy, group))] if pooled else members
            family = measure(hypotheses, policy.alpha, growing=growing)
            judged = [_accept(f, policy, today) for f in judge(family, policy.alpha, policy.power)]
            if pooled:
                judged = _without_accepted(judged, members, family, group, policy, today, growing)
            findings += judged
            sizes[name, scale] = len(judged)
    several = {name for name, _ in sizes if sum(other == name for other, _ in sizes) > 1}
    words = {"binary": "accuracy", "bounded": "graded scores", "loglik": "perplexity"}
    return findings, {f"{name}, {words[s]}" if name in several else name: size for (name, s), size in sizes.items()}


def _accept(finding: Finding, policy: Policy, today: date) -> Finding:
    if finding.state is not State.REGRESSED:
        return finding
    labels = (finding.task, f"{finding.task}:{finding.group}") if finding.pooled else (finding.task,)
    for label in labels:
        entry = accepted_for(policy, label, finding.metric, finding.drop, today)
        if entry is not None:
            return replace(finding, accepted=entry)
    short = [e for label in labels if (e := exceeded_for(policy, label, finding.metric, finding.drop, today))]
    return replace(finding, exceeded=max(short, key=lambda e: e.up_to or 0.0)) if short else finding


def _without_accepted(
    judged: list[Finding],
    members: list[Sample],
    family: list[Measured],
    group: Group,
    policy: Policy,
    today: date,
    growing: bool,
) -> list[Finding]:
    """Take accepted tasks out of the pool, so that what was accepted once does not block again through the pool."""
    taken = 0
    while True:
        kept = [s for s, f in zip(members, judged, strict=False) if f.accepted is None]
        if len(members) - len(kept) == taken:
            return judged
        taken = len(members) - len(kept)
        # One task alone is no pool: it has its own hypothesis.
        rest = measure([pool(kept, pool_limits(policy, group))], policy.alpha, growing=growing) if len(kept) > 1 else []
        # Another pool moves Holm's steps, which may bring out one more accepted regression: then it is taken out too.
        again = judge([*family[:-1], *rest], policy.alpha, policy.power)
        judged = [_accept(f, policy, today) for f in again]


def _flips(
    samples: Sequence[Sample],
    numbers: dict[pairing.SeriesName, int],
    pairs: pairing.Pairs,
    base: pa.Table,
    head: pa.Table,
    findings: Sequence[Finding],
    limit: int,
) -> tuple[int, int, list[Flip]]:
    """Counts of changed binary examples over the compared series, and the list of those that say most."""
    signs = np.zeros(len(numbers))  # 1 where more is better, -1 where less is, 0 where scores are not 0/1
    for (task, metric, name), number in numbers.items():
        signs[number] = _sign(samples, task, metric, name)
    gain = (column_numpy(head, "score")[pairs.head] - column_numpy(base, "score")[pairs.base]) * signs[pairs.codes]
    broke, fixed = gain < 0, gain > 0
    changed = broke | fixed
    worst_first = {f.task for f in findings if f.state is State.REGRESSED and not f.pooled}
    flips = list_flips(base, head, pairs.base[changed], pairs.head[changed], broke[changed], limit)
    flips.sort(key=lambda flip: (not flip.broke, flip.task not in worst_first))
    return int(broke.sum()), int(fixed.sum()), flips


def _sign(samples: Sequence[Sample], task: str, metric: str, filter_name: str) -> int:
    label = metric if filter_name in ("", "none") else f"{metric}@{filter_name}"
    sample = next(s for s in samples if s.task == task and s.metric == label)
    return 0 if sample.scale != "binary" else -1 if sample.lower_is_better else 1
