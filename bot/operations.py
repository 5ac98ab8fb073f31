"""What the bot can do to GitHub. A plan is a list of these, in the order in which they are performed."""

from __future__ import annotations

from dataclasses import dataclass

from assay.baselines.compare.verdict import Conclusion


@dataclass(frozen=True)
class OpenCheck:
    """Open a check run, so that the pull request shows that work began and no older verdict stands."""

    name: str
    head_sha: str
    external_id: str
    details_url: str


@dataclass(frozen=True)
class CloseCheck:
    """Complete a check run; without an id it is opened first, so that a lost `requested` event leaves no gap."""

    check_id: int | None
    name: str
    head_sha: str
    external_id: str
    details_url: str
    conclusion: Conclusion
    title: str
    summary: str


@dataclass(frozen=True)
class AppendJournal:
    """Append a file to the journal branch. When the token may not, `reference`, if any, is taken out of later texts."""

    path: str
    data: bytes
    message: str
    reference: str


@dataclass(frozen=True)
class CreateComment:
    """Comment for the first time."""

    pull: int
    body: str


@dataclass(frozen=True)
class UpdateComment:
    """Replace the whole text of our comment, unless it is no longer the one that was `seen`."""

    comment_id: int
    body: str
    seen: str


@dataclass(frozen=True)
class DeleteComment:
    """Remove a duplicate of our comment."""

    comment_id: int


@dataclass(frozen=True)
class WriteSummary:
    """Append to the step summary of this run."""

    text: str


Operation = OpenCheck | CloseCheck | AppendJournal | CreateComment | UpdateComment | DeleteComment | WriteSummary
