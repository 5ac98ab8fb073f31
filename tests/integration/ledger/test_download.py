"""Downloads resume, verify and keep the token to the API."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.loopback import Loopback, job_token
from tests.loopback.fixtures import REPOSITORY, ledger, measured

from assay.baselines.errors import InputError, ServiceError
from assay.baselines.ledger import Publication
from assay.baselines.record import Record


@pytest.fixture
def published(loopback: Loopback, tmp_path: Path) -> tuple[Publication, Record]:
    repo = loopback.repo(REPOSITORY, private=True)
    record = measured(tmp_path / "r", repo.commit({"a": "1"}), rows=60_000)
    made = ledger(loopback, tmp_path / "publisher").publish(record, "main", folder=tmp_path / "r")
    loopback.log.clear()
    return made, record


READER = job_token(contents="read")


def test_a_broken_download_continues_where_it_stopped(
    loopback: Loopback, published: tuple[Publication, Record], tmp_path: Path
) -> None:
    publication, record = published
    loopback.faults.add("truncated", path="_storage/assets", skip=1)
    assert ledger(loopback, tmp_path / "cache", READER).fetch(publication).rows == record.rows
    # evidence, the first half of the table, and the rest of it by range
    assert [entry.status for entry in loopback.requests("GET", "_storage")] == [200, 200, 206]


def test_the_next_process_continues_what_the_last_one_left(
    loopback: Loopback, published: tuple[Publication, Record], tmp_path: Path
) -> None:
    publication, record = published
    loopback.faults.add("truncated", path="_storage/assets", skip=1)
    loopback.faults.add("reset", path="releases/assets", skip=2, times=1_000)
    with pytest.raises(ServiceError, match="run this again"):
        ledger(loopback, tmp_path / "cache", READER).fetch(publication)
    assert not (tmp_path / "cache" / "records" / publication.digest12).exists()
    loopback.faults.clear()
    assert ledger(loopback, tmp_path / "cache", READER).fetch(publication).digest == record.digest
    assert [entry.status for entry in loopback.requests("GET", "_storage")][-1] == 206
    assert list((tmp_path / "cache" / "partial").iterdir()) == []


def test_a_partial_file_that_is_garbage_is_begun_again(
    loopback: Loopback, published: tuple[Publication, Record], tmp_path: Path
) -> None:
    publication, record = published
    loopback.faults.add("truncated", path="_storage/assets", skip=1)
    loopback.faults.add("reset", path="releases/assets", skip=2, times=1_000)
    with pytest.raises(ServiceError):
        ledger(loopback, tmp_path / "cache", READER).fetch(publication)
    loopback.faults.clear()
    (partial,) = (path for path in (tmp_path / "cache" / "partial").iterdir() if path.stat().st_size)
    partial.write_bytes(b"x" * partial.stat().st_size)
    assert ledger(loopback, tmp_path / "cache", READER).fetch(publication).rows == record.rows


def test_a_second_fetch_asks_nobody(loopback: Loopback, published: tuple[Publication, Record], tmp_path: Path) -> None:
    publication, record = published
    here = ledger(loopback, tmp_path / "cache", READER)
    here.fetch(publication)
    loopback.log.clear()
    assert here.fetch(publication).digest == record.digest
    assert loopback.log == []


def test_a_damaged_cache_is_fetched_again(
    loopback: Loopback, published: tuple[Publication, Record], tmp_path: Path
) -> None:
    publication, record = published
    here = ledger(loopback, tmp_path / "cache", READER)
    here.fetch(publication)
    rows = tmp_path / "cache" / "records" / publication.digest12 / "rows.parquet"
    rows.write_bytes(rows.read_bytes()[:-5] + b"wrong")
    assert here.fetch(publication).rows == record.rows


@pytest.mark.parametrize("kind", ["reset", "status", "lost", "truncated", "secondary", "primary"])
@pytest.mark.parametrize("index", range(5))
def test_one_failure_anywhere_is_overcome(
    loopback: Loopback, published: tuple[Publication, Record], tmp_path: Path, kind: str, index: int
) -> None:
    publication, record = published
    loopback.faults.add(kind, skip=index, retry_after=0 if kind == "secondary" else None)  # type: ignore[arg-type]
    assert ledger(loopback, tmp_path / "cache", READER).fetch(publication).digest == record.digest


def test_the_storage_is_never_sent_the_token(
    loopback: Loopback, published: tuple[Publication, Record], tmp_path: Path
) -> None:
    publication, _ = published
    ledger(loopback, tmp_path / "cache", READER).fetch(publication)
    storage = loopback.requests("GET", "_storage")
    assert storage
    assert all(entry.login is None for entry in storage)
    assert all(entry.login for entry in loopback.requests("GET", "releases/assets"))


def test_readers_of_one_cache_share_it(
    loopback: Loopback, published: tuple[Publication, Record], tmp_path: Path
) -> None:
    publication, record = published
    digests: list[str] = []
    threads = [
        threading.Thread(
            target=lambda: digests.append(ledger(loopback, tmp_path / "cache", READER).fetch(publication).digest)
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert digests == [record.digest] * 3


def test_an_oversized_asset_is_refused_before_it_is_downloaded(
    loopback: Loopback, published: tuple[Publication, Record], tmp_path: Path
) -> None:
    publication, _ = published
    (release,) = loopback.repo(REPOSITORY).published()
    asset = next(asset for asset in release.assets.values() if asset.name == "evidence.json")
    asset.data = b"{" + b" " * (5 << 20)
    with pytest.raises(InputError, match="at most"):
        ledger(loopback, tmp_path / "cache", READER).fetch(publication)
    assert loopback.requests("GET", "_storage") == []


def test_a_hand_made_tag_does_not_pass(
    loopback: Loopback, published: tuple[Publication, Record], tmp_path: Path
) -> None:
    publication, _ = published
    repo = loopback.repo(REPOSITORY)
    (release,) = repo.published()
    release.tag = f"baseline/main/{'b' * 12}/evaluation/{publication.digest12}"
    forged = Publication("main", "b" * 12, "evaluation", publication.digest12)
    with pytest.raises(InputError, match="made by hand"):
        ledger(loopback, tmp_path / "cache", READER).fetch(forged)
