"""Event files as GitHub delivers them: the published webhook examples, told about the loopback's own state."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

from .description import EXAMPLES
from .server import Loopback
from .state import Repository

Json = dict[str, Any]


@cache
def _examples() -> dict[tuple[str, str], Json]:
    """(event, action) -> its first published example; empty when the package is not installed."""
    if not EXAMPLES.exists():
        return {}
    found: dict[tuple[str, str], Json] = {}
    for event in json.loads(EXAMPLES.read_bytes()):
        for example in event["examples"]:
            found.setdefault((event["name"], example.get("action", "")), example)
    return found


def _event(github: Loopback, repo: Repository, name: str, action: str, sender: str, own: Json) -> Json:
    """An example with the loopback's objects in place of the example's."""
    event = copy.deepcopy(_examples().get((name, action), {}))
    for stranger in ("installation", "organization", "enterprise"):
        event.pop(stranger, None)
    if action:
        event["action"] = action
    event |= {"repository": github.payloads.repository(repo), "sender": github.payloads.user(sender)} | own
    return event


def pull_request(github: Loopback, repo: Repository, number: int, action: str = "synchronize") -> Json:
    """A pull request that was `opened`, `synchronize`d, `reopened` or `closed`."""
    issue = repo.issues[number]
    own = {"number": number, "pull_request": github.payloads.pull(repo, issue, full=True)}
    return _event(github, repo, "pull_request", action, issue.author, own)


def workflow_run(github: Loopback, repo: Repository, run_id: int, action: str = "completed") -> Json:
    """A workflow run that was `requested`, is `in_progress` or `completed`; its pull requests are empty for forks."""
    run = repo.runs[run_id]
    payload = github.payloads.run(repo, run)
    workflow = {
        "id": payload["workflow_id"], "node_id": "", "name": run.name, "path": run.path, "state": "active",
        "created_at": payload["created_at"], "updated_at": payload["updated_at"], "url": payload["workflow_url"],
        "html_url": f"{github.web}/{repo.full_name}/blob/main/{run.path}", "badge_url": "",
    }  # fmt: skip
    return _event(github, repo, "workflow_run", action, "ada", {"workflow_run": payload, "workflow": workflow})


def issue_comment(github: Loopback, repo: Repository, comment_id: int, action: str = "created") -> Json:
    """A comment that was `created`, `edited` or `deleted`."""
    comment = repo.comments[comment_id]
    own = {
        "comment": github.payloads.comment(repo, comment),
        "issue": github.payloads.issue(repo, repo.issues[comment.number]),
    }
    return _event(github, repo, "issue_comment", action, comment.author, own)


def push(github: Loopback, repo: Repository, branch: str = "main", before: str | None = None) -> Json:
    """A push that moved a branch to its tip."""
    after = repo.refs[f"refs/heads/{branch}"]
    parents = repo.objects.commit(after).parents
    tip = github.payloads.git_commit(repo, repo.objects.commit(after))
    commit = {
        "id": after, "tree_id": tip["tree"]["sha"], "distinct": True, "message": tip["message"],
        "timestamp": tip["author"]["date"], "url": tip["html_url"], "author": tip["author"], "committer": tip["author"],
        "added": [], "removed": [], "modified": [],
    }  # fmt: skip
    own = {
        "ref": f"refs/heads/{branch}", "before": before or (parents[0] if parents else "0" * 40), "after": after,
        "created": not parents, "deleted": False, "forced": False, "base_ref": None, "head_commit": commit,
        "commits": [commit], "compare": f"{github.web}/{repo.full_name}/compare",
    }  # fmt: skip
    return _event(github, repo, "push", "", "ada", own)


def workflow_dispatch(github: Loopback, repo: Repository, inputs: dict[str, str], ref: str = "main") -> Json:
    """A dispatch with inputs."""
    own = {"inputs": inputs, "ref": f"refs/heads/{ref}", "workflow": ".github/workflows/assay.yml"}
    return _event(github, repo, "workflow_dispatch", "", "ada", own)


def schedule(github: Loopback, repo: Repository, cron: str = "0 3 * * *") -> Json:
    """A schedule that fired."""
    return {"schedule": cron, "repository": github.payloads.repository(repo)}
