"""The bot's view of GitHub: every operation, every refusal, every way in which a connection breaks."""

from __future__ import annotations

import io
import stat
import zipfile
from pathlib import Path

import pytest
from tests.loopback import FORK_TOKEN, Loopback, Repository, Token, job_token
from tests.loopback.fixtures import REPOSITORY, WRITER, client, patience

from assay.baselines.errors import InputError, ServiceError
from assay.bot.github import Forbidden, GitHub, ReplyLost


@pytest.fixture
def repo(loopback: Loopback) -> Repository:
    """A repository with a branch that has pull request 1."""
    repo = loopback.repo(REPOSITORY)
    repo.commit({".github/assay.yml": "schema-version: 1\n", "a/b.txt": "1"})
    repo.commit({"a/b.txt": "2"}, branch="feature", parents=(repo.refs["refs/heads/main"],))
    repo.pull("feature")
    return repo


def test_who_asks_and_what_they_may(loopback: Loopback, repo: Repository) -> None:
    repo.permissions |= {"grace": "maintain", "joan": "triage"}
    bot = client(loopback)
    assert bot.viewer_login() == "github-actions[bot]"
    assert client(loopback, Token("ada", "user", WRITER.permissions)).viewer_login() == "ada"
    assert client(loopback, None).viewer_login("nobody") == "nobody"
    assert [bot.permission(login) for login in ("acme", "grace", "joan", "stranger")] == [
        "admin",
        "write",
        "read",
        "read",
    ]
    assert bot.private is False
    hidden = loopback.repo("acme/secret", private=True)
    hidden.commit({"a": "1"})
    assert client(loopback, repository="acme/secret").private is True
    assert client(loopback, repository="acme/secret").permission("stranger") == "none"


def test_a_pull_request_is_found_by_its_head(loopback: Loopback, repo: Repository) -> None:
    bot = client(loopback)
    base, head = repo.refs["refs/heads/main"], repo.refs["refs/heads/feature"]
    (pull,) = bot.pulls_for_head(head)
    assert (pull.number, pull.head_sha, pull.fork, pull.base_ref) == (1, head, False, "main")
    assert bot.pull(1) == pull
    assert bot.merge_base("main", head) == base
    newer = repo.commit({"a/b.txt": "3"}, branch="feature")
    repo.synchronize(1)
    assert bot.pulls_for_head(head) == []
    assert [found.number for found in bot.pulls_for_head(newer)] == [1]
    assert bot.pulls_for_head("f" * 40) == []


def test_a_forks_pull_request_is_found_among_many(loopback: Loopback, repo: Repository) -> None:
    fork = repo.fork("bob/widgets")
    heads = []
    for index in range(103):
        heads.append(fork.commit({"x": str(index)}, branch=f"b{index}", parents=(repo.refs["refs/heads/main"],)))
        repo.pull(f"b{index}", fork=fork, author="bob")
    bot = client(loopback)
    (pull,) = bot.pulls_for_head(heads[0])  # the oldest, on the second page of open pull requests
    assert (pull.number, pull.fork, pull.head_repository) == (2, True, "bob/widgets")
    assert bot.pulls_for_head(heads[0], head_owner="eve") == []
    repo.issues[2].state = "closed"
    assert bot.pulls_for_head(heads[0]) == []


def test_comments_over_many_pages(loopback: Loopback, repo: Repository) -> None:
    for index in range(205):
        repo.comment(1, f"comment {index}")
    bot = client(loopback)
    mine = bot.create_comment(1, "verdict")
    listed = bot.issue_comments(1)
    assert [comment.body for comment in listed] == [f"comment {index}" for index in range(205)] + ["verdict"]
    assert (mine.author, mine.id) == ("github-actions[bot]", listed[-1].id)
    assert bot.update_comment(mine.id, "another").updated > mine.updated
    bot.react(mine.id, "eyes")
    bot.react(mine.id, "eyes")
    assert [reaction["content"] for reaction in repo.comments[mine.id].reactions] == ["eyes"]
    bot.delete_comment(mine.id)
    bot.delete_comment(mine.id)
    assert mine.id not in repo.comments
    with pytest.raises(ServiceError, match="too long"):
        bot.create_comment(1, "x" * 65_537)


def test_checks_are_opened_and_closed(loopback: Loopback, repo: Repository) -> None:
    head = repo.refs["refs/heads/feature"]
    bot = client(loopback)
    first = bot.create_check("assay", head, external_id="one", details_url="https://example.invalid/run")
    second = bot.create_check("assay", head, external_id="two")
    bot.create_check("other", head)
    assert [check.id for check in bot.checks(head, "assay")] == [second, first]
    bot.update_check(first, conclusion="failure", title="Regressed", summary="2 points")
    closed = bot.checks(head, "assay")[1]
    assert (closed.status, closed.conclusion, closed.external_id) == ("completed", "failure", "one")
    assert (closed.title, closed.summary, closed.app) == ("Regressed", "2 points", "github-actions")
    with pytest.raises(ServiceError, match="65535"):
        bot.update_check(first, conclusion="failure", title="t", summary="x" * 65_536)


def test_runs_and_their_artifacts(loopback: Loopback, repo: Repository, tmp_path: Path) -> None:
    head = repo.refs["refs/heads/feature"]
    run = repo.start_run(head, branch="feature", title="assay 1234")
    repo.start_run(head, branch="feature", event="push")
    repo.start_run(repo.refs["refs/heads/main"])
    artifact = repo.upload(
        run, "assay-evidence", {"evaluation/evidence.json": b"{}", "evaluation/rows.parquet": b"x" * 999}
    )
    bot = client(loopback)
    (found,) = bot.workflow_runs(head, "pull_request")
    assert (found.id, found.attempt, found.status, found.title) == (run, 1, "in_progress", "assay 1234")
    repo.finish_run(run, "failure")
    assert (bot.run(run).status, bot.run(run).conclusion) == ("completed", "failure")
    assert len(bot.workflow_runs(head)) == 2
    (listed,) = bot.artifacts(run)
    assert (listed.id, listed.name, listed.expired) == (artifact, "assay-evidence", False)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "stale").write_text("from before")
    names = bot.download_artifact(artifact, tmp_path / "out")
    assert names == ["evaluation/evidence.json", "evaluation/rows.parquet"]
    assert (tmp_path / "out" / "evaluation" / "rows.parquet").read_bytes() == b"x" * 999
    assert not (tmp_path / "out" / "stale").exists()
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    repo.artifacts[artifact].expired = True
    with pytest.raises(ServiceError, match="expired"):
        bot.download_artifact(artifact, tmp_path / "again")


def archive(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in entries:
            file.writestr(name, data)
    return packed.getvalue()


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (archive(("../outside", b"x")), "outside its folder"),
        (archive(("/etc/passwd", b"x")), "outside its folder"),
        (archive(("a\\..\\b", b"x")), "outside its folder"),
        (archive(("C:/b", b"x")), "outside its folder"),
        (archive((link("evidence.json"), b"/etc/passwd")), "a link"),
        (archive(("a", b"\0" * 3_000_000)), "unpacks to over"),
        (archive(*((str(index), b"") for index in range(2_001))), "2,001 files"),
        (archive(("a", b"1"))[:-10], "not a readable zip"),
        (b"no archive", "not a readable zip"),
        (bytes(range(256)) * 5_000, "over 1,000,000 bytes"),
        (archive(("a", b"1"), ("a/b", b"2")), "not a readable zip"),
    ],
)
def test_a_hostile_archive_leaves_nothing(
    loopback: Loopback, repo: Repository, tmp_path: Path, data: bytes, why: str
) -> None:
    run = repo.start_run(repo.refs["refs/heads/feature"], branch="feature")
    artifact = repo.upload(run, "evidence", data)
    with pytest.raises(InputError, match=why):
        client(loopback).download_artifact(artifact, tmp_path / "inner" / "out", max_bytes=1_000_000)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice_in_an_archive_is_refused(loopback: Loopback, repo: Repository, tmp_path: Path) -> None:
    run = repo.start_run(repo.refs["refs/heads/feature"], branch="feature")
    artifact = repo.upload(run, "evidence", archive(("evidence.json", b"1"), ("evidence.json", b"2")))
    with pytest.raises(InputError, match="duplicate"):
        client(loopback).download_artifact(artifact, tmp_path / "out")


def test_files_at_a_commit(loopback: Loopback, repo: Repository) -> None:
    bot = client(loopback)
    assert bot.file_at(".github/assay.yml", "main") == b"schema-version: 1\n"
    assert bot.file_at("a/b.txt", repo.refs["refs/heads/feature"]) == b"2"
    assert bot.file_at("a/absent", "main") is None
    assert bot.file_at("a/b.txt", "no-such-branch") is None
    with pytest.raises(InputError, match="not a file"):
        bot.file_at("a", "main")


def test_the_fork_token_may_look_but_not_speak(loopback: Loopback, repo: Repository) -> None:
    bot = client(loopback, FORK_TOKEN)
    head = repo.refs["refs/heads/feature"]
    assert bot.pull(1).number == 1
    assert bot.issue_comments(1) == []
    for act in (lambda: bot.create_comment(1, "x"), lambda: bot.create_check("assay", head)):
        with pytest.raises(Forbidden, match="not accessible by integration"):
            act()
    assert repo.comments == {}
    assert repo.checks == {}


def test_what_does_not_exist_is_forbidden_in_one_line(loopback: Loopback, repo: Repository) -> None:
    bot = client(loopback)
    with pytest.raises(Forbidden) as refused:
        bot.pull(99)
    assert str(refused.value) == (
        "GitHub could not read pull request 99: 404 Not Found: the token may lack the permission, or it does not exist; "
        "check the workflow's `permissions:`."
    )
    assert refused.value.exit_code == 3
    with pytest.raises(InputError, match="owner/name"):
        GitHub(bot.connection, "widgets")


READS = {
    "pull": lambda bot, repo: bot.pull(1),
    "issue_comments": lambda bot, repo: bot.issue_comments(1),
    "pulls_for_head": lambda bot, repo: bot.pulls_for_head(repo.refs["refs/heads/feature"]),
    "checks": lambda bot, repo: bot.checks(repo.refs["refs/heads/feature"], "assay"),
    "workflow_runs": lambda bot, repo: bot.workflow_runs(repo.refs["refs/heads/feature"]),
    "file_at": lambda bot, repo: bot.file_at("a/b.txt", "main"),
    "merge_base": lambda bot, repo: bot.merge_base("main", "feature"),
    "permission": lambda bot, repo: bot.permission("acme"),
    "viewer_login": lambda bot, repo: bot.viewer_login(),
}


@pytest.mark.parametrize("kind", ["lost", "reset", "status", "truncated", "secondary", "primary"])
@pytest.mark.parametrize("name", READS)
def test_reads_are_repeated(loopback: Loopback, repo: Repository, name: str, kind: str) -> None:
    bot = client(loopback)
    expected = READS[name](bot, repo)
    loopback.faults.add(kind)  # type: ignore[arg-type]
    assert READS[name](bot, repo) == expected


@pytest.mark.parametrize("kind", ["lost", "status", "truncated"])
def test_a_comment_whose_reply_was_lost_is_not_written_twice(loopback: Loopback, repo: Repository, kind: str) -> None:
    loopback.faults.add(kind, method="POST", path="comments")  # type: ignore[arg-type]
    with pytest.raises(ReplyLost):
        client(loopback).create_comment(1, "verdict")
    assert len(loopback.requests("POST", "comments")) == 1
    assert len(repo.comments) == (0 if kind == "status" else 1)


@pytest.mark.parametrize("kind", ["primary", "secondary"])
def test_a_limited_comment_was_not_written_and_is_tried_again(loopback: Loopback, repo: Repository, kind: str) -> None:
    loopback.faults.add(kind, method="POST", path="comments", times=2)  # type: ignore[arg-type]
    client(loopback).create_comment(1, "verdict")
    assert [comment.body for comment in repo.comments.values()] == ["verdict"]


def test_a_check_whose_reply_was_lost_is_looked_up(loopback: Loopback, repo: Repository) -> None:
    loopback.faults.add("lost", method="POST", path="check-runs")
    number = client(loopback).create_check("assay", repo.refs["refs/heads/feature"], external_id="uuid-1")
    assert list(repo.checks) == [number]
    loopback.faults.add("lost", method="POST", path="check-runs")
    with pytest.raises(ReplyLost):
        client(loopback).create_check("assay", repo.refs["refs/heads/feature"])
    loopback.faults.add("reset", method="POST", path="check-runs")
    with pytest.raises(ReplyLost):
        client(loopback).create_check("assay", repo.refs["refs/heads/feature"], external_id="uuid-2")
    assert len(repo.checks) == 2


@pytest.mark.parametrize("kind", ["lost", "reset", "status", "truncated", "secondary"])
def test_updates_are_repeated(loopback: Loopback, repo: Repository, kind: str) -> None:
    bot = client(loopback)
    comment = bot.create_comment(1, "old").id
    check = bot.create_check("assay", repo.refs["refs/heads/feature"])
    loopback.faults.add(kind, method="PATCH", path="comments")  # type: ignore[arg-type]
    loopback.faults.add(kind, method="PATCH", path="check-runs")  # type: ignore[arg-type]
    loopback.faults.add(kind, method="DELETE")  # type: ignore[arg-type]
    assert bot.update_comment(comment, "new").body == "new"
    bot.update_check(check, conclusion="success", title="t", summary="s")
    assert repo.checks[check].conclusion == "success"
    if kind != "truncated":  # the reply to a deletion has no body
        bot.delete_comment(comment)
        assert repo.comments == {}
    loopback.faults.clear()


def test_a_server_that_hangs_is_given_up(loopback: Loopback, repo: Repository) -> None:
    loopback.faults.add("hang", times=2, seconds=20)
    bot = client(loopback, timeout=1, waiting=patience(attempts=1))
    with pytest.raises(ServiceError, match="run this again"):
        bot.pull(1)
    assert bot.pull(1).number == 1


def test_waiting_is_bounded_told_and_as_long_as_github_asks(loopback: Loopback, repo: Repository) -> None:
    slept: list[float] = []
    said: list[str] = []
    waiting = patience(seconds=100.0, sleep=slept.append, say=said.append)
    bot = client(loopback, waiting=waiting)
    loopback.faults.add("secondary", retry_after=17)
    bot.pull(1)
    assert slept == [17.0]
    assert said == ["assay: GitHub's rate limit; trying again in 17 s"]
    loopback.faults.add("primary", reset_in=30)
    bot.pull(1)
    assert 28 <= slept[1] <= 32
    loopback.faults.add("secondary")  # without Retry-After: a minute, which is more than is left
    with pytest.raises(ServiceError, match="rate limit is spent"):
        bot.pull(1)
    assert len(slept) == 2
    assert 0 < waiting.seconds < 60


@pytest.mark.parametrize("status", [403, 429])
def test_both_statuses_of_the_secondary_limit(loopback: Loopback, repo: Repository, status: int) -> None:
    loopback.faults.add("secondary", status=status, retry_after=1)
    assert client(loopback).pull(1).number == 1


def test_a_server_that_stays_down_is_given_up_after_the_attempts(loopback: Loopback, repo: Repository) -> None:
    loopback.faults.add("status", status=503, times=100)
    with pytest.raises(ServiceError, match="503"):
        client(loopback, waiting=patience(attempts=3)).pull(1)
    assert len(loopback.requests("GET", "/pulls/1")) == 4


def test_waiting_for_a_server_is_bounded_too(loopback: Loopback, repo: Repository) -> None:
    slept: list[float] = []
    waiting = patience(seconds=2.0, attempts=50, sleep=slept.append)
    loopback.faults.add("status", status=503, times=100)
    with pytest.raises(ServiceError, match="503"):
        client(loopback, waiting=waiting).pull(1)
    assert 0 < sum(slept) <= 2.0


def test_artifacts_are_downloaded_through_failures(loopback: Loopback, repo: Repository, tmp_path: Path) -> None:
    run = repo.start_run(repo.refs["refs/heads/feature"], branch="feature")
    artifact = repo.upload(run, "evidence", {"a": b"1" * 100})
    for kind in ("reset", "status", "lost"):
        loopback.faults.add(kind, path="zip")  # type: ignore[arg-type]
    for kind in ("truncated", "reset", "status"):
        loopback.faults.add(kind, path="_storage")  # type: ignore[arg-type]
    assert client(loopback, job_token(actions="read")).download_artifact(artifact, tmp_path / "out") == ["a"]
