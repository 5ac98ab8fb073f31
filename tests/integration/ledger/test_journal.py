"""The journal branch loses nothing, whoever writes at once and wherever the connection breaks."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.loopback import FORK_TOKEN, Loopback, Repository
from tests.loopback.fixtures import REPOSITORY, client

from assay.baselines.errors import InputError, ServiceError
from assay.baselines.ledger.service import Forbidden

BRANCH = "assay-journal"
REQUESTS = {"first": 5, "later": 7}
"""Requests of an undisturbed entry: tip, (file, commit,) blob, tree, commit, ref."""


def entries(repo: Repository) -> dict[str, bytes]:
    sha = repo.sha(BRANCH)
    assert sha is not None
    files = repo.objects.files(repo.objects.commit(sha).tree)
    return {path: repo.objects.blob(blob) for path, blob in files.items()}


@pytest.fixture
def repo(loopback: Loopback) -> Repository:
    repo = loopback.repo(REPOSITORY)
    repo.commit({"code.py": "1"})
    return repo


def test_the_branch_is_an_orphan_that_grows_by_fast_forward(loopback: Loopback, repo: Repository) -> None:
    writer = client(loopback)
    assert writer.journal_get("plots/a.svg") is None
    url = writer.journal_put("plots/a.svg", b"<svg/>", "Plot of 1234567")
    writer.journal_put("accepted/b.json", b"{}", "Accept a regression")
    assert url == f"{loopback.web}/acme/widgets/raw/assay-journal/plots/a.svg"
    assert entries(repo) == {"plots/a.svg": b"<svg/>", "accepted/b.json": b"{}"}
    commits = list(repo.objects.history(repo.refs[f"refs/heads/{BRANCH}"]))
    assert [commit.message for commit in commits] == ["Accept a regression", "Plot of 1234567"]
    assert commits[-1].parents == ()
    assert writer.journal_get("plots/a.svg") == b"<svg/>"


def test_entries_never_change_but_the_badge_may(loopback: Loopback, repo: Repository) -> None:
    writer = client(loopback)
    writer.journal_put("a", b"1", "m")
    before = repo.refs[f"refs/heads/{BRANCH}"]
    writer.journal_put("a", b"1", "m")
    assert repo.refs[f"refs/heads/{BRANCH}"] == before
    with pytest.raises(InputError, match="never changed"):
        writer.journal_put("a", b"2", "m")
    writer.journal_replace("badge.svg", b"old", "m")
    writer.journal_replace("badge.svg", b"new", "m")
    assert entries(repo) == {"a": b"1", "badge.svg": b"new"}


def test_binary_and_large_entries_come_back_whole(loopback: Loopback, repo: Repository) -> None:
    data = bytes(range(256)) * 6_000  # over the 1 MiB up to which the contents endpoint gives content
    client(loopback).journal_put("plots/ä b.png", data, "m")
    assert client(loopback).journal_get("plots/ä b.png") == data


@pytest.mark.parametrize("start", ["first", "later"])
def test_the_number_of_requests_is_what_the_kill_tests_cover(loopback: Loopback, repo: Repository, start: str) -> None:
    if start == "later":
        client(loopback).journal_put("earlier", b"0", "m")
    loopback.log.clear()
    client(loopback).journal_put("entry", b"1", "m")
    assert len(loopback.log) == REQUESTS[start]


@pytest.mark.parametrize(
    ("start", "index"), [(start, index) for start, count in REQUESTS.items() for index in range(1, count + 1)]
)
def test_a_writer_that_dies_after_any_request_leaves_a_state_that_the_next_completes(
    loopback: Loopback, repo: Repository, start: str, index: int
) -> None:
    if start == "later":
        client(loopback).journal_put("earlier", b"0", "m")
    loopback.faults.die_after(index)
    with pytest.raises(ServiceError):
        client(loopback).journal_put("entry", b"1", "m")
    assert loopback.faults.dead
    loopback.faults.clear()
    client(loopback).journal_put("entry", b"1", "m")
    assert entries(repo) == {"entry": b"1"} | ({"earlier": b"0"} if start == "later" else {})
    assert len(list(repo.objects.history(repo.refs[f"refs/heads/{BRANCH}"]))) == len(entries(repo))


@pytest.mark.parametrize("kind", ["lost", "reset", "status", "truncated", "secondary", "primary"])
@pytest.mark.parametrize(
    ("start", "index"), [(start, index) for start, count in REQUESTS.items() for index in range(count)]
)
def test_one_failure_anywhere_is_overcome_in_the_same_run(
    loopback: Loopback, repo: Repository, start: str, index: int, kind: str
) -> None:
    if start == "later":
        client(loopback).journal_put("earlier", b"0", "m")
    loopback.faults.add(kind, skip=index)  # type: ignore[arg-type]
    client(loopback).journal_put("entry", b"1", "m")
    assert entries(repo) == {"entry": b"1"} | ({"earlier": b"0"} if start == "later" else {})


@pytest.mark.parametrize("exists", [False, True])
def test_concurrent_writers_each_keep_their_entry(loopback: Loopback, repo: Repository, exists: bool) -> None:
    if exists:
        client(loopback).journal_put("earlier", b"0", "m")
    failed: list[BaseException] = []
    gate = threading.Barrier(4)

    def write(index: int) -> None:
        writer = client(loopback)
        gate.wait()
        try:
            writer.journal_put(f"entries/{index}", str(index).encode(), f"Entry {index}")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    wanted = {f"entries/{index}": str(index).encode() for index in range(4)}
    assert entries(repo) == wanted | ({"earlier": b"0"} if exists else {})


def test_a_token_that_may_not_write_is_told_so(loopback: Loopback, repo: Repository, tmp_path: Path) -> None:
    with pytest.raises(Forbidden, match="not accessible"):
        client(loopback, FORK_TOKEN).journal_put("a", b"1", "m")
    assert repo.sha(BRANCH) is None
