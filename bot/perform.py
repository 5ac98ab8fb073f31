"""Doing: operations against GitHub, so that an interrupted run leaves a state that the next one repairs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from assay.baselines.errors import AssayError, InputError, ServiceError
from assay.baselines.ledger.service import ReplyLost
from assay.bot.comment import read_marker
from assay.bot.operations import (
    AppendJournal,
    CloseCheck,
    CreateComment,
    DeleteComment,
    OpenCheck,
    Operation,
    UpdateComment,
    WriteSummary,
)


class Repository(Protocol):
    """What performing needs of GitHub; `assay.bot.github.GitHub` has it."""

    def viewer_login(self) -> str: ...
    def issue_comments(self, number: int) -> list[Any]: ...
    def comment(self, comment_id: int) -> Any | None: ...
    def create_comment(self, number: int, body: str) -> Any: ...
    def update_comment(self, comment_id: int, body: str) -> Any: ...
    def delete_comment(self, comment_id: int) -> None: ...
    def create_check(
        self, name: str, head_sha: str, *, external_id: str, status: Any, details_url: str | None
    ) -> int: ...
    def update_check(
        self, check_id: int, *, status: Any, conclusion: Any, title: str | None, summary: str | None
    ) -> None: ...
    def journal_put(self, path: str, data: bytes, message: str) -> str: ...


def perform(operations: Sequence[Operation], repository: Repository, write_summary: Callable[[str], None]) -> bool:
    """Perform all operations; True when another run wrote the comment meanwhile, so that the caller looks again.

    A failure does not keep the check from being closed nor the summary from being written: what is left is performed,
    and then the first failure is raised. A picture that cannot be stored is left out of the texts.
    """
    failures: list[AssayError] = []
    without: list[str] = []
    moved = False
    for operation in operations:
        try:
            moved |= _perform(_stripped(operation, without), repository, write_summary)
        except (ServiceError, InputError) as error:
            if isinstance(operation, AppendJournal):
                if operation.reference:
                    without.append(operation.reference)
                print(f"assay: {operation.path} is left out: {error}", file=sys.stderr)
            else:
                failures.append(error)
    if failures:
        raise failures[0]
    return moved


def _perform(operation: Operation, repository: Repository, write_summary: Callable[[str], None]) -> bool:
    """Perform one operation; True when another run was faster."""
    match operation:
        case OpenCheck():
            repository.create_check(
                operation.name,
                operation.head_sha,
                external_id=operation.external_id,
                status="in_progress",
                details_url=operation.details_url or None,
            )
        case CloseCheck():
            check_id = operation.check_id or repository.create_check(
                operation.name,
                operation.head_sha,
                external_id=operation.external_id,
                status="in_progress",
                details_url=operation.details_url or None,
            )
            repository.update_check(
                check_id,
                status="completed",
                conclusion=operation.conclusion.value,
                title=operation.title,
                summary=operation.summary,
            )
        case AppendJournal():
            repository.journal_put(operation.path, operation.data, operation.message)
        case CreateComment():
            return _create_comment(operation, repository)
        case UpdateComment():
            return _update_comment(operation, repository)
        case DeleteComment():
            repository.delete_comment(operation.comment_id)
        case WriteSummary():
            write_summary(operation.text)
    return False


def _update_comment(operation: UpdateComment, repository: Repository) -> bool:
    """Replace the comment that was seen. One that changed or went since then is left to the next look, so that a run
    which observed early and writes late overwrites nothing newer."""
    found = repository.comment(operation.comment_id)
    if found is not None and found.body == operation.body:
        return False
    if found is None or found.body != operation.seen:
        return True
    repository.update_comment(operation.comment_id, operation.body)
    return False


def _create_comment(operation: CreateComment, repository: Repository) -> bool:
    """Create the comment, then look again: when two runs created one at the same time, the oldest stays with the newest
    text and the others go. A lost reply is treated the same way."""
    viewer = None
    try:
        viewer = repository.create_comment(operation.pull, operation.body).author
    except ReplyLost:
        if not _ours(repository, operation.pull, None):
            viewer = repository.create_comment(operation.pull, operation.body).author
    ours = _ours(repository, operation.pull, viewer)
    if len(ours) == 1:
        return bool(ours[0].body != operation.body)
    newest = max(ours, key=lambda c: (_rank(c.body), c.id))
    if newest.body != ours[0].body:
        repository.update_comment(ours[0].id, newest.body)
    for duplicate in ours[1:]:
        repository.delete_comment(duplicate.id)
    return True


def _ours(repository: Repository, number: int, viewer: str | None) -> list[Any]:
    """Our comments that people see, oldest first."""
    viewer = viewer or repository.viewer_login()
    return sorted((c for c in repository.issue_comments(number) if is_ours(c, viewer)), key=lambda c: c.id)


def is_ours(comment: Any, viewer: str) -> bool:
    """Whether a comment is the one that assay keeps: written by this token, with our marker, and not hidden."""
    return comment.author == viewer and not comment.minimized and read_marker(comment.body) is not None


def _rank(body: str) -> tuple[int, int]:
    marker = read_marker(body)
    return (marker.run, marker.attempt) if marker else (0, 0)


def _stripped(operation: Operation, references: Sequence[str]) -> Operation:
    """The operation with the lines that show a picture which could not be stored taken out."""
    if not references:
        return operation
    match operation:
        case CreateComment() | UpdateComment():
            return replace(operation, body=_without(operation.body, references))
        case CloseCheck():
            return replace(operation, summary=_without(operation.summary, references))
        case WriteSummary():
            return replace(operation, text=_without(operation.text, references))
        case _:
            return operation


def _without(text: str, references: Sequence[str]) -> str:
    return "\n".join(
        line for line in text.split("\n") if not any(f"]({reference})" in line for reference in references)
    )
