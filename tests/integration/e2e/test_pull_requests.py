"""Pull requests of a consumer, from the push to the comment: act runs the documented workflows and our composite actions."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from tests.loopback.consumer import Consumer, names


def test_baseline_is_one_complete_release(consumer: Consumer) -> None:
    [release] = consumer.repo.published("baseline/main/")
    assert release.tag.startswith(f"baseline/main/{consumer.repo.refs['refs/heads/main'][:12]}/evaluation/")
    assert release.prerelease
    assert not release.latest
    assert {a.name for a in release.assets.values()} == {"evidence.json", "rows.parquet", "badge.svg"}
    assert not consumer.repo.drafts()
    badge = consumer.repo.file("badges/main.svg", "assay-journal")
    assert badge is not None
    assert b"accuracy: 60.0%" in badge


def test_equal(consumer: Consumer) -> None:
    number = consumer.pull("sharper", sharpness=2.0)
    run = consumer.measure(number)
    assert consumer.checks(number) == [("assay", "in_progress", None)]
    consumer.report(run)
    assert names(consumer.comments(number)) == ["## ✓ Accuracy is equivalent"]
    assert "0 / 0" in consumer.comment(number)
    assert consumer.checks(number) == [("assay", "completed", "success")]


def test_two_percent_drop_is_blocked_and_shows_which_examples_changed(consumer: Consumer) -> None:
    number = consumer.pull("drop", broke=28, fixed=8)
    consumer.report(consumer.measure(number, opened=False))
    comment = consumer.comment(number)
    assert names([comment]) == ["## ✗ Accuracy regressed on toy"]
    assert "lost 2.0 points, from 0.600 to 0.580: 28 examples broke and 8 were fixed, of 1,000" in comment
    assert consumer.checks(number) == [("assay", "completed", "failure")]
    flipped = [line for line in comment.splitlines() if line.startswith(("| broke |", "| fixed |"))]
    assert len(flipped) == 20
    wrong = {int(line.split("example ")[1].split(",")[0]) for line in flipped if line.startswith("| broke")}
    assert wrong <= set(range(400, 428))
    [release] = consumer.repo.published("baseline/main/")
    assert release.tag in comment


def test_improvement(consumer: Consumer) -> None:
    number = consumer.pull("better", broke=4, fixed=30)
    consumer.report(consumer.measure(number, opened=False))
    assert names(consumer.comments(number)) == ["## ✓ Accuracy improved on toy"]
    assert consumer.checks(number) == [("assay", "completed", "success")]


def test_fork(consumer: Consumer) -> None:
    number = consumer.pull("from-bob", broke=28, fixed=8, fork="bob/widgets")
    run = consumer.measure(number)
    assert consumer.comments(number) == []  # its own token could not have written
    consumer.report(run)
    assert names(consumer.comments(number)) == ["## ✗ Accuracy regressed on toy"]
    assert consumer.checks(number)[-1] == ("assay", "completed", "failure")


def test_rerun_and_push_keep_one_comment(consumer: Consumer) -> None:
    number = consumer.pull("moving", broke=28, fixed=8)
    run = consumer.measure(number)
    consumer.report(run)
    assert names(consumer.comments(number)) == ["## ✗ Accuracy regressed on toy"]
    consumer.measure(number, run=run, attempt=2)
    consumer.report(run)
    assert f"<!-- assay run={run} attempt=2 " in consumer.comment(number)
    old_head = consumer.repo.issues[number].head_sha
    consumer.branch("moving", start="moving", sharpness=3.0)
    head = consumer.repo.synchronize(number)
    newer = consumer.measure(number)
    consumer.report(newer)
    assert names(consumer.comments(number)) == ["## ✓ Accuracy is equivalent"]
    consumer.report(run)  # the older head's job comes late: its verdict stands, and it leaves the comment alone
    assert names(consumer.comments(number)) == ["## ✓ Accuracy is equivalent"]
    assert f"head={head[:12]}" in consumer.comment(number)
    assert [c.conclusion for c in consumer.repo.checks.values() if c.head_sha == old_head][-1] == "failure"


def test_two_runs_racing_leave_one_comment(consumer: Consumer) -> None:
    number = consumer.pull("racing", broke=28, fixed=8)
    first, second = consumer.measure(number), consumer.measure(number)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(consumer.report, [first, second]))
    consumer.report(first)
    assert len(consumer.comments(number)) == 1
    assert f"run={second} " in consumer.comment(number)


def test_no_baseline(consumer: Consumer) -> None:
    consumer.git("branch", "-f", "release", "main")
    consumer.repo.import_clone(consumer.clone)
    number = consumer.pull("to-release", broke=28, base="release")
    consumer.report(consumer.measure(number, opened=False))
    assert names(consumer.comments(number)) == ["## – No baseline to compare with yet"]
    assert consumer.checks(number) == [("assay", "completed", "neutral")]


def test_crash_of_the_evaluation_is_no_regression(consumer: Consumer) -> None:
    number = consumer.pull("broken", crash=True)
    run = consumer.measure(number, expect=1)
    consumer.report(run)
    assert names(consumer.comments(number)) == ["## ✗ The measurement failed"]
    assert "not a regression" in consumer.comment(number)
    assert consumer.checks(number) == [("assay", "completed", "failure")]


def test_snapshot_of_a_live_run_replays(consumer: Consumer) -> None:
    """`assay simulate` on what a live run saved prints the operations that it performed."""
    number = consumer.pull("replay", broke=28, fixed=8)
    run = consumer.measure(number)
    workflow = consumer.clone / ".github" / "workflows" / "assay-report.yml"
    before = workflow.read_text()
    seen = consumer.folder / "seen"
    try:
        workflow.write_text(before.replace("        with:\n", f"        with:\n          snapshot: {seen}\n"))
        consumer.report(run)
    finally:
        workflow.write_text(before)
    from assay.bot.observe import load
    from assay.bot.operations import CloseCheck, CreateComment
    from assay.bot.plan import plan

    snapshot, records = load(seen / f"pull-{number}" / "snapshot.json")
    operations = plan(snapshot, records).operations
    [create] = [o for o in operations if isinstance(o, CreateComment)]
    [close] = [o for o in operations if isinstance(o, CloseCheck)]
    assert create.body == consumer.comment(number)
    assert close.conclusion.value == "failure"
    assert json.loads((seen / f"pull-{number}" / "snapshot.json").read_text())["pull"]["number"] == number
