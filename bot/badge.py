"""The accuracy badge that is published with each baseline."""

from __future__ import annotations

from assay.baselines.evidence import Evidence
from assay.baselines.pareto import accuracy_of
from assay.bot.templates import template
from assay.bot.text import label, number

CHARACTER = 6.6
"""Width of one character at the badge's 11 px font, in px."""


def badge(evidence: Evidence) -> str | None:
    """An SVG that says the accuracy (or perplexity) of a baseline; None when it has neither."""
    value = _value(evidence)
    if value is None:
        return None
    name, text = value
    left, right = (round(CHARACTER * len(part)) + 12 for part in (name, text))
    return template("badge.svg.j2").render(name=name, text=text, left=left, width=left + right)


def badge_path(branch: str) -> str:
    """The one path of the journal branch that changes: the badge of a branch."""
    return f"badges/{'/'.join(part for part in branch.split('/') if part not in ('', '.', '..'))}.svg"


def _value(evidence: Evidence) -> tuple[str, str] | None:
    accuracy = accuracy_of(evidence)
    if accuracy is not None:
        half = 100 * (accuracy.high - accuracy.low) / 2
        return "accuracy", f"{100 * accuracy.value:.1f}% ± {half:.1f}"
    for key, metric in evidence.metrics.items():
        if metric.scale == "loglik" and metric.primary:
            return label(key.rpartition("/")[2].replace("_", " "), 24), number(metric.value)
    return None
