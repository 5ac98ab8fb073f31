"""Releases and their assets, with drafts that only writers see and releases that never change once published."""

from __future__ import annotations

import re

from .routing import Refusal, Reply, Request, route
from .state import Asset, Release

REPO = "/repos/{owner}/{repo}"
IMMUTABLE = "Cannot {} an immutable release."


def visible(request: Request, release: Release) -> bool:
    return not release.draft or request.may_write("contents")


def need(request: Request) -> Release:
    release = request.repo.releases.get(request.number("release_id"))
    if release is None or not visible(request, release):
        raise Refusal(404, "Not Found")
    return release


def need_asset(request: Request) -> tuple[Release, Asset]:
    number = request.number("asset_id")
    for release in request.repo.releases.values():
        if number in release.assets and visible(request, release):
            return release, release.assets[number]
    raise Refusal(404, "Not Found")


def guard_workflows(request: Request, target: str) -> None:
    """Refuse a release at a commit whose workflow files are not the default branch's, as GitHub does since 2023-11.

    A job's own token can never be given the permission that this needs.
    """
    repo = request.repo
    sha, main = repo.sha(target), repo.sha(repo.default_branch)
    if sha is None or main is None or request.may_write("workflows"):
        return
    files = repo.objects.files(repo.objects.commit(main).tree)
    for path, blob in repo.objects.files(repo.objects.commit(sha).tree).items():
        if path.startswith(".github/workflows/") and files.get(path) != blob:
            if request.token is not None and request.token.kind == "installation":
                raise Refusal(403, "Resource not accessible by integration")
            raise Refusal(404, "Not Found")


def publish(request: Request, release: Release) -> None:
    """Make a draft public: claims its tag, at the target commit when the tag is new."""
    repo = request.repo
    if any(other.tag == release.tag for other in repo.published() if other is not release):
        raise Refusal(
            422, "Validation Failed", [{"resource": "Release", "code": "already_exists", "field": "tag_name"}]
        )
    if release.tag in repo.spent_tags:
        used = "tag_name was used by an immutable release"
        raise Refusal(
            422, "Validation Failed", [{"resource": "Release", "code": "custom", "field": "tag_name", "message": used}]
        )
    name = f"refs/tags/{release.tag}"
    if name not in repo.refs:
        sha = repo.sha(release.target)
        if sha is None:
            raise Refusal(
                422, "Validation Failed", [{"resource": "Release", "code": "invalid", "field": "target_commitish"}]
            )
        repo.refs[name] = sha
    release.draft, release.published = False, request.world.now()
    release.immutable = repo.immutable_releases


def mark_latest(request: Request, release: Release) -> None:
    if not release.draft and not release.prerelease and request.json.get("make_latest", "true") == "true":
        for other in request.repo.releases.values():
            other.latest = other is release
    elif release.prerelease and request.json.get("make_latest") == "true":
        raise Refusal(422, "Validation Failed", [{"resource": "Release", "code": "invalid", "field": "make_latest"}])


@route("GET", REPO + "/releases", "contents")
def releases(request: Request) -> Reply:
    shown = [release for release in request.repo.releases.values() if visible(request, release)]
    shown.sort(key=lambda release: (release.created, release.id), reverse=True)
    return request.page(shown, lambda release: request.payloads.release(request.repo, release))


@route("POST", REPO + "/releases", "contents")
def create(request: Request) -> Reply:
    body, repo = request.json, request.repo
    tag = str(body.get("tag_name") or "")
    if not tag or re.search(r"[\s~^:?*\[\\]|\.\.|@\{|//|/$|^/|\.lock$", tag):
        raise Refusal(422, "Validation Failed", [{"resource": "Release", "code": "invalid", "field": "tag_name"}])
    guard_workflows(request, str(body.get("target_commitish") or repo.default_branch))
    release = Release(
        request.world.number(), tag, str(body.get("target_commitish") or repo.default_branch),
        str(body.get("name") or tag), str(body.get("body") or ""), True, bool(body.get("prerelease")),
        request.login, request.world.now(),
    )  # fmt: skip
    if not body.get("draft"):
        publish(request, release)
    repo.releases[release.id] = release
    mark_latest(request, release)
    return Reply(201, request.payloads.release(repo, release))


@route("GET", REPO + "/releases/latest", "contents")
def latest(request: Request) -> Reply:
    found = [release for release in request.repo.releases.values() if release.latest and not release.draft]
    if not found:
        raise Refusal(404, "Not Found")
    return Reply(200, request.payloads.release(request.repo, found[0]))


@route("GET", REPO + "/releases/tags/{tag}", "contents")
def by_tag(request: Request) -> Reply:
    for release in request.repo.published():
        if release.tag == request.params["tag"]:
            return Reply(200, request.payloads.release(request.repo, release))
    raise Refusal(404, "Not Found")


@route("GET", REPO + "/releases/{release_id}", "contents")
def one(request: Request) -> Reply:
    return Reply(200, request.payloads.release(request.repo, need(request)))


@route("PATCH", REPO + "/releases/{release_id}", "contents")
def update(request: Request) -> Reply:
    release, body = need(request), request.json
    moves = body.get("tag_name", release.tag) != release.tag or body.get("draft")
    if release.immutable and moves:
        raise Refusal(422, IMMUTABLE.format("change the tag of"))
    guard_workflows(request, str(body.get("target_commitish") or release.target))
    release.tag = body.get("tag_name", release.tag)
    release.target = body.get("target_commitish", release.target)
    release.name, release.body = body.get("name", release.name), body.get("body", release.body)
    release.prerelease = body.get("prerelease", release.prerelease)
    if body.get("draft") is False and release.draft:
        publish(request, release)
    elif body.get("draft") is True:
        release.draft = True
    mark_latest(request, release)
    return Reply(200, request.payloads.release(request.repo, release))


@route("DELETE", REPO + "/releases/{release_id}", "contents")
def delete(request: Request) -> Reply:
    release = need(request)
    if release.immutable:
        request.repo.spent_tags.add(release.tag)
    del request.repo.releases[release.id]
    return Reply(204)


@route("GET", REPO + "/releases/{release_id}/assets", "contents")
def assets(request: Request) -> Reply:
    release = need(request)
    return request.page(
        list(release.assets.values()), lambda asset: request.payloads.asset(request.repo, release, asset)
    )


@route("POST", REPO + "/releases/{release_id}/assets", "contents")
def upload(request: Request) -> Reply:
    release = need(request)
    name = re.sub(r"[^\w.+-]+", ".", request.query.get("name", ""))
    if release.immutable:
        raise Refusal(422, IMMUTABLE.format("upload assets to"))
    if not name:
        raise Refusal(
            422, "Validation Failed", [{"resource": "ReleaseAsset", "code": "missing_field", "field": "name"}]
        )
    if any(asset.name == name for asset in release.assets.values()):
        raise Refusal(
            422, "Validation Failed", [{"resource": "ReleaseAsset", "code": "already_exists", "field": "name"}]
        )
    kind = request.headers.get("Content-Type", "application/octet-stream")
    asset = Asset(request.world.number(), name, kind, request.data, request.world.now())
    asset.digest_known = request.world.digests
    release.assets[asset.id] = asset
    return Reply(201, request.payloads.asset(request.repo, release, asset))


@route("GET", REPO + "/releases/assets/{asset_id}", "contents")
def asset(request: Request) -> Reply:
    release, found = need_asset(request)
    if request.headers.get("Accept") == "application/octet-stream":
        return Reply(302, headers={"Location": f"{request.storage}/assets/{found.id}?signature=abc"})
    return Reply(200, request.payloads.asset(request.repo, release, found))


@route("PATCH", REPO + "/releases/assets/{asset_id}", "contents")
def rename_asset(request: Request) -> Reply:
    release, found = need_asset(request)
    if release.immutable:
        raise Refusal(422, IMMUTABLE.format("edit assets of"))
    found.name = request.json.get("name", found.name)
    return Reply(200, request.payloads.asset(request.repo, release, found))


@route("DELETE", REPO + "/releases/assets/{asset_id}", "contents")
def delete_asset(request: Request) -> Reply:
    release, found = need_asset(request)
    if release.immutable:
        raise Refusal(422, IMMUTABLE.format("delete assets of"))
    del release.assets[found.id]
    return Reply(204)
