"""A command's plan in words, for dry runs and replays."""

from __future__ import annotations

from collections.abc import Sequence

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


def describe(operations: Sequence[SlashOperation]) -> str:
    """Every operation with all that it would write."""
    lines = [f"operations: {len(operations)}"]
    return "\n".join([*lines, *(_describe(i, o) for i, o in enumerate(operations, 1))])


def _describe(number: int, operation: SlashOperation) -> str:
    match operation:
        case React():
            return f"{number}. react with {operation.content} to comment {operation.comment}"
        case Reply():
            indented = "\n".join(f"    {line}" if line else "" for line in operation.body.splitlines())
            return f"{number}. reply on pull request {operation.pull}:\n{indented}"
        case PinHead():
            return f"{number}. open check {operation.name!r} at {operation.head_sha[:12]} ({operation.external_id})"
        case Record():
            return f"{number}. append {operation.path} to the journal:\n    {operation.data.decode().strip()}"
        case Hold():
            limits = f"{operation.minutes_per_pull} of pull request {operation.pull}, {operation.minutes_per_user} of {operation.user}"
            return f"{number}. see that the reservation fits the minutes: {limits}"
        case Dispatch():
            shown = ", ".join(f"{key}={value}" for key, value in operation.inputs)
            return f"{number}. dispatch {operation.workflow} at {operation.ref}: {shown}"
        case Cancel():
            return f"{number}. cancel run {operation.run}"
        case Rerun():
            return f"{number}. run {operation.run} again"
        case Report():
            return f"{number}. rebuild the report at {operation.head_sha[:12]}"
