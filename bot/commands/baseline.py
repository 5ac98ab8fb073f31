"""`assay baseline`: publications, for people and for the push to the main branch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.baselines.errors import InputError, ServiceError
from assay.baselines.ledger import Ledger, Publication
from assay.bot.options import place_options, policy_option
from assay.bot.sources import Place, check_branch, check_kind, publication_named
from assay.bot.text import plural, shown

if TYPE_CHECKING:
    from assay.baselines.record import Record


@click.group()
def baseline() -> None:
    """Publish, list, show, fetch, compare, verify and prune baselines.

    A publication is one record of evidence, kept forever under a tag that names its branch, commit, kind and digest:
    baseline/<branch>/<sha12>/<kind>/<digest12>.
    """


@baseline.command()
@click.argument("evidence", type=click.Path(path_type=Path))
@click.option("--branch", required=True, envvar="GITHUB_REF_NAME", help="The branch that this record is a baseline of.")
@click.option(
    "--badge/--no-badge", "with_badge", default=True, show_default=True, help="Also publish the accuracy badge."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    envvar="GITHUB_OUTPUT",
    metavar="FILE",
    help="Append `tag` as a workflow output.",
)
@place_options
def publish(
    evidence: Path,
    branch: str,
    with_badge: bool,
    output: Path | None,
    ledger: Path | None,
    repository: str | None,
    github_token: str | None,
    api_url: str,
    server_url: str,
) -> None:
    """Publish the EVIDENCE folder as a baseline of a branch.

    \b
      assay baseline publish head --branch main --ledger baselines
      assay baseline publish head --branch main --repository acme/widgets     (needs contents: write)

    Publishing the same record again changes nothing. Of several publications of one commit the newest counts.
    """
    from assay.baselines.config import configuration_at
    from assay.baselines.record import read_record
    from assay.bot.badge import badge, badge_path
    from assay.bot.intake import is_supplement

    record = read_record(evidence)
    if is_supplement(record.evidence):
        raise InputError(
            f"{evidence} holds supplementary rows of another baseline: publish the record of an evaluation of this commit."
        )
    place = Place(ledger, repository, github_token, api_url, server_url)
    picture = badge(record.evidence) if with_badge and configuration_at(None).comment.badge else None
    extras = {"badge.svg": picture.encode()} if picture else {}
    publication = place.ledger().publish(record, branch, folder=evidence, extras=extras)
    if picture and ledger is None:
        try:
            place.github().journal_replace(
                badge_path(branch), picture.encode(), f"Badge of {branch}: {publication.tag}"
            )
        except ServiceError as error:
            print(f"assay: published, but the badge was not updated: {error}", file=sys.stderr)
    if output is not None:
        from assay.bot.commands.gate import append

        append(output, f"tag={publication.tag}\n")
    click.echo(publication.tag)


@baseline.command(name="list")
@click.option("--branch", default="main", show_default=True, help="Whose baselines to list.")
@click.option("--kind", help="Only this kind of evidence.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list with one object for each publication.")
@place_options
def list_(branch: str, kind: str | None, as_json: bool, **place: Any) -> None:
    """List the publications of a branch, newest first."""
    check_branch(branch)
    if kind is not None:
        check_kind(kind)
    where = _place(place)
    found = sorted(where.ledger().publications(branch, kind), key=lambda p: str(p.created), reverse=True)
    if as_json:
        click.echo(
            json.dumps(
                [{"tag": p.tag, "created": p.created.isoformat() if p.created else None} for p in found], indent=1
            )
        )
        return
    for publication in found:
        click.echo(
            f"{publication.created:%Y-%m-%d %H:%M}  {publication.tag}" if publication.created else publication.tag
        )
    if not found:
        missing = where.ledger_folder is not None and not where.ledger_folder.exists()
        reason = f": there is no folder {where.ledger_folder}" if missing else ""
        click.echo(shown(f"nothing is published for {branch}{reason}"), err=True)


@baseline.command()
@click.argument("tag")
@place_options
def show(tag: str, **place: Any) -> None:
    """Show a publication: what was measured, how, and its metrics."""
    from assay.bot.commands.evidence import describe

    describe(_place(place).ledger().fetch(_tag(tag)))


@baseline.command()
@click.argument("tag")
@click.argument("folder", type=click.Path(path_type=Path))
@place_options
def fetch(tag: str, folder: Path, **place: Any) -> None:
    """Download a publication into FOLDER, verified against the digest in its tag."""
    record = _place(place).ledger().fetch(_tag(tag))
    _write(record, folder, tag)
    click.echo(f"{folder}: sha256:{record.digest}")


@baseline.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--branch",
    default="main",
    show_default=True,
    envvar="GITHUB_BASE_REF",
    help="Branch whose baselines are looked through.",
)
@click.option("--head", metavar="SHA", help="The commit that will be compared with it.  [default: HEAD of this clone]")
@click.option("--kind", default="evaluation", show_default=True, help="Kind of evidence.")
@place_options
def nearest(folder: Path, branch: str, head: str | None, kind: str, **place: Any) -> None:
    """Fetch the publication that HEAD would be compared with into FOLDER, and print FOLDER; print nothing when there is none.

    It is the publication of the branch nearest to the merge base, by ancestry.
    """
    import subprocess

    from assay.bot.sources import nearest_baseline

    check_kind(kind)
    where = _place(place)
    if head is None:
        try:
            done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        except OSError as error:
            raise ServiceError(f"git rev-parse did not run ({error.strerror}): install git, or give --head.") from None
        head = done.stdout.strip() if done.returncode == 0 else None
    if head is None:
        raise InputError("this folder is no git checkout with a commit: run this in one, or give --head SHA.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not an empty folder: give a new one, so that nothing of yours is replaced.")
    found = nearest_baseline(where, kind, branch, head, Path.cwd())
    if found is None:
        click.echo(f"nothing is published for {branch} at the merge base or before it", err=True)
        return
    _write(where.ledger().fetch(found.publication), folder, found.publication.tag)
    click.echo(f"{found.publication.tag}, {_where(found.distance)}", err=True)
    click.echo(folder)


@baseline.command()
@click.argument("base")
@click.argument("head")
@policy_option
@click.option("--intersect", is_flag=True, help="Compare the common examples of imported results.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON instead of a table.")
@place_options
def diff(base: str, head: str, policy: Path | None, intersect: bool, as_json: bool, **place: Any) -> None:
    """Compare the publication HEAD with BASE, and exit as the gate does.

    \b
      assay baseline diff baseline/main/1f0c…/evaluation/9ab2… baseline/main/77aa…/evaluation/c01d… --repository acme/widgets
      assay baseline diff base head                                                             (folders)

    BASE and HEAD are tags, folders that assay wrote, or run/ID. The verdict is the bot's: the same comparison under
    the same policy; against a tag also with what people accepted by a command, and with advisory gates.
    """
    from datetime import UTC, datetime

    from assay.baselines.compare.verdict import conclude
    from assay.baselines.config import configuration_at
    from assay.bot.audits.recorded import accepting_at
    from assay.bot.gate import print_table, result_of
    from assay.bot.report import to_json
    from assay.bot.sources import resolve

    where = _place(place)
    configuration = configuration_at(policy)
    if publication_named(base) is not None:
        configuration = accepting_at(where, configuration, datetime.now(UTC).date())
    result = result_of(resolve(head, where), base, None, "main", configuration, where, intersect)
    conclusion, code = conclude(result.overall, block_inconclusive=configuration.gate.on_inconclusive == "block")
    if as_json:
        click.echo(to_json(result, conclusion, code), nl=False)
    else:
        print_table(result)
    click.get_current_context().exit(code)


@baseline.command()
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@click.option("--all", "everything", is_flag=True, help="Check every publication of the branch.")
@click.option("--branch", default="main", show_default=True, help="The branch of --all.")
@place_options
def verify(tags: tuple[str, ...], everything: bool, branch: str, **place: Any) -> None:
    """Download publications and check them: bytes against digests, the release's state, tag against evidence.

    \b
      assay baseline verify --all --repository acme/widgets       (no token is needed for a public repository)

    Nothing is taken from the cache. Exits 2 when something is wrong with any of them.
    """
    import tempfile

    from assay.bot.audits.verification import verify as check

    if everything == bool(tags):
        raise InputError("give the tags to verify, or --all for every publication of a branch, and not both.")
    where = _place(place)
    with tempfile.TemporaryDirectory(prefix="assay-verify-") as folder:
        if where.ledger_folder is None:
            from assay.baselines.ledger.release import ReleaseLedger
            from assay.bot.audits.places import rest_of

            github = where.github()
            ledger: Ledger = ReleaseLedger(github.repository, Path(folder))
            rest = rest_of(github)
        else:
            ledger, rest = where.ledger(), None
        wanted = ledger.publications(check_branch(branch)) if everything else [_tag(tag) for tag in tags]
        if not wanted:
            click.echo(shown(f"nothing is published for {branch}"), err=True)
        wrong = 0
        for publication in sorted(wanted, key=lambda p: p.tag):
            found = check(publication, ledger, rest)
            wrong += bool(found.problems)
            said = "; ".join((*found.problems, *found.notes))
            click.echo(shown(f"{'✗' if found.problems else '✓'} {found.tag}{f': {said}' if said else ''}", 2000))
    click.get_current_context().exit(2 if wrong else 0)


@baseline.command()
@click.option("--branch", default="main", show_default=True, help="Whose publications.")
@click.option("--kind", help="Only this kind of evidence.")
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Keep the N newest of each kind.")
@click.option("--max-age", type=click.IntRange(0, 36_500), metavar="DAYS", help="Keep what is at most this old.")
@policy_option
@click.option("--dry-run/--yes", "dry", default=True, show_default="--dry-run", help="Only print, or remove.")
@place_options
def prune(
    branch: str,
    kind: str | None,
    keep: int | None,
    max_age: int | None,
    policy: Path | None,
    dry: bool,
    **place: Any,
) -> None:
    """Remove old publications, whole releases with their tags, and say what and why.

    \b
      assay baseline prune --keep 30 --max-age 90 --repository acme/widgets           (prints what would go)
      assay baseline prune --keep 30 --max-age 90 --repository acme/widgets --yes     (needs contents: write)

    Without --keep and --max-age the rules are those of `retention` in assay.yml; without any, nothing is removed. With both
    rules, what either keeps is kept. The newest publication stays, and so does every one that an open pull request is
    compared with or that a milestone of capstone.yml links to.
    """
    from datetime import UTC, datetime, timedelta

    from assay.baselines.config import configuration_at
    from assay.baselines.ledger.history import history
    from assay.baselines.ledger.release import ReleaseLedger
    from assay.bot.audits.places import open_pulls, rest_of
    from assay.bot.audits.retention import choose, needed_by
    from assay.bot.milestones.holdings import linked
    from assay.bot.sources import cache_folder

    check_branch(branch)
    if kind is not None:
        check_kind(kind)
    where = _place(place)
    if where.ledger_folder is not None:
        raise InputError(
            "a folder of publications knows no pull requests, so that nothing in it is safe to prune: name --repository."
        )
    if keep is None and max_age is None:
        rules = configuration_at(policy).retention
        keep, max_age = rules.keep, rules.max_age_days
    if keep is None and max_age is None:
        click.echo(
            "no retention policy is given, so that nothing is removed: set retention in assay.yml, or give --keep N, "
            "--max-age DAYS, or both.",
            err=True,
        )
        return
    github = where.github()
    ledger = ReleaseLedger(github.repository, cache_folder())
    publications = ledger.publications(branch, kind)
    needed = needed_by(
        open_pulls(rest_of(github), branch),
        publications,
        github.merge_base,
        lambda sha: history(github.repository, sha),
    )
    age = timedelta(days=max_age) if max_age is not None else None
    removed = 0
    kept = linked(publications, branch, github.file_at)
    for choice in choose(publications, needed, datetime.now(UTC), keep=keep, max_age=age, linked=kept):
        if choice.remove and not dry:
            ledger.remove(choice.publication)
        word = ("would remove" if dry else "removed") if choice.remove else "kept"
        removed += choice.remove
        click.echo(f"{word}  {choice.publication.tag}  ({choice.why})")
    click.echo(f"{plural(removed, 'publication')} {'would go; --yes removes them' if dry else 'removed'}", err=True)


def _where(distance: int) -> str:
    return f"{plural(distance, 'commit')} before the merge base" if distance else "published at the merge base"


def _write(record: Record, folder: Path, tag: str) -> None:
    from assay.baselines.record import write_record

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not an empty folder: give a new one, so that nothing of yours is replaced.")
    if write_record(folder, record.evidence, record.rows).digest != record.digest:
        raise ServiceError(
            f"{tag} could not be written again with the same digest by this version: use the one that wrote it."
        )


def _tag(tag: str) -> Publication:
    publication = publication_named(tag)
    if publication is None:
        raise InputError(f"{tag[:120]!r} is no tag of a baseline: `assay baseline list` prints them.")
    return publication


def _place(options: dict[str, Any]) -> Place:
    return Place(
        options["ledger"], options["repository"], options["github_token"], options["api_url"], options["server_url"]
    )
