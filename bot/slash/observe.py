"""Looking at a new comment, and as little else as the answer needs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from assay.baselines.errors import AssayError, InputError
from assay.baselines.ledger import Ledger
from assay.baselines.ledger.history import baseline
from assay.bot.observe import run_of
from assay.bot.slash import entries, replies
from assay.bot.slash.line import BadLine, read_line
from assay.bot.slash.snapshot import CommandSnapshot, RunFacts
from assay.bot.slash.verbs import BY_NAME

CONFIGURATION = ".github/assay.yml"


def comment_facts(event_name: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of an `issue_comment` event. Raises `InputError` for another event or a damaged one."""
    comment, issue = payload.get("comment"), payload.get("issue")
    if event_name != "issue_comment" or not isinstance(comment, dict) or not isinstance(issue, dict):
        raise InputError(
            f"assay command answers issue_comment events, not {event_name[:40]!r}: call it from a workflow with `on: issue_comment`."
        )
    try:
        author = comment["user"] or {}
        return {
            "action": str(payload.get("action", "")),
            "comment": int(comment["id"]),
            "body": str(comment.get("body") or "")[:20_000],
            "author": str(author.get("login", "")),
            "bot": author.get("type") == "Bot" or str(author.get("login", "")).endswith("[bot]"),
            "pull": int(issue["number"]) if issue.get("pull_request") else None,
            "open": issue.get("state", "open") == "open",
        }
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the issue_comment event lacks {error}: give the event file that GitHub wrote.") from None


def observe(
    facts: Mapping[str, Any],
    repository: Any,
    ledger: Ledger,
    history: Callable[[str], Iterable[str]],
    *,
    now: datetime | None = None,
    identifier: str | None = None,
) -> CommandSnapshot:
    """A snapshot of what the command needs; a comment that is not for us costs no request."""
    now = now or datetime.now(UTC)
    seen: dict[str, Any] = {
        **facts,
        "repository": repository.name,
        "server_url": repository.server_url,
        "now": now,
        "id": identifier or str(uuid.uuid4()),
    }
    if not may_be_ours(facts):
        return CommandSnapshot(**seen)
    number = int(facts["pull"])
    pull = repository.pull(number)
    configuration = repository.file_at(CONFIGURATION, pull.base_ref)
    viewer = repository.viewer_login()
    answered = any(
        c.author == viewer and (found := replies.read_marker(c.body)) is not None and found[1] == facts["comment"]
        for c in repository.issue_comments(number)
    )
    paths = repository.journal_list()
    for_pull, by_user = entries.spent(paths, number, str(facts["author"]), f"{now:%Y-%m}")
    branch = repository.default_branch()
    seen |= {
        "open": pull.state == "open",
        "head_sha": pull.head_sha,
        "base_ref": pull.base_ref,
        "fork": pull.fork,
        "permission": repository.permission(str(facts["author"])),
        "default_branch": branch,
        "workflows": tuple(repository.workflow_files(branch)),
        "configuration": configuration.decode("utf-8", "replace") if configuration is not None else None,
        "answered": answered,
        "spent_pull": for_pull,
        "spent_user": by_user,
        "runs": _runs(repository, number, pull.head_sha, paths),
        "accepted": entries.accepted(paths, repository.journal_get, now.date()),
        "baseline": _baseline(repository, ledger, history, pull.base_ref, pull.head_sha),
    }
    return CommandSnapshot(**seen)


def may_be_ours(facts: Mapping[str, Any]) -> bool:
    """Whether a comment may hold a command, before anything is asked of GitHub."""
    if facts["action"] != "created" or facts["bot"] or facts["pull"] is None:
        return False
    try:
        return read_line(str(facts["body"]), bare=frozenset(BY_NAME)) is not None
    except BadLine:
        return True


def measuring_runs(repository: Any, head_sha: str) -> set[int]:
    """Runs of a head that have a check of ours: other workflows of the repository are none of our business."""
    return {found for check in repository.checks(head_sha) if (found := run_of(check.external_id)) is not None}


def _runs(repository: Any, number: int, head_sha: str, paths: list[str]) -> tuple[RunFacts, ...]:
    """Runs of the head, and runs that commands dispatched for it, newest first."""
    commands = entries.commands_at(paths, number, head_sha)
    ours = measuring_runs(repository, head_sha)
    runs = [(run, "") for run in repository.workflow_runs(head_sha=head_sha) if run.id in ours]
    if commands:
        sent = repository.workflow_runs(event="workflow_dispatch")
        runs += [(run, found) for run in sent if (found := entries.command_of(run.title)) in commands]
    runs.sort(key=lambda pair: pair[0].id, reverse=True)
    return tuple(
        RunFacts(
            id=run.id,
            workflow=(run.name or run.path)[:200],
            url=run.html_url,
            finished=run.status == "completed",
            conclusion=run.conclusion,
            command=command,
        )
        for run, command in runs
    )


def _baseline(
    repository: Any, ledger: Ledger, history: Callable[[str], Iterable[str]], base_ref: str, head_sha: str
) -> str:
    """Tag of the nearest evaluation baseline; empty when there is none, or it cannot be looked up."""
    try:
        found = baseline(ledger, base_ref, "evaluation", history(repository.merge_base(base_ref, head_sha)))
    except AssayError:
        return ""
    return found.publication.tag if found is not None else ""
