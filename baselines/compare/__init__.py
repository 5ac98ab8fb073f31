"""Comparators: one module for each kind of evidence, named like the kind, with a pure `compare`.

`compare(head, base, policy, today, *, intersect=False, max_flips=200) -> Comparison` raises `InputError` for evidence that cannot be
compared. Nothing else knows the list of kinds.
"""

from __future__ import annotations

import importlib
import re
from datetime import date

from assay.baselines.compare.verdict import MAX_FLIPS, Comparison
from assay.baselines.errors import InputError
from assay.baselines.policy import Policy
from assay.baselines.record import Record


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
    """Compare two records of one kind under a policy, by the comparator of that kind.

    `intersect` compares the common part of imported results; `some_tasks` lets the head have fewer tasks than the base,
    as when a command asked for one of them; `max_flips` bounds the listed examples of each direction.
    """
    kind = head.evidence.kind
    if base.evidence.kind != kind:
        raise InputError(f"the base is {base.evidence.kind} evidence and the head is {kind}: compare two of one kind.")
    name = f"{__name__}.{kind.replace('-', '_')}"
    if re.fullmatch(r"[a-z][a-z0-9-]*", kind) is None:
        raise InputError(f"evidence of kind {kind[:40]!r} is unknown to this assay: update it.")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise InputError(f"evidence of kind {kind!r} is unknown to this assay: update it.") from None
    if not hasattr(module, "compare"):
        raise InputError(f"evidence of kind {kind!r} is unknown to this assay: update it.")
    comparison: Comparison = module.compare(
        head, base, policy, today, intersect=intersect, some_tasks=some_tasks, max_flips=max_flips
    )
    return comparison
