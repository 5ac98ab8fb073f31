"""One section of the comment for each kind of evidence.

A section is a module here, named like its kind, that offers what `SectionModule` names; nothing else knows the list of
kinds.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol, cast

from assay.baselines.compare.verdict import Comparison, Finding, Overall
from assay.baselines.errors import InputError
from assay.baselines.evidence import Evidence
from assay.baselines.pareto import Axis, Point


@dataclass(frozen=True)
class Baseline:
    """The publication that a result was compared with."""

    tag: str
    digest: str
    commit: str
    distance: int | None
    """Commits between the merge base and it; None where no merge base chose it."""
    age_days: float


@dataclass(frozen=True)
class Result:
    """What one measuring workflow said about the head, as the comment shows it."""

    workflow: str
    overall: Overall
    kind: str = "evaluation"
    run_id: int | None = None
    attempt: int | None = None
    url: str = ""
    head_sha: str = ""
    comparison: Comparison | None = None
    head: Evidence | None = None
    head_digest: str = ""
    base: Evidence | None = None
    baseline: Baseline | None = None
    base_name: str = "main"
    """The base branch, or whatever the base is called."""
    head_name: str = "this PR"
    reason: str = ""
    """Our own words on why there is no verdict; never text of an artefact."""
    running: str = ""
    """URL of a newer run of this workflow that has not finished, if any."""
    points: Sequence[Point] = ()
    axes: tuple[Axis, Axis] | None = None
    plot_url: str = ""
    commands: bool = False
    """Whether the repository answers slash commands, so that the section may offer them."""
    audit: Sequence[str] = ()
    """What self-audits say about this gate, one phrase each."""
    again: str = ""
    """The command that repeats the comparison on another machine."""


@dataclass(frozen=True)
class Room:
    """How many rows a section may take; the verdict is always kept."""

    rows: int = 12
    folded: int = 4096
    flips: int = 20
    environment: int = 12

    def smaller(self) -> Room | None:
        """Half as many of what is longest and says least, or None when there is nothing left to drop."""
        if self.flips > 2:
            return Room(self.rows, self.folded, self.flips // 2, self.environment)
        if self.folded > 2:
            return Room(self.rows, self.folded // 2, self.flips, min(self.environment, 6))
        if self.rows > 1:
            return Room(self.rows // 2, self.folded, self.flips, 2)
        return Room(1, 0, 0, 0) if (self.folded, self.flips, self.environment) != (0, 0, 0) else None


class SectionModule(Protocol):
    """What a module of this package offers."""

    def headline(self, result: Result) -> str:
        """The verdict in words, without its mark, for the first line of the comment."""
        ...

    def render(self, result: Result, room: Room) -> str:
        """The section as Markdown, without the headline."""
        ...

    def verdict_words(self, f: Finding) -> str:
        """The verdict of one finding, as a table says it."""
        ...

    def change_header(self, findings: Sequence[Finding]) -> str:
        """Heading of the column of changes, with their unit."""
        ...

    def remarks(self, result: Result) -> list[str]:
        """What a table in a terminal cannot say: why, and what to do; lines of Markdown."""
        ...


def section_for(kind: str) -> SectionModule:
    """The section of a kind of evidence. Raises `InputError` when this assay has none."""
    return cast(SectionModule, _module("assay.bot.sections", kind))


def _module(package: str, kind: str) -> ModuleType:
    name = kind.replace("-", "_")
    if re.fullmatch(r"[a-z][a-z0-9_]*", name) is None:
        raise InputError(f"evidence of kind {kind[:40]!r} is unknown to this assay: update it.")
    try:
        return importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{package}.{name}":
            raise
        raise InputError(f"evidence of kind {kind[:40]!r} is unknown to this assay: update it.") from None
