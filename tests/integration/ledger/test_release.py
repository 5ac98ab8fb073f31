"""The release ledger keeps its promises when anything breaks anywhere."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.loopback import FORK_TOKEN, Loopback, Repository
from tests.loopback.fixtures import REPOSITORY, client, ledger, measured
from tests.loopback.state import Release

from assay.baselines.errors import InputError, ServiceError
from assay.baselines.ledger import Publication
from assay.baselines.ledger.history import baseline, history, merge_base
from assay.baselines.ledger.service import Forbidden
from assay.baselines.record import Record

BADGE = {"badge.svg": b"<svg/>"}


def complete(repo: Repository, record: Record) -> None:
    """Exactly one release, whole, and nothing half-done beside it."""
    assert repo.drafts() == []
    (release,) = repo.published()
    assert release.prerelease
    assert not release.latest
    assert {asset.name for asset in release.assets.values()} == {"evidence.json", "rows.parquet", "badge.svg"}
    assert all(asset.state == "uploaded" for asset in release.assets.values())
    assert repo.refs[f"refs/tags/{release.tag}"] == record.evidence.provenance.commit


@pytest.fixture(params=[False, True], ids=["mutable", "immutable"])
def repo(loopback: Loopback, request: pytest.FixtureRequest) -> Repository:
    repo = loopback.repo(REPOSITORY)
    repo.commit({"a": "1"})
    repo.immutable_releases = request.param
    return repo


def test_what_is_published_is_found_and_read_back_without_a_token(
    loopback: Loopback, repo: Repository, tmp_path: Path
) -> None:
    record = measured(tmp_path / "r", repo.sha("main"))
    made = ledger(loopback, tmp_path / "cache").publish(record, "feat/int4", extras=BADGE)
    complete(repo, record)
    reader = ledger(loopback, tmp_path / "other", token=None)
    (found,) = reader.publications("feat/int4", "evaluation")
    assert found.tag == made.tag
    assert reader.publications("feat") == []
    assert reader.publications("feat/int4", "kernel") == []
    read = reader.fetch(found)
    assert (read.digest, read.evidence, read.rows) == (record.digest, record.evidence, record.rows)


def test_publishing_again_changes_nothing(loopback: Loopback, repo: Repository, tmp_path: Path) -> None:
    record = measured(tmp_path / "r", repo.sha("main"))
    here = ledger(loopback, tmp_path / "cache")
    first = here.publish(record, "main", extras=BADGE)
    writes = len(loopback.requests("POST|PATCH|DELETE"))
    assert here.publish(record, "main", folder=tmp_path / "r", extras={"badge.svg": b"<svg>other</svg>"}) == first
    assert len(loopback.requests("POST|PATCH|DELETE")) == writes
    complete(repo, record)


def kills() -> int:
    """How many requests an undisturbed publication takes."""
    return 10


def test_the_number_of_requests_is_what_the_kill_tests_cover(loopback: Loopback, tmp_path: Path) -> None:
    repo = loopback.repo(REPOSITORY)
    record = measured(tmp_path / "r", repo.commit({"a": "1"}))
    ledger(loopback, tmp_path / "cache").publish(record, "main", extras=BADGE)
    assert len(loopback.log) == kills()


@pytest.mark.parametrize("request_index", range(1, kills() + 1))
def test_a_publisher_that_dies_after_any_request_is_taken_up_by_the_next(
    loopback: Loopback, repo: Repository, tmp_path: Path, request_index: int
) -> None:
    record = measured(tmp_path / "r", repo.sha("main"))
    loopback.faults.die_after(request_index)
    with pytest.raises(ServiceError):
        ledger(loopback, tmp_path / "cache").publish(record, "main", extras=BADGE)
    assert loopback.faults.dead
    loopback.faults.clear()
    visible = ledger(loopback, tmp_path / "reader", token=None)
    for publication in visible.publications("main"):  # whatever is visible already is whole
        assert visible.fetch(publication).digest == record.digest
    ledger(loopback, tmp_path / "cache").publish(record, "main", extras=BADGE)
    complete(repo, record)
    (publication,) = visible.publications("main")
    assert visible.fetch(publication).rows == record.rows


@pytest.mark.parametrize("kind", ["lost", "reset", "status", "truncated", "secondary", "primary"])
@pytest.mark.parametrize("request_index", range(kills()))
def test_one_failure_anywhere_is_overcome_in_the_same_run(
    loopback: Loopback, repo: Repository, tmp_path: Path, request_index: int, kind: str
) -> None:
    record = measured(tmp_path / "r", repo.sha("main"))
    loopback.faults.add(kind, skip=request_index, retry_after=1 if kind == "secondary" else None)  # type: ignore[arg-type]
    ledger(loopback, tmp_path / "cache").publish(record, "main", extras=BADGE)
    complete(repo, record)


@pytest.mark.parametrize("index", range(3))
def test_an_upload_that_broke_off_is_uploaded_again(
    loopback: Loopback, repo: Repository, tmp_path: Path, index: int
) -> None:
    record = measured(tmp_path / "r", repo.sha("main"))
    loopback.faults.add("half-upload", method="POST", path="assets", times=2, skip=index)
    ledger(loopback, tmp_path / "cache").publish(record, "main", extras=BADGE)
    complete(repo, record)


def test_drafts_that_nobody_completed_for_a_week_are_swept(
    loopback: Loopback, repo: Repository, tmp_path: Path
) -> None:
    def begin(name: str, value: float) -> None:
        loopback.faults.die_after(4)
        with pytest.raises(ServiceError):
            ledger(loopback, tmp_path / "cache").publish(
                measured(tmp_path / name, repo.sha("main"), value=value), "main"
            )
        loopback.faults.clear()

    begin("old", 0.1)
    begin("new", 0.2)
    client(loopback).repository.create_git_release("v1", "The next version", "", draft=True)  # somebody's own
    old, new, own = repo.drafts()
    now = datetime.now(UTC)
    old.created, new.created, own.created = now - timedelta(days=8), now - timedelta(days=6), now - timedelta(days=80)
    ledger(loopback, tmp_path / "cache").publish(measured(tmp_path / "r", repo.sha("main")), "main")
    assert repo.drafts() == [new, own]


def test_digests_are_compared_by_download_where_github_has_none(
    loopback: Loopback, repo: Repository, tmp_path: Path
) -> None:
    loopback.world.digests = False
    record = measured(tmp_path / "r", repo.sha("main"))
    ledger(loopback, tmp_path / "cache").publish(record, "main", extras=BADGE)
    complete(repo, record)
    assert loopback.requests("GET", "_storage/assets")


@pytest.mark.parametrize("publishers", [2, 4])
@pytest.mark.parametrize("round_", range(3))
def test_publishers_of_one_record_race_to_one_release(
    loopback: Loopback, repo: Repository, tmp_path: Path, publishers: int, round_: int
) -> None:
    record = measured(tmp_path / "r", repo.sha("main"), value=round_ / 10)
    ledgers = [ledger(loopback, tmp_path / f"cache{index}") for index in range(publishers)]
    made: list[Publication] = []
    failed: list[BaseException] = []
    gate = threading.Barrier(publishers)

    def publish(index: int) -> None:
        gate.wait()
        try:
            made.append(ledgers[index].publish(record, "main", extras=BADGE))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=publish, args=(index,)) for index in range(publishers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert len(set(made)) == 1
    complete(repo, record)


def test_publishers_of_different_records_both_stay(loopback: Loopback, repo: Repository, tmp_path: Path) -> None:
    records = [measured(tmp_path / f"r{index}", repo.sha("main"), value=index / 10) for index in range(2)]
    threads = [
        threading.Thread(target=ledger(loopback, tmp_path / f"c{index}").publish, args=(record, "main"))
        for index, record in enumerate(records)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    reader = ledger(loopback, tmp_path / "reader", token=None)
    found = reader.publications("main")
    assert {reader.fetch(publication).digest for publication in found} == {record.digest for record in records}
    assert all(publication.created is not None for publication in found)  # two of one commit: the newest is chosen


def test_publications_are_dated_and_whole(loopback: Loopback, tmp_path: Path) -> None:
    repo = loopback.repo(REPOSITORY)
    here = ledger(loopback, tmp_path / "cache")
    made = [here.publish(measured(tmp_path / f"r{i}", repo.commit({"a": str(i)})), "main") for i in range(3)]
    (gone,) = repo.published(made[1].tag)
    del repo.releases[gone.id]  # a prune that was interrupted: the release is gone, its tag is not
    loopback.log.clear()
    assert sorted(here.publications("main")) == sorted([made[0], made[2]])
    assert len(loopback.log) == 1
    assert [here.complete(publication) for publication in made] == [True, False, True]


def test_old_publications_among_many_releases_stay_in_sight(loopback: Loopback, tmp_path: Path) -> None:
    repo = loopback.repo(REPOSITORY)
    here = ledger(loopback, tmp_path / "cache")
    head = repo.commit({"a": "1"})
    old = here.publish(measured(tmp_path / "old", head), "main")
    twins = [here.publish(measured(tmp_path / f"t{i}", repo.commit({"a": "2"}), value=i / 9), "main") for i in (1, 2)]
    same = here.publish(measured(tmp_path / "same", head, value=0.9), "main")
    new_head = repo.commit({"a": "3"})
    for index in range(310):  # the repository's own releases
        number = loopback.world.number()
        repo.releases[number] = Release(
            number,
            f"v{index}",
            new_head,
            f"v{index}",
            "",
            False,
            False,
            "ada",
            loopback.world.now(),
            loopback.world.now(),
        )
    found = {publication.tag: publication for publication in here.publications("main")}
    assert found.keys() == {publication.tag for publication in (old, *twins, same)}
    assert found[twins[0].tag].created is None  # alone at its commit: nothing to choose
    assert (found[old.tag].created, found[same.tag].created) == (old.created, same.created)
    chosen = baseline(here, "main", "evaluation", history(client(loopback).repository, head))
    assert chosen is not None
    assert chosen.publication.tag == same.tag  # the newer of the two


def test_a_tag_that_holds_something_else_is_never_overwritten(loopback: Loopback, tmp_path: Path) -> None:
    repo = loopback.repo(REPOSITORY)
    record = measured(tmp_path / "r", repo.commit({"a": "1"}))
    made = ledger(loopback, tmp_path / "cache").publish(record, "main")
    (release,) = repo.published()
    asset = next(asset for asset in release.assets.values() if asset.name == "evidence.json")
    asset.data = asset.data.replace(b"0.5", b"0.9")
    with pytest.raises(InputError, match="never overwritten"):
        ledger(loopback, tmp_path / "cache").publish(record, "main")
    with pytest.raises(InputError, match="does not match its digest"):
        ledger(loopback, tmp_path / "reader").fetch(made)
    assert b"0.9" in asset.data


def test_a_pruned_immutable_publication_is_not_made_again(loopback: Loopback, tmp_path: Path) -> None:
    repo = loopback.repo(REPOSITORY)
    repo.immutable_releases = True
    record = measured(tmp_path / "r", repo.commit({"a": "1"}))
    here = ledger(loopback, tmp_path / "cache")
    made = here.publish(record, "main")
    here.remove(made)
    here.remove(made)
    assert here.publications("main") == []
    with pytest.raises(InputError, match="tags are not reused"):
        here.publish(record, "main")


def test_a_commit_that_was_not_pushed_is_named(loopback: Loopback, tmp_path: Path) -> None:
    loopback.repo(REPOSITORY).commit({"a": "1"})
    with pytest.raises(InputError, match="push it"):
        ledger(loopback, tmp_path / "cache").publish(measured(tmp_path / "r", "a" * 40), "main")
    with pytest.raises(InputError, match="names no commit"):
        ledger(loopback, tmp_path / "cache").publish(measured(tmp_path / "r", None), "main")


def test_a_commit_with_other_workflows_than_main_is_published_at_main(loopback: Loopback, tmp_path: Path) -> None:
    repo = loopback.repo(REPOSITORY)
    measured_commit = repo.commit({".github/workflows/assay.yml": "one"})
    record = measured(tmp_path / "r", measured_commit)
    moved = repo.commit({".github/workflows/assay.yml": "two"})  # main moves on while the measurement runs
    made = ledger(loopback, tmp_path / "cache").publish(record, "main")
    assert repo.refs[f"refs/tags/{made.tag}"] == moved
    assert made.sha12 == measured_commit[:12]
    reader = ledger(loopback, tmp_path / "reader", token=None)
    assert reader.fetch(reader.publications("main")[0]).digest == record.digest


def test_workflows_that_change_between_draft_and_publication(loopback: Loopback, tmp_path: Path) -> None:
    repo = loopback.repo(REPOSITORY)
    record = measured(tmp_path / "r", repo.commit({".github/workflows/assay.yml": "one"}))
    loopback.faults.die_after(3)
    with pytest.raises(ServiceError):
        ledger(loopback, tmp_path / "cache").publish(record, "main", extras=BADGE)
    loopback.faults.clear()
    assert len(repo.drafts()) == 1
    repo.commit({".github/workflows/assay.yml": "two"})
    ledger(loopback, tmp_path / "cache").publish(record, "main", extras=BADGE)
    assert repo.drafts() == []
    assert len(repo.published()) == 1


def test_a_reader_may_not_publish(loopback: Loopback, repo: Repository, tmp_path: Path) -> None:
    with pytest.raises(Forbidden, match="permissions"):
        ledger(loopback, tmp_path / "cache", token=FORK_TOKEN).publish(
            measured(tmp_path / "r", repo.sha("main")), "main"
        )
    assert repo.releases == {}


def test_the_nearest_published_ancestor_of_the_merge_base_is_the_baseline(loopback: Loopback, tmp_path: Path) -> None:
    repo = loopback.repo(REPOSITORY)
    commits = [repo.commit({"a": str(index)}) for index in range(230)]
    here = ledger(loopback, tmp_path / "cache")
    old, new, pruned = (
        here.publish(measured(tmp_path / f"r{index}", commits[index], value=index / 1000), "main")
        for index in (20, 40, 45)
    )
    head = repo.commit({"b": "1"}, branch="feature", parents=(commits[180],))
    view = client(loopback).repository
    base = merge_base(view, "main", head)
    assert base == commits[180]
    # an interrupted prune: the release is gone, its tag is not
    (gone,) = repo.published(pruned.tag)
    del repo.releases[gone.id]
    loopback.log.clear()
    chosen = baseline(here, "main", "evaluation", history(view, base))
    assert chosen is not None
    assert (chosen.publication.tag, chosen.distance, chosen.commit) == (new.tag, 140, commits[40])
    assert len(loopback.requests("GET", "/commits$")) == 2  # a page of 100 at a time, and only as far as needed
    earlier = baseline(here, "main", "evaluation", history(view, commits[30]))
    assert earlier is not None
    assert earlier.publication.tag == old.tag
    assert baseline(here, "main", "evaluation", history(view, commits[19])) is None
    assert baseline(here, "main", "kernel", history(view, base)) is None


def test_a_merge_that_swapped_its_parents_does_not_hide_the_baseline(loopback: Loopback, tmp_path: Path) -> None:
    repo = loopback.repo(REPOSITORY)
    root = repo.commit({"a": "0"})
    tip = repo.commit({"a": "1"})
    mine = repo.commit({"b": "1"}, branch=None, parents=(root,))
    merged = repo.commit({"b": "2"}, branch="main", parents=(mine, tip))  # `git pull` made main's tip the second parent
    here = ledger(loopback, tmp_path / "cache")
    here.publish(measured(tmp_path / "old", root), "main")
    wanted = here.publish(measured(tmp_path / "new", tip), "main")
    chosen = baseline(here, "main", "evaluation", history(client(loopback).repository, merged))
    assert chosen is not None
    assert chosen.publication.tag == wanted.tag


def test_unrelated_histories_are_named(loopback: Loopback) -> None:
    repo = loopback.repo(REPOSITORY)
    repo.commit({"a": "1"})
    other = repo.commit({"b": "1"}, branch="other", parents=())
    with pytest.raises(InputError, match="no common history"):
        merge_base(client(loopback).repository, "main", other)
