"""`assay audit`: one commit measured twice, and how often the gate has cried wolf so far."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.bot.options import place_options, policy_option

if TYPE_CHECKING:
    from assay.baselines.compare.verdict import Comparison
    from assay.baselines.policy import Policy
    from assay.bot.sources import Place


@click.command(epilog="Exit codes: 0 audited, whether or not it alarmed; 2 bad input, 3 a service failed.")
@click.option("--first", required=True, metavar="EVIDENCE", help="The commit's first measurement: a folder or a tag.")
@click.option("--second", required=True, metavar="EVIDENCE", help="Its second measurement.")
@policy_option
@click.option(
    "--branch",
    default="main",
    show_default=True,
    help="Branch whose newest publications give the real changed examples for a deterministic gate.",
)
@click.option(
    "--journal",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Keep the nights in a folder, instead of the branch assay-journal of the repository.",
)
@click.option(
    "--summary",
    type=click.Path(path_type=Path),
    envvar="GITHUB_STEP_SUMMARY",
    metavar="FILE",
    help="Append the rates to a step summary.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the night with its tally as JSON.")
@place_options
def audit(
    first: str,
    second: str,
    policy: Path | None,
    branch: str,
    journal: Path | None,
    summary: Path | None,
    as_json: bool,
    **place: Any,
) -> None:
    """Compare two measurements of one commit as the gate would, and count its false alarms over the nights.

    \b
      assay audit --first head --second again --repository acme/widgets    (needs contents: write)
      assay audit --first head --second again --journal audits             (a folder)

    Nothing changed between the two, so every alarm is false. Auditing the same two again changes nothing.
    """
    from datetime import UTC, datetime

    from assay.baselines.audit import Advised, night, sign_flips, tally
    from assay.baselines.compare import compare
    from assay.baselines.config import configuration_at
    from assay.bot.audits.recorded import nights
    from assay.bot.audits.words import about
    from assay.bot.sources import Place, check_branch, resolve
    from assay.bot.text import shown

    check_branch(branch)
    where = Place(place["ledger"], place["repository"], place["github_token"], place["api_url"], place["server_url"])
    rules = configuration_at(policy).gate
    one, two = resolve(first, where), resolve(second, where)
    found = night(one, two, compare(two, one, rules, datetime.now(UTC).date()))
    paths, read, write = _store(journal, where, found.kind)
    known = next((p for p in paths if p == found.path), None)
    before = [n for n in nights(paths, read, found.kind) if n.path != found.path]
    counted = tally(before, found, {})
    if any(g.deterministic for g in counted.gates) and (where.ledger_folder or where.repository):
        counted = tally(before, found, sign_flips(_changes(where, branch, found.kind, rules)))
    complete = found.model_copy(update={"tally": counted})
    if known is None:
        alarms = sum(g.alarmed for g in found.gates)
        write(found.path, complete.dump(), f"Self-audit of {found.commit[:12]}: {alarms} false alarms")
    lines = about(Advised(compare(two, one, rules, datetime.now(UTC).date()), counted))
    if summary is not None:
        from assay.bot.commands.gate import append

        append(summary, "## Self-audit\n\n" + "".join(f"- {line}.\n" for line in lines))
    if as_json:
        click.echo(json.dumps(complete.model_dump(mode="json"), indent=1))
        return
    for line in lines:
        click.echo(shown(f"{line}.", 2000))
    for gate in (g for g in found.gates if g.alarmed):
        click.echo(shown(f"alarmed this night: {gate.group}, {gate.task} {gate.metric}, p = {gate.p:.2g}"))
    click.echo(f"{'already recorded' if known else 'recorded'}: {found.path}", err=True)


Store = tuple[list[str], Callable[[str], bytes | None], Callable[[str, bytes, str], None]]


def _store(journal: Path | None, where: Place, kind: str) -> Store:
    """(paths, read, write) of the folder or of the journal branch, of which the nights of a kind are read at once."""
    if journal is None:
        from assay.bot.audits.recorded import counting

        github = where.github()
        paths = github.journal_list()

        def put(path: str, data: bytes, message: str) -> None:
            github.journal_put(path, data, message)

        return paths, github.journal_reader(counting(paths, kind)), put
    folder = journal

    def get(path: str) -> bytes | None:
        return (folder / path).read_bytes() if (folder / path).is_file() else None

    def keep(path: str, data: bytes, message: str) -> None:
        from assay.baselines.record import write_atomically

        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / path, data)

    return [p.relative_to(folder).as_posix() for p in sorted(folder.glob("audits/*/*.json"))], get, keep


def _changes(where: Place, branch: str, kind: str, rules: Policy) -> list[Comparison]:
    """Comparisons of the branch's newest publications, each with the one before it, newest first."""
    from datetime import UTC, datetime
    from itertools import pairwise

    from assay.baselines.compare import compare
    from assay.baselines.errors import InputError

    ledger = where.ledger()
    newest = sorted(ledger.publications(branch, kind), key=lambda p: str(p.created or ""), reverse=True)[:NEWEST]
    records = [ledger.fetch(p) for p in newest]
    found = []
    for later, earlier in pairwise(records):
        try:
            found.append(compare(later, earlier, rules, datetime.now(UTC).date(), max_flips=1))
        except InputError:  # measured another way, or of other tasks
            continue
    return found


NEWEST = 4
"""Publications that are looked through for changed examples."""
