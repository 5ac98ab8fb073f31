"""GitHub as the bot sees it: a few typed operations on one repository, over PyGithub.

All pagination is inside. Every failure is a `ServiceError` of one line: `Forbidden` when the token may not (or when the
thing does not exist, which GitHub does not tell apart), `ReplyLost` when a creation may or may not have happened, after
which the caller observes again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

from github import Github

from assay.baselines.errors import InputError, ServiceError
from assay.baselines.ledger.history import merge_base
from assay.baselines.ledger.service import Forbidden, ReplyLost, speaking
from assay.bot import journal
from assay.bot.batch import Read, blob_name, reader
from assay.bot.connection import connect, patience_of
from assay.bot.hosts import SERVER_URL
from assay.bot.objects import (
    Artifact,
    Check,
    Comment,
    Pull,
    Run,
    check_of,
    comment_of,
    moment,
    pull_of,
)
from assay.bot.rest import PER_PAGE, Rest
from assay.bot.transport import Patience
from assay.bot.workflow_runs import WorkflowRuns

__all__ = ["Artifact", "Check", "Comment", "Forbidden", "GitHub", "Pull", "ReplyLost", "Run", "connect"]

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}/(?!\.{1,2}$)[A-Za-z0-9_.-]{1,100}")
"""`owner/name`, of the characters that GitHub allows there."""
CheckStatus = Literal["queued", "in_progress", "completed"]
Conclusion = Literal["success", "failure", "neutral", "cancelled", "skipped", "timed_out", "action_required"]
Reaction = Literal["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"]


class GitHub(WorkflowRuns):
    """One repository: its people, pull requests, comments, checks, files and journal, and its workflow runs.

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
        if NAME.fullmatch(repository) is None:  # it becomes part of every address
            raise InputError(f"{repository[:80]!r} names no repository: give it as owner/name.")
        self.connection = connection
        self.name = repository
        self.server_url = server_url.rstrip("/")
        self.repository = connection.get_repo(repository)
        super().__init__(Rest(connection, repository, patience or patience_of(connection)))
        self._facts: Mapping[str, Any] | None = None
        self._login: str | None = None
        self._listed: dict[str, str] | None = None

    def remember(self, facts: Any) -> None:
        """Take what an event or another reply says of this repository as known, so that it is not asked for."""
        if (
            isinstance(facts, dict)
            and facts.get("full_name") == self.name
            and facts.keys() >= {"private", "default_branch"}
        ):
            self._facts = facts

    def _fact(self, name: str) -> Any:
        if self._facts is None:
            self._facts = dict(self._rest.get("", f"read the repository {self.name}"))
        return self._facts[name]

    # -- people and pull requests ------------------------------------------------------------------------------------

    def viewer_login(self, default: str = "github-actions[bot]") -> str:
        """The login that this token comments as; `default` when it may not ask.

        Apps' tokens may not read `/user`, but GraphQL tells everyone who they are (`github-actions[bot]`, `my-app[bot]`).
        """
        if self._login is None and not self._rest.signed_in:
            self._login = ""
        if self._login is None:
            try:
                self._login = self._rest.viewer()
            except ServiceError:
                self._login = self._own_login()
        return self._login or default

    def _own_login(self) -> str:
        try:
            return str(self._rest.get("/user", "read the token's own login")["login"])
        except Forbidden:
            return ""

    def permission(self, login: str) -> str:
        """`admin`, `write`, `read` or `none`: what the collaborator endpoint says (maintain counts as write)."""
        try:
            data = self._rest.get(
                f"/collaborators/{quote(login, safe='')}/permission", f"read the permission of {login}"
            )
        except Forbidden as error:
            if error.status == 404:
                return "none"
            raise
        return str(data["permission"])

    @property
    def private(self) -> bool:
        """True for private and internal repositories, whose raw files other people's browsers cannot load."""
        return bool(self._fact("private"))

    def default_branch(self) -> str:
        """The branch whose workflow files may be dispatched."""
        return str(self._fact("default_branch"))

    def pull(self, number: int) -> Pull:
        """One pull request."""
        data = self._rest.get(f"/pulls/{number}", f"read pull request {number}")
        self.remember(data["base"]["repo"])
        return pull_of(data)

    def pulls_for_head(self, sha: str, head_owner: str | None = None) -> list[Pull]:
        """Open pull requests whose head is exactly `sha`, lowest number first.

        The commit's own list of pull requests knows nothing of forks, so when it has no match the open pull requests
        are searched. `head_owner` keeps those that come from this owner's repository.
        """
        operation = f"find the pull requests of {sha[:12]}"
        try:
            items = self._rest.pages(f"/commits/{sha}/pulls", operation)
            for item in items:
                self.remember(item["base"]["repo"])
            pulls = [pull_of(item) for item in items]
        except ServiceError as error:
            if not isinstance(error, Forbidden) and " 422 " not in str(error):
                raise
            pulls = []  # the commit is unknown to this repository
        found = [pull for pull in pulls if pull.state == "open" and pull.head_sha == sha]
        if not found:
            listed = self._rest.pages("/pulls", operation, {"state": "open"})
            found = [pull for pull in map(pull_of, listed) if pull.head_sha == sha]
        if head_owner is not None:
            found = [pull for pull in found if (pull.head_repository or "").partition("/")[0] == head_owner]
        return sorted(found, key=lambda pull: pull.number)

    def pulls_of_run(self, run: Run, head_owner: str | None = None) -> list[Pull]:
        """The same for the head of a run, as far as the run itself names them: no request. None from forks are there.

        GitHub's description of a workflow run: "pull requests that are open with a `head_sha` or `head_branch` that
        matches"; those with another head are left out here.
        """
        if run.head_repository != self.name or head_owner not in {None, self.name.partition("/")[0]}:
            return []
        return [
            Pull(
                number=pull.number,
                state="open",
                title="",
                author="",
                draft=False,
                head_sha=pull.head_sha,
                head_ref=pull.head_ref,
                head_repository=self.name,
                base_sha=pull.base_sha,
                base_ref=pull.base_ref,
                base_repository=self.name,
                html_url=f"{self.server_url}/{self.name}/pull/{pull.number}",
            )
            for pull in sorted(run.pulls, key=lambda pull: pull.number)
            if pull.head_sha == run.head_sha
        ]

    def head_since(self, pull: Pull) -> datetime | None:
        """When the head of a pull request was pushed to its branch, as GitHub's activity list tells; None where it does not.

        A commit's own dates are what its author wrote there, and are not asked.
        """
        if pull.head_repository is None:
            return None
        rest = Rest(self.connection, pull.head_repository, self._rest.patience)
        try:
            with speaking(f"list the pushes to {pull.head_ref[:40]}"):
                pushes = rest.read("/activity", {"ref": f"refs/heads/{pull.head_ref}", "per_page": PER_PAGE})
                found = [moment(push["timestamp"]) for push in pushes if push["after"] == pull.head_sha]
        except ServiceError:  # another owner's private fork, or an Enterprise Server without the list
            return None
        return max(found, default=None)

    def merge_base(self, base: str, head: str) -> str:
        """Full SHA of the best common ancestor of two commits."""
        return merge_base(self.repository, base, head)

    # -- comments ----------------------------------------------------------------------------------------------------

    def issue_comments(self, number: int) -> list[Comment]:
        """All conversation comments of a pull request or issue, oldest first."""
        return [
            comment_of(item) for item in self._rest.pages(f"/issues/{number}/comments", f"list comments of {number}")
        ]

    def comment(self, comment_id: int) -> Comment | None:
        """One conversation comment; None when it is gone."""
        try:
            return comment_of(self._rest.get(f"/issues/comments/{comment_id}", f"read comment {comment_id}"))
        except Forbidden as error:
            if error.status == 404:
                return None
            raise

    def create_comment(self, number: int, body: str) -> Comment:
        """Comment. Raises `ReplyLost` when it may have been written: list the comments before trying again."""
        return comment_of(
            self._rest.send("POST", f"/issues/{number}/comments", {"body": body}, f"comment on {number}", once=True)
        )

    def update_comment(self, comment_id: int, body: str) -> Comment:
        """Replace the text of a comment."""
        return comment_of(
            self._rest.send("PATCH", f"/issues/comments/{comment_id}", {"body": body}, f"edit comment {comment_id}")
        )

    def delete_comment(self, comment_id: int) -> None:
        """Delete a comment; one that is gone already is no error."""
        try:
            self._rest.send("DELETE", f"/issues/comments/{comment_id}", None, f"delete comment {comment_id}")
        except Forbidden as error:
            if error.status != 404:
                raise

    def react(self, comment_id: int, content: Reaction) -> None:
        """Add a reaction to a comment; adding it twice leaves one."""
        path = f"/issues/comments/{comment_id}/reactions"
        self._rest.send("POST", path, {"content": content}, f"react to comment {comment_id}")

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
            return int(self._rest.send("POST", "/check-runs", body, f"open the check {name!r}", once=True)["id"])
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
        self._rest.send("PATCH", f"/check-runs/{check_id}", body, f"update check {check_id}")

    def checks(self, head_sha: str, name: str | None = None) -> list[Check]:
        """All check runs of a commit (of this name), newest first, re-runs included."""
        parameters = {"filter": "all"} | ({"check_name": name} if name is not None else {})
        items = self._rest.pages(
            f"/commits/{head_sha}/check-runs", f"list checks of {head_sha[:12]}", parameters, "check_runs"
        )
        return sorted((check_of(item) for item in items), key=lambda check: check.id, reverse=True)

    # -- files and the journal ---------------------------------------------------------------------------------------

    def file_at(self, path: str, ref: str) -> bytes | None:
        """Content of a file at a commit, branch or tag; None when there is none."""
        return self._rest.file_at(path, ref)

    def reader(self, wanted: Iterable[tuple[str, str]], entries: Iterable[str] = ()) -> Read:
        """A reader of files that has asked for the `wanted` ones, (path, ref), and for `entries` of the journal, at once."""
        return reader(self._rest, [*wanted, *((path, journal.BRANCH) for path in entries)])

    def journal_reader(self, entries: Iterable[str]) -> Callable[[str], bytes | None]:
        """A reader of the journal that has asked for these entries at once."""
        read = self.reader((), entries)
        return lambda path: read(path, journal.BRANCH)

    def journal_get(self, path: str) -> bytes | None:
        """Content of a file of the journal branch; None when it has none."""
        return self._rest.file_at(path, journal.BRANCH)

    def journal_put(self, path: str, data: bytes, message: str) -> str:
        """Append a file to the orphan branch `assay-journal`, making the branch when absent; returns its URL.

        The journal is append-only: writing the same bytes again changes nothing, other bytes under the same path are an
        `InputError`. Concurrent writers each get their commit. Raises `Forbidden` without `contents: write`.
        """
        there = self._listed or {}
        if there.get(path) != blob_name(data):
            journal.write(self._rest, path, data, message, new=self._listed is not None and path not in there)
        return self.journal_url(path)

    def journal_replace(self, path: str, data: bytes, message: str) -> str:
        """As `journal_put`, for the one path that may change (the badge)."""
        journal.write(self._rest, path, data, message, replace=True)
        return self.journal_url(path)

    def journal_list(self) -> list[str]:
        """Paths of all of the journal's files, sorted; empty when there is no journal yet.

        One request, until GitHub cuts the list short; then one for each folder that it can give whole.
        """
        with speaking("list the journal"):
            self._listed = journal.listed(self._rest)
        return sorted(self._listed)

    def journal_url(self, path: str) -> str:
        """Where people's browsers load a file of the journal (as themselves, when the repository is private)."""
        return f"{self.server_url}/{self.name}/raw/{journal.BRANCH}/{quote(path)}"
