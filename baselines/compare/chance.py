"""Baselines that only guess, and samples too small for their margin: set-ups that no evaluation can decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.baselines.compare.samples import Sample
from assay.baselines.errors import InputError
from assay.baselines.policy import Policy
from assay.baselines.stats import intervals


def at_chance(samples: Sequence[Sample], chances: Mapping[tuple[str, str], float | None], policy: Policy) -> list[str]:
    """Warnings for tasks whose baseline is not above guessing.

    A group whose examples together are not above guessing is refused (`InputError`) unless the policy only warns: its
    tasks would come out equivalent whatever happened to the model. One task of a group that is above chance as a whole
    may lie near it by accident, and is only named.
    """
    warnings: list[str] = []
    for group in dict.fromkeys(s.group for s in samples):
        members = [
            (s, chance)
            for s in samples
            if s.group == group
            and s.scale == "binary"
            and not s.lower_is_better
            and (chance := chances.get((s.group, s.task))) is not None
        ]
        if not members:
            continue
        total = sum(s.n for s, _ in members)
        right = sum(float(s.base.sum()) for s, _ in members)
        expected = sum(s.n * chance for s, chance in members) / total
        if not above_chance(right, total, expected, policy.alpha):
            text = chance_line(
                "all tasks together" if len(members) > 1 else members[0][0].task, right / total, expected, total
            )
            if policy.at_chance == "refuse":
                raise InputError(text + " Gate a task that the baseline can do, or set gate.at-chance: warn.")
            warnings.append(text)
            continue
        low = [s.task for s, chance in members if not above_chance(float(s.base.sum()), s.n, chance, policy.alpha)]
        if low and len(members) > 1:
            shown = ", ".join(low[:3]) + (f" and {len(low) - 3} more" if len(low) > 3 else "")
            warnings.append(
                f"the baseline is not clearly above guessing on {shown}, so that equivalence there says little"
            )
    return warnings


def above_chance(right: float, n: int, chance: float, alpha: float) -> bool:
    """Whether the one-sided lower Wilson bound of the baseline's accuracy lies above guessing."""
    return float(intervals.wilson(right, n, 1 - 2 * alpha).low) > chance


def chance_line(task: str, accuracy: float, chance: float, n: int) -> str:
    """The one sentence that names a baseline at chance."""
    seen = f"the baseline scores {accuracy:.3f} on {task[:80]} ({n:,} examples)"
    return f"{seen}, no better than guessing ({chance:.3f}); it could not show a regression."
