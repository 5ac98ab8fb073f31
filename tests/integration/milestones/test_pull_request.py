"""The checklist on a pull request, over REST: ticked from releases, the head's files and the head's own evidence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from tests.integration.bot.stage import Stage, headline
from tests.loopback import events, job_token
from tests.loopback.fixtures import REPOSITORY, client, ledger
from tests.unit.milestones.workbench import ATTENTION, FIRST_TWO, PASSED, REPORT, WITHOUT, ours

from assay.baselines.ledger.history import history
from assay.baselines.record import Record
from assay.bot.cli import assay
from assay.bot.commands.simulate import simulate
from assay.bot.milestones.checklist import END, START
from assay.bot.observe import event_facts, load, observe, save
from assay.bot.operations import UpdateComment
from assay.bot.plan import plan

OTHER_SCOPE = ATTENTION.replace("  included:\n", "  included:\n    - item: backward pass\n", 1).replace(
    "    - item: backward pass\n      reason: its bytes follow another model; nothing in the question needs it\n", ""
)


def at(stage: Stage, record: Record, commit: str) -> Record:
    """The record as measured at a commit of this repository."""
    evidence = record.evidence
    provenance = evidence.provenance.model_copy(update={"commit": commit})
    return Record(evidence.model_copy(update={"provenance": provenance}), record.rows)


def block(stage: Stage) -> str:
    found = re.findall(f"{START}\n.*?\n{END}", stage.comment(), re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def ticked(text: str) -> list[bool]:
    return [mark == "x" for mark in re.findall(r"^- \[([x ])\] \d\.", text, re.MULTILINE)]


def prepare(stage: Stage, *records: Record, head: dict[str, Any] | None = None) -> None:
    stage.base = stage.repo.commit({"capstone.yml": ATTENTION})
    for record in records:
        stage.publish(stage.base, record=at(stage, record, stage.base))
    push(stage, {"capstone.yml": ATTENTION, **(head or {})})


def push(stage: Stage, files: dict[str, Any]) -> None:
    stage.head = stage.repo.commit(files, branch="feature")
    stage.repo.synchronize(stage.number)


def test_without_a_capstone_there_is_no_block_and_no_request_more(stage: Stage) -> None:
    run = stage.measured()
    before = len(stage.github.log)
    stage.react(run)
    assert START not in stage.comment()
    assert not [e for e in stage.github.log[before:] if "/contents/" in e.path and e.method == "GET"]
    assert len([e for e in stage.github.log[before:] if e.path == "/api/graphql"]) == 2  # one of each look


def test_evidence_ticks_the_checklist_and_the_comment_is_updated(stage: Stage) -> None:
    prepare(stage)
    stage.react(stage.measured())
    assert ticked(block(stage)) == [False] * 5
    for record in FIRST_TWO:
        stage.publish(stage.base, record=at(stage, record, stage.base))
    stage.react(stage.measured())
    assert ticked(block(stage)) == [True, True, False, False, False]
    assert headline(stage.comment()).startswith("## ✓")
    targets = re.findall(r"\]\((http[^)]*/releases/tag/[^)]*)\)", block(stage))
    tags = {p.tag for p in ledger(stage.github, stage.scratch / "look").publications("main", "kernel")}
    assert targets
    assert {t.partition("/releases/tag/")[2] for t in targets} <= tags


def test_newer_evidence_that_contradicts_blocks(stage: Stage) -> None:
    prepare(stage, *FIRST_TWO, WITHOUT, ours())
    stage.react(stage.measured())
    assert ticked(block(stage))[2]
    worse = ours(contract={**PASSED, "tail": False}, day=9)
    stage.publish(stage.base, record=at(stage, worse, stage.base))
    stage.react(stage.measured())
    assert "**blocked**: the contract failed on tail" in block(stage)


def test_files_are_those_of_the_head(stage: Stage) -> None:
    page = "\n".join(f"## {heading}\n" for heading in REPORT)
    prepare(stage, head={"report.md": page})
    stage.react(stage.measured())
    assert ticked(block(stage)) == [False, False, False, False, True]
    assert f"/blob/{stage.head}/report.md" in block(stage)


def test_scope_growth_asks_for_its_reason_and_then_shows_it(stage: Stage) -> None:
    prepare(stage, head={"capstone.yml": OTHER_SCOPE})
    stage.react(stage.measured())
    assert (
        "**Scope grew without a reason:** backward pass is now included, which the base branch had excluded"
        in block(stage)
    )
    said = OTHER_SCOPE.replace(
        "    - item: backward pass\n", "    - {item: backward pass, reason: training needs it}\n"
    )
    push(stage, {"capstone.yml": said})
    stage.react(stage.measured())
    assert "Scope grew: backward pass (it was excluded). Reason given: training needs it" in block(stage)
    assert "without a reason" not in block(stage)


def test_the_base_branch_decides_which_milestones_there_are(stage: Stage) -> None:
    easy = "title: easy\nmilestones: [{title: nothing to do, evidence: [{file: {path: weights.txt}}]}]\n"
    prepare(stage, head={"capstone.yml": easy})
    stage.react(stage.measured())
    assert len(ticked(block(stage))) == 5
    assert "nothing to do" not in stage.comment()


def test_a_broken_file_on_either_side_is_named_and_the_verdict_stands(stage: Stage) -> None:
    prepare(stage, head={"capstone.yml": "title: ["})
    run = stage.measured()
    stage.react(run)
    assert "this pull request cannot be read" in block(stage)
    assert stage.verdict(run) == ("completed", "success")
    stage.repo.commit({"capstone.yml": "titel: x"})
    stage.react(stage.measured())
    assert "unknown key 'titel'; did you mean 'title'?" in block(stage)


def test_a_replay_gives_the_same_checklist(stage: Stage) -> None:
    prepare(stage, *FIRST_TWO)
    run = stage.measured()
    stage.react(run)
    facts = event_facts(
        "workflow_run", json.loads(json.dumps(events.workflow_run(stage.github, stage.repo, run, "completed")))
    )
    bot = client(stage.github)
    folder = stage.scratch / "seen"
    folder.mkdir()
    [(snapshot, records)] = observe(
        facts,
        bot,
        ledger(stage.github, stage.scratch / "look"),
        lambda sha: history(bot.repository, sha),
        stage.scratch / "store",
    )
    seen, again = load(save(snapshot, records, folder))
    live, replayed = plan(snapshot, records), plan(seen, again)
    assert live.operations == replayed.operations
    assert not any(isinstance(o, UpdateComment) for o in live.operations)  # the comment is up to date already


def opened(stage: Stage, tmp_path: Path, action: str = "opened") -> tuple[int, str, str]:
    """What the reporting workflow runs on `pull_request_target`: (exit code, words, what its snapshot replays to)."""
    payload = events.pull_request(stage.github, stage.repo, stage.number, action)
    (tmp_path / "event.json").write_text(json.dumps(payload))
    token = stage.github.token(job_token(contents="read", pull_requests="write"))
    options = ["--repository", REPOSITORY, "--github-token", token, "--api-url", stage.github.url]
    event = ["--event", str(tmp_path / "event.json"), "--event-name", "pull_request_target"]
    snapshot = tmp_path / "seen" / f"pull-{stage.number}" / "snapshot.json"
    snapshot.unlink(missing_ok=True)
    done = CliRunner().invoke(
        assay,
        ["comment", *event, *options, "--server-url", stage.github.web, "--snapshot", str(tmp_path / "seen")],
        env={"ASSAY_CACHE": str(tmp_path / "cache"), "GITHUB_STEP_SUMMARY": None},
    )
    replay = ""
    if snapshot.exists():
        replay = CliRunner().invoke(simulate, [str(tmp_path / "event.json"), "--snapshot", str(snapshot)]).output
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    return done.exit_code, done.output, replay


def test_a_pull_request_that_nothing_measures_has_its_checklist(stage: Stage, tmp_path: Path) -> None:
    prepare(stage, *FIRST_TWO)
    code, said, replay = opened(stage, tmp_path)
    assert (code, "milestones (CreateComment)" in said) == (0, True)
    assert ticked(block(stage)) == [True, True, False, False, False]
    assert "1. comment on pull request" in replay
    assert START in replay
    assert stage.checks() == []
    push(stage, {"capstone.yml": OTHER_SCOPE})
    code, said, _ = opened(stage, tmp_path, "synchronize")
    assert "milestones (UpdateComment)" in said
    assert "backward pass" in block(stage)


def test_results_are_left_to_the_run_that_measures_the_new_head(stage: Stage, tmp_path: Path) -> None:
    prepare(stage)
    stage.react(stage.measured())
    before = stage.comment()
    push(stage, {"capstone.yml": OTHER_SCOPE})
    assert "milestones (nothing to do)" in opened(stage, tmp_path, "synchronize")[1]
    assert stage.comment() == before


def test_without_a_capstone_an_opened_pull_request_costs_two_requests(stage: Stage, tmp_path: Path) -> None:
    before = len(stage.github.log)
    assert opened(stage, tmp_path)[:2] == (0, "there is no capstone.yml: nothing to do\n")
    assert len(stage.github.log) == before + 2
    assert stage.comments() == []
