"""`assay simulate`: what would the bot do, from a saved snapshot."""

from __future__ import annotations

from pathlib import Path

import click

from assay.baselines.errors import InputError


@click.command()
@click.argument("event", type=click.Path(path_type=Path), required=False)
@click.option(
    "--snapshot",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="snapshot.json that a run saved (`assay comment --snapshot`); its evidence lies beside it.",
)
def simulate(event: Path | None, snapshot: Path) -> None:
    """Print every operation that the bot would perform on a saved snapshot; nothing is sent anywhere.

    \b
    With EVENT, the snapshot is replayed as if that workflow_run event had set it off:
      assay simulate --snapshot seen/pull-7/snapshot.json
      assay simulate event.json --snapshot seen/pull-7/snapshot.json
    """
    if not snapshot.is_file():
        raise InputError(f"{snapshot} is no file: give the snapshot.json that a run saved.")
    from assay.bot.commands.comment import read_event
    from assay.bot.observe import event_facts, load
    from assay.bot.plan import plan
    from assay.bot.simulation import describe

    seen, records = load(snapshot)
    if event is not None:
        seen = seen.model_copy(update={"event": event_facts("workflow_run", read_event(event))})
    click.echo(describe(plan(seen, records)))
