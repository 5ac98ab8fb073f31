"""The steps by which a record becomes a release, each taken only after looking at what GitHub has."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from github import GithubException
from github.Repository import Repository

from assay.baselines.errors import InputError, ServiceError
from assay.baselines.evidence import digest_of
from assay.baselines.ledger import Publication, parse_tag
from assay.baselines.ledger.cache import Cache, Remote
from assay.baselines.ledger.service import Forbidden, again, speaking
from assay.baselines.ledger.tags import Piece

PER_PAGE = 100
TIMED_PAGES = 3
"""Pages of releases that are read for their times before the rest is left undated."""
ABANDONED = timedelta(days=7)
TYPES = {".json": "application/json", ".svg": "image/svg+xml", ".parquet": "application/vnd.apache.parquet"}

Json = dict[str, Any]


class Releases:
    """The releases of a repository as assay makes and reads them."""

    def __init__(self, repository: Repository, cache: Cache, pause: Callable[[float], None] = time.sleep) -> None:
        self._repository = repository
        self._cache = cache
        self._pause = pause

    def advance(self, publication: Publication, commit: str, found: list[Piece]) -> Publication:
        """Bring the publication from whatever state it is in to complete, or raise to be called again."""
        tag = publication.tag
        release = self.published(tag)
        if release is None:
            draft = self._draft(publication, commit)
            self._fill(draft, found)
            release = self._release(draft, tag, commit)
        else:
            self._fill(release, found)
        self._sweep(tag)
        return replace(publication, created=moment(release))

    def tags(self, branch: str) -> list[Publication]:
        """What the tags of a branch's publications say."""
        with speaking(f"list the baselines of {branch}"):
            try:
                refs = self.ask("GET", f"/git/matching-refs/tags/baseline/{quote(branch)}/")
            except GithubException as error:
                if error.status == 409:  # the repository is empty
                    return []
                raise
            found = [parse_tag(str(ref["ref"])) for ref in refs]
        return [tag for tag in found if tag is not None and tag.branch == branch]

    def newest(self, branch: str) -> tuple[dict[str, Json], list[Publication], bool]:
        """The newest published releases by tag, the branch's publications, and whether all of these have their release there.

        One page with every release in it says which tags there are; only where there are more are the tags asked for.
        """
        found: dict[str, Json] = {}
        tags: list[Publication] | None = None
        for page in range(1, TIMED_PAGES + 1):
            with speaking("list releases"):
                listed = self.ask("GET", "/releases", parameters={"per_page": PER_PAGE, "page": page})
                found |= {str(item["tag_name"]): item for item in listed if not item["draft"]}
            if len(listed) < PER_PAGE:
                there = [parse_tag(tag) for tag in found]
                return found, [tag for tag in there if tag is not None and tag.branch == branch], True
            if tags is None:
                tags = self.tags(branch)
            if {publication.tag for publication in tags} <= found.keys():
                return found, tags, True
        return found, tags or [], False

    def published(self, tag: str) -> Json | None:
        """The release of a tag; drafts have none."""
        with speaking(f"look for the release {tag}"):
            try:
                return dict(self.ask("GET", f"/releases/tags/{quote(tag)}"))
            except GithubException as error:
                if error.status == 404:
                    return None
                raise

    def _drafts(self) -> list[Json]:
        """All drafts of publications, oldest first; GitHub lists drafts only among all releases."""
        found: list[Json] = []
        with speaking("list releases"):
            for page in range(1, 1_000):
                listed = self.ask("GET", "/releases", parameters={"per_page": PER_PAGE, "page": page})
                found += [item for item in listed if item["draft"] and parse_tag(str(item["tag_name"]))]
                if len(listed) < PER_PAGE:
                    break
        return sorted(found, key=lambda item: int(item["id"]))

    def _draft(self, publication: Publication, commit: str) -> Json:
        """The oldest draft for the tag (left by a crash, or being filled by another publisher), or a new one."""
        drafts = [draft for draft in self._drafts() if draft["tag_name"] == publication.tag]
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
                return dict(self.ask("POST", "/releases", input=body))
        except Forbidden as error:
            refused = error
        # The commit's workflow files are not those of the default branch (which moved on while this was measured), and
        # a job's own token may not tag such a commit ("Create a release", REST documentation). The tag's name and the
        # evidence say which commit it is, so the tag itself may stand at the default branch.
        del body["target_commitish"]
        try:
            with speaking(operation, once=True):
                return dict(self.ask("POST", "/releases", input=body))
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
            listed = self.ask("GET", f"/releases/{release['id']}/assets", parameters={"per_page": PER_PAGE})
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
            self._cache.get(self.remote(asset, ""), target)
            return digest_of(target.read_bytes())

    def _upload(self, release: Json, piece: Piece, broken: Json | None) -> None:
        with speaking(f"upload {piece.name} to {release['tag_name']}", once=True):
            if broken is not None:  # an upload that broke off leaves an asset that is not `uploaded` and holds the name
                try:
                    self.ask("DELETE", f"/releases/assets/{broken['id']}")
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

    def _release(self, draft: Json, tag: str, commit: str) -> Json:
        """Publish a draft. The tag belongs to the first who does; for the others GitHub refuses, and they look again."""
        body = {"draft": False, "prerelease": True, "make_latest": "false", "tag_name": tag}
        path, operation = f"/releases/{draft['id']}", f"publish {tag}"
        try:
            try:
                with speaking(operation):
                    return dict(self.ask("PATCH", path, input=body | {"target_commitish": draft["target_commitish"]}))
            except Forbidden as error:
                if draft["target_commitish"] != commit or error.status == 401:
                    raise
                with speaking(operation):  # as in `_draft`; a draft that is gone is refused again
                    moved = body | {"target_commitish": self._repository.default_branch}
                    return dict(self.ask("PATCH", path, input=moved))
        except ServiceError as error:
            if "target_commitish" in str(error):
                raise InputError(f"GitHub does not know the commit {commit[:12]}: push it before publishing.") from None
            if "immutable release" in str(error):
                raise InputError(
                    f"{tag} was used by a release that was deleted, and tags are not reused: measure again."
                ) from None
            raise

    def _sweep(self, tag: str) -> None:
        """Delete drafts that nothing will complete.

        Those for a tag that is published are leftovers, or a slower publisher's, who will notice; those that nobody
        touched for a week belong to publishers that crashed and were never run again.
        """
        for draft in self._drafts():
            touched = moment(draft, "updated_at")
            abandoned = touched is not None and datetime.now(UTC) - touched > ABANDONED
            if draft["tag_name"] == tag or abandoned:
                with speaking(f"delete the leftover draft of {draft['tag_name']}"):
                    try:
                        self.ask("DELETE", f"/releases/{draft['id']}")
                    except GithubException as error:
                        if error.status != 404:
                            raise

    def remote(self, asset: Json, sha256: str, *, public: bool = False) -> Remote:
        """How to download an asset of which the digest, or its beginning, is known; `public`: anyone may."""
        headers = {"Accept": "application/octet-stream", "User-Agent": "assay"}
        requester = self._repository.requester
        if requester.auth is not None:
            requester.auth.authentication(headers)
        page = str(asset.get("browser_download_url") or "") if public else ""
        return Remote(str(asset["url"]), headers, str(asset["name"]), int(asset["size"]), sha256, page)

    def ask(self, method: str, path: str, **arguments: Any) -> Any:
        """The body of a reply below the repository's address, raising as PyGithub does."""

        def send() -> Any:
            return self._repository.requester.requestJsonAndCheck(method, f"{self._repository.url}{path}", **arguments)[
                1
            ]

        return again(send, self._pause) if method == "GET" else send()


def moment(release: Json, field: str = "published_at") -> datetime | None:
    """A time of a release, or None where it has none."""
    value = release.get(field)
    return datetime.fromisoformat(str(value)) if value else None
