"""`assay capstone`: write a proposal, check it, tick it off from evidence, and write its report."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from assay.baselines.errors import InputError
from assay.bot.options import place_options
from assay.bot.text import plural, shown

if TYPE_CHECKING:
    from assay.bot.milestones.proposal import Capstone
    from assay.bot.milestones.shelf import Shelf
    from assay.bot.milestones.status import Item

MAX_BYTES = 256 * 1024

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def capstone() -> None:
    """A proposal as a file: its question, numbers, scope, stop conditions and five milestones of evidence.

    `capstone.yml` lies at the top of a repository; the bot then keeps its checklist in the pull request's comment, and shows
    it to whoever comments `/assay milestones` there.
    """


def _file(command: F) -> F:
    argument = click.argument("path", type=click.Path(path_type=Path), default=Path("capstone.yml"))
    return argument(command)


def _evidence_options(command: F) -> F:
    """Where evidence is: published, or in folders that are not published yet."""
    for option in (
        click.option(
            "--evidence",
            type=click.Path(path_type=Path),
            multiple=True,
            metavar="FOLDER",
            help="Evidence that is not published, or a folder of such; may be given again.",
        ),
        click.option("--branch", default="main", show_default=True, help="Whose publications are looked at."),
    ):
        command = option(command)
    return place_options(command)


@capstone.command()
@_file
def init(path: Path) -> None:
    """Write a commented form of a proposal to PATH."""
    from assay.baselines.record import write_atomically
    from assay.bot.milestones import proposal

    if path.exists():
        raise InputError(f"{path} is there already: give another path, so that nothing of yours is replaced.")
    write_atomically(path, (Path(proposal.__file__).parent / "scaffold.yaml").read_bytes())
    click.echo(f"{path}: fill it in, then `assay capstone lint`")


@capstone.command(epilog="Exit codes: 0 nothing to mend, 1 findings, 2 the file cannot be read.")
@_file
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def lint(path: Path, as_json: bool) -> None:
    """Name what is wrong with a proposal, each with its mend.

    A title without a question, claims without a number, a baseline that is missing or unfair, several new layers at once,
    a claim that the hardware cannot test, milestones that nothing decides, no way to stop.
    """
    from assay.bot.milestones.lint import lint as check

    found = check(_load(path), lambda name: (path.parent / name).exists())
    if as_json:
        click.echo(json.dumps([f.as_json() for f in found], indent=1, ensure_ascii=False))
    else:
        for finding in found:
            click.echo(f"{path}: {shown(str(finding), 600)}")
        click.echo(f"{plural(len(found), 'finding')}" if found else f"{path}: nothing to mend", err=True)
    raise SystemExit(1 if found else 0)


@capstone.command(short_help="Show which milestones are done, open or blocked, and why.")
@_file
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@_evidence_options
def status(path: Path, as_json: bool, **options: Any) -> None:
    """Show each milestone as done, open or blocked, with its evidence, and say when to stop.

    On a pull request the comment `/assay milestones` asks for the same.

    \b
      assay capstone status --ledger baselines
      assay capstone status --repository acme/widgets --evidence build/evidence
    """
    from assay.bot.milestones.checklist import MARKS
    from assay.bot.milestones.status import status as standing

    proposal = _load(path)
    found = standing(proposal, _shelf(path, proposal, options), datetime.now(UTC).date())
    if as_json:
        document = {
            "title": found.title,
            "stop": [{"what": s.what, "reason": s.reason} for s in found.stops],
            "milestones": [
                {
                    "number": m.number,
                    "title": m.title,
                    "state": m.state.value,
                    "review": m.review,
                    "evidence": [_item(i) for i in m.items],
                }
                for m in found.milestones
            ],
            "prerequisites": [_item(i) for i in found.prerequisites],
        }
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
        return
    click.echo(shown(found.title))
    for stop in found.stops:
        click.echo(f"STOP  {shown(f'{stop.what}: {stop.reason}', 600)}")
    for m in found.milestones:
        click.echo(f"{MARKS[m.state]} {m.number}. {shown(m.title)}: {m.state.value}")
        for item in m.items:
            where = ", ".join(
                f"{link.label} ({link.target})" if link.target else link.label for link in item.outcome.links
            )
            said = [item.says, item.outcome.reason, where]
            click.echo(f"    {MARKS[item.state]} {shown('; '.join(part for part in said if part), 600)}")
    for item in found.prerequisites:
        click.echo(f"{MARKS[item.state]} builds on {shown('; '.join(filter(None, [item.says, item.outcome.reason])))}")


@capstone.command(
    short_help="Write the publishable report from evidence.",
    epilog="Exit codes: 0 written, or the table is the same; 1 the table differs; 2 bad input.",
)
@_file
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Where to write it.  [default: stdout]")
@click.option(
    "--table", type=click.Choice(["contract", "model", "results", "functional"]), help="Make only this table."
)
@click.option(
    "--check",
    type=click.Path(path_type=Path),
    metavar="REPORT",
    help="Compare the table with the one that this report prints.",
)
@_evidence_options
def report(path: Path, output: Path | None, table: str | None, check: Path | None, **options: Any) -> None:
    """Write the publishable report from evidence, also when the contender loses.

    \b
      assay capstone report --ledger baselines --output report.md
      assay capstone report --ledger baselines --table model --check report.md
    """
    from assay.baselines.record import write_atomically
    from assay.bot.milestones import report as writing
    from assay.bot.milestones import tables
    from assay.bot.milestones.elsewhere import named, place_of, start_of
    from assay.bot.milestones.shelf import headings

    if check is not None and table is None:
        raise InputError("--check compares one table: say which with --table.")
    if output is not None and _same(path, output):
        raise InputError(f"{output} is the proposal itself: give the report another path.")
    proposal = _load(path)
    shelf = _shelf(path, proposal, options)
    if table is None:
        start = start_of(path)
        shelf = replace(shelf, kept=tuple(replace(k, place=place_of(k.place, start)) for k in shelf.kept))
        source, capstone_path = _source(options, start), named(path, start)
        report_path = named(output, start) if output is not None else "report.md"

        def write(seen: Shelf) -> str:
            today = datetime.now(UTC).date()
            return writing.report(
                proposal, seen, today, source=source, capstone_path=capstone_path, report_path=report_path
            )

        text = write(shelf)
        own = next(
            (name for name in proposal.paths() if output is not None and _same(path.parent / name, output)), None
        )
        if own is not None:  # the report is the very file that a milestone asks for
            text = write(replace(shelf, files={**shelf.files, own: headings(text)}))
    else:
        made = tables.TABLES[table](proposal, shelf)
        if not made.rows:
            raise InputError(
                f"there is no evidence for the table {table}: give --evidence FOLDER, --ledger or --repository."
            )
        text = made.markdown() + "\n"
    if check is not None:
        assert table is not None
        printed = tables.taken_from(_read(check), table)
        if printed is None:
            raise InputError(f"{check} prints no table {table}: give a report that `assay capstone report` wrote.")
        differing = tables.differences(printed, text.strip())
        for line in differing:
            click.echo(shown(line, 600))
        click.echo(
            f"the table {table} {'differs from' if differing else 'is the one that'} {check}{'' if differing else ' prints'}"
        )
        raise SystemExit(1 if differing else 0)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomically(output, text.encode())
        click.echo(str(output), err=True)


@capstone.command()
def schema() -> None:
    """Print the JSON Schema of capstone.yml."""
    from assay.bot.milestones.proposal import json_schema

    click.echo(json.dumps(json_schema(), indent=1))


def _load(path: Path) -> Capstone:
    from assay.bot.milestones.proposal import parse_capstone

    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}; `assay capstone init` writes a form to start from."
        ) from None
    return parse_capstone(data, origin=str(path))


def _shelf(path: Path, proposal: Capstone, options: dict[str, Any]) -> Shelf:
    from assay.bot.milestones.collection import collect
    from assay.bot.sources import Place

    place = Place(
        options["ledger"], options["repository"], options["github_token"], options["api_url"], options["server_url"]
    )
    return collect(proposal, path.parent, place, options["branch"], options["evidence"], datetime.now(UTC).date())


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _source(options: dict[str, Any], start: Path) -> list[str]:
    """The options that name the same evidence again, as words for `sh`, for the commands in a report."""
    from assay.bot.milestones.elsewhere import word

    words: list[str] = []
    if options["ledger"] is not None:
        words += ["--ledger", word(options["ledger"], start, "LEDGER")]
    elif options["repository"] is not None:
        words += ["--repository", shlex.quote(options["repository"])]
    if words and options["branch"] != "main":
        words += ["--branch", shlex.quote(options["branch"])]
    for i, folder in enumerate(options["evidence"], 1):
        words += ["--evidence", word(folder, start, "EVIDENCE" if i == 1 else f"EVIDENCE_{i}")]
    return words


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"cannot read {path}: give the report that `assay capstone report` wrote.") from None


def _item(item: Item) -> dict[str, Any]:
    return {
        "asks": item.says,
        "state": item.state.value,
        "reason": item.outcome.reason,
        "links": [{"label": link.label, "target": link.target} for link in item.outcome.links],
    }
