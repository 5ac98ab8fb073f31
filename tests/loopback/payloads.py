"""GitHub's JSON for what the state holds, with every field that its description requires."""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from .objects import Commit
from .state import Artifact, Asset, CheckRun, Comment, Issue, Release, Repository, WorkflowRun, World

Json = dict[str, Any]

_REPO_URLS = {
    "archive_url": "/{archive_format}{/ref}", "assignees_url": "/assignees{/user}", "blobs_url": "/git/blobs{/sha}",
    "branches_url": "/branches{/branch}", "collaborators_url": "/collaborators{/collaborator}",
    "comments_url": "/comments{/number}", "commits_url": "/commits{/sha}", "compare_url": "/compare/{base}...{head}",
    "contents_url": "/contents/{+path}", "contributors_url": "/contributors", "deployments_url": "/deployments",
    "downloads_url": "/downloads", "events_url": "/events", "forks_url": "/forks",
    "git_commits_url": "/git/commits{/sha}", "git_refs_url": "/git/refs{/sha}", "git_tags_url": "/git/tags{/sha}",
    "hooks_url": "/hooks", "issue_comment_url": "/issues/comments{/number}",
    "issue_events_url": "/issues/events{/number}", "issues_url": "/issues{/number}", "keys_url": "/keys{/key_id}",
    "labels_url": "/labels{/name}", "languages_url": "/languages", "merges_url": "/merges",
    "milestones_url": "/milestones{/number}", "notifications_url": "/notifications{?since,all,participating}",
    "pulls_url": "/pulls{/number}", "releases_url": "/releases{/id}", "stargazers_url": "/stargazers",
    "statuses_url": "/statuses/{sha}", "subscribers_url": "/subscribers", "subscription_url": "/subscription",
    "tags_url": "/tags", "teams_url": "/teams", "trees_url": "/git/trees{/sha}",
}  # fmt: skip
_USER_URLS = {
    "followers_url": "/followers", "following_url": "/following{/other_user}", "gists_url": "/gists{/gist_id}",
    "starred_url": "/starred{/owner}{/repo}", "subscriptions_url": "/subscriptions", "organizations_url": "/orgs",
    "repos_url": "/repos", "events_url": "/events{/privacy}", "received_events_url": "/received_events",
}  # fmt: skip


def stamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def node(kind: str, number: object) -> str:
    return base64.urlsafe_b64encode(f"{kind}:{number}".encode()).decode().rstrip("=")


class Payloads:
    """Builders that know the addresses of this server: `api` for machines, `web` for people."""

    def __init__(self, world: World, api: str, web: str, uploads: str) -> None:
        self.world, self.api, self.web, self.uploads = world, api, web, uploads

    def _repo_api(self, repo: Repository) -> str:
        return f"{self.api}/repos/{repo.full_name}"

    def user(self, login: str) -> Json:
        number = self.world.user_id(login)
        url = f"{self.api}/users/{quote(login)}"
        return {
            "login": login, "id": number, "node_id": node("User", number), "avatar_url": f"{self.web}/avatars/{number}",
            "gravatar_id": "", "url": url, "html_url": f"{self.web}/{quote(login)}",
            "type": "Bot" if login.endswith("[bot]") else "User", "site_admin": False,
        } | {key: url + path for key, path in _USER_URLS.items()}  # fmt: skip

    def viewer(self, login: str) -> Json:
        return self.user(login) | {
            "name": login, "company": None, "blog": "", "location": None, "email": None, "hireable": None, "bio": None,
            "public_repos": 0, "public_gists": 0, "followers": 0, "following": 0, "created_at": "2020-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:00Z", "private_gists": 0, "total_private_repos": 0,
            "owned_private_repos": 0, "disk_usage": 0, "collaborators": 0, "two_factor_authentication": True,
        }  # fmt: skip

    def minimal_repository(self, repo: Repository) -> Json:
        url = self._repo_api(repo)
        return {
            "id": repo.id, "node_id": node("Repository", repo.id), "name": repo.name, "full_name": repo.full_name,
            "owner": self.user(repo.owner), "private": repo.private, "html_url": f"{self.web}/{repo.full_name}",
            "description": None, "fork": repo.parent is not None, "url": url,
        } | {key: url + path for key, path in _REPO_URLS.items()}  # fmt: skip

    def repository(self, repo: Repository) -> Json:
        web = f"{self.web}/{repo.full_name}"
        return self.minimal_repository(repo) | {
            "clone_url": f"{web}.git", "git_url": f"{web}.git", "ssh_url": f"{web}.git", "svn_url": web,
            "mirror_url": None, "homepage": None, "language": None, "forks_count": 0, "forks": 0,
            "stargazers_count": 0, "watchers_count": 0, "watchers": 0, "size": 1, "default_branch": repo.default_branch,
            "open_issues_count": 0, "open_issues": 0, "has_issues": True, "has_projects": False, "has_wiki": False,
            "has_pages": False, "has_downloads": True, "has_discussions": False, "archived": False, "disabled": False,
            "visibility": "private" if repo.private else "public", "license": None,
            "pushed_at": stamp(repo.activity[-1]["when"]) if repo.activity else "2026-11-01T00:00:00Z", "created_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-11-01T00:00:00Z", "network_count": 0, "subscribers_count": 0,
        }  # fmt: skip

    def git_commit(self, repo: Repository, commit: Commit) -> Json:
        url = f"{self._repo_api(repo)}/git"
        person = {"name": commit.author, "email": commit.email, "date": stamp(commit.when)}
        return {
            "sha": commit.sha, "node_id": node("Commit", commit.sha), "url": f"{url}/commits/{commit.sha}",
            "html_url": f"{self.web}/{repo.full_name}/commit/{commit.sha}", "author": person, "committer": person,
            "tree": {"sha": commit.tree, "url": f"{url}/trees/{commit.tree}"}, "message": commit.message,
            "parents": [
                {"sha": sha, "url": f"{url}/commits/{sha}", "html_url": f"{self.web}/{repo.full_name}/commit/{sha}"}
                for sha in commit.parents
            ],
            "verification": {
                "verified": False, "reason": "unsigned", "signature": None, "payload": None, "verified_at": None,
            },
        }  # fmt: skip

    def commit(self, repo: Repository, commit: Commit) -> Json:
        url = f"{self._repo_api(repo)}/commits"
        inner = self.git_commit(repo, commit)
        return {
            "sha": commit.sha, "node_id": inner["node_id"], "url": f"{url}/{commit.sha}", "html_url": inner["html_url"],
            "comments_url": f"{url}/{commit.sha}/comments", "author": self.user(commit.author),
            "committer": self.user(commit.author),
            "parents": [{"sha": s, "url": f"{url}/{s}", "html_url": f"{self.web}/{repo.full_name}/commit/{s}"} for s in commit.parents],
            "commit": {
                "url": inner["url"], "author": inner["author"], "committer": inner["committer"],
                "message": commit.message, "comment_count": 0, "tree": inner["tree"],
                "verification": inner["verification"],
            },
        }  # fmt: skip

    def push(self, repo: Repository, push: Json) -> Json:
        return {
            "id": int(hashlib.sha256(repr(push).encode()).hexdigest()[:8], 16), "node_id": node("Push", push["after"]),
            "before": push["before"], "after": push["after"], "ref": push["ref"], "timestamp": stamp(push["when"]),
            "activity_type": push["kind"], "actor": self.user("ada"),
        }  # fmt: skip

    def ref(self, repo: Repository, name: str) -> Json:
        sha = repo.refs[name]
        url = f"{self._repo_api(repo)}/git"
        return {
            "ref": name, "node_id": node("Ref", name), "url": f"{url}/{quote(name)}",
            "object": {"sha": sha, "type": "commit", "url": f"{url}/commits/{sha}"},
        }  # fmt: skip

    def content(self, repo: Repository, path: str, ref: str, sha: str) -> Json:
        data = repo.objects.blob(sha)
        url = f"{self._repo_api(repo)}/contents/{quote(path)}?ref={quote(ref)}"
        git = f"{self._repo_api(repo)}/git/blobs/{sha}"
        html = f"{self.web}/{repo.full_name}/blob/{quote(ref)}/{quote(path)}"
        large = len(data) > 1 << 20
        return {
            "type": "file", "encoding": "none" if large else "base64", "size": len(data), "name": path.split("/")[-1],
            "path": path, "content": "" if large else base64.encodebytes(data).decode(), "sha": sha, "url": url,
            "git_url": git, "html_url": html, "download_url": f"{self.web}/{repo.full_name}/raw/{quote(ref)}/{quote(path)}",
            "_links": {"self": url, "git": git, "html": html},
        }  # fmt: skip

    def asset(self, repo: Repository, release: Release, asset: Asset) -> Json:
        digest = "sha256:" + hashlib.sha256(asset.data).hexdigest()
        return {
            "id": asset.id, "node_id": node("ReleaseAsset", asset.id), "name": asset.name, "label": "",
            "state": "uploaded" if asset.state == "uploaded" else "open", "content_type": asset.content_type,
            "size": len(asset.data), "digest": digest if asset.digest_known and asset.state == "uploaded" else None,
            "download_count": 0, "created_at": stamp(asset.created), "updated_at": stamp(asset.created),
            "uploader": self.user(release.author), "url": f"{self._repo_api(repo)}/releases/assets/{asset.id}",
            "browser_download_url": f"{self.web}/{repo.full_name}/releases/download/{quote(release.tag)}/{asset.name}",
        }  # fmt: skip

    def release(self, repo: Repository, release: Release) -> Json:
        url = f"{self._repo_api(repo)}/releases/{release.id}"
        shown = f"untagged-{release.id:x}" if release.draft else release.tag
        return {
            "id": release.id, "node_id": node("Release", release.id), "tag_name": release.tag,
            "target_commitish": release.target, "name": release.name, "body": release.body, "draft": release.draft,
            "prerelease": release.prerelease, "immutable": release.immutable, "created_at": stamp(release.created),
            "published_at": stamp(release.published), "updated_at": stamp(release.published or release.created),
            "author": self.user(release.author),
            "assets": [self.asset(repo, release, asset) for asset in release.assets.values()], "url": url,
            "assets_url": f"{url}/assets", "html_url": f"{self.web}/{repo.full_name}/releases/tag/{quote(shown)}",
            "upload_url": f"{self.uploads}/repos/{repo.full_name}/releases/{release.id}/assets{{?name,label}}",
            "tarball_url": None if release.draft else f"{self._repo_api(repo)}/tarball/{quote(release.tag)}",
            "zipball_url": None if release.draft else f"{self._repo_api(repo)}/zipball/{quote(release.tag)}",
        }  # fmt: skip

    def issue(self, repo: Repository, issue: Issue) -> Json:
        url = f"{self._repo_api(repo)}/issues/{issue.number}"
        payload = {
            "id": issue.id, "node_id": node("Issue", issue.id), "number": issue.number, "title": issue.title,
            "body": issue.body, "user": self.user(issue.author), "state": issue.state, "state_reason": None,
            "locked": False, "labels": [{"name": name, "color": "ededed"} for name in issue.labels],
            "assignee": None, "assignees": [], "milestone": None,
            "comments": len(repo.comments_on(issue.number)), "created_at": stamp(issue.created),
            "updated_at": stamp(issue.created), "closed_at": stamp(issue.closed), "author_association": "CONTRIBUTOR",
            "url": url, "repository_url": self._repo_api(repo), "labels_url": f"{url}/labels{{/name}}",
            "comments_url": f"{url}/comments", "events_url": f"{url}/events",
            "html_url": f"{self.web}/{repo.full_name}/{'pull' if issue.head else 'issues'}/{issue.number}",
        }  # fmt: skip
        if issue.head is not None:
            pull = f"{self._repo_api(repo)}/pulls/{issue.number}"
            web = payload["html_url"]
            payload["pull_request"] = {
                "url": pull, "html_url": web, "diff_url": f"{web}.diff", "patch_url": f"{web}.patch", "merged_at": None,
            }  # fmt: skip
        return payload

    def pull(self, repo: Repository, issue: Issue, *, full: bool) -> Json:
        assert issue.head is not None
        url, web = f"{self._repo_api(repo)}/pulls/{issue.number}", f"{self.web}/{repo.full_name}/pull/{issue.number}"
        discussion = f"{self._repo_api(repo)}/issues/{issue.number}"
        source = self.world.repositories.get(issue.head[0])
        statuses = f"{self._repo_api(repo)}/statuses/{issue.head_sha}"
        review = f"{self._repo_api(repo)}/pulls/comments{{/number}}"

        def side(of: Repository | None, owner: str, ref: str, sha: str) -> Json:
            return {
                "label": f"{owner}:{ref}", "ref": ref, "sha": sha, "user": self.user(owner),
                "repo": self.repository(of) if of is not None else None,
            }  # fmt: skip

        payload = {
            "id": issue.id, "node_id": node("PullRequest", issue.id), "number": issue.number, "title": issue.title,
            "body": issue.body, "state": issue.state, "locked": False, "draft": issue.draft,
            "user": self.user(issue.author), "labels": [], "milestone": None, "assignee": None, "assignees": [],
            "requested_reviewers": [], "requested_teams": [], "created_at": stamp(issue.created),
            "updated_at": stamp(issue.created), "closed_at": stamp(issue.closed), "merged_at": None,
            "merge_commit_sha": None, "author_association": "CONTRIBUTOR", "auto_merge": None,
            "head": side(source, issue.head[0].split("/")[0], issue.head[1], issue.head_sha),
            "base": side(repo, repo.owner, issue.base_ref, issue.base_sha),
            "url": url, "html_url": web, "diff_url": f"{web}.diff", "patch_url": f"{web}.patch",
            "issue_url": discussion, "comments_url": f"{discussion}/comments", "commits_url": f"{url}/commits",
            "review_comments_url": f"{url}/comments", "review_comment_url": review, "statuses_url": statuses,
            "_links": {
                name: {"href": href}
                for name, href in {
                    "self": url, "html": web, "issue": discussion, "comments": f"{discussion}/comments",
                    "review_comments": f"{url}/comments", "review_comment": review, "commits": f"{url}/commits",
                    "statuses": statuses,
                }.items()
            },
        }  # fmt: skip
        if full:
            payload |= {
                "additions": 1, "deletions": 0, "changed_files": 1, "commits": 1, "comments": 0, "review_comments": 0,
                "mergeable": True, "mergeable_state": "clean", "merged": False, "merged_by": None, "rebaseable": True,
                "maintainer_can_modify": False,
            }  # fmt: skip
        return payload

    def comment(self, repo: Repository, comment: Comment) -> Json:
        url = f"{self._repo_api(repo)}/issues/comments/{comment.id}"
        return {
            "id": comment.id, "node_id": node("IssueComment", comment.id), "url": url, "body": comment.body,
            "html_url": f"{self.web}/{repo.full_name}/pull/{comment.number}#issuecomment-{comment.id}",
            "issue_url": f"{self._repo_api(repo)}/issues/{comment.number}", "user": self.user(comment.author),
            "created_at": stamp(comment.created), "updated_at": stamp(comment.updated),
            "author_association": "NONE", "performed_via_github_app": None,
        }  # fmt: skip

    def check(self, repo: Repository, check: CheckRun) -> Json:
        url = f"{self._repo_api(repo)}/check-runs/{check.id}"
        html = f"{self.web}/{repo.full_name}/runs/{check.id}"
        return {
            "id": check.id, "node_id": node("CheckRun", check.id), "name": check.name, "head_sha": check.head_sha,
            "external_id": check.external_id, "url": url, "html_url": html, "details_url": check.details_url or html,
            "status": check.status, "conclusion": check.conclusion, "started_at": stamp(check.started),
            "completed_at": stamp(check.completed), "check_suite": {"id": 1}, "pull_requests": [],
            "output": {
                "title": check.title, "summary": check.summary, "text": None, "annotations_count": 0,
                "annotations_url": f"{url}/annotations",
            },
            "app": {
                "id": 15368, "slug": "github-actions", "node_id": node("App", 15368), "owner": self.user("github"),
                "name": "GitHub Actions", "description": "Automate your workflow", "external_url": self.web,
                "html_url": f"{self.web}/apps/github-actions", "created_at": "2018-07-30T09:30:17Z",
                "updated_at": "2018-07-30T09:30:17Z", "permissions": {"checks": "write"}, "events": [],
            },
        }  # fmt: skip

    def run(self, repo: Repository, run: WorkflowRun) -> Json:
        url = f"{self._repo_api(repo)}/actions/runs/{run.id}"
        workflow = int(hashlib.sha256(run.path.encode()).hexdigest()[:6], 16)
        head = self.world.repositories.get(run.head_repository)
        commit = repo.objects.commit(run.head_sha) if run.head_sha in repo.objects else None
        pulls = [  # empty for forks, as on GitHub
            {
                "id": issue.id, "number": number, "url": f"{self._repo_api(repo)}/pulls/{number}",
                "head": {"ref": issue.head[1], "sha": issue.head_sha, "repo": self._small(repo)},
                "base": {"ref": issue.base_ref, "sha": issue.base_sha, "repo": self._small(repo)},
            }
            for number, issue in repo.issues.items()
            if issue.state == "open" and issue.head == (repo.full_name, run.head_branch) and run.head_repository == repo.full_name
        ]  # fmt: skip
        return {
            "id": run.id, "node_id": node("WorkflowRun", run.id), "name": run.name, "path": run.path,
            "display_title": run.title, "event": run.event, "status": run.status, "conclusion": run.conclusion,
            "head_sha": run.head_sha, "head_branch": run.head_branch, "run_number": run.number,
            "run_attempt": run.attempt, "workflow_id": workflow, "check_suite_id": 1, "pull_requests": pulls,
            "created_at": stamp(run.created), "updated_at": stamp(run.created), "run_started_at": stamp(run.created),
            "head_repository": self.minimal_repository(head) if head else None,
            "repository": self.minimal_repository(repo), "url": url,
            "html_url": f"{self.web}/{repo.full_name}/actions/runs/{run.id}", "jobs_url": f"{url}/jobs",
            "logs_url": f"{url}/logs", "check_suite_url": f"{self._repo_api(repo)}/check-suites/1",
            "cancel_url": f"{url}/cancel", "rerun_url": f"{url}/rerun", "artifacts_url": f"{url}/artifacts",
            "previous_attempt_url": None, "workflow_url": f"{self._repo_api(repo)}/actions/workflows/{workflow}",
            "actor": self.user("ada"), "triggering_actor": self.user("ada"), "referenced_workflows": [],
            "head_commit": None if commit is None else {
                "id": commit.sha, "tree_id": commit.tree, "message": commit.message, "timestamp": stamp(commit.when),
                "author": {"name": commit.author, "email": commit.email},
                "committer": {"name": commit.author, "email": commit.email},
            },
        }  # fmt: skip

    def _small(self, repo: Repository) -> Json:
        return {"id": repo.id, "url": self._repo_api(repo), "name": repo.name}

    def artifact(self, repo: Repository, artifact: Artifact) -> Json:
        url = f"{self._repo_api(repo)}/actions/artifacts/{artifact.id}"
        run = repo.runs[artifact.run_id]
        return {
            "id": artifact.id, "node_id": node("Artifact", artifact.id), "name": artifact.name,
            "size_in_bytes": len(artifact.data), "url": url, "archive_download_url": f"{url}/zip",
            "expired": artifact.expired, "digest": "sha256:" + hashlib.sha256(artifact.data).hexdigest(),
            "created_at": stamp(artifact.created), "updated_at": stamp(artifact.created),
            "expires_at": stamp(artifact.created + timedelta(days=90)),
            "workflow_run": {
                "id": run.id, "repository_id": repo.id, "head_branch": run.head_branch, "head_sha": run.head_sha,
                "head_repository_id": self.world.repositories[run.head_repository].id,
            },
        }  # fmt: skip

    def reaction(self, reaction: Json) -> Json:
        return {
            "id": reaction["id"], "node_id": node("Reaction", reaction["id"]), "content": reaction["content"],
            "user": self.user(reaction["login"]), "created_at": reaction["created"],
        }  # fmt: skip
