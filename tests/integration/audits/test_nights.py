"""`assay audit` and `assay drift` against the loopback: nights that are counted, an issue that opens and closes."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.evidence import evaluation, outcomes
from tests.integration.audits.place import call, settle
from tests.integration.bot.stage import Stage, headline
from tests.loopback.fixtures import WRITER, client, ledger

from assay.baselines.config import Configuration
from assay.baselines.record import write_record
from assay.bot.audits.issues import issues_of, track
from assay.bot.audits.lineage import results_of
from assay.bot.audits.places import rest_of

Capsys = pytest.CaptureFixture[str]
START = datetime(2026, 11, 1, 3, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _place(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(stage, tmp_path, monkeypatch)


@pytest.fixture
def token(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", stage.github.token(WRITER))


def measured_twice(stage: Stage, i: int, broke: int, folder: Path, **more: Any) -> list[str]:
    """The options that name two measurements of main's commit in night `i`, of which the second lost examples."""
    options = []
    for name, scores, hour in zip(("first", "second"), outcomes(400, broke, 0), (0, 1), strict=True):
        when = START + timedelta(days=i, hours=hour)
        record = evaluation({"mmlu": scores}, commit=stage.base, created=when, **more)
        write_record(folder / f"{i}-{name}", record.evidence, record.rows)
        options += [f"--{name}", str(folder / f"{i}-{name}")]
    return options


def entries(stage: Stage) -> list[str]:
    return [p for p in client(stage.github).journal_list() if p.startswith("audits/")]


@pytest.mark.usefixtures("token")
def test_nights_reach_every_report(stage: Stage, tmp_path: Path, capsys: Capsys) -> None:
    for i, broke in enumerate([0, 40, 0, 0, 0, 0, 0, 0, 0, 0, 0]):
        assert call(capsys, "audit", *measured_twice(stage, i, broke, tmp_path))[0] == 0
    assert len(entries(stage)) == 11
    run = stage.measured(broke=60)
    stage.react(run)
    assert "This gate's false alarms on identical commits: 1 in 11 nights (at most 0.36" in stage.comment()
    assert stage.verdict(run) == ("completed", "failure")


@pytest.mark.usefixtures("token")
def test_a_gate_that_cries_wolf_advises_until_it_recovers(stage: Stage, tmp_path: Path, capsys: Capsys) -> None:
    for i in range(2):
        call(capsys, "audit", *measured_twice(stage, i, 40, tmp_path))
    run = stage.measured(broke=60)
    stage.react(run)
    assert stage.verdict(run) == ("completed", "neutral")
    assert headline(stage.comment()).startswith("## ? Accuracy may have regressed on mmlu")
    assert "does not block" in stage.comment()
    assert stage.publication is not None
    other = stage.publish(stage.head, record=stage.record(stage.head, broke=60))
    code, out, _ = call(capsys, "baseline", "diff", stage.publication.tag, other.tag)
    assert (code, "advisory" in out) == (0, True)  # the same verdict as the bot
    for i in range(2, 10):
        call(capsys, "audit", *measured_twice(stage, i, 0, tmp_path))
    again = stage.measured(broke=60)
    stage.react(again)
    assert stage.verdict(again) == ("completed", "failure")


@pytest.mark.usefixtures("token")
def test_the_same_night_counts_once(stage: Stage, tmp_path: Path, capsys: Capsys) -> None:
    options = measured_twice(stage, 0, 0, tmp_path)
    call(capsys, "audit", *options)
    _, _, err = call(capsys, "audit", *options)
    assert "already recorded" in err
    assert len(entries(stage)) == 1


def test_a_folder_keeps_nights_too(
    stage: Stage, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY")
    for i in range(3):
        code, out, _ = call(
            capsys, "audit", *measured_twice(stage, i, 40 * (i == 1), tmp_path), "--journal", str(tmp_path / "kept")
        )
        assert code == 0
    assert "1 in 3 nights" in out
    assert len(list((tmp_path / "kept" / "audits" / "evaluation").glob("*.json"))) == 3


@pytest.mark.usefixtures("token")
def test_a_deterministic_gate_is_audited_by_the_changes_of_its_branch(
    stage: Stage, tmp_path: Path, capsys: Capsys
) -> None:
    same = {"responses": b"\x01" * 8}
    later = stage.repo.commit({"weights.txt": "9"})
    stage.publish(later, record=stage.record(later, broke=12, fixed=20))
    _, out, _ = call(capsys, "audit", *measured_twice(stage, 0, 0, tmp_path, **same), "--json")
    [gate] = json.loads(out)["tally"]["gates"]
    assert (gate["nights"], gate["identical"], gate["flipped"]["pairs"]) == (1, 1, 32)


def test_two_commits_are_no_self_audit(stage: Stage, tmp_path: Path, capsys: Capsys) -> None:
    one, two = stage.written(stage.record(stage.base)), stage.written(stage.record(stage.head))
    code, _, err = call(capsys, "audit", "--first", str(one), "--second", str(two), "--journal", str(tmp_path))
    assert (code, "not of one commit" in err) == (2, True)


# -- drift -------------------------------------------------------------------------------------------------------------


def move(stage: Stage, broke: int) -> None:
    """A push to main of which the publication has lost this many examples of main's first one."""
    commit = stage.repo.commit({"weights.txt": f"w{broke}-{len(stage.repo.published())}"})
    stage.publish(commit, record=stage.record(commit, broke=broke))


def tracking(stage: Stage) -> list[tuple[int, str]]:
    return [(i.number, i.state) for i in stage.repo.issues.values() if "assay-drift" in i.labels]


@pytest.mark.usefixtures("token")
def test_one_issue_opens_is_updated_and_closes(stage: Stage, capsys: Capsys) -> None:
    assert call(capsys, "drift")[0] == 0
    assert tracking(stage) == []  # one publication is no drift
    move(stage, 60)
    assert "would open" in call(capsys, "drift", "--dry-run")[1]
    assert tracking(stage) == []
    call(capsys, "drift")
    [(number, state)] = tracking(stage)
    assert state == "open"
    writes = len(stage.github.requests("PATCH|POST", "/issues"))
    call(capsys, "drift")
    assert len(stage.github.requests("PATCH|POST", "/issues")) == writes  # up to date: nothing is written
    move(stage, 60)  # no worse than the last one, and still worse than the oldest
    call(capsys, "drift")
    assert tracking(stage) == [(number, "open")]
    move(stage, 0)
    call(capsys, "drift")
    assert tracking(stage) == [(number, "closed")]
    assert "has recovered" in stage.repo.issues[number].title
    move(stage, 80)
    call(capsys, "drift")
    assert tracking(stage) == [(number, "open")]


@pytest.mark.usefixtures("token")
def test_publications_of_another_protocol_are_passed_over(stage: Stage, capsys: Capsys) -> None:
    commit = stage.repo.commit({"weights.txt": "other"})
    stage.publish(commit, record=stage.record(commit, protocol={"harness": "other"}))
    move(stage, 60)
    _, out, _ = call(capsys, "drift")
    assert out.startswith("the publication before: ✗ Accuracy regressed on mmlu")
    assert len(tracking(stage)) == 1


def test_runs_at_once_leave_one_open_issue(stage: Stage, tmp_path: Path) -> None:
    move(stage, 60)
    shelf = ledger(stage.github, tmp_path / "shelf")
    results = results_of(shelf, "main", "evaluation", 30, Configuration().gate)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: track(results, rest_of(client(stage.github)), "main", "evaluation"), range(4)))
    track(results, rest_of(client(stage.github)), "main", "evaluation")
    assert [i.open for i in issues_of(rest_of(client(stage.github)))].count(True) == 1
