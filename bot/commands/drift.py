"""`assay drift`: observe the branch's publications, plan, and keep one tracking issue."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from assay.baselines.errors import InputError
from assay.bot.options import place_options, policy_option


@click.command(
    epilog="Exit codes: 0 the issue is up to date, whether or not the branch drifted; 2 bad input, 3 GitHub failed."
)
@click.option("--branch", default="main", show_default=True, help="The branch that is watched.")
@click.option("--kind", default="evaluation", show_default=True, help="Kind of evidence.")
@click.option(
    "--window",
    type=click.IntRange(2),
    default=30,
    show_default=True,
    metavar="N",
    help="Newest publications looked through; slow drift shows against the oldest of them.",
)
@policy_option
@click.option("--dry-run", is_flag=True, help="Print what would be done to the issue.")
@place_options
def drift(branch: str, kind: str, window: int, policy: Path | None, dry_run: bool, **place: Any) -> None:
    """Compare the newest publication of a branch with the one before and with the oldest of a window, and keep exactly
    one issue (label assay-drift): opened or rewritten on regression, closed on recovery.

    \b
      assay drift --repository acme/widgets              (needs contents: read and issues: write)
      assay drift --repository acme/widgets --dry-run    (needs no token for a public repository)

    Only publications that were measured in the same way count. A regression that people accepted is none.
    """
    from assay.baselines.config import configuration_at
    from assay.bot.audits.issues import issues_of, track
    from assay.bot.audits.lineage import results_of
    from assay.bot.audits.places import rest_of
    from assay.bot.audits.recorded import accepting_at, tallies_at
    from assay.bot.comment import title
    from assay.bot.sources import Place, check_branch, check_kind
    from assay.bot.text import shown, unmarked

    check_branch(branch)
    check_kind(kind)
    if place["repository"] is None:
        raise InputError("drift keeps an issue of a repository: name it with --repository owner/name.")
    where = Place(place["ledger"], place["repository"], place["github_token"], place["api_url"], place["server_url"])
    configuration = accepting_at(where, configuration_at(policy), datetime.now(UTC).date())
    results = results_of(where.ledger(), branch, kind, window, configuration.gate, tallies_at(where, kind))
    for result in results:
        click.echo(shown(f"{result.base_name}: {unmarked(title([result]))}"))
    if not results:
        click.echo(f"{branch} has no earlier publication that was measured in the same way: nothing to compare")
    rest = rest_of(where.github())
    for line in track(results, rest, branch, kind, dry_run=dry_run):
        click.echo(line)
    if dry_run:
        click.echo(f"{len(issues_of(rest))} issues carry the label now", err=True)
