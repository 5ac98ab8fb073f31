"""From a dispatched run back to the command that dispatched it, and from a command to what it may measure."""

from __future__ import annotations

from typing import Any

from assay.baselines.errors import InputError
from assay.bot.slash import entries
from assay.bot.snapshot import EventFacts


def redirect(facts: EventFacts, title: str, repository: Any) -> EventFacts:
    """The event of a dispatched run, moved to the head that the command pinned; any other event as it is.

    The journal says which head, and the check run there with the command's name as `external_id` is the authority: only a
    token that may write checks could have made it. Raises `InputError` when the two do not agree.
    """
    identifier = entries.command_of(title)
    if facts.trigger != "workflow_dispatch" or not identifier:
        return facts
    entry = entry_of(identifier, repository)
    return facts.model_copy(update={"head_sha": entry.head_sha, "command": identifier})


def entry_of(identifier: str, repository: Any) -> entries.Dispatched:
    """The journal's entry of a command, confirmed by its check at the pinned head. Raises `InputError` without one."""
    path = entries.path_of(repository.journal_list(), identifier)
    if path is None:
        raise InputError(
            f"the journal holds no command {identifier[:40]}: only commands that assay dispatched may run."
        )
    entry = entries.dispatched(repository.journal_get(path), identifier)
    if not any(check.external_id == identifier for check in repository.checks(entry.head_sha, check_name(entry.verb))):
        raise InputError(
            f"no check at {entry.head_sha[:12]} belongs to command {identifier[:40]}: it was not acknowledged there."
        )
    return entry


def check_name(verb: str) -> str:
    """Name of the check run of a command's work."""
    return f"assay/{verb}"


def verify(identifier: str, repository: Any) -> entries.Dispatched:
    """The command that a run may carry out now.

    Raises `InputError` when the pull request is closed or its head is no longer the pinned one: a push after the
    acknowledgement voids it, so that nothing runs that nobody approved.
    """
    entry = entry_of(identifier, repository)
    pull = repository.pull(entry.pull)
    if pull.state != "open":
        raise InputError(f"pull request {entry.pull} is closed: the command is void.")
    if pull.head_sha != entry.head_sha:
        raise InputError(
            f"pull request {entry.pull} has moved from {entry.head_sha[:12]} to {pull.head_sha[:12]} since the command: it is void; ask again."
        )
    return entry
