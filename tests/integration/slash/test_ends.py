"""What becomes of a command: its report, its check, its minutes and its one line in the reply."""

from __future__ import annotations

import copy
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.integration.audits.place import call as audit_call
from tests.integration.audits.place import settle
from tests.integration.bot.stage import Stage, headline
from tests.integration.slash.talk import COMMANDER, Talk
from tests.loopback import Loopback, events
from tests.loopback.fixtures import client

from assay.baselines.errors import InputError
from assay.bot.slash.route import verify

DAY = (datetime.now(UTC).date() + timedelta(days=30)).isoformat()
CAPSTONE = """\
title: INT8 weights for the toy
question: Do INT8 weights keep the toy's accuracy within 1 point?
material-gain: {value: 30, unit: percent of the size}
quantitative-model: {bound: {value: 75, unit: percent of the size}}
scope: {included: [{item: weights, reason: they are the size}], excluded: [{item: activations, reason: not needed}]}
stop-conditions: [bound-below-gain: true, scope-answered: {milestones: [1, 2]}]
milestones:
  - title: A measured baseline
    evidence: [evidence: {kind: evaluation, metric: mmlu/acc, at-least: 0.5}]
  - title: The change keeps its accuracy
    evidence: [gate: {verdict: [equivalent, improved]}]
"""
ACCEPT = f'/assay accept mmlu reason="it ships" expires={DAY}'


@pytest.fixture
def talk(loopback: Loopback, tmp_path: Path) -> Talk:
    return Talk(Stage(loopback, tmp_path))


def test_accepting_leaves_no_red_check(talk: Talk, tmp_path: Path) -> None:
    """The check of the pull request's own run and that of a command are both rebuilt, each as its own."""
    talk.stage.react(own := talk.stage.measured(broke=60))
    talk.say("/assay evaluate mmlu")
    identifier = talk.repo.dispatches[-1]["inputs"]["id"]
    talk.end(talk.newest(), tmp_path / "a", broke=60, minutes=12.0)
    assert talk.checks() == [("assay", "failure"), ("assay/evaluate", "failure")]
    before = talk.journal("spent")
    assert "accepts a regression of mmlu" in talk.say(ACCEPT)
    assert talk.checks() == [("assay", "success"), ("assay/evaluate", "success")]
    assert [c.external_id for c in talk.stage.checks()] == [f"{own}-1", identifier]
    assert "accepted until" in talk.stage.comments()[0]
    assert talk.journal("spent") == before
    first = talk.replies()[0]
    assert len(re.findall(r"ended:", first)) == 1
    assert "It runs" not in first
    assert "12 minutes" in first


def test_a_task_that_the_baseline_lacks_is_not_accepted(talk: Talk) -> None:
    talk.stage.react(talk.stage.measured(broke=60))
    for wrong, words in (
        ("mmul", "not compared on `mmul`, so that nothing was accepted; did you mean mmlu?"),
        ("mmlu/acc_nrom", "not compared on `mmlu/acc_nrom`, so that nothing was accepted"),
        ("pool/acc", "not compared on `pool/acc`"),
        ("pool:al", "did you mean pool:all?"),
    ):
        assert words in talk.say(ACCEPT.replace("mmlu", wrong)), wrong
    assert talk.journal("accepted") == []
    assert talk.checks() == [("assay", "failure")]
    talk.say(ACCEPT.replace("mmlu", "mm*/acc"))
    assert talk.checks() == [("assay", "success")]


def test_a_push_voids_and_the_reply_says_so(talk: Talk, tmp_path: Path) -> None:
    talk.say("/assay evaluate mmlu examples=10000")
    run = talk.newest()
    talk.repo.commit({"weights.txt": "3"}, branch="feature")
    talk.repo.synchronize(talk.stage.number)
    talk.end(run, tmp_path / "a", conclusion="failure")
    [reply] = talk.replies()
    assert "is void, and nothing was measured" in reply
    assert "It runs" not in reply
    assert talk.checks() == [("assay/evaluate", "neutral")]
    [spent] = talk.journal("spent")
    assert spent.endswith(".0.0.json")
    assert "Expected of what runs" not in talk.say("/assay status")


def test_a_second_attempt_edits_the_line_and_may_not_measure(talk: Talk, tmp_path: Path) -> None:
    talk.say("/assay evaluate mmlu")
    run, identifier = talk.newest(), talk.repo.dispatches[-1]["inputs"]["id"]
    talk.end(run, tmp_path / "a", broke=60, minutes=12.0)
    [first] = talk.replies()
    with pytest.raises(InputError, match="carried out already"):
        verify(identifier, client(talk.stage.github, COMMANDER))
    talk.end(run, tmp_path / "b", attempt=2, conclusion="failure", minutes=1.0)
    [second] = talk.replies()
    assert second.count("ended:") == first.count("ended:") == 1
    assert "12 minutes" in second
    assert talk.checks() == [("assay/evaluate", "failure")]
    [spent] = talk.journal("spent")
    assert spent.endswith(f"{identifier}.12.0.json")


def test_a_report_that_is_rebuilt_leaves_to_a_run_what_only_its_end_knows(talk: Talk, tmp_path: Path) -> None:
    """The command's run is over and its report on the way, when somebody asks for another comparison."""
    talk.stage.react(talk.stage.measured(broke=1))
    talk.say("/assay evaluate mmlu")
    run = talk.stage.finish(talk.newest(), broke=60)
    assert "the report is rewritten" in talk.say("/assay gate")
    assert talk.journal("spent") == []
    assert talk.checks()[-1] == ("assay/evaluate", None)
    talk.end(run, tmp_path / "a", minutes=12.0)
    [spent] = talk.journal("spent")
    assert spent.endswith(".12.0.json")
    assert talk.checks()[-1] == ("assay/evaluate", "failure")


def test_gate_says_what_happened(talk: Talk) -> None:
    assert "Nothing was measured at" in talk.say("/assay gate")
    run = talk.stage.start()
    talk.stage.react(run, "requested")
    assert f"it comes when [assay measure]({talk.stage.github.web}/acme/widgets/actions/runs/{run}) ends" in talk.say(
        "/assay gate"
    )
    talk.stage.react(talk.stage.finish(run, broke=60))
    talk.repo.commit({".github/assay.yml": "gate: {threshold: 50, margin: 60}"})
    assert "the report is rewritten" in talk.say("/assay gate")
    [report] = [c for c in talk.stage.comments() if c.startswith("<!-- assay run=")]
    assert "regressed" not in headline(report)
    assert talk.checks()[-1] == ("assay", "success")


def test_milestones_replies_with_the_checklist_and_writes_nothing_else(talk: Talk) -> None:
    assert "no `capstone.yml`" in talk.say("/assay milestones", author="reader")
    talk.repo.commit({"capstone.yml": CAPSTONE})
    talk.say("/assay milestones", author="reader")
    reply = talk.replies()[-1]
    assert "Milestones of INT8 weights for the toy" in reply
    assert "○" in reply
    talk.stage.react(talk.stage.measured(broke=1, fixed=1))
    report = talk.stage.comments()[-1]
    writes = len(talk.stage.github.requests("POST|PATCH|PUT"))
    talk.say("/assay milestones", author="reader")
    kept = report[report.index("<!-- assay milestones -->") :].strip()
    assert talk.replies()[-1].split("\n", 1)[1].strip() == kept
    made = talk.stage.github.requests("POST|PATCH|PUT")[writes:]
    assert [e.path for e in made if "graphql" not in e.path] == [
        e.path for e in made if e.path.endswith(("/reactions", "/comments"))
    ]


def test_drift_and_the_printed_gate_know_what_was_accepted(
    talk: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = talk.stage
    settle(stage, tmp_path, monkeypatch)
    monkeypatch.setenv("GITHUB_TOKEN", stage.github.token(COMMANDER))
    run = stage.measured(broke=60)
    stage.react(run)
    worse = talk.repo.commit({"weights.txt": "5"})
    stage.publish(worse, record=stage.record(worse, broke=60))
    [printed] = re.findall(r"`assay (gate --repository .*?)`", stage.comments()[0])
    assert audit_call(capsys, *printed.split())[0] == 1
    assert "✗ Accuracy regressed" in audit_call(capsys, "drift", "--dry-run")[1]
    talk.say(ACCEPT)
    assert audit_call(capsys, *printed.split())[0] == 0
    assert "✓ Accuracy regressed, and that was accepted" in audit_call(capsys, "drift", "--dry-run")[1]


def test_a_run_of_another_branch_is_no_run_of_a_command(talk: Talk, tmp_path: Path) -> None:
    """Whoever may push a branch may dispatch that branch's workflows under any title."""
    talk.say("/assay evaluate mmlu")
    title, real = talk.repo.runs[talk.newest()].title, talk.newest()
    for path, branch in ((".github/workflows/assay-run.yml", "feature"), (".github/workflows/mine.yml", "main")):
        forged = talk.repo.start_run(
            talk.repo.refs[f"refs/heads/{branch}"],
            event="workflow_dispatch",
            name="forged",
            path=path,
            title=title,
            branch=branch,
        )
        talk.end(forged, tmp_path / branch)
        assert [c.conclusion for c in talk.stage.checks() if c.name == "assay/evaluate"] == [None]
        assert "forged" not in talk.say("/assay status")
    assert "ended:" not in "".join(talk.replies())
    assert talk.journal("spent") == []
    talk.end(real, tmp_path / "real", broke=60)
    assert ("assay/evaluate", "failure") in talk.checks()


@pytest.mark.parametrize("user", [None, "ada", ["ada"], {}, {"login": None}])
def test_an_author_that_is_no_account_is_refused(talk: Talk, user: Any) -> None:
    comment = talk.repo.comment(talk.stage.number, "/assay evaluate mmlu")
    event = copy.deepcopy(events.issue_comment(talk.stage.github, talk.repo, comment))
    event["comment"]["user"] = user
    talk.answer(event)
    assert "needs write permission on this repository; yours is none" in talk.replies()[-1]
    assert talk.repo.dispatches == []


def test_a_journal_that_is_too_long_for_one_list_is_read_whole(talk: Talk) -> None:
    bot = talk.place.github()
    paths = [
        f"spent/2026-1{m}/{n}/ada/{n:08d}-0000-0000-0000-00000000000{m}.1.0.json" for m in (0, 1) for n in range(1, 5)
    ]
    talk.repo.commit(dict.fromkeys(paths, "{}"), branch="assay-journal", parents=())
    talk.repo.tree_limit = 5
    assert bot.journal_list() == sorted(paths)
    talk.repo.tree_limit = 3
    assert bot.journal_list() == sorted(paths)
    assert len(bot.journal_list()) == 8


def test_spellings_that_people_write_are_answered(talk: Talk) -> None:
    for body in ("/Assay\u00a0status", "\u00a0/assay\tstatus", "/ASSAY  status", "/assay\u200b status"):
        assert "Head `" in talk.say(body), body
    assert "did you mean evaluate?" in talk.say("/assay\u00a0evalute\u00a0mmlu")


def test_a_groups_tasks_are_counted(talk: Talk) -> None:
    """The baseline has one task, `mmlu`; a name that it lacks counts once, and no name counts the baseline's tasks."""
    assert "about 8 GPU minutes" in talk.say("/assay evaluate")
    assert "about 13 GPU minutes" in talk.say("/assay evaluate mmlu,other")
