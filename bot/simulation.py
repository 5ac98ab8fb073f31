"""A plan in words, for dry runs and replays."""

from __future__ import annotations

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
from assay.bot.plan import Plan


def describe(plan: Plan) -> str:
    """Every operation with all that it would write."""
    verdict = (
        f"{plan.overall.value}: check {plan.conclusion.value}" if plan.overall and plan.conclusion else "no verdict yet"
    )
    parts = [f"verdict: {verdict}", f"operations: {len(plan.operations)}"]
    parts += [_describe(i, operation) for i, operation in enumerate(plan.operations, 1)]
    return "\n".join(parts)


def _describe(number: int, operation: Operation) -> str:
    match operation:
        case OpenCheck():
            return f"{number}. open check {operation.name!r} at {operation.head_sha[:12]} ({operation.external_id})"
        case CloseCheck():
            which = f"{operation.check_id}" if operation.check_id else "a new one"
            return (
                f"{number}. close check {operation.name!r} ({which}) as {operation.conclusion.value}: {operation.title}"
            )
        case AppendJournal():
            return f"{number}. store {operation.path} ({len(operation.data):,} bytes) on the journal branch"
        case CreateComment():
            return f"{number}. comment on pull request {operation.pull}:\n{_indented(operation.body)}"
        case UpdateComment():
            return f"{number}. rewrite comment {operation.comment_id}:\n{_indented(operation.body)}"
        case DeleteComment():
            return f"{number}. delete the duplicate comment {operation.comment_id}"
        case WriteSummary():
            return f"{number}. write {len(operation.text):,} characters to the step summary"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())
