"""Carrying out a command. Whatever fails is said in the reply: a command never fails silently."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from assay.baselines.compare.verdict import Conclusion
from assay.baselines.errors import AssayError, InputError, ServiceError
from assay.baselines.ledger.service import ReplyLost
from assay.bot.slash import entries, replies
from assay.bot.slash.line import addressed
from assay.bot.slash.operations import (
    Cancel,
    Dispatch,
    Hold,
    PinHead,
    React,
    Record,
    Reply,
    Report,
    Rerun,
    SlashOperation,
)

LOOKS = 4
"""How often a started run is looked for by its title, where GitHub does not say which it started."""
BETWEEN_S = 2.0
"""Seconds between two looks: a dispatched run takes about that long to be listed."""

RECENT = timedelta(minutes=10)
"""Age of the runs that are looked through, by a clock that may differ from GitHub's."""


@dataclass
class _Progress:
    """What was done so far, for the words when something fails."""

    reply: Any = None
    check: int | None = None
    reserved: re.Match[str] | None = None
    """The journal's entry of the command, as its path tells it."""
    begun: bool = False
    """Whether what the command is for was done: a run started, an acceptance written down."""


def perform(
    operations: Sequence[SlashOperation],
    repository: Any,
    report: Callable[[str], None],
    *,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """Perform the operations in order; `report(head_sha)` rebuilds the report, `pause` waits some seconds.

    False when another delivery of the same comment was answered meanwhile, which then does the work. The first failure
    stops the rest: the reply says it, the check that was opened is closed as failure unless a run was started under it, what
    was reserved is free again, the comment gets a confused face, and the error is raised. A reaction that fails stops nothing.
    """
    done = _Progress()
    comment = next((o.comment for o in operations if isinstance(o, React)), None)
    try:
        for operation in operations:
            match operation:
                case React():
                    _react(repository, operation.comment, operation.content)
                case Reply():
                    done.reply = _reply(operation, repository)
                    if not _alone(operation, done.reply, repository):
                        return False
                case PinHead():
                    done.check = repository.create_check(
                        operation.name,
                        operation.head_sha,
                        external_id=operation.external_id,
                        status="in_progress",
                        details_url=None,
                    )
                case Record():
                    done.reserved = done.reserved or entries.COMMAND.match(operation.path)
                    repository.journal_put(operation.path, operation.data, operation.message)
                    done.begun = done.begun or done.reserved is None
                case Hold():
                    _hold(operation, repository.journal_list())
                case Dispatch():
                    url = _start(operation, repository, pause)
                    done.begun = True
                    if url:
                        _link(url, done, repository)
                case Cancel():
                    repository.cancel_run(operation.run)
                case Rerun():
                    repository.rerun(operation.run)
                    done.begun = True
                case Report():
                    report(operation.head_sha)
    except Exception as error:
        why = words_of(error)
        _say(repository, operations, done, why)
        if done.reserved is not None and not done.begun:
            _free(repository, done.reserved)
        if done.check is not None and not done.begun:
            _close(repository, done.check, why)
        if comment is not None:
            _react(repository, comment, "confused")
        raise
    return True


def _start(operation: Dispatch, repository: Any, pause: Callable[[float], None]) -> str:
    """Start a workflow; the address of its run, or an empty text where it does not show.

    A lost answer is no failure when a run with the command's name is there. Raises `ReplyLost` when there is none: should it
    start later, `verify` stops it, because the check is closed.
    """
    identifier = dict(operation.inputs).get("id", "")
    try:
        started = repository.dispatch(operation.workflow, operation.ref, dict(operation.inputs))
    except ReplyLost:
        found = _look(identifier, operation.ref, repository, pause)
        if not found:
            raise
        return found
    if started is not None:
        return str(started.html_url)
    try:
        return _look(identifier, operation.ref, repository, pause)
    except ServiceError:
        return ""  # it was started; only its address is not known


def _look(identifier: str, branch: str, repository: Any, pause: Callable[[float], None]) -> str:
    """The address of the run that a command dispatched; empty when none has its name."""
    for look in range(LOOKS if identifier else 0):
        if look:
            pause(BETWEEN_S)
        for run in repository.workflow_runs(event="workflow_dispatch", since=datetime.now(UTC) - RECENT):
            if entries.command_of_run(run, branch) == identifier:
                return str(run.html_url)
    return ""


def _link(url: str, done: _Progress, repository: Any) -> None:
    """Let the reply and the check lead to the run while it runs. The work goes on without."""
    try:
        if done.reply is not None:
            done.reply = repository.update_comment(
                done.reply.id, replies.with_line(done.reply.body, url, replies.running(url))
            )
        if done.check is not None:
            repository.update_check(done.check, status="in_progress", details_url=url)
    except ServiceError:
        return


def _hold(operation: Hold, paths: Sequence[str]) -> None:
    """Raises `InputError` when what is reserved by now does not fit the budget."""
    now = datetime.now(UTC)
    spent = entries.spent(paths, operation.pull, operation.user, f"{now:%Y-%m}")
    reserved = entries.reserved(paths, operation.pull, operation.user, now)
    for used, limit, whose in (
        (spent[0] + reserved[0], operation.minutes_per_pull, "this pull request"),
        (spent[1] + reserved[1], operation.minutes_per_user, "you this month"),
    ):
        if used > limit + 0.1:
            raise InputError(
                f"another command was answered at the same time, and together they take {used:.0f} of the {limit} GPU "
                f"minutes of {whose}; ask again when it has ended."
            )


def _free(repository: Any, reserved: re.Match[str]) -> None:
    """Write down that a command which was not started spent nothing."""
    month = f"{datetime.now(UTC):%Y-%m}"
    path = entries.spent_path(month, int(reserved[1]), reserved["user"] or "", reserved[3], 0.0)
    try:
        repository.journal_put(path, b'{"minutes": 0, "started": false}\n', "Nothing was started")
    except ServiceError:
        return  # then it is free when the reservation is too old


def _alone(operation: Reply, reply: Any, repository: Any) -> bool:
    """Whether ours is the only answer to the comment. Of two deliveries that were answered at once, the older reply stays."""
    marker = replies.read_marker(operation.body)
    answers = [
        c.id
        for c in repository.issue_comments(operation.pull)
        if c.author == reply.author and (found := replies.read_marker(c.body)) and marker and found[1] == marker[1]
    ]
    if min(answers, default=reply.id) >= reply.id:
        return True
    repository.delete_comment(reply.id)
    return False


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


def _say(repository: Any, operations: Sequence[SlashOperation], done: _Progress, why: str) -> None:
    """Tell of a failure in place of what the reply promised, or below it when a run was started."""
    planned = next((o for o in operations if isinstance(o, Reply)), None)
    if planned is None:
        return
    head = planned.body.split("\n", 1)[0]
    kept = done.reply.body if done.reply is not None else planned.body
    text = f"{kept.rstrip()}\n\n{replies.half_done(why)}\n" if done.begun else f"{head}\n{replies.failed(why)}\n"
    try:
        if done.reply is not None:
            repository.update_comment(done.reply.id, text)
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

    if not may_be_ours(facts) or not addressed(str(facts["body"])):
        return  # a bare verb may be meant for another bot
    marker = replies.marker(int(facts["comment"]), str(uuid.uuid4()))
    _react(repository, int(facts["comment"]), "confused")
    try:
        repository.create_comment(int(facts["pull"]), f"{marker}\n{replies.failed(words_of(error))}\n")
    except ServiceError:
        return  # GitHub takes no words at all; the error itself is raised
