"""Looking: what of a repository and a ledger the predicates of a proposal need to see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol
from urllib.parse import quote

from assay.baselines.errors import AssayError, InputError
from assay.baselines.ledger import Ledger, Publication
from assay.baselines.record import Record
from assay.bot.milestones.proposal import NAME, parse_capstone
from assay.bot.milestones.shelf import headings
from assay.bot.snapshot import CapstoneEvidence, CapstoneFacts

PER_KIND = 8
"""Publications of a kind that are fetched, the newest first: each costs requests."""

Read = Callable[[str], bytes | None]
ReadAt = Callable[[str, str], bytes | None]
"""(path, ref) -> content of the file; None when there is none."""


class Repository(Protocol):
    """What looking needs of GitHub; `assay.bot.github.GitHub` has it."""

    name: str
    server_url: str

    def reader(self, wanted: Iterable[tuple[str, str]], entries: Iterable[str] = ...) -> ReadAt: ...


def proposals(branch: str, head_sha: str) -> list[tuple[str, str]]:
    """The files that every look at a pull request's capstone begins with, as (path, ref)."""
    return [(NAME, branch), (NAME, head_sha)]


def observe_capstone(
    repository: Repository, ledger: Ledger, branch: str, head_sha: str, have: Mapping[str, Record], read: ReadAt
) -> tuple[CapstoneFacts | None, dict[str, Record]]:
    """The facts about a pull request's capstone and the records that they name; (None, {}) without a file on the base branch.

    `have` holds records that were fetched already, by digest, and `read` reads the `proposals`. What cannot be read or
    fetched becomes a sentence in the facts: a checklist must not keep the verdict from being reported.
    """
    base, problem = _text(read, branch)
    if base is None and not problem:
        return None, {}
    if base is None:
        return CapstoneFacts(problem=problem), {}
    try:
        capstone = parse_capstone(base.encode())
    except InputError as error:
        return CapstoneFacts(base=base, problem=str(error)), {}
    head, unreadable = _text(read, head_sha)
    kept: dict[str, Record] = {}
    places: list[CapstoneEvidence] = []
    files: dict[str, tuple[str, ...] | None] = {}
    unseen = ""
    try:
        releases = f"{repository.server_url}/{repository.name}/releases/tag/"
        for publication, record in publications(ledger, branch, capstone.kinds(), have):
            kept[record.digest] = record
            places.append(CapstoneEvidence(digest=record.digest, place=releases + quote(publication.tag)))
        paths = capstone.paths()
        at_head = repository.reader([(path, head_sha) for path in paths])
        files = headings_of(paths, lambda path: at_head(path, head_sha))
    except AssayError as error:
        unseen = str(error)
    facts = CapstoneFacts(
        base=base,
        head=head,
        head_problem=unreadable,
        evidence=tuple(places),
        files=files,
        files_at=f"{repository.server_url}/{repository.name}/blob/{head_sha}/",
        unseen=unseen,
    )
    return facts, kept


def publications(
    ledger: Ledger, branch: str, kinds: Iterable[str], have: Mapping[str, Record] | None = None
) -> list[tuple[Publication, Record]]:
    """The newest publications of these kinds on a branch, with their records."""
    wanted = set(kinds)
    if not wanted:
        return []
    by_prefix = {digest[:12]: record for digest, record in (have or {}).items()}
    return [(p, by_prefix.get(p.digest12) or ledger.fetch(p)) for p in newest(ledger.publications(branch), wanted)]


def newest(there: Iterable[Publication], kinds: Iterable[str]) -> list[Publication]:
    """The publications that a checklist looks at: the newest `PER_KIND` of each of these kinds."""
    dated = sorted(there, key=lambda p: (p.created is not None, str(p.created)), reverse=True)
    return [p for kind in sorted(set(kinds)) for p in [q for q in dated if q.kind == kind][:PER_KIND]]


def linked(there: Iterable[Publication], branch: str, read: ReadAt) -> set[str]:
    """Tags of the publications that the milestones of a branch's `capstone.yml` may link to: those that a checklist looks at,
    and those that the proposal, or a file that it names as evidence, names. Nothing without a proposal.

    Raises `InputError` when the proposal cannot be read: what it needs is then unknown.
    """
    data = read(NAME, branch)
    if data is None:
        return set()
    capstone = parse_capstone(data)
    texts = [data, *(found for path in capstone.paths() if (found := read(path, branch)) is not None)]
    there = list(there)
    named = {p.tag for p in there if any(p.tag.encode() in text for text in texts)}
    return named | {p.tag for p in newest(there, capstone.kinds())}


def headings_of(paths: Iterable[str], read: Read) -> dict[str, tuple[str, ...] | None]:
    """Path -> headings of the file; None for one that is not there."""
    found: dict[str, tuple[str, ...] | None] = {}
    for path in paths:
        data = read(path)
        found[path] = None if data is None else headings(data.decode("utf-8", "replace"))
    return found


def _text(read: ReadAt, ref: str) -> tuple[str | None, str]:
    """The text of `capstone.yml` at a commit or branch, and why it cannot be read."""
    try:
        data = read(NAME, ref)
        return (data.decode("utf-8") if data is not None else None), ""
    except UnicodeDecodeError:
        return None, f"{NAME} is not UTF-8 text: save it again."
    except AssayError as error:
        return None, str(error)
