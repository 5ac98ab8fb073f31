"""GitHub as the bot sees it: a few typed operations on one repository, over PyGithub.

All pagination is inside. Every failure is a `ServiceError` of one line: `Forbidden` when the token may not (or when the
thing does not exist, which GitHub does not tell apart), `ReplyLost` when a creation may or may not have happened, after
which the caller observes again.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from github import Auth, Github, GithubException

from assay.baselines.errors import InputError, ServiceError
from assay.baselines.ledger.history import merge_base
from assay.baselines.ledger.service import Forbidden, ReplyLost, again, speaking
from assay.bot.archive import Source, download, unpack
from assay.bot.objects import (
    Artifact,
    Check,
    Comment,
    Pull,
    Run,
    artifact_of,
    check_of,
    comment_of,
    pull_of,
    run_of,
)
from assay.bot.transport import Patience, PatientRetry

__all__ = ["Artifact", "Check", "Comment", "Forbidden", "GitHub", "Pull", "ReplyLost", "Run", "connect"]

API_URL = "https://api.github.com"
SERVER_URL = "https://github.com"
JOURNAL = "assay-journal"
JOURNAL_ATTEMPTS = 12
PER_PAGE = 100

T = TypeVar("T")
CheckStatus = Literal["queued", "in_progress", "completed"]
Conclusion = Literal["success", "failure", "neutral", "cancelled", "skipped", "timed_out", "action_required"]
Reaction = Literal["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"]


def connect(
    token: str | None,
    api_url: str = API_URL,
    *,
    patience: Patience | None = None,
    timeout: int = 30,
    seconds_between_writes: float | None = 1.0,
) -> Github:
    """A PyGithub connection that waits as `assay.bot.transport` describes.

    `api_url` is the value of GITHUB_API_URL; without a token only public data is seen. `timeout` is seconds without a
    byte. GitHub asks for a second between writes (`seconds_between_writes`), or counts them as abuse.
    """
    if not api_url.startswith(("https://", "http://")):
        raise InputError(f"the API address {api_url[:80]!r} is not an http(s) URL: give the value of GITHUB_API_URL.")
    return Github(
        auth=Auth.Token(token) if token else None,
        base_url=api_url.rstrip("/"),
        timeout=timeout,
        per_page=PER_PAGE,
        user_agent="assay",
        retry=PatientRetry(patience=patience or Patience()),
        seconds_between_requests=None,
        seconds_between_writes=seconds_between_writes,
        lazy=True,
    )


class GitHub:
    """One repository.

    `repository` is `owner/name`, `server_url` the value of GITHUB_SERVER_URL (for links that people open).
    """

    def __init__(
        self,
        connection: Github,
        repository: str,
        *,
        server_url: str = SERVER_URL,
        patience: Patience | None = None,
    ) -> None:
        if repository.count("/") != 1 or not all(repository.split("/")):
            raise InputError(f"{repository[:80]!r} names no repository: give it as owner/name.")
        self.connection = connection
        self.name = repository
        self.server_url = server_url.rstrip("/")
        self.repository = connection.get_repo(repository)
        self._patience = patience or Patience()
        self._path = f"/repos/{repository}"

    # -- people and pull requests ------------------------------------------------------------------------------------

    def viewer_login(self, default: str = "github-actions[bot]") -> str:
        """The login that this token comments as; `default` for an installation token, which may not ask."""
        try:
            data = self._get("/user", "read the token's own login")
        except Forbidden:
            return default
        return str(data["login"])

    def permission(self, login: str) -> str:
        """`admin`, `write`, `read` or `none`: what the collaborator endpoint says (maintain counts as write)."""
        try:
            data = self._get(
                f"{self._path}/collaborators/{quote(login, safe='')}/permission", f"read the permission of {login}"
            )
        except Forbidden as error:
            if error.status == 404:
                return "none"
            raise
        return str(data["permission"])

    @property
    def private(self) -> bool:
        """True for private and internal repositories, whose raw files other people's browsers cannot load."""
        return bool(self._get(self._path, f"read the repository {self.name}")["private"])

    def pull(self, number: int) -> Pull:
        """One pull request."""
        return pull_of(self._get(f"{self._path}/pulls/{number}", f"read pull request {number}"))

    def pulls_for_head(self, sha: str, head_owner: str | None = None) -> list[Pull]:
        """Open pull requests whose head is exactly `sha`, lowest number first.

        The commit's own list of pull requests knows nothing of forks, so when it has no match the open pull requests
        are searched. `head_owner` keeps those that come from this owner's repository.
        """
        operation = f"find the pull requests of {sha[:12]}"
        try:
            pulls = [pull_of(item) for item in self._list(f"{self._path}/commits/{sha}/pulls", operation)]
        except ServiceError as error:
            if not isinstance(error, Forbidden) and " 422 " not in str(error):
                raise
            pulls = []  # the commit is unknown to this repository
        found = [pull for pull in pulls if pull.state == "open" and pull.head_sha == sha]
        if not found:
            listed = self._list(f"{self._path}/pulls", operation, {"state": "open"})
            found = [pull for pull in map(pull_of, listed) if pull.head_sha == sha]
        if head_owner is not None:
            found = [pull for pull in found if (pull.head_repository or "").partition("/")[0] == head_owner]
        return sorted(found, key=lambda pull: pull.number)

    def merge_base(self, base: str, head: str) -> str:
        """Full SHA of the best common ancestor of two commits."""
        return merge_base(self.repository, base, head)

    # -- comments ----------------------------------------------------------------------------------------------------

    def issue_comments(self, number: int) -> list[Comment]:
        """All conversation comments of a pull request or issue, oldest first."""
        return [
            comment_of(item)
            for item in self._list(f"{self._path}/issues/{number}/comments", f"list comments of {number}")
        ]

    def create_comment(self, number: int, body: str) -> Comment:
        """Comment. Raises `ReplyLost` when it may have been written: list the comments before trying again."""
        return comment_of(
            self._send(
                "POST", f"{self._path}/issues/{number}/comments", {"body": body}, f"comment on {number}", once=True
            )
        )

    def update_comment(self, comment_id: int, body: str) -> Comment:
        """Replace the text of a comment."""
        return comment_of(
            self._send(
                "PATCH", f"{self._path}/issues/comments/{comment_id}", {"body": body}, f"edit comment {comment_id}"
            )
        )

    def delete_comment(self, comment_id: int) -> None:
        """Delete a comment; one that is gone already is no error."""
        try:
            self._send("DELETE", f"{self._path}/issues/comments/{comment_id}", None, f"delete comment {comment_id}")
        except Forbidden as error:
            if error.status != 404:
                raise

    def react(self, comment_id: int, content: Reaction) -> None:
        """Add a reaction to a comment; adding it twice leaves one."""
        path = f"{self._path}/issues/comments/{comment_id}/reactions"
        self._send("POST", path, {"content": content}, f"react to comment {comment_id}")

    # -- checks ------------------------------------------------------------------------------------------------------

    def create_check(
        self,
        name: str,
        head_sha: str,
        *,
        external_id: str = "",
        status: CheckStatus = "in_progress",
        details_url: str | None = None,
    ) -> int:
        """Open a check run and return its id.

        When the reply is lost, the check with this `external_id` is looked up at the head, so that one call opens one
        check; without an `external_id` that is impossible and `ReplyLost` is raised.
        """
        body = {"name": name, "head_sha": head_sha, "status": status, "external_id": external_id}
        if details_url is not None:
            body["details_url"] = details_url
        try:
            return int(
                self._send("POST", f"{self._path}/check-runs", body, f"open the check {name!r}", once=True)["id"]
            )
        except ReplyLost:
            found = [check for check in self.checks(head_sha, name) if external_id and check.external_id == external_id]
            if not found:
                raise
            return max(check.id for check in found)

    def update_check(
        self,
        check_id: int,
        *,
        status: CheckStatus = "completed",
        conclusion: Conclusion | None = None,
        title: str | None = None,
        summary: str | None = None,
        details_url: str | None = None,
    ) -> None:
        """Change a check run. `summary` is at most 65,535 characters (GitHub refuses more)."""
        body: dict[str, Any] = {"status": status}
        if conclusion is not None:
            body["conclusion"] = conclusion
        if details_url is not None:
            body["details_url"] = details_url
        if title is not None or summary is not None:
            body["output"] = {"title": title or "", "summary": summary or ""}
        self._send("PATCH", f"{self._path}/check-runs/{check_id}", body, f"update check {check_id}")

    def checks(self, head_sha: str, name: str | None = None) -> list[Check]:
        """All check runs of a commit (of this name), newest first, re-runs included."""
        parameters = {"filter": "all"} | ({"check_name": name} if name is not None else {})
        items = self._list(
            f"{self._path}/commits/{head_sha}/check-runs", f"list checks of {head_sha[:12]}", parameters, "check_runs"
        )
        return sorted((check_of(item) for item in items), key=lambda check: check.id, reverse=True)

    # -- workflow runs and artifacts -----------------------------------------------------------------------------------

    def workflow_runs(
        self, head_sha: str | None = None, event: str | None = None, status: str | None = None
    ) -> list[Run]:
        """Workflow runs, newest first, filtered as given."""
        wanted = {"head_sha": head_sha, "event": event, "status": status}
        parameters = {key: value for key, value in wanted.items() if value is not None}
        items = self._list(f"{self._path}/actions/runs", "list workflow runs", parameters, "workflow_runs")
        return [run_of(item) for item in items]

    def run(self, run_id: int) -> Run:
        """One workflow run, as of its latest attempt."""
        return run_of(self._get(f"{self._path}/actions/runs/{run_id}", f"read workflow run {run_id}"))

    def artifacts(self, run_id: int) -> list[Artifact]:
        """The artifacts of a workflow run."""
        items = self._list(
            f"{self._path}/actions/runs/{run_id}/artifacts", f"list artifacts of run {run_id}", None, "artifacts"
        )
        return [artifact_of(item) for item in items]

    def download_artifact(self, artifact_id: int, folder: Path, max_bytes: int = 1 << 30) -> list[str]:
        """Download an artifact and unpack it into `folder`, which is replaced whole; returns the names inside.

        The archive is untrusted: `InputError` when it is larger than `max_bytes` packed or unpacked, has names outside
        the folder, links, duplicates or too many entries. Nothing is left in `folder` then.
        """
        path = f"{self._path}/actions/artifacts/{artifact_id}/zip"
        with speaking(f"download artifact {artifact_id}"):
            packed = download(self._source(path), Path(folder), max_bytes)
        try:
            return unpack(packed, Path(folder), max_bytes, origin=f"artifact {artifact_id}")
        finally:
            packed.unlink(missing_ok=True)

    # -- files and the journal ---------------------------------------------------------------------------------------

    def file_at(self, path: str, ref: str) -> bytes | None:
        """Content of a file at a commit, branch or tag; None when there is none."""
        operation = f"read {path} at {ref[:40]}"
        with speaking(operation):
            try:
                data = self._read(f"{self._path}/contents/{quote(path)}", {"ref": ref})
                if not isinstance(data, dict) or data.get("type") != "file":
                    raise InputError(f"{path} at {ref[:40]} is not a file: give the path of one.")
                if data.get("encoding") != "base64":  # over 1 MiB the contents endpoint gives no content
                    data = self._read(f"{self._path}/git/blobs/{data['sha']}")
            except GithubException as error:
                if error.status == 404:
                    return None
                raise
            return base64.b64decode(data["content"])

    def journal_get(self, path: str) -> bytes | None:
        """Content of a file of the journal branch; None when it has none."""
        return self.file_at(path, JOURNAL)

    def journal_put(self, path: str, data: bytes, message: str) -> str:
        """Append a file to the orphan branch `assay-journal`, making the branch when absent; returns its URL.

        The journal is append-only: writing the same bytes again changes nothing, other bytes under the same path are an
        `InputError`. Concurrent writers each get their commit. Raises `Forbidden` without `contents: write`.
        """
        return self._write_journal(path, data, message, replace=False)

    def journal_replace(self, path: str, data: bytes, message: str) -> str:
        """As `journal_put`, for the one path that may change (the badge)."""
        return self._write_journal(path, data, message, replace=True)

    def journal_url(self, path: str) -> str:
        """Where people's browsers load a file of the journal (as themselves, when the repository is private)."""
        return f"{self.server_url}/{self.name}/raw/{JOURNAL}/{quote(path)}"

    def _write_journal(self, path: str, data: bytes, message: str, *, replace: bool) -> str:
        """Commit one file on top of the branch; begin again when another writer was faster or a reply was lost."""
        last: ServiceError | None = None
        for attempt in range(JOURNAL_ATTEMPTS):
            if attempt:
                self._patience.wait(
                    min(8.0, self._patience.first_pause * 2**attempt) * random.random(), "the journal moved"
                )
            tip = self._journal_tip()
            present = self.file_at(path, tip) if tip is not None else None
            if present == data:
                return self.journal_url(path)
            if present is not None and not replace:
                raise InputError(
                    f"the journal already holds another {path}: entries are never changed; name it by its digest."
                )
            try:
                commit = self._journal_commit(path, data, message, tip)
                if tip is None:
                    self._send(
                        "POST",
                        f"{self._path}/git/refs",
                        {"ref": f"refs/heads/{JOURNAL}", "sha": commit},
                        "start the journal",
                        once=True,
                    )
                else:
                    self._send(
                        "PATCH",
                        f"{self._path}/git/refs/heads/{JOURNAL}",
                        {"sha": commit, "force": False},
                        "append to the journal",
                    )
            except Forbidden:
                raise
            except ServiceError as error:  # not a fast-forward, the branch was made meanwhile, or the reply was lost
                last = error
                continue
            return self.journal_url(path)
        raise last or ServiceError("GitHub could not append to the journal: run this again.")

    def _journal_tip(self) -> str | None:
        with speaking("read the journal branch"):
            try:
                data = self._read(f"{self._path}/git/ref/heads/{JOURNAL}")
            except GithubException as error:
                if error.status in {404, 409}:  # 409: the repository has no commit at all
                    return None
                raise
            return str(data["object"]["sha"])

    def _journal_commit(self, path: str, data: bytes, message: str, tip: str | None) -> str:
        git = f"{self._path}/git"
        content = {"content": base64.b64encode(data).decode(), "encoding": "base64"}
        blob = self._send("POST", f"{git}/blobs", content, f"store {path}")["sha"]
        tree: dict[str, Any] = {"tree": [{"path": path, "mode": "100644", "type": "blob", "sha": blob}]}
        if tip is not None:
            tree["base_tree"] = self._get(f"{git}/commits/{tip}", "read the journal's last commit")["tree"]["sha"]
        made = self._send("POST", f"{git}/trees", tree, f"store {path}")["sha"]
        commit = {"message": message, "tree": made, "parents": [tip] if tip else []}
        return str(self._send("POST", f"{git}/commits", commit, f"store {path}")["sha"])

    # -- requests ----------------------------------------------------------------------------------------------------

    def _get(self, path: str, operation: str) -> Any:
        with speaking(operation):
            return self._read(path)

    def _read(self, path: str, parameters: dict[str, Any] | None = None) -> Any:
        """The body of a GET, raising as PyGithub does."""
        return self._whole(lambda: self.repository.requester.requestJsonAndCheck("GET", path, parameters=parameters)[1])

    def _list(
        self, path: str, operation: str, parameters: dict[str, str] | None = None, key: str | None = None
    ) -> list[Any]:
        """All items of a paginated endpoint, following the Link header."""

        requester = self.repository.requester
        items: list[Any] = []
        url: str | None = path
        query: dict[str, Any] | None = {"per_page": PER_PAGE} | (parameters or {})
        while url is not None:
            ask = partial(requester.requestJsonAndCheck, "GET", url, parameters=query)
            with speaking(operation):
                headers, data = self._whole(ask)
            items.extend(data if key is None else data[key])
            url, query = _next_page(str(headers.get("link", ""))), None
        return items

    def _send(self, method: str, path: str, body: dict[str, Any] | None, operation: str, *, once: bool = False) -> Any:
        """The reply to a change; one that must happen `once` is not repeated when its reply is lost."""
        ask = partial(self.repository.requester.requestJsonAndCheck, method, path, input=body)
        with speaking(operation, once=once):
            return (ask() if once else self._whole(ask))[1]

    def _whole(self, call: Callable[[], T]) -> T:
        """Repeat a call that may be repeated until its reply arrives whole."""
        return again(call, lambda seconds: self._patience.wait(seconds, "a reply broke off"), self._patience.attempts)

    def _source(self, path: str) -> Source:
        headers = {"User-Agent": "assay", "Accept": "application/vnd.github+json"}
        requester = self.repository.requester
        if requester.auth is not None:
            requester.auth.authentication(headers)
        return Source(f"{requester.base_url}{path}", headers, PatientRetry(patience=self._patience))


def _next_page(link: str) -> str | None:
    """The `rel="next"` address of a Link header (RFC 8288)."""
    for part in link.split(","):
        address, _, rest = part.partition(";")
        if 'rel="next"' in rest:
            return address.strip().strip("<>")
    return None
