"""The present state that a plan is made from: everything `observe` saw, and nothing it decided.

A snapshot is saved by every live run, beside the evidence it names by digest, so that `assay simulate` can replay it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from assay.baselines.audit import Tally
from assay.baselines.evidence import Strict
from assay.bot.hosts import SERVER_URL
from assay.bot.slash.snapshot import AcceptedFacts


class EventFacts(Strict):
    """What set the run off."""

    name: str
    action: str = ""
    run_id: int | None = None
    attempt: int | None = None
    workflow: str = ""
    run_url: str = ""
    head_sha: str = ""
    pull: int | None = None
    """Number of the pull request that was opened or pushed to; None where a run set us off."""
    conclusion: str | None = None
    command: str = ""
    """UUID of the slash command that dispatched the run; empty for a run of the pull request itself."""
    minutes: float = 0.0
    """How long the run took, where the event says so."""
    trigger: str = ""
    """Event that set the measuring run off, for example `pull_request`."""


class PullFacts(Strict):
    """The pull request whose head was measured."""

    number: int
    head_sha: str
    base_ref: str
    merge_base: str = ""
    fork: bool = False
    url: str = ""


class CommentFacts(Strict):
    """A comment of ours, found by its marker and its author."""

    id: int
    body: str


class Measurement(Strict):
    """One run of a measuring workflow at the head."""

    workflow: str
    run_id: int
    attempt: int
    url: str = ""
    head_sha: str
    finished: bool
    conclusion: str | None = None
    evidence: tuple[str, ...] = Field(default=(), strict=False)
    """Digests of its valid head evidence, one of each kind."""
    supplements: tuple[str, ...] = Field(default=(), strict=False)
    """Digests of base rows that it measured because the baseline lacked them."""
    asked: bool = False
    """Whether a command asked for it, and perhaps for fewer tasks than the baseline has."""
    problem: str = ""
    """Why its artefact cannot be used, in our own words; nothing of it is then shown."""


class BaselineFacts(Strict):
    """The publication nearest to the merge base, for one kind."""

    kind: str
    tag: str
    digest: str
    commit: str
    distance: int
    created: datetime = Field(strict=False)


class Rival(Strict):
    """Another publication whose point belongs into the Pareto plot."""

    name: str
    digest: str


class CapstoneEvidence(Strict):
    """Published evidence that a milestone may ask for."""

    digest: str
    place: str
    """URL at which people see it."""


class CapstoneFacts(Strict):
    """The proposal on the base branch, and what its milestones ask for."""

    base: str = ""
    """Text of `capstone.yml` on the base branch."""
    problem: str = ""
    """Why that file cannot be used, if it cannot."""
    head: str | None = None
    """Its text at the pull request's head; None when it was removed there, or could not be read."""
    head_problem: str = ""
    evidence: tuple[CapstoneEvidence, ...] = Field(default=(), strict=False)
    files: dict[str, tuple[str, ...] | None] = Field(default_factory=dict, strict=False)
    """Path -> headings of the file at the head; None for one that is not there."""
    files_at: str = ""
    """What stands before a path in a link to the head's file."""
    unseen: str = ""
    """Why evidence or files could not be fetched, if they could not."""


class Acknowledgement(Strict):
    """Our reply to the command that dispatched the run."""

    id: int
    body: str
    verb: str
    by: str
    pull: int


class Snapshot(Strict):
    """Everything that a plan needs to know, as of `now`."""

    schema_version: Literal[1] = 1
    repository: str
    server_url: str = SERVER_URL
    private: bool = False
    now: datetime = Field(strict=False)
    event: EventFacts
    pull: PullFacts | None = None
    configuration: str | None = None
    """Text of `.github/assay.yml` on the base branch; None when there is none."""
    configuration_problem: str = ""
    """Why that file could not be read, if it is there and could not."""
    comments: tuple[CommentFacts, ...] = Field(default=(), strict=False)
    measurements: tuple[Measurement, ...] = Field(default=(), strict=False)
    baselines: tuple[BaselineFacts, ...] = Field(default=(), strict=False)
    rivals: tuple[Rival, ...] = Field(default=(), strict=False)
    baseline_problem: str = ""
    """Why the baseline could not be fetched, if it could not."""
    capstone: CapstoneFacts | None = None
    """The capstone of the repository; None when the base branch has no `capstone.yml`."""
    check_id: int | None = None
    """The check that this run's `requested` event opened."""
    check_completed: bool = False
    """Whether that check has a conclusion already."""
    check_runs: tuple[int, ...] = Field(default=(), strict=False)
    """Runs at the head that report under the same check name. GitHub requires a check by its name and shows the newest."""
    check_elsewhere: bool = False
    """Whether another pull request with the same head closes the check, as the one with the worse verdict."""
    check_name: str = "assay"
    accepted: tuple[AcceptedFacts, ...] = Field(default=(), strict=False)
    """Regressions that people accepted by a command, beside those of the policy."""
    audits: tuple[Tally, ...] = Field(default=(), strict=False)
    """What the newest self-audit of each kind says about the gate."""
    acknowledgement: Acknowledgement | None = None
    may_comment: bool = True
    """False for the read-only token that a fork's own workflow gets."""
