"""`assay gate`: compare two records and exit by the verdict."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import click

from assay.baselines.errors import cannot_write
from assay.bot.options import place_options, policy_option


@click.command(epilog="Exit codes: 0 passed, 1 blocked, 2 not comparable or bad input, 3 a service failed.")
@click.option(
    "--head",
    required=True,
    metavar="EVIDENCE",
    help="What is proposed: a folder that assay wrote, or run/ID (the artefact of a workflow run).",
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
    shown to be worse nor shown to be equivalent is inconclusive, with the number of examples that would decide. Compared
    with a published baseline, a regression that people accepted by `/assay accept` does not block.
    """
    from assay.baselines.compare.verdict import conclude
    from assay.baselines.config import configuration_at
    from assay.baselines.record import write_atomically
    from assay.bot.audits.recorded import accepting_at
    from assay.bot.comment import SUMMARY_BUDGET, render, title
    from assay.bot.gate import print_table, result_of
    from assay.bot.page import to_html
    from assay.bot.plot import svg
    from assay.bot.report import to_json, to_junit
    from assay.bot.sources import Place, publication_named, resolve
    from assay.bot.text import unmarked

    configuration = configuration_at(policy)
    place = Place(ledger, repository, github_token, api_url, server_url)
    if base is None or publication_named(base) is not None:
        # Two folders are compared as they are; with what is published goes what people accepted, as in the report.
        configuration = accepting_at(place, configuration, datetime.now(UTC).date())
    head_record = resolve(head, place)
    result = result_of(head_record, base, base_supplement, base_branch, configuration, place, intersect)
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
        # The step may have written there already, and a summary over its limit is dropped whole.
        used = 0
        with suppress(OSError):
            used = summary.stat().st_size
        append(summary, report if used == 0 else render([result], None, max(SUMMARY_BUDGET - used, 0)))
    if output is not None:
        append(output, f"verdict={result.overall.value}\nconclusion={conclusion.value}\n")
    try:
        if as_json:
            click.echo(to_json(result, conclusion, code), nl=False)
        else:
            print_table(result)
    except BrokenPipeError:  # `| head`: the verdict stands, whoever stopped reading it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    ctx.exit(code)


def append(path: Path, text: str) -> None:
    """Append to a file that a workflow step collects. Raises `InputError` or `ServiceError` when it cannot be written."""
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise cannot_write(path, error) from None
