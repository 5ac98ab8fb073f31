"""What a command can make the bot do, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class React:
    """A reaction on the comment that holds the command."""

    comment: int
    content: Literal["eyes", "rocket", "confused", "+1"]


@dataclass(frozen=True)
class Reply:
    """The one answer to a command; its first line is its marker, so that a lost reply is found again."""

    pull: int
    body: str


@dataclass(frozen=True)
class PinHead:
    """A check run at the head, named by the command: it shows the work on the pull request and pins what is measured."""

    name: str
    head_sha: str
    external_id: str


@dataclass(frozen=True)
class Record:
    """Append to the journal."""

    path: str
    data: bytes
    message: str


@dataclass(frozen=True)
class Hold:
    """Look at the budget again after a reservation: of two commands that were answered at once, both may not fit."""

    pull: int
    user: str
    minutes_per_pull: int
    minutes_per_user: int


@dataclass(frozen=True)
class Dispatch:
    """Start a workflow."""

    workflow: str
    ref: str
    inputs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Cancel:
    """Stop a run."""

    run: int


@dataclass(frozen=True)
class Rerun:
    """Run a finished run again."""

    run: int


@dataclass(frozen=True)
class Report:
    """Rebuild the report of the pull request, and every check of ours at its head, now."""

    head_sha: str


SlashOperation = React | Reply | PinHead | Record | Hold | Dispatch | Cancel | Rerun | Report
