"""Files read many at a time are the files, byte for byte, whatever is in them and whoever asks."""

from __future__ import annotations

import pytest
from tests.loopback import Loopback, job_token
from tests.loopback.fixtures import REPOSITORY, client

from assay.baselines.errors import InputError, ServiceError

FILES: dict[str, bytes] = {
    "plain.yml": b"gate: {}\n",
    "empty": b"",
    "folder/windows.txt": b"a\r\nb\r\n",
    "unicode ä.json": '{"reason": "größer"}'.encode(),
    "latin1.txt": b"gr\xf6\xdfer",
    "picture.png": b"\x89PNG\x00\x00",
    "long.txt": b"0123456789" * 60_000,
}


@pytest.fixture
def loopback_with_files(loopback: Loopback) -> Loopback:
    loopback.repo(REPOSITORY).commit(dict(FILES))
    return loopback


def test_every_kind_of_content_comes_as_it_is(loopback_with_files: Loopback) -> None:
    bot = client(loopback_with_files)
    read = bot.reader([*((path, "main") for path in FILES), ("absent", "main"), ("plain.yml", "no-such-branch")])
    assert {path: read(path, "main") for path in FILES} == FILES
    assert read("absent", "main") is None
    assert read("plain.yml", "no-such-branch") is None
    singly = {e.path.rpartition("/contents/")[2] for e in loopback_with_files.requests("GET", "/contents/")}
    assert singly == {"latin1.txt", "picture.png", "long.txt"}  # what GraphQL cannot give whole
    assert len(loopback_with_files.requests("POST", "/api/graphql")) == 1


def test_a_hundred_and_one_files_are_two_requests(loopback: Loopback) -> None:
    wanted = {f"entries/{i}.json": f"{i}" for i in range(101)}
    loopback.repo(REPOSITORY).commit(wanted, branch="assay-journal")
    read = client(loopback).journal_reader(wanted)
    assert {path: read(path) for path in wanted} == {path: text.encode() for path, text in wanted.items()}
    assert len(loopback.log) == 2


@pytest.mark.parametrize("who", ["nobody", "refused", "down", "one"])
def test_where_it_cannot_be_asked_the_files_are_read_singly(loopback_with_files: Loopback, who: str) -> None:
    if who == "down":
        loopback_with_files.faults.add("status", status=404, method="POST", path="/graphql")
    token = {"nobody": None, "refused": job_token()}.get(who, job_token(contents="read"))
    wanted = [("plain.yml", "main")] if who == "one" else [("plain.yml", "main"), ("empty", "main")]
    read = client(loopback_with_files, token).reader(wanted)
    assert read("plain.yml", "main") == FILES["plain.yml"]
    if who == "nobody":
        assert not loopback_with_files.requests("POST", "graphql")


def test_a_folder_and_a_private_repository_are_refused_as_ever(loopback: Loopback) -> None:
    loopback.repo(REPOSITORY, private=True).commit(dict(FILES))
    read = client(loopback).reader([("folder", "main"), ("plain.yml", "main")])
    with pytest.raises(InputError, match="is not a file"):
        read("folder", "main")
    stranger = client(loopback, job_token(issues="read")).reader([("plain.yml", "main"), ("empty", "main")])
    with pytest.raises(ServiceError, match="not accessible"):
        stranger("plain.yml", "main")
