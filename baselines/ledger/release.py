"""A ledger in GitHub releases: one release per publication, complete before anyone can see it, never changed after.

A release is drafted at the measured commit, its assets are uploaded and their digests compared, and only then is it
published, as a prerelease that never becomes "latest". This order is what immutable releases demand, and it makes every
crash harmless: a draft has no tag, so no reader finds it, and the next publisher of the same record takes it up. Two
publishers at once may share or double the draft; the tag lets one of them publish, and both then see the same release.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests
from github import GithubException
from github.Repository import Repository
from requests.adapters import HTTPAdapter

from assay.baselines.errors import InputError, ServiceError
from assay.baselines.evidence import MAX_JSON_BYTES, digest_of
from assay.baselines.ledger import Publication, parse_tag
from assay.baselines.ledger.cache import Cache, Remote
from assay.baselines.ledger.service import Forbidden, again, speaking
from assay.baselines.ledger.tags import Piece, hold, pieces, publication_of
from assay.baselines.record import EVIDENCE_NAME, MAX_TABLE_BYTES, ROWS_NAME, Record, read_evidence, read_record

ATTEMPTS = 10
PER_PAGE = 100
TYPES = {".json": "application/json", ".svg": "image/svg+xml", ".parquet": "application/vnd.apache.parquet"}

Json = dict[str, Any]


class ReleaseLedger:
    """Publications as releases of `repository`; downloads are kept below `cache`.

    Reading a public repository needs no token, publishing needs `contents: write`. `session` downloads (by
    default one with the connection's own retries); `pause` waits (seconds).
    """

    def __init__(
        self,
        repository: Repository,
        cache: Path,
        session: requests.Session | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._repository = repository
        self._cache = Cache(cache, session or _session(repository), pause)
        self._pause = pause

    def publish(
        self, record: Record, branch: str, *, folder: Path | None = None, extras: Mapping[str, bytes] | None = None
    ) -> Publication:
        """Publish a record (see `Ledger`), from the `folder` it was read from, with extra assets by name.

        Raises `InputError` when GitHub does not know the commit or the tag was spent by a deleted immutable release.
        """
        publication = publication_of(record, branch)
        commit = record.evidence.provenance.commit or ""
        with pieces(record, folder, extras or {}) as found:
            last: ServiceError | None = None
            for attempt in range(ATTEMPTS):
                if attempt:
                    self._pause(min(20.0, 0.5 * 2**attempt) * (0.5 + random.random()))
                try:
                    return self._step(publication, commit, found)
                except Forbidden as error:
                    if error.status != 404:
                        raise
                    last = error  # the draft went away: another publisher was faster
                except ServiceError as error:
                    last = error  # a lost reply, a race for the tag or an asset: look again
            raise last or ServiceError(f"GitHub could not publish {publication.tag}: run this again.")

    def publications(self, branch: str, kind: str | None = None) -> list[Publication]:
        """See `Ledger`. One request, and one more for each of several publications of one commit and kind.

        `created` is known only where it is needed to choose: when a commit has several publications of a kind.
        """
        operation = f"list the baselines of {branch}"
        with speaking(operation):
            try:
                refs = self._ask("GET", f"/git/matching-refs/tags/baseline/{quote(branch)}/")
            except GithubException as error:
                if error.status == 409:  # the repository is empty
                    return []
                raise
            tags = [parse_tag(str(ref["ref"])) for ref in refs]
        found = [tag for tag in tags if tag is not None and tag.branch == branch and kind in {None, tag.kind}]
        shared = Counter((publication.sha12, publication.kind) for publication in found)
        known = []
        for publication in found:
            if shared[publication.sha12, publication.kind] == 1:
                known.append(publication)
            elif (release := self._published(publication.tag)) is not None:
                known.append(replace(publication, created=_moment(release)))
        return known

    def complete(self, publication: Publication) -> bool:
        """True when the tag still has its release (a prune that was interrupted leaves a tag alone)."""
        return self._published(publication.tag) is not None

    def fetch(self, publication: Publication) -> Record:
        """See `Ledger`. A record that was fetched before is read from the cache, without the network."""
        place = self._cache.folder(publication.digest12)
        if place.exists():
            try:
                return self._read(publication, place)
            except InputError:
                self._cache.drop(publication.digest12)
        release = self._published(publication.tag)
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
        with speaking(f"remove {publication.tag}"):
            release = self._published(publication.tag)
            if release is not None:
                self._ask("DELETE", f"/releases/{release['id']}")
            try:
                self._ask("DELETE", f"/git/refs/tags/{quote(publication.tag)}")
            except GithubException as error:
                if error.status not in {404, 422}:
                    raise

    # -- publishing, one observation at a time -------------------------------------------------------------------------

    def _step(self, publication: Publication, commit: str, found: list[Piece]) -> Publication:
        """Bring the publication from whatever state it is in to complete, or raise to be called again."""
        tag = publication.tag
        release = self._published(tag)
        if release is None:
            draft = self._draft(publication, commit)
            self._fill(draft, found)
            self._release(draft, tag, commit)
            release = self._published(tag)
            if release is None:
                raise ServiceError(f"GitHub does not show {tag} yet: run this again.")
        self._fill(release, found)
        self._sweep(tag)
        return replace(publication, created=_moment(release))

    def _published(self, tag: str) -> Json | None:
        with speaking(f"look for the release {tag}"):
            try:
                return dict(self._ask("GET", f"/releases/tags/{quote(tag)}"))
            except GithubException as error:
                if error.status == 404:
                    return None
                raise

    def _drafts(self, tag: str) -> list[Json]:
        """Drafts for a tag, oldest first; GitHub lists drafts only among all releases."""
        found: list[Json] = []
        with speaking("list releases"):
            for page in range(1, 1_000):
                listed = self._ask("GET", "/releases", parameters={"per_page": PER_PAGE, "page": page})
                found += [item for item in listed if item["draft"] and item["tag_name"] == tag]
                if len(listed) < PER_PAGE:
                    break
        return sorted(found, key=lambda item: int(item["id"]))

    def _draft(self, publication: Publication, commit: str) -> Json:
        """The oldest draft for the tag (left by a crash, or being filled by another publisher), or a new one."""
        drafts = self._drafts(publication.tag)
        if drafts:
            return drafts[0]
        body: Json = {
            "tag_name": publication.tag,
            "target_commitish": commit,
            "name": f"Baseline of {publication.branch} at {commit[:7]}: {publication.kind}",
            "body": f"Evidence that assay measured at {commit}, `sha256:{publication.digest12}…`. Not a release of the software.",
            "draft": True,
            "prerelease": True,
            "make_latest": "false",
        }
        operation = f"draft the release {publication.tag}"
        try:
            with speaking(operation, once=True):
                return dict(self._ask("POST", "/releases", input=body))
        except Forbidden as error:
            refused = error
        # The commit's workflow files are not those of the default branch (which moved on while this was measured), and
        # a job's own token may not tag such a commit ("Create a release", REST documentation). The tag's name and the
        # evidence say which commit it is, so the tag itself may stand at the default branch.
        del body["target_commitish"]
        try:
            with speaking(operation, once=True):
                return dict(self._ask("POST", "/releases", input=body))
        except Forbidden:
            raise refused from None

    def _fill(self, release: Json, found: list[Piece]) -> None:
        """Upload what is missing, then compare all digests. Nothing that is uploaded is ever overwritten."""
        present = self._assets(release)
        lacking = [piece for piece in found if not self._holds(present.get(piece.name), piece, release)]
        if not lacking:
            return
        if release.get("immutable"):
            raise InputError(
                f"{release['tag_name']} is immutable and lacks {lacking[0].name}: it was not made by assay; measure again."
            )
        for piece in lacking:
            self._upload(release, piece, present.get(piece.name))
        present = self._assets(release)
        for piece in lacking:
            if not self._holds(present.get(piece.name), piece, release):
                raise ServiceError(f"GitHub did not keep {piece.name} of {release['tag_name']}: run this again.")

    def _assets(self, release: Json) -> dict[str, Json]:
        with speaking(f"list the assets of {release['tag_name']}"):
            listed = self._ask("GET", f"/releases/{release['id']}/assets", parameters={"per_page": PER_PAGE})
            return {str(item["name"]): item for item in listed}

    def _holds(self, asset: Json | None, piece: Piece, release: Json) -> bool:
        """True when the asset is there whole. Raises `InputError` for other content that is published under its name."""
        if asset is None or asset["state"] != "uploaded":
            return False
        if not piece.required:
            return True
        if asset["size"] == piece.size and self._digest(asset, piece) == piece.sha256:
            return True
        if release["draft"]:  # nobody has seen it: it is uploaded again
            return False
        raise InputError(
            f"{release['tag_name']} already holds another {piece.name}: assets are never overwritten; delete that release."
        )

    def _digest(self, asset: Json, piece: Piece) -> str:
        """GitHub's own digest of an asset, or that of a download where it has none (uploads before 2025-06)."""
        digest = str(asset.get("digest") or "")
        if digest.startswith("sha256:"):
            return digest.removeprefix("sha256:")
        with tempfile.TemporaryDirectory(prefix="assay-verify-") as folder:
            target = Path(folder) / piece.name
            self._cache.get(self._remote(asset, ""), target)
            return digest_of(target.read_bytes())

    def _upload(self, release: Json, piece: Piece, broken: Json | None) -> None:
        with speaking(f"upload {piece.name} to {release['tag_name']}", once=True):
            if broken is not None:  # an upload that broke off leaves an asset that is not `uploaded` and holds the name
                try:
                    self._ask("DELETE", f"/releases/assets/{broken['id']}")
                except GithubException as error:
                    if error.status != 404:
                        raise
            self._repository.requester.requestBlobAndCheck(
                "POST",
                str(release["upload_url"]).partition("{")[0],
                parameters={"name": piece.name},
                headers={"Content-Type": TYPES.get(piece.path.suffix, "application/octet-stream")},
                input=str(piece.path),
            )

    def _release(self, draft: Json, tag: str, commit: str) -> None:
        """Publish a draft. The tag belongs to the first who does; for the others GitHub refuses, and they look again."""
        body = {"draft": False, "prerelease": True, "make_latest": "false", "tag_name": tag}
        path, operation = f"/releases/{draft['id']}", f"publish {tag}"
        try:
            try:
                with speaking(operation):
                    self._ask("PATCH", path, input=body | {"target_commitish": draft["target_commitish"]})
            except Forbidden as error:
                if draft["target_commitish"] != commit or error.status == 401:
                    raise
                with speaking(operation):  # as in `_draft`; a draft that is gone is refused again
                    self._ask("PATCH", path, input=body | {"target_commitish": self._repository.default_branch})
        except ServiceError as error:
            if "target_commitish" in str(error):
                raise InputError(f"GitHub does not know the commit {commit[:12]}: push it before publishing.") from None
            if "immutable release" in str(error):
                raise InputError(
                    f"{tag} was used by a release that was deleted, and tags are not reused: measure again."
                ) from None
            raise

    def _sweep(self, tag: str) -> None:
        """Delete drafts for a tag that is published: they are leftovers, or a slower publisher's, who will notice."""
        for draft in self._drafts(tag):
            with speaking(f"delete the leftover draft of {tag}"):
                try:
                    self._ask("DELETE", f"/releases/{draft['id']}")
                except GithubException as error:
                    if error.status != 404:
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
        self._cache.get(self._remote(asset, sha256), folder / name)

    def _remote(self, asset: Json, sha256: str) -> Remote:
        headers = {"Accept": "application/octet-stream", "User-Agent": "assay"}
        requester = self._repository.requester
        if requester.auth is not None:
            requester.auth.authentication(headers)
        return Remote(str(asset["url"]), headers, str(asset["name"]), int(asset["size"]), sha256)

    def _ask(self, method: str, path: str, **arguments: Any) -> Any:
        def send() -> Any:
            return self._repository.requester.requestJsonAndCheck(method, f"{self._repository.url}{path}", **arguments)[
                1
            ]

        return again(send, self._pause) if method == "GET" else send()


def _session(repository: Repository) -> requests.Session:
    """A session for downloads that retries and verifies as the PyGithub connection does."""
    settings = repository.requester.kwargs
    session = requests.Session()
    session.verify = settings.get("verify", True)
    retry = settings.get("retry")
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(max_retries=0 if retry is None else retry))
    return session


def _moment(release: Json) -> datetime | None:
    value = release.get("published_at")
    return datetime.fromisoformat(str(value)) if value else None
