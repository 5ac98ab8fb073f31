"""What a dispatched run leaves behind: its minutes in the journal, its outcome in the reply to the command."""

from __future__ import annotations

import json

from assay.bot.operations import AppendJournal, Operation, UpdateComment
from assay.bot.slash import replies
from assay.bot.slash.entries import spent_path
from assay.bot.snapshot import Snapshot


def ended(snapshot: Snapshot, outcome: str) -> list[Operation]:
    """Operations at the end of a run that a command dispatched; none for any other run.

    `outcome` is the report's title; an empty one says that the command was void, for no open pull request has its head.
    The minutes are written down once, while the command's check is still open; the reply keeps one line for a run, so that
    running it again edits that line.
    """
    event, reply = snapshot.event, snapshot.acknowledgement
    if not event.command or reply is None:
        return []
    operations: list[Operation] = []
    if not snapshot.check_completed:
        path = spent_path(f"{snapshot.now:%Y-%m}", reply.pull, reply.by, event.command, event.minutes)
        entry = json.dumps({"run": event.run_id, "minutes": round(event.minutes, 1), "by": reply.by}).encode() + b"\n"
        operations.append(AppendJournal(path, entry, f"Spent by {reply.verb} on #{reply.pull}", ""))
    told = replies.told_minutes(reply.body, event.run_url) if snapshot.check_completed else None
    minutes = (
        event.minutes if told is None else told
    )  # an attempt that may not run again takes no time, and tells nothing
    line = (
        replies.finished(reply.verb, outcome, event.head_sha, event.run_url, minutes)
        if outcome
        else replies.voided(reply.verb, event.head_sha, event.run_url)
    )
    body = reply.body if line in reply.body else replies.with_line(reply.body, event.run_url, line)
    if body != reply.body:
        operations.append(UpdateComment(reply.id, body, reply.body))
    return operations
