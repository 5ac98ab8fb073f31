"""`assay command`: answer slash commands, and check a command before it runs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.bot.options import place_options

if TYPE_CHECKING:
    from assay.baselines.record import Record
    from assay.bot.objects import Pull
    from assay.bot.slash.acceptance import Series
    from assay.bot.slash.snapshot import CommandSnapshot
    from assay.bot.snapshot import Snapshot
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
        checklist=lambda pull: checklist(pull, where),
        compared=lambda pull: compared(pull, where),
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

    It is the first job of a dispatched workflow, and the first step of the job that measures, with a token that may only
    read: it fails (exit 2) unless the command was acknowledged by assay, was not carried out yet, and the pull request still
    has the head that was pinned then.
    """
    from assay.bot.commands.gate import append
    from assay.bot.slash.outputs import outputs_of
    from assay.bot.slash.route import verify as check

    entry = check(identifier, _place(place).github())
    if output is not None:
        append(output, outputs_of(entry))
    click.echo(f"{entry.verb} at {entry.head_sha}: {json.dumps(entry.arguments, sort_keys=True)}")


def rebuild(head_sha: str, place: Place) -> None:
    """Write the report of a head again, and close every check of ours there by the present evidence and policy.

    Each check speaks for the runs under its name, and GitHub shows the newest of a name: so each of those is rebuilt under
    its own name and `external_id`, as the end of the run that it names would do it.
    """
    from assay.baselines.ledger.history import history
    from assay.bot.reaction import react
    from assay.bot.slash.rebuilding import endings

    github = place.github()
    for facts, check_name in endings(github, head_sha):
        with tempfile.TemporaryDirectory(prefix="assay-") as folder:
            react(
                facts,
                github,
                place.ledger(),
                lambda sha: history(github.repository, sha),
                Path(folder),
                lambda _: None,
                check_name=check_name,
            )


def checklist(pull: Pull, place: Place) -> str:
    """The milestones of a pull request as its report shows them; empty without a `capstone.yml` on its base branch."""
    from assay.bot.milestones.checklist import block
    from assay.bot.milestones.holdings import observe_capstone
    from assay.bot.plan import plan
    from assay.bot.slash.rebuilding import unmeasured

    github = place.github()
    capstone, kept = observe_capstone(github, place.ledger(), pull.base_ref, pull.head_sha, {}, github.file_at)
    if capstone is None:
        return ""
    found = _measured(pull, place)
    if found is None:
        return block(unmeasured(github, pull, capstone), kept)
    return block(*found, plan(*found).results)


def compared(pull: Pull, place: Place) -> list[Series]:
    """(task, metric) of everything that the reports of a pull request compare at its head."""
    from assay.bot.plan import plan

    found = _measured(pull, place)
    results = plan(*found).results if found is not None else ()
    return [
        (f.task, f.metric) for r in results if r.comparison is not None for f in r.comparison.findings if not f.pooled
    ]


def _measured(pull: Pull, place: Place) -> tuple[Snapshot, dict[str, Record]] | None:
    """What the report of a pull request is made of; None when nothing was measured at its head."""
    from assay.baselines.ledger.history import history
    from assay.bot.observe import observe
    from assay.bot.slash.rebuilding import endings

    github = place.github()
    for facts, name in endings(github, pull.head_sha)[:1]:
        with tempfile.TemporaryDirectory(prefix="assay-") as folder:
            found = observe(
                facts,
                github,
                place.ledger(),
                lambda sha: history(github.repository, sha),
                Path(folder),
                check_name=name,
            )
        for seen, records in found:
            if seen.pull is not None and seen.pull.number == pull.number:
                return seen, records
    return None


def _place(options: dict[str, Any]) -> Place:
    from assay.bot.sources import Place

    return Place(
        options["ledger"], options["repository"], options["github_token"], options["api_url"], options["server_url"]
    )
