"""`assay gate`: compare two records and exit by the verdict."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from assay.baselines.compare import compare
from assay.baselines.compare.protocol import ProtocolMismatchError
from assay.baselines.compare.verdict import Overall, State, conclude
from assay.baselines.config import Configuration, load_configuration
from assay.baselines.errors import cannot_write
from assay.baselines.record import Record, write_atomically
from assay.bot.comment import MARKS, SUMMARY_BUDGET, render, title
from assay.bot.options import place_options, policy_option
from assay.bot.page import to_html
from assay.bot.plan import THIS, supplemented
from assay.bot.plot import svg
from assay.bot.report import to_json, to_junit
from assay.bot.sections import Baseline, Result
from assay.bot.sections.evaluation import change_header, verdict_words
from assay.bot.sources import Place, nearest_baseline, resolve
from assay.bot.standing import standing
from assay.bot.text import shown, signed, unmarked

DEFAULT_POLICY = Path(".github/assay.yml")


@click.command(epilog="Exit codes: 0 passed, 1 blocked, 2 not comparable or bad input, 3 a service failed.")
@click.option(
    "--head", required=True, metavar="EVIDENCE", help="What is proposed: a folder that assay wrote, or run/ID."
)
@click.option(
    "--base",
    metavar="EVIDENCE",
    help="What it is compared with: a folder or a baseline/... tag. [default: the publication nearest to the merge base]",
)
@click.option(
    "--base-supplement",
    type=click.Path(path_type=Path),
    help="More base rows, measured in the head's job on the base checkpoint.",
)
@click.option(
    "--base-branch",
    default="main",
    show_default=True,
    envvar="GITHUB_BASE_REF",
    help="Branch whose baselines are looked through.",
)
@policy_option
@click.option(
    "--intersect",
    is_flag=True,
    help="Compare the common examples of imported results instead of refusing unequal sets.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON instead of a table.")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Also write JUnit XML.")
@click.option("--markdown", type=click.Path(path_type=Path), metavar="FILE", help="Also write the report as Markdown.")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the report as an HTML page with its plot.",
)
@click.option(
    "--summary",
    type=click.Path(path_type=Path),
    envvar="GITHUB_STEP_SUMMARY",
    metavar="FILE",
    help="Append the report to a step summary.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    envvar="GITHUB_OUTPUT",
    metavar="FILE",
    help="Append `verdict` and `conclusion` as workflow outputs.",
)
@place_options
@click.pass_context
def gate(
    ctx: click.Context,
    head: str,
    base: str | None,
    base_supplement: Path | None,
    base_branch: str,
    policy: Path | None,
    intersect: bool,
    as_json: bool,
    junit: Path | None,
    markdown: Path | None,
    html: Path | None,
    summary: Path | None,
    output: Path | None,
    ledger: Path | None,
    repository: str | None,
    github_token: str | None,
    api_url: str,
    server_url: str,
) -> None:
    """Compare head with base, example by example, and exit 1 when the policy blocks.

    \b
    Two folders:            assay gate --base base --head head
    The published baseline: assay gate --head head --repository acme/widgets
    A baseline folder:      assay gate --head head --ledger baselines
    For another CI system:  assay gate --base base --head head --junit gate.xml --json

    A drop blocks when it is over the threshold and significant; "not significant" is never a pass: what is neither
    shown to be worse nor shown to be equivalent is inconclusive, with the number of examples that would decide.
    """
    configuration = configuration_at(policy)
    place = Place(ledger, repository, github_token, api_url, server_url)
    head_record = resolve(head, place)
    result = _result(head_record, base, base_supplement, base_branch, configuration, place, intersect)
    conclusion, code = conclude(result.overall, block_inconclusive=configuration.gate.on_inconclusive == "block")
    report = render([result], None, SUMMARY_BUDGET)
    picture = (
        svg(result.points, result.axes, f"{result.axes[0].name} against {result.axes[1].name}")
        if result.axes and result.points
        else ""
    )
    if junit is not None:
        write_atomically(
            junit, to_junit(result, block_inconclusive=configuration.gate.on_inconclusive == "block").encode()
        )
    if markdown is not None:
        write_atomically(markdown, report.encode())
    if html is not None:
        write_atomically(html, to_html(report, unmarked(title([result])), picture).encode())
    if summary is not None:
        append(summary, report)
    if output is not None:
        append(output, f"verdict={result.overall.value}\nconclusion={conclusion.value}\n")
    try:
        if as_json:
            click.echo(to_json(result, conclusion, code), nl=False)
        else:
            _print(result)
    except BrokenPipeError:  # `| head`: the verdict stands, whoever stopped reading it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    ctx.exit(code)


def configuration_at(policy: Path | None) -> Configuration:
    """The named configuration, else the repository's own, else the defaults."""
    if policy is not None:
        return load_configuration(policy)
    return load_configuration(DEFAULT_POLICY) if DEFAULT_POLICY.is_file() else Configuration()


def append(path: Path, text: str) -> None:
    """Append to a file that a workflow step collects. Raises `InputError` or `ServiceError` when it cannot be written."""
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise cannot_write(path, error) from None


def _result(
    head: Record,
    base: str | None,
    base_supplement: Path | None,
    base_branch: str,
    configuration: Configuration,
    place: Place,
    intersect: bool,
) -> Result:
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
        comparison = compare(head, base_record, configuration.gate, datetime.now(UTC).date(), intersect=intersect)
    except ProtocolMismatchError as error:
        return Result(overall=Overall.MISMATCH, reason=str(error), **common)  # type: ignore[arg-type]
    axes, points = standing((str(common["base_name"]), base_record), [(THIS, head)], datetime.now(UTC).date())
    return Result(overall=comparison.overall, comparison=comparison, points=points, axes=axes, **common)  # type: ignore[arg-type]


def _print(result: Result) -> None:
    """A table for people, on standard output."""
    from rich.console import Console, Group
    from rich.measure import Measurement
    from rich.table import Table

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise  # rich would end the process; the caller still has a verdict to exit by

    console = Output(highlight=False)
    wide = console.options.update(max_width=10_000)
    if not console.is_terminal:
        console.width = 160  # a log has no edge
    colour = {"✓": "green", "✗": "red", "?": "yellow", "–": "cyan"}[MARKS[result.overall]]
    console.print(unmarked(title([result])), style=f"bold {colour}", markup=False)
    if result.comparison is None:
        console.print(shown(result.reason, 2000), markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in (
        "task",
        "n",
        "base",
        "head",
        f"{change_header(result.comparison.findings)} (95% interval)",
        "broke/fixed",
        "p",
        "verdict",
    ):
        table.add_column(name, justify="left" if name in ("task", "verdict") else "right", no_wrap=name != "verdict")
    from rich.text import Text

    for f in result.comparison.findings:
        percent, digits = ("%", 2) if f.scale == "loglik" else ("", 1)
        change, low, high = (signed(100 * value, digits) for value in (f.change, f.low, f.high))
        name = "all pooled" if f.pooled else shown(f.task, 50)
        table.add_row(
            Text(name if f.group == "all" or not f.pooled else f"{shown(f.group, 30)}: {name}"),
            f"{f.n:,}",
            f"{f.base:.{digits if percent else 3}f}",
            f"{f.head:.{digits if percent else 3}f}",
            f"{change}{percent} ({low}, {high})",
            f"{f.broke}/{f.fixed}" if f.broke is not None else "–",
            f"{f.p_better if f.state is State.IMPROVED else f.p_worse:.2g}",
            Text(
                verdict_words(f),
                style={"regressed": "red", "improved": "green", "inconclusive": "yellow"}.get(f.state.value, ""),
            ),
        )
    for column in table.columns:
        column.min_width = 24 if not column.no_wrap else Measurement.get(console, wide, Group(*column.cells)).maximum
        column.min_width = max(column.min_width, len(str(column.header)))
    # A narrow terminal wraps the lines; rich would cut the numbers.
    console.width = max(console.width, Measurement.get(console, wide, table).minimum)
    console.print(table)
    for warning in result.comparison.warnings:
        console.print(f"note: {shown(warning)}", style="yellow", markup=False)
