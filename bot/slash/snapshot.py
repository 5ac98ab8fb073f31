"""What was seen when a command was written."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from assay.baselines.evidence import Strict
from assay.bot.hosts import SERVER_URL


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
    server_url: str = SERVER_URL
    now: datetime = Field(strict=False)
    id: str
    """UUID of the command, chosen when it was seen; names its check, its run and its journal entries."""
    action: str = "created"
    comment: int = 0
    body: str = ""
    author: str = ""
    bot: bool = False
    commented: datetime | None = Field(None, strict=False)
    """When the comment was written."""
    pushed: datetime | None = Field(None, strict=False)
    """When the head was pushed; None where GitHub does not tell."""
    last_push: datetime | None = Field(None, strict=False)
    """When anything was last pushed to the head's repository: the head was pushed no later."""
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
    """Text of the default branch's `assay.yml`: a branch that anybody may make must not set its own budget."""
    runs: tuple[RunFacts, ...] = Field(default=(), strict=False)
    """Newest first."""
    spent_pull: float = 0.0
    """GPU minutes spent for this pull request."""
    spent_user: float = 0.0
    """GPU minutes that the author's commands spent this month."""
    reserved_pull: float = 0.0
    """GPU minutes that commands in flight are expected to take for this pull request."""
    reserved_user: float = 0.0
    """The same for the author's commands."""
    accepted: tuple[AcceptedFacts, ...] = Field(default=(), strict=False)
    baseline: str = ""
    """Tag of the nearest publication; empty when there is none."""
    metrics: tuple[str, ...] | None = Field(None, strict=False)
    """`task/metric` of everything that the baseline measured; None when it could not be looked at."""
    compared: tuple[tuple[str, str], ...] = Field(default=(), strict=False)
    """(task, metric) of what the reports at the head compare, where an acceptance names nothing that the baseline measured:
    other kinds of evidence, and what is measured beside its base."""
    milestones: str = ""
    """The checklist as Markdown; empty when the base branch has no `capstone.yml`."""
    answered: bool = False
    """Whether this comment was answered already: events are delivered more than once."""
