"""What the loopback GitHub knows, and the methods by which a test seeds it."""

from __future__ import annotations

import hashlib
import io
import itertools
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from .objects import Objects

RESOURCES = ("contents", "pull-requests", "issues", "checks", "actions")
LEVELS = ("none", "read", "write")


@dataclass(frozen=True)
class Token:
    """Who a token is and what it may do. Installation tokens (a job's own) may not ask who they are."""

    login: str = "github-actions[bot]"
    kind: str = "installation"
    permissions: Mapping[str, str] = field(default_factory=dict)

    def may(self, resource: str, level: str) -> bool:
        return LEVELS.index(self.permissions.get(resource, "none")) >= LEVELS.index(level)


def job_token(**permissions: str) -> Token:
    """A workflow job's token: `job_token(contents="write", pull_requests="write")`."""
    return Token(permissions={name.replace("_", "-"): level for name, level in permissions.items()})


FORK_TOKEN = Token(permissions=dict.fromkeys(RESOURCES, "read"))
"""What a `pull_request` run from a fork gets, whatever its workflow asks for."""


@dataclass
class Asset:
    id: int
    name: str
    content_type: str
    data: bytes
    created: datetime
    state: str = "uploaded"
    digest_known: bool = True


@dataclass
class Release:
    id: int
    tag: str
    target: str
    name: str
    body: str
    draft: bool
    prerelease: bool
    author: str
    created: datetime
    published: datetime | None = None
    immutable: bool = False
    latest: bool = False
    assets: dict[int, Asset] = field(default_factory=dict)


@dataclass
class Comment:
    id: int
    number: int
    author: str
    body: str
    created: datetime
    updated: datetime
    reactions: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Issue:
    """An issue, or the conversation of a pull request."""

    id: int
    number: int
    title: str
    body: str
    author: str
    created: datetime
    state: str = "open"
    labels: list[str] = field(default_factory=list)
    head: tuple[str, str] | None = None
    """For a pull request: (repository of the head, branch)."""
    head_sha: str = ""
    base_ref: str = ""
    base_sha: str = ""
    draft: bool = False
    closed: datetime | None = None


@dataclass
class CheckRun:
    id: int
    name: str
    head_sha: str
    status: str
    conclusion: str | None
    external_id: str
    details_url: str | None
    started: datetime
    completed: datetime | None = None
    title: str | None = None
    summary: str | None = None
    author: str = ""


@dataclass
class Artifact:
    id: int
    run_id: int
    name: str
    data: bytes
    created: datetime
    expired: bool = False


@dataclass
class WorkflowRun:
    id: int
    attempt: int
    head_sha: str
    head_branch: str
    head_repository: str
    name: str
    path: str
    title: str
    event: str
    status: str
    conclusion: str | None
    created: datetime
    number: int


class Repository:
    """One repository; tests reach it by `Loopback.repo`."""

    def __init__(self, world: World, full_name: str, *, private: bool, parent: Repository | None = None) -> None:
        self.world = world
        self.full_name = full_name
        self.owner, self.name = full_name.split("/")
        self.private = private
        self.parent = parent
        self.id = world.number()
        self.default_branch = "main"
        self.objects: Objects = parent.objects if parent else Objects()
        self.refs: dict[str, str] = {}
        self.releases: dict[int, Release] = {}
        self.immutable_releases = False
        self.spent_tags: set[str] = set()
        self.issues: dict[int, Issue] = {}
        self.comments: dict[int, Comment] = {}
        self.checks: dict[int, CheckRun] = {}
        self.runs: dict[int, WorkflowRun] = {}
        self.artifacts: dict[int, Artifact] = {}
        self.permissions: dict[str, str] = {self.owner: "admin"}
        self.dispatches: list[dict[str, Any]] = []
        self.activity: list[dict[str, Any]] = []
        """Pushes, oldest first, as the activity list tells them."""
        self.run_details = True
        """Whether a dispatch may ask which run it starts; older Enterprise Servers refuse the option."""
        self.tree_limit = 100_000
        """Entries of a recursive tree beyond which it is truncated."""

    def sha(self, ref: str) -> str | None:
        """The commit that a branch, tag, full ref name or SHA (of at least 7 digits) names."""
        for name in (ref, f"refs/{ref}", f"refs/heads/{ref}", f"refs/tags/{ref}"):
            if name in self.refs:
                return self.refs[name]
        if len(ref) == 40 and self.objects.kind(ref) == "commit":
            return ref
        return None

    def commit(
        self,
        files: Mapping[str, str | bytes] | None = None,
        *,
        branch: str | None = "main",
        message: str = "Change something",
        parents: tuple[str, ...] | None = None,
        author: str = "ada",
    ) -> str:
        """Commit changed files on a branch (None: on no branch) and return the SHA.

        A new branch starts at the default branch's tip; `parents=()` starts a history of its own.
        """
        with self.world.lock:
            tip = self.refs.get(f"refs/heads/{branch}") if branch is not None else None
            tip = tip or self.refs.get(f"refs/heads/{self.default_branch}")
            above = parents if parents is not None else ((tip,) if tip else ())
            tree = self.objects.files(self.objects.commit(above[0]).tree) if above else {}
            for path, content in (files or {}).items():
                tree[path] = self.objects.put("blob", content.encode() if isinstance(content, str) else content)
            when = self.world.now()
            sha = self.objects.put_commit(
                self.objects.put_tree(tree), above, message, when, author, f"{author}@example.invalid"
            )
            if branch is not None:
                self.move(f"refs/heads/{branch}", sha)
            return sha

    def move(self, ref: str, sha: str) -> None:
        """Let a branch or tag name a commit, and note the push."""
        before = self.refs.get(ref)
        self.refs[ref] = sha
        if before != sha and ref.startswith("refs/heads/"):
            kind = "branch_creation" if before is None else "push"
            self.activity.append(
                {"ref": ref, "before": before or "0" * 40, "after": sha, "kind": kind, "when": self.world.now()}
            )

    def import_clone(self, folder: Path) -> None:
        """Take over all objects, branches and tags of a local clone, so that SHAs agree with it."""
        with self.world.lock:
            refs = self.objects.read_clone(folder)
            for name, sha in refs.items():
                if name.startswith(("refs/heads/", "refs/tags/")):
                    self.move(name, sha)

    def file(self, path: str, ref: str) -> bytes | None:
        """Content of a file, for assertions."""
        sha = self.sha(ref)
        if sha is None:
            return None
        blob = self.objects.files(self.objects.commit(sha).tree).get(path)
        return None if blob is None else self.objects.blob(blob)

    def fork(self, full_name: str) -> Repository:
        """A fork by another owner."""
        fork = self.world.repo(full_name, private=self.private, parent=self)
        fork.refs = dict(self.refs)
        return fork

    def pull(
        self, head: str, *, base: str = "main", title: str = "Smaller weights", fork: Repository | None = None,
        author: str = "ada", draft: bool = False,
    ) -> int:  # fmt: skip
        """Open a pull request from branch `head` (of `fork`) and return its number."""
        with self.world.lock:
            source = fork or self
            number = max(self.issues, default=0) + 1
            self.issues[number] = Issue(
                self.world.number(), number, title, "", author, self.world.now(),
                head=(source.full_name, head), head_sha=source.refs[f"refs/heads/{head}"],
                base_ref=base, base_sha=self.refs[f"refs/heads/{base}"], draft=draft,
            )  # fmt: skip
            return number

    def synchronize(self, number: int) -> str:
        """Move a pull request's head to its branch's tip, as a push does; returns the SHA."""
        with self.world.lock:
            issue = self.issues[number]
            assert issue.head is not None
            issue.head_sha = self.world.repositories[issue.head[0]].refs[f"refs/heads/{issue.head[1]}"]
            return issue.head_sha

    def comment(self, number: int, body: str, author: str = "ada") -> int:
        """Write a comment and return its id."""
        with self.world.lock:
            now = self.world.now()
            comment = Comment(self.world.number(), number, author, body, now, now)
            self.comments[comment.id] = comment
            return comment.id

    def comments_on(self, number: int) -> list[Comment]:
        """Comments of a conversation, oldest first, for assertions."""
        return [comment for comment in self.comments.values() if comment.number == number]

    def start_run(
        self, head_sha: str, *, branch: str = "main", event: str = "pull_request", name: str = "assay",
        path: str = ".github/workflows/assay.yml", title: str = "", head_repository: Repository | None = None,
        status: str = "in_progress", conclusion: str | None = None, attempt: int = 1,
    ) -> int:  # fmt: skip
        """A workflow run; returns its id."""
        with self.world.lock:
            run = WorkflowRun(
                self.world.number() + 9_000_000_000, attempt, head_sha, branch,
                (head_repository or self).full_name, name, path, title or name, event, status, conclusion,
                self.world.now(), len(self.runs) + 1,
            )  # fmt: skip
            self.runs[run.id] = run
            return run.id

    def finish_run(self, run_id: int, conclusion: str = "success") -> None:
        with self.world.lock:
            self.runs[run_id].status, self.runs[run_id].conclusion = "completed", conclusion

    def upload(self, run_id: int, name: str, files: Mapping[str, bytes] | Path | bytes) -> int:
        """An artifact of a run, from files, a folder or the bytes of a finished archive; returns its id."""
        if isinstance(files, Path):
            files = {str(p.relative_to(files)): p.read_bytes() for p in sorted(files.rglob("*")) if p.is_file()}
        if not isinstance(files, bytes):
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
                for path, data in files.items():
                    archive.writestr(path, data)
            files = packed.getvalue()
        with self.world.lock:
            artifact = Artifact(self.world.number(), run_id, name, files, self.world.now())
            self.artifacts[artifact.id] = artifact
            return artifact.id

    def published(self, prefix: str = "") -> list[Release]:
        """Releases that are no drafts, for assertions."""
        return [r for r in self.releases.values() if not r.draft and r.tag.startswith(prefix)]

    def drafts(self) -> list[Release]:
        return [release for release in self.releases.values() if release.draft]


class World:
    """All repositories, users and tokens of one loopback. The clock starts now and advances a second at each reading."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.repositories: dict[str, Repository] = {}
        self.tokens: dict[str, Token] = {}
        self.digests = True
        self._numbers = itertools.count(1001)
        self._ids: dict[str, int] = {}
        self._clock = datetime.now(UTC).replace(microsecond=0)

    def number(self) -> int:
        return next(self._numbers)

    def now(self) -> datetime:
        with self.lock:
            self._clock += timedelta(seconds=1)
            return self._clock

    def user_id(self, login: str) -> int:
        return self._ids.setdefault(login, 5_000_000 + int(hashlib.sha256(login.encode()).hexdigest()[:4], 16))

    def repo(self, full_name: str, *, private: bool = False, parent: Repository | None = None) -> Repository:
        """The repository of this name, made when new."""
        with self.lock:
            if full_name not in self.repositories:
                self.repositories[full_name] = Repository(self, full_name, private=private, parent=parent)
            return self.repositories[full_name]
