"""One failure at any request of a whole `assay comment` run, with a second measuring workflow beside: the next run repairs."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.integration.bot.stage import Stage, headline
from tests.loopback.fixtures import client, patience

from assay.baselines.errors import AssayError, ServiceError

REQUESTS = {"requested": 2, "completed": 25}
"""No fewer than the requests of an undisturbed run below; a test keeps it so."""


def play(stage: Stage) -> tuple[int, int]:
    """Two measuring workflows at one head: one has finished and is in the comment, the other has just finished."""
    other = stage.start("assay nightly")
    stage.react(other, "requested")
    stage.finish(other, broke=60, fixed=10)
    stage.react(other)
    run = stage.start("assay measure")
    return other, run


def whole(stage: Stage, other: int, run: int) -> None:
    """The state that every disturbed run must come to."""
    body = stage.comment()
    assert headline(body) == "## ✗ Accuracy regressed on mmlu"
    assert "### ✗ assay nightly: Accuracy regressed on mmlu" in body
    assert "### ✓ assay measure: Accuracy is equivalent" in body
    assert f"run={max(other, run)} " in body
    for number in (other, run):
        assert stage.verdict(number) == ("completed", "failure")  # they share a name, and the worst of a name counts
    for line in body.splitlines():
        if line.startswith("[!["):
            path = line.partition("assay-journal/")[2].partition(")")[0]
            assert stage.repo.file(path, "assay-journal") is not None, "the comment shows a picture that is not there"
    tip = stage.repo.sha("assay-journal")
    while tip is not None:  # the journal only ever grew
        commit = stage.repo.objects.commit(tip)
        here = stage.repo.objects.files(commit.tree)
        before = stage.repo.objects.files(stage.repo.objects.commit(commit.parents[0]).tree) if commit.parents else {}
        assert before.items() <= here.items()
        tip = commit.parents[0] if commit.parents else None


def test_the_disturbed_indices_are_all_of_them(stage: Stage) -> None:
    other, run = play(stage)
    for action, most in REQUESTS.items():
        stage.github.log.clear()
        if action == "completed":
            stage.finish(run, broke=1, fixed=1)
        stage.react(run, action)
        assert most - 10 < len(stage.github.log) <= most, [f"{e.method} {e.path}" for e in stage.github.log]
    whole(stage, other, run)


@pytest.mark.parametrize("kind", ["lost", "status"])
@pytest.mark.parametrize("index", range(REQUESTS["completed"]))
def test_one_failure_of_completed(stage: Stage, index: int, kind: str) -> None:
    other, run = play(stage)
    stage.react(run, "requested")
    stage.finish(run, broke=1, fixed=1)
    stage.github.faults.add(kind, skip=index)  # type: ignore[arg-type]
    with suppress(AssayError):
        stage.react(run)
    stage.github.faults.clear()
    stage.react(run)
    whole(stage, other, run)


@pytest.mark.parametrize("index", range(1, REQUESTS["completed"] + 1))
def test_death_after_any_request_of_completed(stage: Stage, index: int) -> None:
    other, run = play(stage)
    stage.react(run, "requested")
    stage.finish(run, broke=1, fixed=1)
    stage.github.faults.die_after(index)
    try:
        stage.react(run)
    except AssayError:
        assert stage.github.faults.dead
    stage.github.faults.clear()
    assert "regressed" in stage.comment()  # the other section is never lost, not even in between
    stage.react(run)
    whole(stage, other, run)


@pytest.mark.parametrize("kind", ["lost", "reset", "status", "truncated"])
@pytest.mark.parametrize("index", range(REQUESTS["requested"]))
def test_one_failure_of_requested(stage: Stage, index: int, kind: str) -> None:
    other, run = play(stage)
    stage.github.faults.add(kind, skip=index)  # type: ignore[arg-type]
    with suppress(AssayError):
        stage.react(run, "requested")
    stage.github.faults.clear()
    assert len([c for c in stage.repo.checks.values() if c.external_id == f"{run}-1"]) <= 1
    stage.finish(run, broke=1, fixed=1)
    stage.react(run)
    whole(stage, other, run)


def test_a_failure_that_stays_closes_the_check_as_a_fault_of_the_tool(stage: Stage) -> None:
    run = stage.start()
    stage.react(run, "requested")
    stage.finish(run, broke=60)
    stage.github.faults.add("status", path=r"/artifacts", times=1000)
    with pytest.raises(ServiceError):
        stage.react(run)
    check = stage.check(run)
    assert (check.status, check.conclusion) == ("completed", "failure")
    assert "not a regression" in (check.title or "")
    assert stage.comments() == []
    stage.github.faults.clear()
    stage.react(run)  # the reporting workflow runs again
    assert "regressed on mmlu" in stage.comment()
    assert "regressed on mmlu" in (check.title or "")


@pytest.mark.parametrize(
    ("kind", "how", "least"),
    [
        ("primary", {"reset_in": 120}, 100),
        ("secondary", {}, 60),
        ("secondary", {"retry_after": 17}, 17),
        ("secondary", {"status": 429, "retry_after": 5}, 5),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
def test_rate_limits_are_waited_for(stage: Stage, kind: str, how: dict[str, int], least: int, method: str) -> None:
    run = stage.start()
    stage.react(run, "requested")
    stage.finish(run, broke=60)
    waited: list[float] = []
    bot = client(stage.github, waiting=patience(sleep=waited.append))
    stage.github.faults.add(kind, method=method, **how)  # type: ignore[arg-type]
    stage.react(run, bot=bot)
    assert max(waited) >= least
    assert "regressed on mmlu" in stage.comment()
    assert stage.verdict(run) == ("completed", "failure")


def test_a_limit_longer_than_our_patience_is_told_in_one_line(stage: Stage) -> None:
    run = stage.measured(broke=60)
    stage.github.faults.add("primary", reset_in=7200, times=1000)
    with pytest.raises(ServiceError, match="rate limit is spent until"):
        stage.react(run)


def test_a_server_that_does_not_answer(stage: Stage) -> None:
    run = stage.start()
    stage.react(run, "requested")
    stage.finish(run, broke=60)
    stage.github.faults.add("hang", path="/pulls", seconds=5)
    bot = client(stage.github, timeout=1)
    stage.react(run, bot=bot)
    assert "regressed on mmlu" in stage.comment()
