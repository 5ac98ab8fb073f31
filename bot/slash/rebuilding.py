"""From a head back to the ends of the runs that report on it, so that its reports can be written again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from assay.bot.measuring import run_of
from assay.bot.objects import Check, Pull, Run
from assay.bot.slash import entries
from assay.bot.snapshot import CapstoneFacts, EventFacts, PullFacts, Snapshot


def endings(repository: Any, head_sha: str) -> list[tuple[EventFacts, str]]:
    """(event, check name) of the run behind the newest check of each name of ours at a head, the newest first.

    A check of ours names a run and its attempt, or the command that dispatched the run. One whose run is not over reports
    when it ends, and is left to that.
    """
    newest: dict[str, Check] = {}
    for check in repository.checks(head_sha):  # newest first
        if run_of(check.external_id) is not None or entries.is_identifier(check.external_id):
            newest.setdefault(check.name, check)
    if not newest:
        return []
    runs = {run.id: run for run in repository.workflow_runs(head_sha=head_sha)}
    commands: dict[str, Run] = {}
    if any(entries.is_identifier(check.external_id) for check in newest.values()):
        branch = repository.default_branch()
        for run in repository.workflow_runs(event="workflow_dispatch"):
            commands.setdefault(entries.command_of_run(run, branch), run)
    found = []
    for check in newest.values():
        number = run_of(check.external_id)
        command = check.external_id if number is None else ""
        run = runs.get(number) if number is not None else commands.get(command)
        reported = check.status == "completed" or not command  # only the end of its run knows what a command spent
        if run is not None and run.status == "completed" and reported:
            attempt = int(check.external_id.partition("-")[2]) if number is not None else run.attempt
            found.append((_ending(run, attempt, head_sha, command), check.name))
    return found


def unmeasured(repository: Any, pull: Pull, capstone: CapstoneFacts) -> Snapshot:
    """What is seen of a pull request at whose head nothing was measured."""
    return Snapshot(
        repository=repository.name,
        server_url=repository.server_url,
        now=datetime.now(UTC),
        event=EventFacts(name="issue_comment", head_sha=pull.head_sha),
        pull=PullFacts(number=pull.number, head_sha=pull.head_sha, base_ref=pull.base_ref, url=pull.html_url),
        capstone=capstone,
    )


def _ending(run: Run, attempt: int, head_sha: str, command: str) -> EventFacts:
    return EventFacts(
        name="workflow_run",
        action="completed",
        run_id=run.id,
        attempt=attempt,
        workflow=run.name,
        run_url=run.html_url,
        head_sha=head_sha,
        conclusion=run.conclusion,
        trigger=run.event,
        command=command,
    )
