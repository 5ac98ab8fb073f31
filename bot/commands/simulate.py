"""`assay simulate`: what would the bot do, from a saved snapshot."""

from __future__ import annotations

from collections.abc import Mapping
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
    With EVENT, the snapshot is replayed as if that event had set it off:
      assay simulate --snapshot seen/pull-7/snapshot.json
      assay simulate event.json --snapshot seen/pull-7/snapshot.json
      assay simulate event.json --snapshot seen/command.json            (a slash command)
    """
    if not snapshot.is_file():
        raise InputError(f"{snapshot} is no file: give the snapshot.json that a run saved.")
    from assay.bot.event import name_of, read_event, title_of
    from assay.bot.observe import event_facts, load
    from assay.bot.plan import plan
    from assay.bot.simulation import describe
    from assay.bot.slash.route import routed

    payload = read_event(event) if event is not None else None
    name = name_of(payload) if payload is not None else ""
    if payload is not None and not name:
        click.echo("the bot does nothing on such an event")
        return
    if snapshot.name == "command.json" or name == "issue_comment":
        _simulate_command(payload, snapshot)
        return
    seen, records = load(snapshot)
    if payload is not None:
        seen = seen.model_copy(update={"event": routed(event_facts(name, payload), title_of(payload), seen)})
    click.echo(describe(plan(seen, records)))


def _simulate_command(payload: Mapping[str, object] | None, snapshot: Path) -> None:
    from assay.bot.event import name_of
    from assay.bot.slash.observe import comment_facts
    from assay.bot.slash.plan import plan
    from assay.bot.slash.simulation import describe
    from assay.bot.slash.snapshot import CommandSnapshot

    try:
        seen = CommandSnapshot.model_validate_json(snapshot.read_bytes())
    except ValueError:
        raise InputError(
            f"{snapshot} is not what `assay command answer --snapshot` saves: give its command.json."
        ) from None
    if payload is not None:
        seen = seen.model_copy(update=comment_facts(name_of(payload), payload))
    click.echo(describe(plan(seen)))
