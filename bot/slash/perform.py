"""Carrying out a command. Whatever fails is said in the reply: a command never fails silently."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.baselines.compare.verdict import Conclusion
from assay.baselines.errors import AssayError, ServiceError
from assay.baselines.ledger.service import ReplyLost
from assay.bot.slash import replies
from assay.bot.slash.line import PREFIX
from assay.bot.slash.operations import Cancel, Dispatch, PinHead, React, Record, Reply, Report, Rerun, SlashOperation


def perform(operations: Sequence[SlashOperation], repository: Any, report: Callable[[str], None]) -> None:
    """Perform the operations in order; `report(head_sha)` rebuilds the report.

    The first failure stops the rest: it is written into the reply, the check that was opened is closed as failure, the
    comment gets a confused face, and the error is raised. A reaction that fails stops nothing.
    """
    reply: Any = None
    check: int | None = None
    comment = next((o.comment for o in operations if isinstance(o, React)), None)
    try:
        for operation in operations:
            match operation:
                case React():
                    _react(repository, operation.comment, operation.content)
                case Reply():
                    reply = _reply(operation, repository)
                case PinHead():
                    check = repository.create_check(
                        operation.name,
                        operation.head_sha,
                        external_id=operation.external_id,
                        status="in_progress",
                        details_url=None,
                    )
                case Record():
                    repository.journal_put(operation.path, operation.data, operation.message)
                case Dispatch():
                    repository.dispatch(operation.workflow, operation.ref, dict(operation.inputs))
                case Cancel():
                    repository.cancel_run(operation.run)
                case Rerun():
                    repository.rerun(operation.run)
                case Report():
                    report(operation.head_sha)
    except Exception as error:
        why = words_of(error)
        _say(repository, operations, reply, why)
        if check is not None:
            _close(repository, check, why)
        if comment is not None:
            _react(repository, comment, "confused")
        raise


def _react(repository: Any, comment: int, content: str) -> None:
    try:
        repository.react(comment, content)
    except ServiceError:
        return  # a face says nothing that the reply does not


def _reply(operation: Reply, repository: Any) -> Any:
    """Write the reply once: after a lost answer it is looked for by its marker."""
    try:
        return repository.create_comment(operation.pull, operation.body)
    except ReplyLost:
        found = _find(operation, repository)
        return found if found is not None else repository.create_comment(operation.pull, operation.body)


def _find(operation: Reply, repository: Any) -> Any | None:
    viewer, wanted = repository.viewer_login(), replies.read_marker(operation.body)
    for comment in repository.issue_comments(operation.pull):
        if comment.author == viewer and wanted is not None and replies.read_marker(comment.body) == wanted:
            return comment
    return None


def _say(repository: Any, operations: Sequence[SlashOperation], reply: Any, why: str) -> None:
    """Tell of a failure in the reply, or in a new one when there is none yet."""
    planned = next((o for o in operations if isinstance(o, Reply)), None)
    if planned is None:
        return
    head = planned.body.split("\n", 1)[0]
    text = f"{head}\n{replies.failed(why)}\n"
    try:
        if reply is not None:
            repository.update_comment(reply.id, f"{planned.body.rstrip()}\n\n{replies.failed(why)}\n")
        else:
            repository.create_comment(planned.pull, text)
    except ServiceError:
        return  # GitHub takes no words at all; the error itself is raised


def _close(repository: Any, check: int, why: str) -> None:
    try:
        repository.update_check(
            check,
            status="completed",
            conclusion=Conclusion.FAILURE.value,
            title="The command could not be started",
            summary=replies.failed(why),
        )
    except ServiceError:
        return


def words_of(error: Exception) -> str:
    """What a reply says of an error: our own one line, or only its kind when it was not foreseen."""
    return (
        str(error) if isinstance(error, AssayError) else f"an unexpected {type(error).__name__}; the run's log has it"
    )


def apologise(facts: Mapping[str, Any], repository: Any, error: Exception) -> None:
    """Say that a command could not even be looked at. Comments that are no command of ours get no word."""
    from assay.bot.slash.observe import may_be_ours

    if not may_be_ours(facts) or not str(facts["body"]).startswith(PREFIX):
        return  # a bare verb may be meant for another bot
    marker = replies.marker(int(facts["comment"]), str(uuid.uuid4()))
    _react(repository, int(facts["comment"]), "confused")
    try:
        repository.create_comment(int(facts["pull"]), f"{marker}\n{replies.failed(words_of(error))}\n")
    except ServiceError:
        return  # GitHub takes no words at all; the error itself is raised
