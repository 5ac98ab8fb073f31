"""From a dispatched run back to the command that dispatched it, and from a command to what it may measure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from assay.baselines.errors import InputError
from assay.bot.slash import entries
from assay.bot.snapshot import EventFacts, Snapshot


def redirect(facts: EventFacts, title: str, repository: Any) -> tuple[EventFacts, str]:
    """The event of a dispatched run, moved to the head that the command pinned, and the command's verb; any other event as
    it is, with an empty verb.

    The title is only a hint: the run must be of a workflow of assay's on the default branch, for whoever may push a branch may
    dispatch that branch's workflows under any title. The journal says which head, and the check run there with the
    command's name as `external_id` is the authority: only a token that may write checks could have made it. Raises
    `InputError` when the two do not agree.
    """
    identifier = entries.command_of(title)
    if facts.trigger != "workflow_dispatch" or not identifier:
        return facts, ""
    run = repository.known_run(facts.run_id) or repository.run(facts.run_id)
    if entries.command_of_run(run, repository.default_branch()) != identifier:
        return facts, ""
    entry = entry_of(identifier, repository)
    return facts.model_copy(update={"head_sha": entry.head_sha, "command": identifier}), entry.verb


def routed(facts: EventFacts, title: str, seen: Snapshot) -> EventFacts:
    """What `redirect` made of this event when the snapshot was taken, from the snapshot alone.

    Raises `InputError` for the end of another command's run than the one that was seen: the journal, which says what head
    that command pinned, is not in a snapshot.
    """
    identifier = entries.command_of(title)
    if facts.trigger != "workflow_dispatch" or not identifier:
        return facts
    before = seen.event
    if before.command == identifier:
        return facts.model_copy(update={"head_sha": before.head_sha, "command": identifier})
    if before.run_id == facts.run_id:
        return facts  # it was seen then that no command dispatched this run
    raise InputError(
        f"the event is the end of command {identifier[:8]}'s run, of which this snapshot knows nothing: give the snapshot that "
        "this run saved."
    )


def entry_of(identifier: str, repository: Any) -> entries.Dispatched:
    """The journal's entry of a command, confirmed by its check at the pinned head. Raises `InputError` without one."""
    return _confirmed(identifier, repository, repository.journal_list())[0]


def _confirmed(identifier: str, repository: Any, paths: Sequence[str]) -> tuple[entries.Dispatched, Any]:
    """The entry and its check."""
    path = entries.path_of(paths, identifier)
    if path is None:
        raise InputError(
            f"the journal holds no command {identifier[:40]}: only commands that assay dispatched may run."
        )
    entry = entries.dispatched(repository.journal_get(path), identifier)
    match = entries.COMMAND.match(path)
    if match is None or (int(match[1]), match[2]) != (entry.pull, entry.head_sha[:12]):
        raise InputError(f"the journal keeps command {identifier[:40]} in another's place: it was changed by hand.")
    checks = repository.checks(entry.head_sha, check_name(entry.verb))
    check = next((check for check in checks if check.external_id == identifier), None)
    if check is None:
        raise InputError(
            f"no check at {entry.head_sha[:12]} belongs to command {identifier[:40]}: it was not acknowledged there."
        )
    return entry, check


def check_name(verb: str) -> str:
    """Name of the check run of a command's work."""
    return f"assay/{verb}"


def verify(identifier: str, repository: Any, now: datetime | None = None) -> entries.Dispatched:
    """The command that a run may carry out now.

    Raises `InputError` when the pull request is closed or its head is no longer the pinned one: a push after the
    acknowledgement voids it, so that nothing runs that nobody approved. A command runs once: one whose check is completed,
    whose minutes are written down or that is older than `entries.MAY_START` is refused too.
    """
    if not entries.is_identifier(identifier):
        raise InputError(f"{identifier[:40]!r} is no name of a command: only assay dispatches this workflow.")
    paths = repository.journal_list()
    entry, check = _confirmed(identifier, repository, paths)
    if check.status == "completed" or identifier in entries.ended(paths):
        raise InputError(f"command {identifier} was carried out already, and a command runs once; ask again.")
    if (now or datetime.now(UTC)) - datetime.fromisoformat(entry.created) > entries.MAY_START:
        raise InputError(f"command {identifier} is over {entries.MAY_START.days} days old: it is void; ask again.")
    pull = repository.pull(entry.pull)
    if pull.state != "open":
        raise InputError(f"pull request {entry.pull} is closed: the command is void.")
    if pull.head_sha != entry.head_sha:
        raise InputError(
            f"pull request {entry.pull} has moved from {entry.head_sha[:12]} to {pull.head_sha[:12]} since the command: it is void; ask again."
        )
    return entry
