"""What a publication's tag promises, and the checks that hold a record to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from assay.baselines.errors import InputError
from assay.baselines.evidence import Evidence, digest_of
from assay.baselines.ledger import Publication
from assay.baselines.record import EVIDENCE_NAME, ROWS_NAME, Record, read_evidence, write_record

# git-check-ref-format(1), as far as it concerns a name that is put in the middle of a tag
UNFIT = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|^[/.-]|[/.]$|/\.|\.lock(/|$)")
ASSET = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,80}$")


@dataclass(frozen=True)
class Piece:
    """A file of a publication."""

    name: str
    path: Path
    sha256: str
    size: int
    required: bool
    """True for what the digest vouches for; False for extras such as a badge, of which the first one stays."""


def publication_of(record: Record, branch: str) -> Publication:
    """The publication that a record becomes. Raises `InputError` without a commit or with a name no tag can have."""
    commit = record.evidence.provenance.commit
    if commit is None:
        raise InputError("this evidence names no commit, so it cannot be a baseline: measure it in a git checkout.")
    if not branch or len(branch) > 180 or UNFIT.search(branch):
        raise InputError(f"{branch[:80]!r} is no branch name that a tag can hold: give the branch as git shows it.")
    if len(record.digest) != 64:
        raise InputError("this record has no digest: write it to a folder first, then publish that.")
    return Publication(branch, commit[:12], record.evidence.kind, record.digest[:12])


def hold(publication: Publication, evidence: Evidence) -> None:
    """Raise `InputError` when the evidence is not what the tag says, though its digest is right."""
    commit = evidence.provenance.commit or ""
    if commit[:12] != publication.sha12 or evidence.kind != publication.kind:
        raise InputError(
            f"{publication.tag} holds {evidence.kind} evidence of {commit[:12] or 'no commit'}: the tag was made by hand; "
            "delete it and publish again."
        )


@contextmanager
def pieces(record: Record, folder: Path | None, extras: Mapping[str, bytes]) -> Iterator[list[Piece]]:
    """The files to publish, for the length of a `with` block.

    `folder` is where the record was read from; its bytes are published as they are. Without it the table is encoded
    again, which another version of pyarrow may do differently: then the digest would change, and `InputError` is raised.
    """
    with TemporaryDirectory(prefix="assay-publish-") as name:
        place = Path(name)
        source = folder
        if source is None:
            written = write_record(place / "record", record.evidence, record.rows)
            source = place / "record"
            if written.digest != record.digest:
                raise InputError(
                    f"the record {record.digest[:12]} encodes differently here than where it was written: publish its folder."
                )
        elif read_evidence(source, expect=record.digest)[0] != record.evidence:
            raise InputError(
                f"{source} holds another record than the one to publish: give the folder it was read from."
            )
        found = [_piece(source / EVIDENCE_NAME, required=True)]
        if record.evidence.table is not None:
            found.append(_piece(source / ROWS_NAME, required=True))
            if found[-1].sha256 != record.evidence.table.sha256:
                raise InputError(f"{source / ROWS_NAME} does not match its evidence: measure again.")
        for extra, data in extras.items():
            if not ASSET.match(extra) or extra in {EVIDENCE_NAME, ROWS_NAME}:
                raise InputError(
                    f"{extra[:80]!r} is no name for an extra file of a publication: use letters, digits, - _ ."
                )
            (place / extra).write_bytes(data)
            found.append(_piece(place / extra, required=False))
        yield found


def _piece(path: Path, *, required: bool) -> Piece:
    data = path.read_bytes()
    return Piece(path.name, path, digest_of(data), len(data), required)
