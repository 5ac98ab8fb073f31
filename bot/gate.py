"""The gate without GitHub: two records, their result under a policy, and the table of it for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from assay.baselines.audit import advise
from assay.baselines.compare import compare
from assay.baselines.compare.protocol import ProtocolMismatchError
from assay.baselines.compare.verdict import Finding, Overall
from assay.baselines.config import Configuration
from assay.baselines.record import Record
from assay.bot.audits.recorded import tallies_at
from assay.bot.audits.words import about
from assay.bot.comment import MARKS, title
from assay.bot.plan import THIS, supplemented
from assay.bot.sections import Baseline, Result, section_for
from assay.bot.sources import Place, nearest_baseline, publication_named, resolve
from assay.bot.standing import standing
from assay.bot.text import shown, signed, unmarked

STYLES = {"regressed": "red", "improved": "green", "inconclusive": "yellow"}
_WORDS = ("task", "model", "count", "verdict")
EXACT = frozenset({"count", "fallback", "budget", "compiles", "unstable"})
"""Scales that are counted exactly: no interval, no p; several of them for each task, so that the metric is shown too."""


def result_of(
    head: Record,
    base: str | None,
    base_supplement: Path | None,
    base_branch: str,
    configuration: Configuration,
    place: Place,
    intersect: bool,
) -> Result:
    """The head against the named base, or against the publication nearest to its merge base; no baseline and another
    protocol are results too. Raises `InputError` for what cannot be compared."""
    common = {
        "workflow": "gate",
        "kind": head.evidence.kind,
        "head": head.evidence,
        "head_digest": head.digest,
        "head_sha": head.evidence.provenance.commit or "",
        "base_name": "base" if base is not None else base_branch,
    }
    baseline: Baseline | None = None
    if base is not None:
        base_record = resolve(base, place)
    else:
        found = nearest_baseline(place, head.evidence.kind, base_branch, head.evidence.provenance.commit, Path.cwd())
        if found is None:
            reason = f"Nothing is published for {base_branch} at the merge base or before it; publish one with `assay baseline publish`."
            return Result(overall=Overall.NO_BASELINE, reason=reason, **common)  # type: ignore[arg-type]
        base_record = place.ledger().fetch(found.publication)
        created = found.publication.created or base_record.evidence.provenance.created
        age = (datetime.now(UTC) - created).total_seconds() / 86400
        baseline = Baseline(found.publication.tag, base_record.digest, found.commit, found.distance, max(age, 0.0))
    if base_supplement is not None:
        base_record = supplemented(base_record, [resolve(str(base_supplement), place)])
    common |= {"base": base_record.evidence, "baseline": baseline}
    try:
        compared = compare(head, base_record, configuration.gate, datetime.now(UTC).date(), intersect=intersect)
    except ProtocolMismatchError as error:
        return Result(overall=Overall.MISMATCH, reason=str(error), **common)  # type: ignore[arg-type]
    published = baseline is not None or publication_named(base or "") is not None
    advised = advise(compared, head.evidence, tallies_at(place, head.evidence.kind) if published else ())
    comparison = advised.comparison
    common["audit"] = about(advised)
    axes, points = standing((str(common["base_name"]), base_record), [(THIS, head)], datetime.now(UTC).date())
    return Result(overall=comparison.overall, comparison=comparison, points=points, axes=axes, **common)  # type: ignore[arg-type]


def print_table(result: Result) -> None:
    """A table for people, on standard output."""
    from rich.console import Console, Group
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise  # rich would end the process; the caller still has a verdict to exit by

    console = Output(highlight=False, emoji=False)
    wide = console.options.update(max_width=10_000)
    if not console.is_terminal:
        console.width = 160  # a log has no edge
    colour = {"✓": "green", "✗": "red", "?": "yellow", "–": "cyan"}[MARKS[result.overall]]
    console.print(unmarked(title([result])), style=f"bold {colour}", markup=False)
    if result.comparison is None:
        console.print(shown(result.reason, 2000), markup=False)
        return
    section = section_for(result.kind)
    findings = result.comparison.findings
    exact = bool(findings) and all(f.scale in EXACT for f in findings)
    names, rows = _counted(findings) if exact else _tested(findings, section.change_header(findings))
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in (*names, "verdict"):
        table.add_column(name, justify="left" if name in _WORDS else "right", no_wrap=name != "verdict")
    for f, row in zip(findings, rows, strict=True):
        table.add_row(Text(row[0]), *row[1:], Text(section.verdict_words(f), style=STYLES.get(f.state.value, "")))
    for column in table.columns:
        column.min_width = 24 if not column.no_wrap else Measurement.get(console, wide, Group(*column.cells)).maximum
        column.min_width = max(column.min_width, len(str(column.header)))
    # A narrow terminal wraps the lines; rich would cut the numbers.
    console.width = max(console.width, Measurement.get(console, wide, table).minimum)
    console.print(table)
    for remark in section.remarks(result):
        console.print(shown(unmarked(remark), 400), markup=False)
    for warning in result.comparison.warnings:
        console.print(f"note: {shown(warning)}", style="yellow", markup=False)


def _tested(findings: Sequence[Finding], header: str) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of what was tested: an interval and a p for each task."""
    names = ["task", "n", "base", "head", f"{header} (95% interval)", "broke/fixed", "p"]
    rows = []
    for f in findings:
        if f.scale in EXACT:
            rows.append([shown(f.name, 90), "–", _exact(f.base), _exact(f.head), _moved(f), "–", "–"])
            continue
        percent, digits = ("%", 2) if f.scale in ("loglik", "speed") else ("", 1)
        unit = " µs" if f.scale == "speed" else ""
        change, low, high = (signed(100 * value, digits) for value in (f.change, f.low, f.high))
        name = "all pooled" if f.pooled else shown(f.task, 50)
        name = name if f.group == "all" or not f.pooled else f"{shown(f.group, 30)}: {name}"
        if f.scale in ("contract", "refused"):  # what holds or fails has no change, no interval and no p
            rows.append([name, *["–"] * (len(names) - 1)])
            continue
        places = digits if percent else 3
        rows.append(
            [
                name,
                f"{f.n:,}",
                f"{f.base:.{places}f}{unit}",
                f"{f.head:.{places}f}{unit}",
                f"{change}{percent} ({low}, {high})",
                f"{f.broke}/{f.fixed}" if f.broke is not None else "–",
                f"{f.p:.2g}",
            ]
        )
    return names, rows


def _counted(findings: Sequence[Finding]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of what was counted: nothing is estimated, so that there is a limit in place of an interval."""
    rows = []
    for f in findings:
        limit = "–"
        if f.scale == "count":
            limit = f"+{100 * f.threshold:g}%"
        elif f.scale == "budget" and f.floor is not None:
            limit = f"{'≥' if f.metric == 'min-share' else '≤'} {_exact(f.floor)}"
        rows.append([shown(f.task, 50), shown(f.metric, 60), _exact(f.base), _exact(f.head), _moved(f), limit])
    return ["model", "count", "base", "head", "change", "limit"], rows


def _moved(f: Finding) -> str:
    return f"{signed(100 * f.change, 2)}%" if f.scale == "count" else "–"


def _exact(value: float) -> str:
    """A count in full; what is no whole number to six digits."""
    return f"{value:,.0f}" if value == round(value) else f"{value:.6g}"
