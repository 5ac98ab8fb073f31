"""Slash commands of a consumer, from the comment to the report: act runs the documented workflows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.loopback.consumer import Consumer, names
from tests.loopback.consumer_fixtures import _fresh_cache, act_is_there, consumer, github

__all__ = ["_fresh_cache", "act_is_there", "consumer", "github"]


def test_evaluate_is_acknowledged_pinned_run_and_reported(consumer: Consumer) -> None:
    number = consumer.pull("asked", broke=28, fixed=8)
    consumer.say(number, "/assay evaluate toy examples=1000")
    [reply] = consumer.replies(number)
    assert "Started `evaluate examples=1000 tasks=toy` at" in reply
    assert consumer.reactions(number) == ["eyes", "rocket"]
    head = consumer.repo.issues[number].head_sha
    [sent] = consumer.repo.dispatches
    assert sent["workflow"] == "assay-run.yml"
    assert sent["inputs"]["head"] == head
    assert [(c.name, c.status, c.external_id) for c in consumer.repo.checks.values() if c.head_sha == head] == [
        ("assay/evaluate", "in_progress", sent["inputs"]["id"])
    ]
    run = consumer.run_dispatched()
    consumer.report(run)
    assert names(consumer.comments(number)) == ["## ✗ Accuracy regressed on toy"]
    assert consumer.checks(number) == [("assay/evaluate", "completed", "failure")]
    [reply] = consumer.replies(number)
    assert "ended: ✗ Accuracy regressed on toy" in reply


def test_a_push_voids_what_was_acknowledged(consumer: Consumer) -> None:
    number = consumer.pull("pushed", broke=28, fixed=8)
    consumer.say(number, "/assay evaluate toy")
    consumer.branch("pushed", start="pushed", sharpness=3.0)
    consumer.repo.synchronize(number)
    run = consumer.run_dispatched(expect=1)
    consumer.report(run)
    assert consumer.comments(number) == []  # nothing was measured, at either head
    old = [c for c in consumer.repo.checks.values() if c.external_id == consumer.repo.dispatches[-1]["inputs"]["id"]]
    assert [(c.status, c.conclusion) for c in old] == [("completed", "neutral")]
    assert "is void, and nothing was measured" in consumer.replies(number)[-1]


def test_accepting_turns_the_check_green_and_every_report_says_so(consumer: Consumer) -> None:
    number = consumer.pull("accepted", broke=28, fixed=8)
    run = consumer.measure(number)
    consumer.report(run)
    assert consumer.checks(number) == [("assay", "completed", "failure")]
    day = (datetime.now(UTC).date() + timedelta(days=30)).isoformat()
    consumer.say(number, f'/assay accept toy reason="ships to 4 GB phones | `rm -rf /`" expires={day} up-to=3')
    assert consumer.checks(number)[-1][2] == "success", consumer.comment(number)
    assert "ships to 4 GB phones" in consumer.comment(number)


def test_refusals_are_said(consumer: Consumer) -> None:
    """Every refusal's words are golden files; these go the whole way, and the last is no command."""
    number = consumer.pull("refused", broke=28, fixed=8)
    before = len(consumer.repo.dispatches)
    consumer.say(number, "\u00a0/Assay\u00a0evaluate $(reboot)")
    assert "is no name" in consumer.replies(number)[-1]
    assert consumer.reactions(number) == ["eyes", "confused"]
    consumer.say(number, "/assay evaluate toy", author="stranger")
    assert "needs write permission" in consumer.replies(number)[-1]
    count = len(consumer.replies(number))
    consumer.say(number, "I would not say /assay evaluate")
    assert len(consumer.replies(number)) == count
    assert len(consumer.repo.dispatches) == before
