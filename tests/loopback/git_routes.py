"""Repositories, Git data, contents, commits and comparison."""

from __future__ import annotations

import base64
import binascii

from .routing import Refusal, Reply, Request, route
from .state import Repository

REPO = "/repos/{owner}/{repo}"


def need_commit(repo: Repository, ref: str) -> str:
    sha = repo.sha(ref)
    if sha is None:
        raise Refusal(422, f"No commit found for SHA: {ref}")
    return sha


@route("GET", "/rate_limit")
def rate_limit(request: Request) -> Reply:
    rate = {"limit": 5000, "remaining": 4999, "reset": 1_900_000_000, "used": 1}
    return Reply(200, {"resources": {"core": rate, "search": rate}, "rate": rate})


@route("GET", "/user", signed_in=True)
def viewer(request: Request) -> Reply:
    if request.token is not None and request.token.kind == "installation":
        raise Refusal(403, "Resource not accessible by integration")
    return Reply(200, request.payloads.viewer(request.login))


@route("GET", REPO)
def repository(request: Request) -> Reply:
    return Reply(200, request.payloads.repository(request.repo))


@route("GET", REPO + "/collaborators/{username}/permission", signed_in=True)
def permission(request: Request) -> Reply:
    if request.token is None:
        raise Refusal(401, "Requires authentication")
    login = request.params["username"]
    level = request.repo.permissions.get(login, "none" if request.repo.private else "read")
    legacy = {"maintain": "write", "triage": "read"}.get(level, level)
    granted = {"none": 0, "read": 1, "triage": 2, "write": 3, "maintain": 4, "admin": 5}[level]
    names = ("pull", "triage", "push", "maintain", "admin")
    user = request.payloads.user(login) | {
        "role_name": level,
        "permissions": {name: granted > index for index, name in enumerate(names)},
    }
    return Reply(200, {"permission": legacy, "role_name": level, "user": user})


@route("GET", REPO + "/activity", "contents")
def activity(request: Request) -> Reply:
    """Pushes, newest first."""
    repo, ref = request.repo, request.query.get("ref", "")
    wanted = {ref, f"refs/heads/{ref}"} if ref else None
    found = [push for push in reversed(repo.activity) if wanted is None or push["ref"] in wanted]
    return request.page(found, lambda push: request.payloads.push(repo, push))


@route("GET", REPO + "/git/ref/{ref}", "contents")
def get_ref(request: Request) -> Reply:
    name = f"refs/{request.params['ref']}"
    if not request.repo.refs:
        raise Refusal(409, "Git Repository is empty.")
    if name not in request.repo.refs:
        raise Refusal(404, "Not Found")
    return Reply(200, request.payloads.ref(request.repo, name))


@route("GET", REPO + "/git/matching-refs/{ref}", "contents")
def matching_refs(request: Request) -> Reply:
    names = sorted(name for name in request.repo.refs if name.startswith(f"refs/{request.params['ref']}"))
    return Reply(200, [request.payloads.ref(request.repo, name) for name in names])


@route("POST", REPO + "/git/refs", "contents")
def create_ref(request: Request) -> Reply:
    name, sha = str(request.json.get("ref", "")), str(request.json.get("sha", ""))
    if not name.startswith("refs/") or name.count("/") < 2:
        raise Refusal(422, "Reference name must start with 'refs/' and have at least two slashes.")
    if request.repo.objects.kind(sha) != "commit":
        raise Refusal(422, "Object does not exist")
    if name in request.repo.refs:
        raise Refusal(422, "Reference already exists")
    if name.removeprefix("refs/tags/") in request.repo.spent_tags:
        raise Refusal(422, "Cannot create ref due to creations being restricted.")
    request.repo.move(name, sha)
    return Reply(201, request.payloads.ref(request.repo, name))


@route("PATCH", REPO + "/git/refs/{ref}", "contents")
def update_ref(request: Request) -> Reply:
    name, sha = f"refs/{request.params['ref']}", str(request.json.get("sha", ""))
    repo = request.repo
    if name not in repo.refs:
        raise Refusal(422, "Reference does not exist")
    if repo.objects.kind(sha) != "commit":
        raise Refusal(422, "Object does not exist")
    if not request.json.get("force") and repo.refs[name] not in repo.objects.ancestors(sha):
        raise Refusal(422, "Update is not a fast forward")
    repo.move(name, sha)
    return Reply(200, request.payloads.ref(repo, name))


@route("DELETE", REPO + "/git/refs/{ref}", "contents")
def delete_ref(request: Request) -> Reply:
    name = f"refs/{request.params['ref']}"
    held = any(r.immutable and f"refs/tags/{r.tag}" == name for r in request.repo.releases.values())
    if name not in request.repo.refs or held:
        raise Refusal(422, "Cannot delete this reference" if held else "Reference does not exist")
    del request.repo.refs[name]
    return Reply(204)


@route("POST", REPO + "/git/blobs", "contents")
def create_blob(request: Request) -> Reply:
    content = str(request.json.get("content", ""))
    try:
        data = (
            base64.b64decode(content, validate=False) if request.json.get("encoding") == "base64" else content.encode()
        )
    except binascii.Error:
        raise Refusal(422, "content is not valid Base64") from None
    sha = request.repo.objects.put("blob", data)
    return Reply(201, {"url": f"{request.origin}{request.path}/{sha}", "sha": sha})


@route("GET", REPO + "/git/blobs/{file_sha}", "contents")
def get_blob(request: Request) -> Reply:
    sha = request.params["file_sha"]
    if request.repo.objects.kind(sha) != "blob":
        raise Refusal(404, "Not Found")
    data = request.repo.objects.blob(sha)
    encoded = base64.encodebytes(data).decode()
    body = {"sha": sha, "node_id": sha, "size": len(data), "url": f"{request.origin}{request.path}"}
    return Reply(200, body | {"content": encoded, "encoding": "base64"})


@route("POST", REPO + "/git/trees", "contents")
def create_tree(request: Request) -> Reply:
    objects = request.repo.objects
    base = request.json.get("base_tree")
    if base is not None and objects.kind(base) == "commit":
        base = objects.commit(base).tree
    if base is not None and objects.kind(base) != "tree":
        raise Refusal(422, "base_tree is not a valid tree oid")
    files = objects.files(base) if base is not None else {}
    for entry in request.json.get("tree") or []:
        if entry.get("sha", "") is None:
            files.pop(entry["path"], None)
        elif "content" in entry:
            files[entry["path"]] = objects.put("blob", entry["content"].encode())
        elif objects.kind(entry["sha"]) != "blob":
            raise Refusal(422, f"tree.sha {entry['sha']} is not a valid blob")
        else:
            files[entry["path"]] = entry["sha"]
    return tree_reply(request, objects.put_tree(files), 201)


@route("GET", REPO + "/git/trees/{tree_sha}", "contents")
def get_tree(request: Request) -> Reply:
    sha = request.params["tree_sha"]
    if request.repo.objects.kind(sha) != "tree":
        commit = request.repo.sha(sha)
        if commit is None:
            raise Refusal(404, "Not Found")
        sha = request.repo.objects.commit(commit).tree
    return tree_reply(request, sha, 200)


def tree_reply(request: Request, sha: str, status: int) -> Reply:
    objects, url = request.repo.objects, f"{request.origin}/repos/{request.repo.full_name}/git"
    entries = []
    if request.query.get("recursive"):
        whole = sorted(objects.files(sha).items())
        cut = len(whole) > request.repo.tree_limit
        for path, blob in whole[: request.repo.tree_limit]:
            found = {"path": path, "mode": "100644", "type": "blob", "sha": blob, "url": f"{url}/blobs/{blob}"}
            entries.append(found | {"size": len(objects.blob(blob))})
        return Reply(status, {"sha": sha, "url": f"{url}/trees/{sha}", "tree": entries, "truncated": cut})
    for entry in objects.tree(sha):
        item = {"path": entry.name, "mode": entry.mode.zfill(6), "type": entry.kind, "sha": entry.sha}
        item["url"] = f"{url}/{entry.kind}s/{entry.sha}"
        if entry.kind == "blob":
            item["size"] = len(objects.blob(entry.sha))  # type: ignore[assignment]
        entries.append(item)
    return Reply(status, {"sha": sha, "url": f"{url}/trees/{sha}", "tree": entries, "truncated": False})


@route("POST", REPO + "/git/commits", "contents")
def create_commit(request: Request) -> Reply:
    body, objects = request.json, request.repo.objects
    if objects.kind(body.get("tree", "")) != "tree":
        raise Refusal(422, "Tree SHA does not exist")
    parents = tuple(body.get("parents") or ())
    if any(objects.kind(sha) != "commit" for sha in parents):
        raise Refusal(422, "Parent SHA does not exist or is not a commit object")
    sha = objects.put_commit(
        body["tree"], parents, body["message"], request.world.now(), request.login, "bot@example.invalid"
    )
    return Reply(201, request.payloads.git_commit(request.repo, objects.commit(sha)))


@route("GET", REPO + "/git/commits/{commit_sha}", "contents")
def get_git_commit(request: Request) -> Reply:
    sha = request.params["commit_sha"]
    if request.repo.objects.kind(sha) != "commit":
        raise Refusal(404, "Not Found")
    return Reply(200, request.payloads.git_commit(request.repo, request.repo.objects.commit(sha)))


@route("GET", REPO + "/contents/{path}", "contents")
def contents(request: Request) -> Reply:
    repo, path = request.repo, request.params["path"].strip("/")
    ref = request.query.get("ref", repo.default_branch)
    sha = repo.sha(ref)
    if sha is None:
        raise Refusal(404, f"No commit found for the ref {ref}")
    files = repo.objects.files(repo.objects.commit(sha).tree)
    if path in files:
        return Reply(200, request.payloads.content(repo, path, ref, files[path]))
    inside = sorted(name for name in files if name.startswith(path + "/"))
    if not inside:
        raise Refusal(404, "Not Found")
    listed = []
    for name in inside:
        if "/" not in name[len(path) + 1 :]:
            item = request.payloads.content(repo, name, ref, files[name])
            listed.append({key: value for key, value in item.items() if key not in {"content", "encoding"}})
    return Reply(200, listed)


@route("PUT", REPO + "/contents/{path}", "contents")
def put_contents(request: Request) -> Reply:
    """A commit of one file on a branch that exists; without the old content's `sha` only a new file is made."""
    repo, objects, path = request.repo, request.repo.objects, request.params["path"].strip("/")
    branch = request.json.get("branch", repo.default_branch)
    name = f"refs/heads/{branch}"
    if name not in repo.refs:
        raise Refusal(404, f"Branch {branch} not found")
    tip = repo.refs[name]
    files = dict(objects.files(objects.commit(tip).tree))
    if path in files and request.json.get("sha") is None:
        raise Refusal(422, 'Invalid request.\n\n"sha" wasn\'t supplied.')
    if path in files and request.json["sha"] != files[path]:
        raise Refusal(409, f"{path} does not match {request.json['sha']}")
    status = 200 if path in files else 201
    files[path] = objects.put("blob", base64.b64decode(request.json["content"]))
    tree = objects.put_tree(files)
    sha = objects.put_commit(
        tree, (tip,), request.json["message"], request.world.now(), request.login, "bot@example.invalid"
    )
    repo.move(name, sha)
    content = request.payloads.content(repo, path, branch, files[path])
    return Reply(status, {"content": content, "commit": request.payloads.git_commit(repo, objects.commit(sha))})


@route("GET", REPO + "/branches/{branch}", "contents")
def branch(request: Request) -> Reply:
    repo, name = request.repo, request.params["branch"]
    sha = repo.refs.get(f"refs/heads/{name}")
    if sha is None:
        raise Refusal(404, "Branch not found")
    url = f"{request.origin}{request.path}"
    return Reply(200, {
        "name": name, "commit": request.payloads.commit(repo, repo.objects.commit(sha)), "protected": False,
        "protection": {"enabled": False}, "protection_url": f"{url}/protection",
        "_links": {"self": url, "html": f"{request.payloads.web}/{repo.full_name}/tree/{name}"},
    })  # fmt: skip


@route("GET", REPO + "/commits", "contents")
def commits(request: Request) -> Reply:
    repo = request.repo
    if not repo.refs:
        raise Refusal(409, "Git Repository is empty.")
    sha = repo.sha(request.query.get("sha", repo.default_branch))
    if sha is None:
        raise Refusal(404, "Not Found")
    return request.page(list(repo.objects.history(sha)), lambda commit: request.payloads.commit(repo, commit))


@route("GET", REPO + "/commits/{ref}", "contents")
def commit(request: Request) -> Reply:
    repo = request.repo
    found = repo.objects.commit(need_commit(repo, request.params["ref"]))
    body = request.payloads.commit(repo, found)
    return Reply(200, body | {"stats": {"additions": 0, "deletions": 0, "total": 0}, "files": []})


@route("GET", REPO + "/commits/{commit_sha}/pulls", "pull-requests")
def pulls_of_commit(request: Request) -> Reply:
    """Pull requests that contain the commit; those from forks are missing, as on GitHub."""
    repo = request.repo
    sha = need_commit(repo, request.params["commit_sha"])
    found = [
        issue
        for issue in repo.issues.values()
        if issue.head and issue.head[0] == repo.full_name and sha in repo.objects.ancestors(issue.head_sha)
        and sha not in repo.objects.ancestors(repo.refs[f"refs/heads/{issue.base_ref}"])
    ]  # fmt: skip
    return request.page(found, lambda issue: request.payloads.pull(repo, issue, full=False))


@route("GET", REPO + "/compare/{basehead}", "contents")
def compare(request: Request) -> Reply:
    repo = request.repo
    base, separator, head = request.params["basehead"].partition("...")
    shas = [repo.sha(name.rpartition(":")[2]) for name in (base, head)]
    if not separator or shas[0] is None or shas[1] is None:
        raise Refusal(404, "Not Found")
    objects = repo.objects
    merge_base = objects.merge_base(shas[0], shas[1])
    if merge_base is None:
        raise Refusal(404, f"No common ancestor between {base} and {head}.")
    behind = objects.ancestors(shas[0]) - objects.ancestors(shas[1])
    known = objects.ancestors(shas[0])
    ahead = [commit for commit in objects.history(shas[1]) if commit.sha not in known][::-1]
    status = ("diverged" if behind else "ahead") if ahead else ("behind" if behind else "identical")
    web = f"{request.payloads.web}/{repo.full_name}/compare/{base}...{head}"
    shown = request.page(ahead, lambda commit: request.payloads.commit(repo, commit))
    return Reply(200, {
        "url": f"{request.origin}{request.path}", "html_url": web, "permalink_url": web, "diff_url": f"{web}.diff",
        "patch_url": f"{web}.patch", "base_commit": request.payloads.commit(repo, objects.commit(shas[0])),
        "merge_base_commit": request.payloads.commit(repo, objects.commit(merge_base)), "status": status,
        "ahead_by": len(ahead), "behind_by": len(behind), "total_commits": len(ahead), "commits": shown.body,
        "files": [],
    }, shown.headers)  # fmt: skip
