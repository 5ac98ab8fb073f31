"""The loopback behaves as GitHub does, seen through unmodified PyGithub and plain HTTP."""

from __future__ import annotations

import json

import pytest
import requests
from github import Auth, Github, GithubException, UnknownObjectException
from tests.loopback import FORK_TOKEN, Loopback, Token, description, install, job_token
from tests.loopback.description import EXAMPLES


def pygithub(github: Loopback, token: Token | None, **options: object) -> Github:
    auth = Auth.Token(github.token(token)) if token else None
    settings = {"seconds_between_writes": None, "seconds_between_requests": None, "retry": None}
    return Github(auth=auth, base_url=github.url, **(settings | options))  # type: ignore[arg-type]


WRITER = job_token(contents="write", issues="write", checks="write", actions="read", pull_requests="write")


def test_a_draft_is_invisible_to_readers_and_has_no_tag(loopback: Loopback) -> None:
    repo = loopback.repo("acme/widgets")
    head = repo.commit({"a": "1"})
    mine = pygithub(loopback, WRITER).get_repo("acme/widgets")
    draft = mine.create_git_release("v1", "v1", "", draft=True, target_commitish=head)
    reader = pygithub(loopback, job_token(contents="read")).get_repo("acme/widgets")
    assert [release.id for release in mine.get_releases()] == [draft.id]
    assert list(reader.get_releases()) == []
    with pytest.raises(UnknownObjectException):
        mine.get_release("v1")
    with pytest.raises(UnknownObjectException):
        mine.get_git_ref("tags/v1")
    draft.update_release("v1", "", draft=False, prerelease=True, make_latest="false")
    assert reader.get_release("v1").id == draft.id
    assert reader.get_git_ref("tags/v1").object.sha == head
    with pytest.raises(UnknownObjectException):
        reader.get_latest_release()


def test_an_immutable_release_refuses_every_change_and_keeps_its_tag_for_ever(loopback: Loopback) -> None:
    repo = loopback.repo("acme/widgets")
    repo.commit({"a": "1"})
    repo.immutable_releases = True
    mine = pygithub(loopback, WRITER).get_repo("acme/widgets")
    draft = mine.create_git_release("v1", "v1", "", draft=True)
    asset = draft.upload_asset_from_memory(b"one", 3, "one.bin")
    draft.update_release("v1", "", draft=False)
    for change in (lambda: draft.upload_asset_from_memory(b"two", 3, "two.bin"), asset.delete_asset,
                   lambda: asset.update_asset("other.bin"), mine.get_git_ref("tags/v1").delete):  # fmt: skip
        with pytest.raises(GithubException) as refused:
            change()
        assert refused.value.status == 422
    mine.get_release("v1").delete_release()
    with pytest.raises(GithubException) as refused:
        mine.create_git_release("v1", "again", "")
    assert refused.value.status == 422
    assert "immutable" in str(refused.value.data)


def test_an_asset_name_is_taken_once(loopback: Loopback) -> None:
    loopback.repo("acme/widgets").commit({"a": "1"})
    draft = pygithub(loopback, WRITER).get_repo("acme/widgets").create_git_release("v1", "v1", "", draft=True)
    first = draft.upload_asset_from_memory(b"one", 3, "one.bin")
    assert first.raw_data["digest"] == "sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    with pytest.raises(GithubException) as refused:
        draft.upload_asset_from_memory(b"two", 3, "one.bin")
    assert refused.value.data["errors"][0]["code"] == "already_exists"


def test_lists_are_paginated_by_link_header(loopback: Loopback) -> None:
    repo = loopback.repo("acme/widgets")
    repo.commit({"a": "1"})
    repo.commit({"a": "2"}, branch="feature")
    number = repo.pull("feature")
    for index in range(7):
        repo.comment(number, f"comment {index}")
    listed = pygithub(loopback, WRITER, per_page=3).get_repo("acme/widgets").get_issue(number).get_comments()
    assert [comment.body for comment in listed] == [f"comment {index}" for index in range(7)]
    assert len(loopback.requests("GET", "/comments$")) == 3
    assert (
        'rel="next"'
        in requests.get(f"{loopback.url}/repos/acme/widgets/issues/1/comments?per_page=3", timeout=5).headers["Link"]
    )


@pytest.mark.parametrize(
    ("token", "method", "path", "status"),
    [
        (None, "POST", "/repos/acme/widgets/issues/1/comments", 401),
        (FORK_TOKEN, "POST", "/repos/acme/widgets/issues/1/comments", 403),
        (FORK_TOKEN, "POST", "/repos/acme/widgets/check-runs", 403),
        (FORK_TOKEN, "POST", "/repos/acme/widgets/releases", 403),
        (FORK_TOKEN, "GET", "/repos/acme/widgets/issues/1/comments", 200),
        (job_token(issues="write"), "POST", "/repos/acme/widgets/git/blobs", 403),
        (job_token(contents="read"), "GET", "/repos/acme/secret/contents/a", 200),
        (job_token(issues="read"), "GET", "/repos/acme/secret/contents/a", 403),
        (None, "GET", "/repos/acme/secret/contents/a", 404),
        (job_token(), "GET", "/user", 403),
        (Token("ada", "user"), "GET", "/user", 200),
        (None, "GET", "/user", 401),
        (None, "GET", "/repos/acme/absent", 404),
    ],
)
def test_tokens_may_do_what_their_permissions_say(
    loopback: Loopback, token: Token | None, method: str, path: str, status: int
) -> None:
    repo = loopback.repo("acme/widgets")
    repo.commit({"a": "1"})
    repo.commit({"a": "2"}, branch="feature")
    repo.pull("feature")
    loopback.repo("acme/secret", private=True).commit({"a": "1"})
    headers = {"Authorization": f"Bearer {loopback.token(token)}"} if token else {}
    reply = requests.request(
        method, loopback.url + path, headers=headers, json={"body": "x"} if method == "POST" else None, timeout=5
    )
    assert reply.status_code == status, reply.text


def test_an_unknown_token_is_refused(loopback: Loopback) -> None:
    loopback.repo("acme/widgets").commit({"a": "1"})
    reply = requests.get(f"{loopback.url}/repos/acme/widgets", headers={"Authorization": "token nonsense"}, timeout=5)
    assert (reply.status_code, reply.json()["message"]) == (401, "Bad credentials")


@pytest.mark.parametrize(("length", "status"), [(65_536, 201), (65_537, 422)])
def test_comments_have_githubs_limit(loopback: Loopback, length: int, status: int) -> None:
    repo = loopback.repo("acme/widgets")
    repo.commit({"a": "1"})
    repo.commit({"a": "2"}, branch="feature")
    repo.pull("feature")
    reply = requests.post(
        f"{loopback.url}/repos/acme/widgets/issues/1/comments", json={"body": "é" * length},
        headers={"Authorization": f"token {loopback.token(WRITER)}"}, timeout=5,
    )  # fmt: skip
    assert reply.status_code == status


def test_git_objects_have_the_names_that_git_gives(loopback: Loopback) -> None:
    repo = loopback.repo("acme/widgets")
    assert repo.objects.put("blob", b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"
    assert repo.objects.put_tree({}) == "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def test_the_forks_head_is_known_but_not_listed_with_the_commit(loopback: Loopback) -> None:
    repo = loopback.repo("acme/widgets")
    base = repo.commit({"a": "1"})
    fork = repo.fork("bob/widgets")
    head = fork.commit({"a": "2"}, branch="patch", parents=(base,))
    number = repo.pull("patch", fork=fork, author="bob")
    mine = pygithub(loopback, WRITER).get_repo("acme/widgets")
    assert list(mine.get_commit(head).get_pulls()) == []
    assert mine.get_pull(number).head.repo.full_name == "bob/widgets"
    assert mine.compare("main", head).merge_base_commit.sha == base


def test_a_dead_client_gets_nothing_more(loopback: Loopback) -> None:
    loopback.repo("acme/widgets").commit({"a": "1"})
    url = f"{loopback.url}/repos/acme/widgets"
    loopback.faults.die_after(2)
    assert requests.get(url, timeout=5).status_code == 200
    for _ in range(2):
        with pytest.raises(requests.ConnectionError):
            requests.get(url, timeout=5)
    assert loopback.faults.dead
    loopback.faults.clear()
    assert requests.get(url, timeout=5).status_code == 200


def test_the_description_finds_what_is_unlike_github() -> None:
    reason = install()
    if reason is not None:
        pytest.skip(reason)
    found = description()
    assert found is not None
    path = "/repos/{owner}/{repo}/releases/{release_id}/assets"
    assert found.faults("GET", path, 200, []) == []
    assert "required property" in found.faults("GET", path, 200, [{"id": 1}])[0]
    assert "declares" in found.faults("GET", path, 418, {})[0]
    assert "not an operation" in found.faults("GET", "/repos/{owner}/{repo}/nothing", 200, {})[0]
    assert found.faults("DELETE", "/repos/{owner}/{repo}/releases/{release_id}", 204, {"a": 1}) != []


def test_a_reply_unlike_githubs_fails_the_test(github_description: str | None) -> None:
    if github_description is not None:
        pytest.skip(github_description)
    github = Loopback().__enter__()
    repo = github.repo("acme/widgets")
    repo.commit({"a": "1"})
    repo.name = None  # type: ignore[assignment]
    requests.get(f"{github.url}/repos/acme/widgets", timeout=5)
    with pytest.raises(AssertionError, match="unlike GitHub"):
        github.__exit__(None)


def test_githubs_own_examples_are_at_hand(github_description: str | None) -> None:
    if github_description is not None:
        pytest.skip(github_description)
    names = {event["name"] for event in json.loads(EXAMPLES.read_bytes())}
    assert {"pull_request", "workflow_run", "issue_comment", "push"} <= names
