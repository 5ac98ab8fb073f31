"""Looking at a new comment, and as little else as the answer needs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from assay.baselines.config import parse_configuration
from assay.baselines.errors import AssayError, InputError
from assay.baselines.ledger import Ledger
from assay.baselines.ledger.history import baseline
from assay.bot.event import FAULTS, damaged
from assay.bot.measuring import run_of
from assay.bot.objects import Pull
from assay.bot.slash import entries, replies
from assay.bot.slash.acceptance import Series, meant, series_of
from assay.bot.slash.line import BadLine, addressed, read_line
from assay.bot.slash.snapshot import CommandSnapshot, RunFacts
from assay.bot.slash.verbs import BY_NAME, Command, Look, looks, understand

CONFIGURATION = ".github/assay.yml"


def comment_facts(event_name: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of an `issue_comment` event. Raises `InputError` for another event or a damaged one."""
    comment, issue = payload.get("comment"), payload.get("issue")
    if event_name == "issue_comment" and not (isinstance(comment, dict) and isinstance(issue, dict)):
        raise damaged(event_name, KeyError("issue" if isinstance(comment, dict) else "comment"))
    if event_name != "issue_comment" or not isinstance(comment, dict) or not isinstance(issue, dict):
        raise InputError(
            f"assay command answers issue_comment events, not {event_name[:40]!r}: call it from a workflow with `on: issue_comment`."
        )
    try:
        # The account may be gone (null), and nothing says that it is ever anything but a mapping.
        author = comment["user"] if isinstance(comment["user"], dict) else {}
        return {
            "action": str(payload.get("action", "")),
            "comment": int(comment["id"]),
            "body": str(comment.get("body") or "")[:20_000],
            "author": str(author.get("login") or ""),
            "bot": author.get("type") == "Bot" or str(author.get("login") or "").endswith("[bot]"),
            "commented": datetime.fromisoformat(str(comment["created_at"])).astimezone(UTC),
            "pull": int(issue["number"]) if issue.get("pull_request") else None,
            "open": issue.get("state", "open") == "open",
        }
    except FAULTS as error:
        raise damaged(event_name, error) from None


def observe(
    facts: Mapping[str, Any],
    repository: Any,
    ledger: Ledger,
    history: Callable[[str], Iterable[str]],
    *,
    checklist: Callable[[Pull], str] = lambda _: "",
    compared: Callable[[Pull], Iterable[Series]] = lambda _: (),
    now: datetime | None = None,
    identifier: str | None = None,
) -> CommandSnapshot:
    """A snapshot of what the command needs; a comment that is not for us costs no request.

    `checklist` gives the milestones of a pull request as Markdown, `compared` what its reports compare.
    """
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
    branch, author = repository.default_branch(), str(facts["author"])
    data = repository.file_at(CONFIGURATION, branch)
    configuration = data.decode("utf-8", "replace") if data is not None else None
    if not addressed(str(facts["body"])) and not _bare(configuration):
        return CommandSnapshot(**seen, default_branch=branch, configuration=configuration)  # `/help` of another bot
    seen |= {
        "open": pull.state == "open",
        "head_sha": pull.head_sha,
        "base_ref": pull.base_ref,
        "fork": pull.fork,
        "permission": repository.permission(author) if author else "none",
        "default_branch": branch,
        "configuration": configuration,
        "answered": _answered(repository, number, int(facts["comment"])),
    }
    needed = needs(str(facts["body"]))
    if "workflows" in needed:
        seen["workflows"] = tuple(repository.workflow_files(branch))
    if "push" in needed:
        seen |= {"pushed": repository.head_since(pull), "last_push": pull.head_repository_pushed}
    if needed & {"budget", "runs", "accepted"}:
        paths = repository.journal_list()
        if "budget" in needed:
            for_pull, by_user = entries.spent(paths, number, author, f"{now:%Y-%m}")
            seen |= {"spent_pull": for_pull, "spent_user": by_user}
            for_pull, by_user = entries.reserved(paths, number, author, now)
            seen |= {"reserved_pull": for_pull, "reserved_user": by_user}
        if "runs" in needed:
            seen["runs"] = _runs(repository, number, pull.head_sha, paths, branch)
        if "accepted" in needed:
            read = repository.journal_reader(entries.holding(paths, now.date()))
            seen["accepted"] = entries.accepted(paths, read, now.date())
    if needed & {"baseline", "metrics"}:
        seen |= _baseline(repository, ledger, history, pull, metrics="metrics" in needed)
    if "compared" in needed and meant(_wanted(str(facts["body"])), map(series_of, seen["metrics"] or ())) is None:
        seen["compared"] = tuple(compared(pull))
    if "milestones" in needed:
        seen["milestones"] = checklist(pull)
    return CommandSnapshot(**seen)


def _bare(configuration: str | None) -> bool:
    """Whether verbs are understood without `/assay`; not under a policy that cannot be read."""
    try:
        return parse_configuration((configuration or "").encode()).commands.bare
    except InputError:
        return False


def needs(body: str) -> frozenset[Look]:
    """What answering a command takes beyond the pull request, the policy and the permission; nothing for a bad line."""
    command = _command(body)
    return looks(command) if command is not None else frozenset()


def _wanted(body: str) -> str:
    """What an acceptance names."""
    command = _command(body)
    return command.arguments.get("task", "") if command is not None else ""


def _command(body: str) -> Command | None:
    try:
        line = read_line(body, bare=frozenset(BY_NAME))
        return understand(line) if line is not None else None
    except BadLine:
        return None


def _answered(repository: Any, number: int, comment: int) -> bool:
    """Whether a comment of ours answers this one already."""
    told = [
        c
        for c in repository.issue_comments(number)
        if (found := replies.read_marker(c.body)) is not None and found[1] == comment
    ]
    return bool(told) and any(c.author == repository.viewer_login() for c in told)


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


def _runs(repository: Any, number: int, head_sha: str, paths: list[str], default_branch: str) -> tuple[RunFacts, ...]:
    """Runs of the head, and runs that commands dispatched for it, newest first. What a command started for an earlier head
    and still runs is there too: it takes a machine's time, and people cancel it here."""
    commands = entries.commands_of(paths, number)
    ours = measuring_runs(repository, head_sha)
    runs = [(run, "") for run in repository.workflow_runs(head_sha=head_sha) if run.id in ours]
    for run in repository.workflow_runs(event="workflow_dispatch") if commands else ():
        found = entries.command_of_run(run, default_branch)
        if found in commands and (head_sha.startswith(commands[found]) or run.status != "completed"):
            runs.append((run, found))
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
    repository: Any, ledger: Ledger, history: Callable[[str], Iterable[str]], pull: Pull, *, metrics: bool
) -> dict[str, Any]:
    """The tag of the nearest evaluation baseline and, where wanted, what it measured: nothing of it when there is none, or
    when it cannot be looked up."""
    try:
        merge_base = repository.merge_base(pull.base_ref, pull.head_sha)
        found = baseline(ledger, pull.base_ref, "evaluation", history(merge_base))
        if found is None:
            return {"baseline": "", "metrics": () if metrics else None}
        record = ledger.fetch(found.publication) if metrics else None
    except AssayError:
        return {"baseline": "", "metrics": None}
    measured = [k for k, m in record.evidence.metrics.items() if m.scale != "measure"] if record is not None else None
    return {"baseline": found.publication.tag, "metrics": tuple(sorted(measured)) if measured is not None else None}
