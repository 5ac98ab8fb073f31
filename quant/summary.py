"""What `assay evaluate` and `assay evidence import` print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.baselines.evidence import Evidence
from assay.baselines.record import Record
from assay.quant.evaluation import Outcome
from assay.quant.sampling import Sampling
from assay.quant.supplement import supplement_folder


def print_outcome(outcome: Outcome, out: Path, sampling: Sampling, *, as_json: bool) -> None:
    """Print what an evaluation wrote, as a table or as one JSON document."""
    supplement = supplement_folder(out) if outcome.supplement is not None else None
    if as_json:
        found = {
            "folder": str(out),
            "digest": outcome.record.digest,
            "supplement": str(supplement) if supplement else None,
            "sampling": sampling.name,
            "resumed": outcome.resumed,
            "metrics": metrics_document(outcome.record.evidence),
        }
        click.echo(json.dumps(found, indent=1))
        return
    print_record(outcome.record, out)
    if supplement is not None:
        click.echo(f"Base rows that the base record lacked: {supplement}")


def metrics_document(evidence: Evidence) -> dict[str, dict[str, Any]]:
    """The metrics by name, without what is not known of them."""
    return {name: metric.model_dump(exclude_none=True) for name, metric in sorted(evidence.metrics.items())}


def print_record(record: Record, out: Path) -> None:
    """Print the metrics of a record and where it lies."""
    evidence = record.evidence
    table = Table(title=escape(f"{evidence.subject.name} {evidence.subject.format}".strip()), title_justify="left")
    for heading in ("metric", "value", "n", "unit"):
        table.add_column(heading, justify="right" if heading in ("value", "n") else "left")
    for name, metric in sorted(evidence.metrics.items()):
        shown = f"{metric.value:,.0f}" if metric.unit == "bytes" else f"{metric.value:.4g}"
        table.add_row(escape(name), shown, f"{metric.n:,}" if metric.n else "", escape(metric.unit))
    Console(emoji=False).print(table)
    click.echo(f"Evidence {record.digest[:12]} in {out}")
