"""`assay comment`: observe, plan, perform."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.bot.options import place_options

if TYPE_CHECKING:
    from assay.baselines.record import Record
    from assay.bot.snapshot import Snapshot


@click.command(epilog="Exit codes: 0 the comment is up to date (whatever the verdict), 2 bad input, 3 GitHub failed.")
@click.option(
    "--event",
    type=click.Path(path_type=Path),
    envvar="GITHUB_EVENT_PATH",
    required=True,
    metavar="FILE",
    help="The event, as GitHub wrote it.",
)
@click.option(
    "--event-name", envvar="GITHUB_EVENT_NAME", default="workflow_run", show_default=True, help="Name of the event."
)
@click.option(
    "--check-name",
    default="assay",
    show_default=True,
    help="Name of the check run; keep it stable, so that it can be required.",
)
@click.option(
    "--snapshot", type=click.Path(path_type=Path), metavar="FOLDER", help="Save what was seen, for `assay simulate`."
)
@click.option(
    "--summary",
    type=click.Path(path_type=Path),
    envvar="GITHUB_STEP_SUMMARY",
    metavar="FILE",
    help="Append the report to a step summary.",
)
@click.option("--dry-run", is_flag=True, help="Observe and plan, and print the operations instead of performing them.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
@place_options
def comment(
    event: Path,
    event_name: str,
    check_name: str,
    snapshot: Path | None,
    summary: Path | None,
    dry_run: bool,
    as_json: bool,
    ledger: Path | None,
    repository: str | None,
    github_token: str | None,
    api_url: str,
    server_url: str,
) -> None:
    """Open the check when a measuring run starts, and answer on the pull request when it ends.

    \b
    Called from a workflow with `on: workflow_run` (types: requested, completed); it runs no code of the pull request.
    On `pull_request_target` it posts the milestones of capstone.yml, where there is one, by reading files only.
    By hand, to see what would happen:
      assay comment --event event.json --repository acme/widgets --dry-run

    The comment is rebuilt whole from the newest valid evidence at the pull request's current head, under the policy of
    its base branch. A blocked pull request is shown by its check; this command then still exits 0.
    """
    from assay.baselines.ledger.history import history
    from assay.bot.event import read_event, title_of
    from assay.bot.github import GitHub
    from assay.bot.observe import event_facts, observe, save
    from assay.bot.plan import together
    from assay.bot.reaction import Answer, react
    from assay.bot.simulation import describe
    from assay.bot.slash.route import check_name as check_name_of
    from assay.bot.slash.route import redirect
    from assay.bot.sources import Place

    def keep(seen: Snapshot, records: Mapping[str, Record]) -> None:
        if snapshot is not None:
            save(seen, records, snapshot / (f"pull-{seen.pull.number}" if seen.pull else "head"))

    payload = read_event(event)
    facts = event_facts(event_name, payload)
    place = Place(ledger, repository, github_token, api_url, server_url)
    github: GitHub = place.github()
    repository_facts = payload.get("repository")
    github.remember(repository_facts)
    github.remember_run(payload.get("workflow_run"))
    facts, verb = redirect(facts, title_of(payload), github)
    check_name = check_name_of(verb) if verb else check_name
    shelf = place.ledger(public=isinstance(repository_facts, dict) and repository_facts.get("private") is False)
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        if dry_run:
            found = observe(
                facts, github, shelf, lambda sha: history(github.repository, sha), Path(folder), check_name=check_name
            )
            plans = together(found)
            answers = [Answer(s.pull.number if s.pull else None, p) for s, p in plans]
            for (seen, planned), (_, records) in zip(plans, found, strict=True):
                keep(seen, records)
                click.echo(describe(planned))
        else:
            answers = react(
                facts,
                github,
                shelf,
                lambda sha: history(github.repository, sha),
                Path(folder),
                lambda text: _append(summary, text),
                check_name=check_name,
                keep=keep,
            )
    outcomes: list[dict[str, Any]] = [
        {
            "pull": answer.pull,
            "overall": answer.plan.overall.value if answer.plan.overall else None,
            "conclusion": answer.plan.conclusion.value if answer.plan.conclusion else None,
            "operations": [type(o).__name__ for o in answer.plan.operations],
        }
        for answer in answers
    ]
    if as_json:
        click.echo(json.dumps(outcomes))
    elif not dry_run:
        for outcome in outcomes:
            where = f"pull request {outcome['pull']}" if outcome["pull"] else facts.head_sha[:12]
            what = outcome["overall"] or ("milestones" if facts.pull else "check opened")
            click.echo(f"{where}: {what} ({', '.join(outcome['operations']) or 'nothing to do'})")
        if not outcomes:
            said = "there is no capstone.yml" if facts.pull else "this run belongs to no pull request"
            click.echo(f"{said}: nothing to do")


def _append(summary: Path | None, text: str) -> None:
    if summary is not None:
        from assay.bot.commands.gate import append

        append(summary, text)
