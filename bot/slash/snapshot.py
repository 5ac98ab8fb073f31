"""What was seen when a command was written."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from assay.baselines.evidence import Strict


class RunFacts(Strict):
    """A run that measures the head, or was dispatched for the pull request."""

    id: int
    workflow: str
    url: str
    finished: bool
    conclusion: str | None = None
    command: str = ""
    """UUID of the command that dispatched it; empty for a run of the pull request itself."""


class AcceptedFacts(Strict):
    """A regression that somebody accepted, as the journal holds it."""

    id: str
    task: str
    metric: str = ""
    reason: str
    by: str
    expires: str
    up_to: str = ""
    pull: int
    created: datetime = Field(strict=False)


class CommandSnapshot(Strict):
    """One new comment and everything that answering it needs."""

    repository: str
    server_url: str = "https://github.com"
    now: datetime = Field(strict=False)
    id: str
    """UUID of the command, chosen when it was seen; names its check, its run and its journal entries."""
    action: str = "created"
    comment: int = 0
    body: str = ""
    author: str = ""
    bot: bool = False
    pull: int | None = None
    """Number of the pull request; None for a comment on an issue."""
    open: bool = True
    head_sha: str = ""
    base_ref: str = "main"
    fork: bool = False
    permission: str = "none"
    default_branch: str = "main"
    workflows: tuple[str, ...] = Field(default=(), strict=False)
    configuration: str | None = None
    runs: tuple[RunFacts, ...] = Field(default=(), strict=False)
    """Newest first."""
    spent_pull: float = 0.0
    """GPU minutes spent for this pull request."""
    spent_user: float = 0.0
    """GPU minutes that the author's commands spent this month."""
    accepted: tuple[AcceptedFacts, ...] = Field(default=(), strict=False)
    baseline: str = ""
    """Tag of the nearest publication; empty when there is none."""
    answered: bool = False
    """Whether this comment was answered already: events are delivered more than once."""
