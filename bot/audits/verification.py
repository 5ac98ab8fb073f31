"""Whether a publication is what its tag promises: its bytes, its release and its commit. Needs no token to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from assay.baselines.errors import InputError
from assay.baselines.ledger import Ledger, Publication
from assay.baselines.ledger.service import Forbidden
from assay.baselines.record import EVIDENCE_NAME, ROWS_NAME, Record
from assay.bot.rest import Rest


@dataclass(frozen=True)
class Verified:
    """What checking one publication found."""

    tag: str
    digest: str = ""
    problems: tuple[str, ...] = ()
    """Why it cannot be trusted; empty when all is well."""
    notes: tuple[str, ...] = ()
    """What is allowed, and worth knowing."""


def verify(publication: Publication, ledger: Ledger, rest: Rest | None) -> Verified:
    """Download a publication and check it; with `rest` also its release and tag.

    `ledger` should have an empty cache, or nothing is downloaded. Raises `ServiceError` when it cannot be reached: that
    says nothing about the publication.
    """
    problems: list[str] = []
    notes: list[str] = []
    record: Record | None = None
    try:
        record = ledger.fetch(publication)
    except InputError as error:
        problems.append(str(error))
    if rest is not None:
        release = _get(rest, f"/releases/tags/{quote(publication.tag)}", "read the release")
        if release is not None:
            found, more = release_problems(release, record, _get(rest, "/releases/latest", "read the latest release"))
            problems += found
            notes += more
            notes += _where_the_tag_stands(publication, record, rest)
    return Verified(publication.tag, record.digest if record is not None else "", tuple(problems), tuple(notes))


def release_problems(
    release: dict[str, Any], record: Record | None, latest: dict[str, Any] | None
) -> tuple[list[str], list[str]]:
    """(problems, notes) of a release's state: a complete prerelease that is never shown as the repository's latest."""
    problems = []
    if release.get("draft"):
        problems.append("its release is a draft")
    if not release.get("prerelease"):
        problems.append("its release is no prerelease, so that people may take it for one of the software")
    if latest is not None and latest.get("id") == release.get("id"):
        problems.append("its release is shown as the latest of the repository")
    assets = {str(a["name"]): a for a in release.get("assets", ())}
    wanted = [EVIDENCE_NAME]
    if record is not None and record.evidence.table is not None:
        wanted.append(ROWS_NAME)
    lacking = [name for name in wanted if assets.get(name, {}).get("state") != "uploaded"]
    problems += [f"its release lacks {name}" for name in lacking]
    if record is not None:
        expected = {EVIDENCE_NAME: record.digest}
        if record.evidence.table is not None:
            expected[ROWS_NAME] = record.evidence.table.sha256
        for name, sha256 in expected.items():
            said = str(assets.get(name, {}).get("digest") or "")
            if said and said != f"sha256:{sha256}":
                problems.append(f"GitHub's own digest of {name} is another than that of the evidence")
    notes = [] if release.get("immutable") else ["not immutable: its digest is all that protects it"]
    return problems, notes


def _where_the_tag_stands(publication: Publication, record: Record | None, rest: Rest) -> list[str]:
    """A note when the tag stands at another commit than was measured. That is allowed: a job's token may not tag a
    commit whose workflow files are not the default branch's, and then publishing tags the default branch; the name of
    the tag and the evidence, which agree, say what was measured."""
    ref = _get(rest, f"/git/ref/tags/{quote(publication.tag)}", "read the tag")
    if ref is None:
        return ["its tag is gone, though its release is there"]
    at = str(ref["object"]["sha"])
    if ref["object"].get("type") == "tag":
        annotated = _get(rest, f"/git/tags/{at}", "read the tag")
        at = str(annotated["object"]["sha"]) if annotated is not None else at
    measured = (record.evidence.provenance.commit or "") if record is not None else publication.sha12
    return [] if at[:12] == measured[:12] else [f"its tag stands at {at[:12]}, and {measured[:12]} was measured"]


def _get(rest: Rest, path: str, operation: str) -> dict[str, Any] | None:
    try:
        return dict(rest.get(path, operation))
    except Forbidden as error:
        if error.status == 404:
            return None
        raise
