"""`assay config`: check an assay.yml, or print its JSON Schema."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.group()
def config() -> None:
    """Check an assay.yml, or print its JSON Schema for an editor."""


@config.command(short_help="Read an assay.yml strictly and print what it means.")
@click.argument("path", type=click.Path(path_type=Path), default=Path(".github/assay.yml"))
def check(path: Path) -> None:
    """Read an assay.yml strictly and print the policy that it means, defaults included."""
    from assay.baselines.config import load_configuration

    click.echo(json.dumps(load_configuration(path).model_dump(mode="json", by_alias=True), indent=1))


@config.command()
def schema() -> None:
    """Print the JSON Schema of assay.yml."""
    from assay.baselines.config import json_schema

    click.echo(json.dumps(json_schema(), indent=1))
