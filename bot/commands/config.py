"""`assay config`: check an assay.yml, or print its JSON Schema."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.group()
def config() -> None:
    """Check an assay.yml, or print its JSON Schema for an editor."""


@config.command(short_help="Read an assay.yml strictly and print what it means.")
@click.argument("path", type=click.Path(path_type=Path), required=False)
def check(path: Path | None) -> None:
    """Read an assay.yml strictly and print the policy that it means, defaults included.

    Without PATH it is .github/assay.yml; where there is none the defaults hold, and are printed.
    """
    from assay.baselines.config import DEFAULT_PATH, configuration_at, is_there

    if path is None and not is_there(DEFAULT_PATH):
        click.echo(f"there is no {DEFAULT_PATH} here: the defaults hold, and this is what they mean", err=True)
    click.echo(json.dumps(configuration_at(path).model_dump(mode="json", by_alias=True), indent=1))


@config.command()
def schema() -> None:
    """Print the JSON Schema of assay.yml."""
    from assay.baselines.config import json_schema

    click.echo(json.dumps(json_schema(), indent=1))
