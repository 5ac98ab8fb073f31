"""Results that people already have, read into evidence: lm-eval samples, Inspect AI logs, CSV and Parquet tables.

How they were measured is unknown, so their protocol is `undeclared`. Nothing here imports torch or the packages that
wrote the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from assay.baselines.content import digest_path
from assay.baselines.errors import InputError
from assay.baselines.evaluation import KIND, check_rows
from assay.baselines.evidence import UNDECLARED, Environment, Evidence, Provenance, Subject
from assay.baselines.record import MAX_ROWS, Record, write_record
from assay.quant.importers import inspect_log, lm_eval_samples, tabular
from assay.quant.importers.results import Results
from assay.quant.table import aggregate, build_table

Format = Literal["lm-eval", "inspect", "table"]
FORMATS: tuple[Format, ...] = ("lm-eval", "inspect", "table")


def import_evidence(
    source: Path,
    out: Path,
    *,
    provenance: Provenance,
    source_format: Format | None = None,
    name: str = "",
    bounds: tuple[float, float] | None = None,
) -> Record:
    """Read `source` and write it as a record to `out`.

    `source_format` is recognised by the files' names when not given. `name` overrides the subject's name, `bounds`
    declares the range of scores that are not 0/1. Raises `InputError` for what cannot be read or compared.
    """
    source = Path(source)
    if not source.exists():
        raise InputError(
            f"{source} does not exist: give a samples file, a log, a CSV or Parquet file, or a folder of them."
        )
    if bounds is not None and not bounds[0] < bounds[1]:
        raise InputError(f"--low {bounds[0]:g} is not below --high {bounds[1]:g}: give the range of one score.")
    results = read_results(source, source_format, bounds)
    if not results.rows:
        raise InputError(f"{source} has no examples: there is nothing to compare.")
    if len(results.rows) > MAX_ROWS:
        raise InputError(f"{source} has {len(results.rows):,} rows; assay reads at most {MAX_ROWS:,}: split it.")
    table = check_rows(build_table(results.rows), str(source))
    evidence = Evidence(
        kind=KIND,
        subject=Subject(name=name or results.subject or source.name, digest=UNDECLARED),
        protocol="undeclared",
        environment=Environment(),
        provenance=provenance,
        metrics=aggregate(table, results.tasks),
        attributes={
            "imported": results.format,
            "source": source.name,
            "source_digest": digest_path(source),
            **results.facts,
        },
    )
    return write_record(out, evidence, table)


def read_results(source: Path, source_format: Format | None, bounds: tuple[float, float] | None) -> Results:
    """The results in a file or folder, by format."""
    match source_format or _recognise(source):
        case "lm-eval":
            return lm_eval_samples.read(source)
        case "inspect":
            return inspect_log.read(source, bounds)
        case _:
            return tabular.read(source, bounds)


def _recognise(source: Path) -> Format:
    if source.is_dir():
        if any(source.rglob("samples_*.jsonl")):
            return "lm-eval"
        if any(source.glob("*.eval")) or any(source.glob("*.json")):
            return "inspect"
        raise InputError(
            f"{source} has no samples_*.jsonl (lm-eval) and no .eval or .json log (Inspect AI): give the file itself."
        )
    match source.suffix.lower():
        case ".jsonl":
            return "lm-eval"
        case ".eval" | ".json":
            return "inspect"
        case ".csv" | ".tsv" | ".parquet":
            return "table"
    raise InputError(f"{source.name} has no known ending: give --format {', '.join(FORMATS)}.")
