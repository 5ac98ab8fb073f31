"""The folder ledger shows whole publications or none."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.loopback.fixtures import measured

from assay.baselines.errors import InputError, ServiceError
from assay.baselines.ledger import Publication, parse_tag
from assay.baselines.ledger.directory import DirectoryLedger, branches
from assay.baselines.ledger.history import baseline
from assay.baselines.record import Record

COMMIT = "ab12cd34ef56" + "0" * 28


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return measured(tmp_path / "record", COMMIT)


@pytest.fixture
def ledger(tmp_path: Path) -> DirectoryLedger:
    return DirectoryLedger(tmp_path / "ledger")


def files(ledger: DirectoryLedger) -> list[str]:
    return sorted(path.relative_to(ledger.root).as_posix() for path in ledger.root.rglob("*") if path.is_file())


def test_what_is_published_is_found_and_read_back(ledger: DirectoryLedger, record: Record) -> None:
    made = ledger.publish(record, "feat/int4", extras={"badge.svg": b"<svg/>"})
    assert made.tag == f"baseline/feat/int4/ab12cd34ef56/evaluation/{record.digest[:12]}"
    assert ledger.publications("feat/int4") == [made]
    assert ledger.publications("feat/int4", "evaluation") == [made]
    assert ledger.publications("feat/int4", "kernel") == []
    assert ledger.publications("feat") == []
    read = ledger.fetch(made)
    assert (read.evidence, read.rows, read.digest) == (record.evidence, record.rows, record.digest)
    assert (ledger.root / made.tag / "badge.svg").read_bytes() == b"<svg/>"
    assert branches(ledger.root) == ["feat/int4"]


def test_publishing_again_changes_nothing(ledger: DirectoryLedger, record: Record, tmp_path: Path) -> None:
    first = ledger.publish(record, "main")
    before = files(ledger)
    assert ledger.publish(record, "main", folder=tmp_path / "record") == first
    assert files(ledger) == before


def test_rows_are_optional(ledger: DirectoryLedger, tmp_path: Path) -> None:
    record = measured(tmp_path / "r", COMMIT, rows=0)
    assert ledger.fetch(ledger.publish(record, "main")).rows is None


def test_the_bytes_of_a_folder_are_published_as_they_are(
    ledger: DirectoryLedger, record: Record, tmp_path: Path
) -> None:
    made = ledger.publish(record, "main", folder=tmp_path / "record")
    for name in ("evidence.json", "rows.parquet"):
        assert (ledger.root / made.tag / name).read_bytes() == (tmp_path / "record" / name).read_bytes()
    other = measured(tmp_path / "other", COMMIT, value=0.9)
    with pytest.raises(InputError, match="expected"):
        ledger.publish(other, "main", folder=tmp_path / "record")


def test_half_written_and_foreign_folders_are_passed_over(ledger: DirectoryLedger, record: Record) -> None:
    made = ledger.publish(record, "main")
    (ledger.root / "baseline/main/ab12cd34ef56/evaluation/0123456789ab").mkdir()
    (ledger.root / "baseline/main/notes/evaluation/0123456789ab").mkdir(parents=True)
    (ledger.root / "baseline/main/notes/evaluation/0123456789ab/evidence.json").write_text("{}")
    (ledger.root / ".staging-x").mkdir()
    (ledger.root / "baseline/main/README").write_text("hello")
    assert ledger.publications("main") == [made]


@pytest.mark.parametrize("name", ["evidence.json", "rows.parquet"])
def test_damage_is_refused_when_read_and_mended_when_published(
    ledger: DirectoryLedger, record: Record, name: str
) -> None:
    made = ledger.publish(record, "main")
    path = ledger.root / made.tag / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError):
        ledger.fetch(made)
    assert ledger.fetch(ledger.publish(record, "main")).rows == record.rows
    assert list(ledger.root.glob(".staging-*")) == []


def test_a_tag_that_it_does_not_hold_is_named_with_where_to_look(ledger: DirectoryLedger, record: Record) -> None:
    held = ledger.publish(record, "main")
    other = parse_tag(held.tag[:-12] + "0" * 12)
    assert other is not None
    with pytest.raises(InputError, match=rf"holds no {other.tag}: `assay baseline list"):
        ledger.fetch(other)


def test_evidence_under_another_tag_is_refused(ledger: DirectoryLedger, record: Record) -> None:
    made = ledger.publish(record, "main")
    forged = Publication("main", "f" * 12, "evaluation", made.digest12)
    (ledger.root / forged.tag).parent.mkdir(parents=True)
    (ledger.root / made.tag).rename(ledger.root / forged.tag)
    with pytest.raises(InputError, match="made by hand"):
        ledger.fetch(forged)


def test_removal_is_whole_and_repeatable(ledger: DirectoryLedger, record: Record) -> None:
    made = ledger.publish(record, "main")
    ledger.remove(made)
    ledger.remove(made)
    assert ledger.publications("main") == []
    assert not ledger.complete(made)
    assert files(ledger) == []


def test_publishers_race_to_one_publication(ledger: DirectoryLedger, record: Record, tmp_path: Path) -> None:
    made: list[Publication] = []
    gate = threading.Barrier(4)

    def publish() -> None:
        gate.wait()
        made.append(DirectoryLedger(ledger.root).publish(record, "main", folder=tmp_path / "record"))

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({publication.tag for publication in made}) == 1
    assert len(made) == 4
    assert files(ledger) == [f"{made[0].tag}/evidence.json", f"{made[0].tag}/rows.parquet"]


def test_a_publication_appears_with_all_of_its_files(ledger: DirectoryLedger, record: Record, tmp_path: Path) -> None:
    place = ledger.root / f"baseline/main/ab12cd34ef56/evaluation/{record.digest[:12]}"
    first_sight: list[str] = []

    def watch() -> None:
        until = time.monotonic() + 20
        while not first_sight and time.monotonic() < until:
            with contextlib.suppress(FileNotFoundError):
                first_sight.extend(sorted(path.name for path in place.iterdir()) or ["nothing"])

    watcher = threading.Thread(target=watch)
    watcher.start()
    ledger.publish(record, "main", folder=tmp_path / "record", extras={"large.bin": bytes(40_000_000)})
    watcher.join()
    assert first_sight == ["evidence.json", "large.bin", "rows.parquet"]


PUBLISHER = """
import sys
from pathlib import Path
from assay.baselines.ledger.directory import DirectoryLedger
from tests.loopback.fixtures import measured
root, scratch = Path(sys.argv[1]), Path(sys.argv[2])
for index in range(100000):
    record = measured(scratch / "r", "ab12cd34ef56" + "0" * 28, value=index / 1e6 + float(sys.argv[3]), rows=200_000)
    DirectoryLedger(root).publish(record, "main", folder=scratch / "r")
    print(index, flush=True)
"""


def test_a_publisher_killed_at_any_moment_leaves_only_whole_publications(
    ledger: DirectoryLedger, tmp_path: Path
) -> None:
    root = Path(__file__).resolve().parents[3]
    environment = os.environ | {"PYTHONPATH": f"{root}:{root / 'src'}"}
    for round_ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", PUBLISHER, str(ledger.root), str(tmp_path / f"scratch{round_}"), str(round_)],
            stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        seen: set[str] = set()
        until = time.monotonic() + 0.2 + 0.037 * round_
        while time.monotonic() < until:  # a reader at the same time finds only what it can read
            for publication in ledger.publications("main"):
                if publication.tag not in seen:
                    assert ledger.fetch(publication).rows is not None
                    seen.add(publication.tag)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    found = ledger.publications("main")
    assert len(found) >= 4
    for publication in found:
        assert ledger.fetch(publication).digest.startswith(publication.digest12)


def test_what_a_crash_left_is_swept_after_a_day(ledger: DirectoryLedger, record: Record) -> None:
    for name, age in ((".staging-old", 25 * 3600), (".staging-new", 3600)):
        (ledger.root / name).mkdir(parents=True)
        os.utime(ledger.root / name, (time.time() - age,) * 2)
    ledger.publish(record, "main")
    assert [path.name for path in ledger.root.glob(".staging-*")] == [".staging-new"]


def test_a_place_that_cannot_be_written_is_named(record: Record, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ServiceError, match="cannot write"):
        DirectoryLedger(tmp_path / "file").publish(record, "main")


@pytest.mark.parametrize(
    "branch",
    ["", "a b", "../up", "a..b", "/a", "a/", "a//b", ".a", "a/.b", "a.lock", "a^", "a~1", "a:b", "a?", "a*", "a[", "a\\b", "@{x", "x" * 181],
)  # fmt: skip
def test_a_branch_that_no_tag_can_hold_is_refused(ledger: DirectoryLedger, record: Record, branch: str) -> None:
    with pytest.raises(InputError, match="no branch name"):
        ledger.publish(record, branch)


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "evidence.json", "rows.parquet", ""])
def test_an_extra_with_a_bad_name_is_refused(ledger: DirectoryLedger, record: Record, name: str) -> None:
    with pytest.raises(InputError, match="no name for an extra"):
        ledger.publish(record, "main", extras={name: b"x"})


def test_a_record_without_a_commit_is_refused(ledger: DirectoryLedger, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="names no commit"):
        ledger.publish(measured(tmp_path / "r", None), "main")


BRANCH = st.lists(st.text("abcXYZ019-_+é", min_size=1, max_size=8), min_size=1, max_size=4).map("/".join)


@given(
    branch=BRANCH.filter(lambda name: not name.startswith("-")),
    sha=st.text("0123456789abcdef", min_size=12, max_size=12),
)
@settings(max_examples=60, deadline=None)
def test_a_tag_says_what_its_publication_is(branch: str, sha: str) -> None:
    publication = Publication(branch, sha, "kernel", sha[::-1])
    assert parse_tag(publication.tag) == publication
    assert parse_tag(f"refs/tags/{publication.tag}") == publication


@given(published=st.sets(st.integers(0, 30), max_size=8), start=st.integers(0, 30))
@settings(max_examples=60, deadline=None)
def test_the_baseline_is_the_first_published_commit_of_the_ancestry(published: set[int], start: int) -> None:
    commits = [f"{index:040x}"[::-1] for index in range(31)]

    class Shelf:
        def publications(self, branch: str, kind: str | None = None) -> list[Publication]:
            return [Publication(branch, commits[index][:12], kind or "", "0" * 12) for index in published]

        def complete(self, publication: Publication) -> bool:
            return publication.sha12 != commits[7][:12]  # pruned

    chosen = baseline(Shelf(), "main", "evaluation", iter(commits[start::-1]))
    older = [index for index in published if index <= start and index != 7]
    assert (chosen.commit if chosen else None) == (commits[max(older)] if older else None)
