"""Where publications are kept: content-addressed and append-only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from assay.baselines.record import Record

TAG = re.compile(
    r"^baseline/(?P<branch>.+)/(?P<sha>[0-9a-f]{12})/(?P<kind>[a-z][a-z0-9-]{0,30})/(?P<digest>[0-9a-f]{12})$"
)


@dataclass(frozen=True, order=True)
class Publication:
    """One published record. Its tag says all that is needed to find and check it."""

    branch: str
    sha12: str
    kind: str
    digest12: str
    created: datetime | None = None
    """When it was published, where the ledger knows without fetching."""

    @property
    def tag(self) -> str:
        return f"baseline/{self.branch}/{self.sha12}/{self.kind}/{self.digest12}"


def parse_tag(tag: str) -> Publication | None:
    """The publication that a tag names, or None when the tag is something else."""
    match = TAG.match(tag.removeprefix("refs/tags/"))
    return Publication(match["branch"], match["sha"], match["kind"], match["digest"]) if match else None


class Ledger(Protocol):
    """A place for publications."""

    def publish(
        self, record: Record, branch: str, *, folder: Path | None = None, extras: Mapping[str, bytes] | None = None
    ) -> Publication:
        """Publish a record; publishing the same record again returns the same publication.

        `folder` is where the record was read from, if it was; `extras` are further files by name (a badge).
        Raises `InputError` when the record has no commit, `ServiceError` when the ledger cannot be reached.
        """
        ...

    def publications(self, branch: str, kind: str | None = None) -> list[Publication]:
        """All complete publications of a branch, in no particular order."""
        ...

    def complete(self, publication: Publication) -> bool:
        """Whether the publication can be fetched: its tag may outlive it."""
        ...

    def fetch(self, publication: Publication) -> Record:
        """The verified record of a publication. Raises `InputError` when its content does not match its digest."""
        ...


@dataclass(frozen=True)
class Nearest:
    """The publication chosen as baseline."""

    publication: Publication
    distance: int
    """Commits between the merge base and the publication's commit (0: the merge base itself was published)."""
    commit: str


def nearest(publications: Iterable[Publication], history: Iterable[str]) -> Nearest | None:
    """The publication nearest to the merge base.

    `history` is the merge base's ancestry as full commit SHAs, nearest first, the merge base itself at index 0; it is
    consumed only as far as needed. Of several publications of one commit the newest wins (by `created`, then digest).
    """
    by_commit: dict[str, Publication] = {}
    for publication in publications:
        other = by_commit.get(publication.sha12)
        if other is None or _newer(publication) > _newer(other):
            by_commit[publication.sha12] = publication
    if not by_commit:
        return None
    for distance, commit in enumerate(history):
        found = by_commit.get(commit[:12])
        if found is not None:
            return Nearest(found, distance, commit)
    return None


def _newer(publication: Publication) -> tuple[float, str]:
    return (publication.created.timestamp() if publication.created else 0.0, publication.digest12)
