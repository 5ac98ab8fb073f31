"""A whole comment run against the loopback: cut off after any request, disturbed at any request, or run twice at once."""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests import evidence
from tests.loopback import Loopback, Repository, events
from tests.loopback.fixtures import REPOSITORY, client, ledger

from assay.baselines.errors import AssayError
from assay.baselines.ledger.history import history
from assay.baselines.record import write_record
from assay.bot.observe import event_facts, observe
from assay.bot.perform import perform
from assay.bot.plan import plan

REQUESTS = {"requested": 2, "completed": 26}
"""The most requests of an undisturbed first run on either event."""


@dataclass
class Scene:
    """A pull request that lost accuracy, measured by a run that has finished, with a baseline on main."""

    github: Loopback
    repo: Repository
    number: int
    run: int
    scratch: Path
    turns: itertools.count[int]

    def react(self, action: str, run: int | None = None) -> None:
        """What `assay comment` does in the workflow that this event starts."""
        payload = json.loads(json.dumps(events.workflow_run(self.github, self.repo, run or self.run, action)))
        bot = client(self.github)
        folder = self.scratch / f"turn{next(self.turns)}"
        folder.mkdir()
        facts = event_facts("workflow_run", payload)
        shelf = ledger(self.github, folder / "cache")
        seen = observe(facts, bot, shelf, lambda sha: history(bot.repository, sha), folder)
        for snapshot, records in seen:
            perform(plan(snapshot, records).operations, bot, lambda text: None)

    def complete(self) -> None:
        """One comment with the verdict, and every check of the head closed as failure."""
        (comment,) = self.repo.comments_on(self.number)
        assert "regressed on mmlu" in comment.body
        assert f"run={self.run} " in comment.body
        (check,) = self.repo.checks.values()
        assert (check.status, check.conclusion) == ("completed", "failure")


@pytest.fixture
def scene(loopback: Loopback, tmp_path: Path) -> Scene:
    repo = loopback.repo(REPOSITORY)
    base = repo.commit({"weights.txt": "1"})
    head = repo.commit({"weights.txt": "2"}, branch="feature")
    number = repo.pull("feature")
    before, after = evidence.outcomes(2000, 80, 30)
    published = evidence.evaluation({"mmlu": before}, commit=base)
    ledger(loopback, tmp_path / "cache").publish(
        write_record(tmp_path / "base", published.evidence, published.rows), "main"
    )
    run = repo.start_run(head, branch="feature")
    measured = evidence.evaluation({"mmlu": after}, commit=head, run_id=run)
    write_record(tmp_path / "head", measured.evidence, measured.rows)
    repo.upload(run, "assay-evidence", tmp_path / "head")
    repo.finish_run(run)
    loopback.log.clear()
    return Scene(loopback, repo, number, run, tmp_path, itertools.count())


def test_the_number_of_requests_is_what_the_cut_tests_cover(scene: Scene) -> None:
    for action, expected in REQUESTS.items():
        scene.github.log.clear()
        scene.react(action)
        assert len(scene.github.log) <= expected, [f"{e.method} {e.path}" for e in scene.github.log]
    scene.complete()


@pytest.mark.parametrize(
    ("action", "index"), [(action, index) for action, most in REQUESTS.items() for index in range(1, most + 1)]
)
def test_a_run_that_dies_after_any_request_is_repaired_by_the_next(scene: Scene, action: str, index: int) -> None:
    if action == "completed":
        scene.react("requested")
    scene.github.faults.die_after(index)
    try:
        scene.react(action)
    except AssayError:
        assert scene.github.faults.dead
    scene.github.faults.clear()
    if action == "requested":
        scene.react("requested")
    scene.react("completed")
    scene.complete()


@pytest.mark.parametrize("kind", ["lost", "reset", "status", "truncated", "secondary"])
@pytest.mark.parametrize("index", range(REQUESTS["completed"]))
def test_one_failure_anywhere_is_repaired_by_the_next_run_at_the_latest(scene: Scene, index: int, kind: str) -> None:
    scene.react("requested")
    scene.github.faults.add(kind, skip=index)  # type: ignore[arg-type]
    try:
        scene.react("completed")
    except AssayError:
        scene.github.faults.clear()
        scene.react("completed")
    scene.github.faults.clear()
    scene.complete()


@pytest.mark.parametrize("round_", range(4))
def test_two_runs_at_once_leave_one_comment(scene: Scene, round_: int) -> None:
    scene.react("requested")
    failed: list[BaseException] = []
    gate = threading.Barrier(2)

    def react() -> None:
        gate.wait()
        try:
            scene.react("completed")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=react) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    scene.complete()
