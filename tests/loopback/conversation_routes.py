"""Pull requests, issues, comments, reactions, checks, workflow runs and artifacts."""

from __future__ import annotations

from typing import Any

from .git_routes import need_commit
from .routing import Refusal, Reply, Request, route
from .state import CheckRun, Comment, Issue

REPO = "/repos/{owner}/{repo}"
COMMENT_LIMIT = 65_536
SUMMARY_LIMIT = 65_535


def need_issue(request: Request, name: str = "issue_number", *, pull: bool = False) -> Issue:
    issue = request.repo.issues.get(request.number(name))
    if issue is None or (pull and issue.head is None):
        raise Refusal(404, "Not Found")
    return issue


def need_comment(request: Request) -> Comment:
    comment = request.repo.comments.get(request.number("comment_id"))
    if comment is None:
        raise Refusal(404, "Not Found")
    return comment


def body_of(request: Request, resource: str) -> str:
    body = request.json.get("body")
    if not isinstance(body, str) or not body:
        raise Refusal(422, "Validation Failed", [{"resource": resource, "code": "missing_field", "field": "body"}])
    if len(body) > COMMENT_LIMIT:
        problem = {"resource": resource, "code": "unprocessable", "field": "data"}
        raise Refusal(
            422, "Validation Failed", [problem | {"message": "Body is too long (maximum is 65536 characters)"}]
        )
    return body


def need_conversation(request: Request) -> None:
    """Conversation comments of a pull request may be written with either permission, as on GitHub."""
    if not (request.may_write("issues") or request.may_write("pull-requests")):
        raise Refusal(403, "Resource not accessible by integration")


@route("GET", REPO + "/pulls", "pull-requests")
def pulls(request: Request) -> Reply:
    state, base, head = (request.query.get(name) for name in ("state", "base", "head"))
    found = [
        issue
        for issue in reversed(request.repo.issues.values())
        if issue.head is not None
        and (state == "all" or issue.state == (state or "open"))
        and base in {None, issue.base_ref}
        and head in {None, f"{issue.head[0].split('/')[0]}:{issue.head[1]}"}
    ]
    return request.page(found, lambda issue: request.payloads.pull(request.repo, issue, full=False))


@route("GET", REPO + "/pulls/{pull_number}", "pull-requests")
def pull(request: Request) -> Reply:
    return Reply(200, request.payloads.pull(request.repo, need_issue(request, "pull_number", pull=True), full=True))


@route("GET", REPO + "/issues", "issues")
def issues(request: Request) -> Reply:
    state, labels = request.query.get("state", "open"), set(filter(None, request.query.get("labels", "").split(",")))
    found = [
        issue
        for issue in reversed(request.repo.issues.values())
        if state in {"all", issue.state} and labels <= set(issue.labels)
    ]
    return request.page(found, lambda issue: request.payloads.issue(request.repo, issue))


@route("POST", REPO + "/issues", "issues")
def create_issue(request: Request) -> Reply:
    repo, body = request.repo, request.json
    number = max(repo.issues, default=0) + 1
    repo.issues[number] = Issue(
        request.world.number(), number, str(body["title"]), str(body.get("body") or ""), request.login,
        request.world.now(), labels=list(body.get("labels") or []),
    )  # fmt: skip
    return Reply(201, request.payloads.issue(repo, repo.issues[number]))


@route("GET", REPO + "/issues/{issue_number}", "issues")
def issue(request: Request) -> Reply:
    return Reply(200, request.payloads.issue(request.repo, need_issue(request)))


@route("PATCH", REPO + "/issues/{issue_number}", "issues")
def update_issue(request: Request) -> Reply:
    found, body = need_issue(request), request.json
    found.title, found.body = body.get("title", found.title), body.get("body", found.body)
    found.labels = body.get("labels", found.labels)
    if body.get("state") in {"open", "closed"}:
        found.state = body["state"]
        found.closed = request.world.now() if found.state == "closed" else None
    return Reply(200, request.payloads.issue(request.repo, found))


@route("GET", REPO + "/issues/{issue_number}/comments", "issues")
def comments(request: Request) -> Reply:
    number = need_issue(request).number
    return request.page(
        request.repo.comments_on(number), lambda comment: request.payloads.comment(request.repo, comment)
    )


@route("POST", REPO + "/issues/{issue_number}/comments", signed_in=True)
def create_comment(request: Request) -> Reply:
    need_conversation(request)
    number, now = need_issue(request).number, request.world.now()
    comment = Comment(request.world.number(), number, request.login, body_of(request, "IssueComment"), now, now)
    request.repo.comments[comment.id] = comment
    return Reply(201, request.payloads.comment(request.repo, comment))


@route("GET", REPO + "/issues/comments/{comment_id}", "issues")
def comment(request: Request) -> Reply:
    return Reply(200, request.payloads.comment(request.repo, need_comment(request)))


@route("PATCH", REPO + "/issues/comments/{comment_id}", signed_in=True)
def update_comment(request: Request) -> Reply:
    need_conversation(request)
    found = need_comment(request)
    found.body, found.updated = body_of(request, "IssueComment"), request.world.now()
    return Reply(200, request.payloads.comment(request.repo, found))


@route("DELETE", REPO + "/issues/comments/{comment_id}", signed_in=True)
def delete_comment(request: Request) -> Reply:
    need_conversation(request)
    del request.repo.comments[need_comment(request).id]
    return Reply(204)


@route("GET", REPO + "/issues/comments/{comment_id}/reactions", "issues")
def reactions(request: Request) -> Reply:
    return request.page(need_comment(request).reactions, request.payloads.reaction)


@route("POST", REPO + "/issues/comments/{comment_id}/reactions", signed_in=True)
def react(request: Request) -> Reply:
    need_conversation(request)
    comment, content = need_comment(request), request.json.get("content")
    for reaction in comment.reactions:
        if (reaction["login"], reaction["content"]) == (request.login, content):
            return Reply(200, request.payloads.reaction(reaction))
    made = {"id": request.world.number(), "login": request.login, "content": content}
    made["created"] = request.world.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    comment.reactions.append(made)
    return Reply(201, request.payloads.reaction(made))


def fill_check(request: Request, check: CheckRun) -> None:
    body: dict[str, Any] = request.json
    output = body.get("output")
    if output is not None:
        if "title" not in output or "summary" not in output:
            raise Refusal(422, 'Invalid request.\n\nNo subschema in "anyOf" matched for output.')
        if len(output["summary"]) > SUMMARY_LIMIT or len(output.get("text") or "") > SUMMARY_LIMIT:
            raise Refusal(422, "Invalid request.\n\nOnly 65535 characters are allowed; more were supplied.")
        check.title, check.summary = output["title"], output["summary"]
    check.name = body.get("name", check.name)
    check.external_id = body.get("external_id", check.external_id)
    check.details_url = body.get("details_url", check.details_url)
    check.status = body.get("status", check.status)
    if body.get("conclusion") is not None:
        check.status, check.conclusion = "completed", body["conclusion"]
    elif check.status == "completed" and check.conclusion is None:
        raise Refusal(422, 'Invalid request.\n\n"conclusion" wasn\'t supplied.')
    if check.status == "completed":
        check.completed = request.world.now()
    else:
        check.conclusion, check.completed = None, None


@route("POST", REPO + "/check-runs", "checks")
def create_check(request: Request) -> Reply:
    body, repo = request.json, request.repo
    sha = need_commit(repo, str(body.get("head_sha", "")))
    check = CheckRun(
        request.world.number(), body["name"], sha, "queued", None, "", None, request.world.now(), author=request.login
    )
    fill_check(request, check)
    repo.checks[check.id] = check
    return Reply(201, request.payloads.check(repo, check))


def need_check(request: Request) -> CheckRun:
    check = request.repo.checks.get(request.number("check_run_id"))
    if check is None:
        raise Refusal(404, "Not Found")
    return check


@route("GET", REPO + "/check-runs/{check_run_id}", "checks")
def check(request: Request) -> Reply:
    return Reply(200, request.payloads.check(request.repo, need_check(request)))


@route("PATCH", REPO + "/check-runs/{check_run_id}", "checks")
def update_check(request: Request) -> Reply:
    found = need_check(request)
    fill_check(request, found)
    return Reply(200, request.payloads.check(request.repo, found))


@route("GET", REPO + "/commits/{ref}/check-runs", "checks")
def checks(request: Request) -> Reply:
    repo, name = request.repo, request.query.get("check_name")
    sha = need_commit(repo, request.params["ref"])
    found = [check for check in repo.checks.values() if check.head_sha == sha and name in {None, check.name}]
    if request.query.get("filter", "latest") == "latest":
        found = list({check.name: check for check in found}.values())
    return request.page(found[::-1], lambda check: request.payloads.check(repo, check), "check_runs")


@route("GET", REPO + "/actions/runs", "actions")
def runs(request: Request) -> Reply:
    query = request.query
    since = query.get("created", "").removeprefix(">=").removesuffix("Z")
    found = [
        run
        for run in reversed(request.repo.runs.values())
        if f"{run.created:%Y-%m-%dT%H:%M:%S}" >= since
        and query.get("head_sha") in {None, run.head_sha}
        and query.get("event") in {None, run.event}
        and query.get("branch") in {None, run.head_branch}
        and query.get("status") in {None, run.status, run.conclusion}
    ]
    return request.page(found, lambda run: request.payloads.run(request.repo, run), "workflow_runs")


@route("GET", REPO + "/actions/runs/{run_id}", "actions")
def run(request: Request) -> Reply:
    found = request.repo.runs.get(request.number("run_id"))
    if found is None:
        raise Refusal(404, "Not Found")
    return Reply(200, request.payloads.run(request.repo, found))


@route("GET", REPO + "/actions/runs/{run_id}/artifacts", "actions")
def artifacts(request: Request) -> Reply:
    number, name = request.number("run_id"), request.query.get("name")
    if number not in request.repo.runs:
        raise Refusal(404, "Not Found")
    found = [a for a in request.repo.artifacts.values() if a.run_id == number and name in {None, a.name}]
    return request.page(found, lambda artifact: request.payloads.artifact(request.repo, artifact), "artifacts")


@route("GET", REPO + "/actions/artifacts/{artifact_id}/{archive_format}", "actions", signed_in=True)
def download(request: Request) -> Reply:
    artifact = request.repo.artifacts.get(request.number("artifact_id"))
    if artifact is None or request.params["archive_format"] != "zip":
        raise Refusal(404, "Not Found")
    if artifact.expired:
        raise Refusal(410, "Artifact has expired")
    return Reply(302, headers={"Location": f"{request.storage}/artifacts/{artifact.id}?signature=abc"})


@route("POST", REPO + "/actions/workflows/{workflow_id}/dispatches", "actions")
def dispatch(request: Request) -> Reply:
    workflow, repo, body = request.params["workflow_id"], request.repo, dict(request.json)
    tip = repo.sha(str(body.get("ref", "")))
    if tip is None:
        raise Refusal(422, f"No ref found for: {body.get('ref')}")
    if "return_run_details" in body and not repo.run_details:
        raise Refusal(422, 'Invalid request.\n\n"return_run_details" is not a permitted key.')
    details = body.pop("return_run_details", False)
    name = workflow.removesuffix(".yml").replace("-", " ")
    run = repo.start_run(
        tip, event="workflow_dispatch", name=name, path=f".github/workflows/{workflow}", status="queued",
        title=f"assay {body['inputs']['id']}" if "id" in body.get("inputs", {}) else name, branch=str(body["ref"]),
    )  # fmt: skip
    repo.dispatches.append({"workflow": workflow, "run": run} | body)
    if not details:
        return Reply(204)
    payload = request.payloads.run(repo, repo.runs[run])
    return Reply(200, {"workflow_run_id": run, "run_url": payload["url"], "html_url": payload["html_url"]})


@route("POST", REPO + "/actions/runs/{run_id}/cancel", "actions")
def cancel(request: Request) -> Reply:
    run = request.repo.runs.get(request.number("run_id"))
    if run is None:
        raise Refusal(404, "Not Found")
    if run.status == "completed":
        raise Refusal(409, "Cannot cancel a workflow run that is completed.")
    run.status, run.conclusion = "completed", "cancelled"
    return Reply(202, {})


@route("POST", REPO + "/actions/runs/{run_id}/rerun", "actions")
def rerun(request: Request) -> Reply:
    run = request.repo.runs.get(request.number("run_id"))
    if run is None:
        raise Refusal(404, "Not Found")
    if run.status != "completed":
        raise Refusal(403, "The workflow run is already running")
    run.status, run.conclusion, run.attempt = "queued", None, run.attempt + 1
    return Reply(201, {})
