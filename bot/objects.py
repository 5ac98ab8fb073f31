"""What GitHub has, reduced to the facts that assay uses. Times are UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Pull:
    """A pull request."""

    number: int
    state: str
    """`open` or `closed`."""
    title: str
    author: str
    draft: bool
    head_sha: str
    head_ref: str
    head_repository: str | None
    """`owner/name`; None when the fork was deleted."""
    base_sha: str
    """The base branch's tip when the pull request was last synchronised: stale, use `merge_base`."""
    base_ref: str
    base_repository: str
    html_url: str
    head_repository_pushed: datetime | None = None
    """When anything was last pushed to the head's repository, as GitHub says; None where it does not."""

    @property
    def fork(self) -> bool:
        """True when the head is in another repository, whose workflows get no write token."""
        return self.head_repository != self.base_repository


@dataclass(frozen=True)
class Comment:
    """A conversation comment."""

    id: int
    author: str
    body: str
    created: datetime
    updated: datetime
    html_url: str = ""
    minimized: bool = False
    """Hidden by somebody with write access: nobody reads it there any more."""


@dataclass(frozen=True)
class Check:
    """A check run."""

    id: int
    name: str
    head_sha: str
    status: str
    """`queued`, `in_progress` or `completed`."""
    conclusion: str | None
    external_id: str
    title: str | None
    summary: str | None
    app: str
    """Slug of the app that made it (`github-actions`)."""
    html_url: str = ""


APPROVAL = "action_required"
"""Conclusion of a run of which nothing was started: it waits until somebody approves it, as the first ones from a fork do."""


@dataclass(frozen=True)
class Run:
    """A workflow run, as of its latest attempt."""

    id: int
    attempt: int
    head_sha: str
    name: str
    path: str
    """The workflow's file, for example `.github/workflows/assay.yml`."""
    title: str
    """What `run-name` made of it."""
    status: str
    conclusion: str | None
    event: str
    created: datetime
    html_url: str
    head_repository: str | None
    head_branch: str | None
    pulls: tuple[RunPull, ...] = ()
    """Open pull requests of this repository's own branches that have its head or branch; none from forks."""


@dataclass(frozen=True)
class Started:
    """A run that a dispatch started."""

    id: int
    html_url: str


@dataclass(frozen=True)
class RunPull:
    """What a workflow run says of an open pull request, as it is when the run is asked for."""

    number: int
    head_sha: str
    head_ref: str
    base_ref: str
    base_sha: str


@dataclass(frozen=True)
class Artifact:
    """An artifact of a workflow run."""

    id: int
    name: str
    size: int
    """Bytes of the zip archive."""
    expired: bool
    digest: str | None = None
    """`sha256:...` of the zip archive, where GitHub knows it."""


def moment(text: str) -> datetime:
    """An ISO 8601 time with its zone."""
    return datetime.fromisoformat(text)


def pull_of(data: Mapping[str, Any]) -> Pull:
    head, base = data["head"], data["base"]
    return Pull(
        number=data["number"],
        state=data["state"],
        title=data["title"],
        author=_login(data.get("user")),
        draft=bool(data.get("draft")),
        head_sha=head["sha"],
        head_ref=head["ref"],
        head_repository=head["repo"]["full_name"] if head.get("repo") else None,
        base_sha=base["sha"],
        base_ref=base["ref"],
        base_repository=base["repo"]["full_name"],
        html_url=data["html_url"],
        head_repository_pushed=moment(head["repo"]["pushed_at"])
        if head.get("repo") and head["repo"].get("pushed_at")
        else None,
    )


def comment_of(data: Mapping[str, Any]) -> Comment:
    return Comment(
        id=data["id"],
        author=_login(data.get("user")),
        body=data.get("body") or "",
        created=moment(data["created_at"]),
        updated=moment(data["updated_at"]),
        html_url=data["html_url"],
        minimized=data.get("minimized") is not None,
    )


def check_of(data: Mapping[str, Any]) -> Check:
    output = data.get("output") or {}
    return Check(
        id=data["id"],
        name=data["name"],
        head_sha=data["head_sha"],
        status=data["status"],
        conclusion=data.get("conclusion"),
        external_id=data.get("external_id") or "",
        title=output.get("title"),
        summary=output.get("summary"),
        app=(data.get("app") or {}).get("slug") or "",
        html_url=data.get("html_url") or "",
    )


def run_of(data: Mapping[str, Any]) -> Run:
    repository = data.get("head_repository")
    return Run(
        id=data["id"],
        attempt=data.get("run_attempt") or 1,
        head_sha=data["head_sha"],
        name=data.get("name") or "",
        path=(data.get("path") or "").partition("@")[0],
        title=data.get("display_title") or "",
        status=data.get("status") or "",
        conclusion=data.get("conclusion"),
        event=data["event"],
        created=moment(data["created_at"]),
        html_url=data["html_url"],
        head_repository=repository["full_name"] if repository else None,
        head_branch=data.get("head_branch"),
        pulls=tuple(
            RunPull(p["number"], p["head"]["sha"], p["head"]["ref"], p["base"]["ref"], p["base"]["sha"])
            for p in data.get("pull_requests") or ()
            if p["head"]["repo"]["id"] == p["base"]["repo"]["id"] == data["repository"]["id"]
        ),
    )


def artifact_of(data: Mapping[str, Any]) -> Artifact:
    return Artifact(
        id=data["id"],
        name=data["name"],
        size=data["size_in_bytes"],
        expired=data["expired"],
        digest=data.get("digest"),
    )


def _login(user: Mapping[str, Any] | None) -> str:
    return user["login"] if user else "ghost"
