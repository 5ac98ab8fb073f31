"""A ledger in GitHub releases: one release per publication, complete before anyone can see it, never changed after.

A release is drafted at the measured commit, its assets are uploaded and their digests compared, and only then is it
published, as a prerelease that never becomes "latest". This order is what immutable releases demand, and it makes every
crash harmless: a draft has no tag, so no reader finds it, and the next publisher of the same record takes it up. Two
publishers at once may share or double the draft; the tag lets one of them publish, and both then see the same release.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import requests
from github import GithubException
from github.Repository import Repository
from requests.adapters import HTTPAdapter

from assay.baselines.errors import InputError, ServiceError
from assay.baselines.evidence import MAX_JSON_BYTES
from assay.baselines.ledger import Publication
from assay.baselines.ledger.cache import Cache
from assay.baselines.ledger.publishing import Json, Releases, moment
from assay.baselines.ledger.service import Forbidden, speaking
from assay.baselines.ledger.tags import hold, pieces, publication_of
from assay.baselines.record import EVIDENCE_NAME, MAX_TABLE_BYTES, ROWS_NAME, Record, read_evidence, read_record

ATTEMPTS = 10


class ReleaseLedger:
    """Publications as releases of `repository`; downloads are kept below `cache`.

    Reading a public repository needs no token, publishing needs `contents: write`. `session` downloads (by
    default one with the connection's own retries); `pause` waits (seconds). Where the repository is known to be `public`,
    assets are downloaded from the address that people use, which is no request to the API.
    """

    def __init__(
        self,
        repository: Repository,
        cache: Path,
        session: requests.Session | None = None,
        pause: Callable[[float], None] = time.sleep,
        *,
        public: bool = False,
    ) -> None:
        self._cache = Cache(cache, session or _session(repository), pause)
        self._releases = Releases(repository, self._cache, pause)
        self._pause = pause
        self._public = public
        self._listed: dict[str, list[Publication]] = {}
        self._known: dict[str, Json] = {}

    def publish(
        self, record: Record, branch: str, *, folder: Path | None = None, extras: Mapping[str, bytes] | None = None
    ) -> Publication:
        """Publish a record (see `Ledger`), from the `folder` it was read from, with extra assets by name.

        Raises `InputError` when GitHub does not know the commit or the tag was spent by a deleted immutable release.
        """
        publication = publication_of(record, branch)
        commit = record.evidence.provenance.commit or ""
        self._forget()
        with pieces(record, folder, extras or {}) as found:
            last: ServiceError | None = None
            for attempt in range(ATTEMPTS):
                if attempt:
                    self._pause(min(20.0, 0.5 * 2**attempt) * (0.5 + random.random()))
                try:
                    return self._releases.advance(publication, commit, found)
                except Forbidden as error:
                    if error.status != 404:
                        raise
                    last = error  # the draft went away: another publisher was faster
                except ServiceError as error:
                    last = error  # a lost reply, a race for the tag or an asset: look again
            raise last or ServiceError(f"GitHub could not publish {publication.tag}: run this again.")

    def publications(self, branch: str, kind: str | None = None) -> list[Publication]:
        """See `Ledger`. One request where the repository has under a hundred releases; more are asked for their tags too.

        What was listed is remembered until this object publishes or removes.

        A tag without its release (an interrupted prune) is left out. Beyond the newest few hundred releases `created`
        is None, except where it is needed to choose: when a commit has several publications of a kind.
        """
        found = self._listed.get(branch)
        if not found:  # that there is nothing is asked again: somebody may be publishing the first
            found = self._listed[branch] = self._list(branch)
        return [publication for publication in found if kind in {None, publication.kind}]

    def _list(self, branch: str) -> list[Publication]:
        releases, found, all_seen = self._releases.newest(branch)
        self._known |= {
            publication.tag: releases[publication.tag] for publication in found if publication.tag in releases
        }
        shared = Counter((publication.sha12, publication.kind) for publication in found)
        known = []
        for publication in found:
            if publication.tag in releases:
                known.append(replace(publication, created=moment(releases[publication.tag])))
            elif all_seen:
                continue
            elif shared[publication.sha12, publication.kind] == 1:
                known.append(publication)
            elif (release := self._published(publication)) is not None:
                known.append(replace(publication, created=moment(release)))
        return known

    def _published(self, publication: Publication) -> Json | None:
        """The release of a publication, as it was listed or else as it is: once published it never changes."""
        if publication.tag not in self._known:
            release = self._releases.published(publication.tag)
            if release is None:
                return None
            self._known[publication.tag] = release
        return self._known[publication.tag]

    def _forget(self) -> None:
        self._listed.clear()
        self._known.clear()

    def complete(self, publication: Publication) -> bool:
        """True when the tag still has its release (a prune that was interrupted leaves a tag alone)."""
        return self._published(publication) is not None

    def fetch(self, publication: Publication) -> Record:
        """See `Ledger`. A record that was fetched before is read from the cache, without the network."""
        place = self._cache.folder(publication.digest12)
        if place.exists():
            try:
                return self._read(publication, place)
            except InputError:
                self._cache.drop(publication.digest12)
        release = self._published(publication)
        if release is None:
            raise InputError(
                f"{publication.tag} has no release: it was pruned; choose another baseline or publish again."
            )
        assets = {str(asset["name"]): asset for asset in release["assets"]}
        with self._cache.filling(publication.digest12) as folder:
            self._get(assets, EVIDENCE_NAME, publication.digest12, MAX_JSON_BYTES, folder, publication)
            evidence, _ = read_evidence(folder, expect=publication.digest12)
            if evidence.table is not None:
                self._get(assets, ROWS_NAME, evidence.table.sha256, MAX_TABLE_BYTES, folder, publication)
            hold(publication, evidence)
        return self._read(publication, place)

    def remove(self, publication: Publication) -> None:
        """Delete a publication whole: its release, then its tag. What is gone already is no error."""
        self._forget()
        with speaking(f"remove {publication.tag}"):
            release = self._releases.published(publication.tag)
            if release is not None:
                self._releases.ask("DELETE", f"/releases/{release['id']}")
            try:
                self._releases.ask("DELETE", f"/git/refs/tags/{quote(publication.tag)}")
            except GithubException as error:
                if error.status not in {404, 422}:
                    raise

    # -- reading -------------------------------------------------------------------------------------------------------

    def _read(self, publication: Publication, place: Path) -> Record:
        record = read_record(place, expect=publication.digest12)
        hold(publication, record.evidence)
        return record

    def _get(
        self, assets: Mapping[str, Json], name: str, sha256: str, limit: int, folder: Path, publication: Publication
    ) -> None:
        asset = assets.get(name)
        if asset is None or asset["state"] != "uploaded":
            raise InputError(f"{publication.tag} lacks {name}: it was not made by assay; delete it and publish again.")
        if asset["size"] > limit:
            raise InputError(f"{name} of {publication.tag} is {asset['size']:,} bytes; assay reads at most {limit:,}.")
        self._cache.get(self._releases.remote(asset, sha256, public=self._public), folder / name)


def _session(repository: Repository) -> requests.Session:
    """A session for downloads that retries and verifies as the PyGithub connection does."""
    settings = repository.requester.kwargs
    session = requests.Session()
    session.verify = settings.get("verify", True)
    retry = settings.get("retry")
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(max_retries=0 if retry is None else retry))
    return session
