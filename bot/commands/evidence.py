"""`assay evidence`: results of other tools become evidence, and evidence becomes readable."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from assay.baselines.record import Record, read_record
from assay.bot.cli import LazyGroup
from assay.bot.text import plural, shown


@click.group(
    cls=LazyGroup,
    lazy={
        "import": (
            "assay.quant.cli:import_results",
            "Turn results of lm-eval, Inspect AI, CSV or Parquet into evidence.",
        )
    },
)
def evidence() -> None:
    """Import results of other tools, and look at evidence."""


@evidence.command(short_help="Show a record, or every example that changed.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--flips-against",
    type=click.Path(path_type=Path),
    metavar="BASE",
    help="List every example whose answer differs from this record.",
)
@click.option("--intersect", is_flag=True, help="Compare only the common examples of imported results.")
@click.option("--json", "as_json", is_flag=True, help="Print the evidence document.")
def show(folder: Path, flips_against: Path | None, intersect: bool, as_json: bool) -> None:
    """Show a record: what was measured, how, and its metrics; or all examples that changed.

    \b
      assay evidence show head
      assay evidence show head --flips-against base
    """
    record = read_record(folder)
    if as_json:
        click.echo(record.evidence.model_dump_json(indent=1))
    elif flips_against is None:
        describe(record)
    else:
        _flips(record, read_record(flips_against), intersect)


def _number(value: float) -> str:
    """A count in full, anything else to six digits."""
    return f"{value:,.0f}" if value == int(value) and 1e6 <= abs(value) < 1e15 else f"{value:.6g}"


def describe(record: Record) -> None:
    """Print a record for people; none of its texts can steer the terminal or start a line of their own."""
    e = record.evidence
    click.echo(shown(f"{e.kind} of {e.subject.name}{f' ({e.subject.format})' if e.subject.format else ''}"))
    click.echo(f"digest      sha256:{record.digest}")
    click.echo(f"subject     {shown(e.subject.digest)}")
    click.echo(f"commit      {e.provenance.commit or 'unknown'}, measured {e.provenance.created:%Y-%m-%d %H:%M %Z}")
    measured_on = ", ".join(filter(None, [e.environment.hardware, e.environment.driver, e.environment.python]))
    click.echo(f"environment {shown(measured_on) or 'undeclared'}")
    click.echo(f"rows        {e.table.rows if e.table else 0:,}")
    for name, metric in e.metrics.items():
        n = f" · {plural(metric.n, 'example')}" if metric.n else ""
        spread = (
            f" ({metric.low:.6g} to {metric.high:.6g})"
            if metric.scale == "measure" and metric.low is not None and metric.high is not None
            else ""
        )
        click.echo(f"  {shown(name):<40} {_number(metric.value)} {shown(metric.unit)}{spread}{n}")
    if isinstance(e.protocol, dict):
        click.echo("protocol")
        for name, value in sorted(e.protocol.items()):
            click.echo(f"  {shown(name):<40} {shown(str(value))}")
    else:
        click.echo("protocol    undeclared")


def _flips(head: Record, base: Record, intersect: bool) -> None:
    from assay.baselines.compare import compare
    from assay.baselines.policy import Policy

    policy = Policy.model_validate({"at-chance": "warn"})
    comparison = compare(head, base, policy, datetime.now(UTC).date(), intersect=intersect, max_flips=10**9)
    click.echo(f"{comparison.broke:,} broke, {comparison.fixed:,} fixed, of {comparison.examples:,}")
    for flip in comparison.flips:
        click.echo(
            "\t".join(
                (
                    "broke" if flip.broke else "fixed",
                    shown(flip.task),
                    flip.example,
                    f"{shown(flip.base_answer)} -> {shown(flip.head_answer)}",
                    shown(flip.text),
                )
            )
        )
