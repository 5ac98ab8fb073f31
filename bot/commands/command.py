"""`assay command`: answer slash commands, and check a command before it runs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.bot.options import place_options

if TYPE_CHECKING:
    from assay.bot.slash.snapshot import CommandSnapshot
    from assay.bot.sources import Place


@click.group(name="command")
def command() -> None:
    """Answer slash commands, and check a command before it runs."""


@command.command()
@click.option(
    "--event",
    type=click.Path(path_type=Path),
    envvar="GITHUB_EVENT_PATH",
    required=True,
    metavar="FILE",
    help="The issue_comment event, as GitHub wrote it.",
)
@click.option(
    "--event-name", envvar="GITHUB_EVENT_NAME", default="issue_comment", show_default=True, help="Name of the event."
)
@click.option(
    "--snapshot", type=click.Path(path_type=Path), metavar="FOLDER", help="Save what was seen, for `assay simulate`."
)
@click.option("--dry-run", is_flag=True, help="Observe and plan, and print the operations instead of performing them.")
@place_options
def answer(event: Path, event_name: str, snapshot: Path | None, dry_run: bool, **place: Any) -> None:
    """Read the first line of a new comment and answer it.

    \b
    Called from a workflow with `on: issue_comment` (types: created); it runs no code of the pull request.
    A comment that is no command of ours is left alone. Whatever goes wrong is said in the reply.
    """
    from assay.baselines.ledger.history import history
    from assay.bot.event import read_event
    from assay.bot.slash.observe import comment_facts
    from assay.bot.slash.reaction import answer as react
    from assay.bot.slash.simulation import describe

    def keep(seen: CommandSnapshot) -> None:
        if snapshot is not None:
            snapshot.mkdir(parents=True, exist_ok=True)
            (snapshot / "command.json").write_text(seen.model_dump_json(indent=1) + "\n")

    where = _place(place)
    github = where.github()
    facts = comment_facts(event_name, read_event(event))
    operations = react(
        facts,
        github,
        where.ledger(),
        lambda sha: history(github.repository, sha),
        lambda head: rebuild(head, where),
        keep=keep,
        dry_run=dry_run,
    )
    if dry_run:
        click.echo(describe(operations))
    else:
        click.echo(", ".join(type(o).__name__ for o in operations) or "not a command of ours: nothing to do")


@command.command(short_help="Check that a dispatched command may still run.")
@click.option(
    "--id", "identifier", required=True, metavar="UUID", help="The command's name, as the workflow's input `id` has it."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    envvar="GITHUB_OUTPUT",
    metavar="FILE",
    help="Append sha, verb and arguments as workflow outputs.",
)
@place_options
def verify(identifier: str, output: Path | None, **place: Any) -> None:
    """Check that a dispatched command may still run, and say which commit it measures.

    It is the first job of a dispatched workflow, with a token that may only read: it fails (exit 2) unless the command was
    acknowledged by assay and the pull request still has the head that was pinned then.
    """
    from assay.bot.commands.gate import append
    from assay.bot.slash.route import verify as check

    entry = check(identifier, _place(place).github())
    arguments = json.dumps(entry.arguments, sort_keys=True)
    if output is not None:
        append(output, f"sha={entry.head_sha}\nverb={entry.verb}\narguments={arguments}\n")
        append(
            output, "".join(f"{key}={value}\n" for key, value in sorted(entry.arguments.items()) if "\n" not in value)
        )
    click.echo(f"{entry.verb} at {entry.head_sha}: {arguments}")


def rebuild(head_sha: str, place: Place) -> None:
    """Write the report of a head again, as its newest finished measurement would."""
    from assay.baselines.ledger.history import history
    from assay.bot.reaction import react
    from assay.bot.slash.observe import measuring_runs
    from assay.bot.snapshot import EventFacts

    github = place.github()
    ours = measuring_runs(github, head_sha)
    runs = [r for r in github.workflow_runs(head_sha=head_sha) if r.id in ours and r.status == "completed"]
    if not runs:
        return
    run = max(runs, key=lambda r: r.id)
    facts = EventFacts(
        name="workflow_run",
        action="completed",
        run_id=run.id,
        attempt=run.attempt,
        workflow=run.name,
        run_url=run.html_url,
        head_sha=head_sha,
        conclusion=run.conclusion,
        trigger=run.event,
    )
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        react(facts, github, place.ledger(), lambda sha: history(github.repository, sha), Path(folder), lambda _: None)


def _place(options: dict[str, Any]) -> Place:
    from assay.bot.sources import Place

    return Place(
        options["ledger"], options["repository"], options["github_token"], options["api_url"], options["server_url"]
    )
