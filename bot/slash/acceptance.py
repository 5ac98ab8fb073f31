"""What an acceptance may name: something that the report compares, or that the baseline measured."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from assay.baselines.policy import matches

Series = tuple[str, str]
"""(task, metric) of one thing that is compared; the metric is empty where a task has but one."""


def series_of(metric: str) -> Series:
    """The series of a key of `Evidence.metrics` of an evaluation: `task/metric`."""
    task, _, name = metric.partition("/")
    return task, name


def meant(wanted: str, known: Iterable[Series]) -> Series | None:
    """The task pattern and metric that `task`, `pattern`, or `task/metric` means; None when nothing known is meant.

    A task may have a slash in its name: a whole task comes before a task and its metric.
    """
    known = list(known)
    if any(matches(task, [wanted]) for task, _ in known):
        return wanted, ""
    task, slash, metric = wanted.rpartition("/")
    if slash and any(matches(t, [task]) and metric == m for t, m in known):
        return task, metric
    return None


def nearest(wanted: str, known: Sequence[Series], pools: Sequence[str]) -> str:
    """The name most like a wrong one; empty when none is."""
    tasks = list(dict.fromkeys(task for task, _ in known))
    full = [f"{task}/{metric}" for task, metric in known if metric]
    near = difflib.get_close_matches(wanted, [*tasks, *pools, *full], n=1)
    return near[0] if near else ""
