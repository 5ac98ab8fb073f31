"""What a report costs: the real command on a pull request of 57 tasks and 14,042 examples stays under 15 API calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.flows import World, is_call
from tests.loopback import Loopback
from tests.loopback.fixtures import REPOSITORY, client, ledger, measured

from assay.baselines.ledger.release import ReleaseLedger

LIMIT = 15


@pytest.mark.parametrize("private", [False, True], ids=["public", "private"])
def test_a_report_of_57_tasks_costs_under_15_calls(loopback: Loopback, tmp_path: Path, private: bool) -> None:
    """With a plot, and where people have accepted twenty regressions; a command that shows none does not read them."""
    here = World(loopback, tmp_path, published=2, private=private)
    here.accept(20)
    run = here.start()
    here.report("requested", run, "requested")
    here.finish(run)
    here.report("completed", run, "completed")
    calls = [f"{e.method} {e.path}" for e in here.log["completed"] if is_call(e)]
    assert len(calls) < LIMIT, calls
    (comment,) = here.repo.comments_on(here.number)
    assert "57 tasks" in comment.body
    assert "assay-journal/plots/" in comment.body
    (check,) = (c for c in here.repo.checks.values() if c.head_sha == here.head)
    assert check.status == "completed"
    for flow, most in (("/assay help", 8), ("/assay status", 14)):
        here.say(flow, flow)
        calls = [f"{e.method} {e.path}" for e in here.log[flow] if is_call(e)]
        assert len(calls) <= most, calls
    assert here.repo.comments_on(here.number)[-1].body.count("octocat") >= 20
    assert not loopback.requests("GET", "/contents/accepted/")


def test_where_the_public_address_gives_nothing_the_api_is_asked(loopback: Loopback, tmp_path: Path) -> None:
    repo = loopback.repo(REPOSITORY, private=True)
    made = ledger(loopback, tmp_path / "publisher").publish(measured(tmp_path / "r", repo.commit({"a": "1"})), "main")
    reader = ReleaseLedger(client(loopback).repository, tmp_path / "cache", pause=lambda _: None, public=True)
    assert reader.fetch(made).rows is not None
    asked = loopback.requests("GET", "/releases/(download|assets)/")
    assert [(e.status, e.login is None) for e in asked] == [(404, True), (302, False)] * 2  # no token at the public one
