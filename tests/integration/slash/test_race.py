"""Commands in process against the loopback: races, redelivery, failures on the way. No act."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.loopback import Loopback, Repository, events, job_token
from tests.loopback.fixtures import client, ledger

from assay.baselines.errors import AssayError, InputError
from assay.bot.slash import entries
from assay.bot.slash.observe import comment_facts
from assay.bot.slash.reaction import answer
from assay.bot.slash.replies import read_marker
from assay.bot.slash.route import verify

COMMANDER = job_token(contents="write", pull_requests="write", issues="write", checks="write", actions="write")
READER = job_token(contents="read", pull_requests="read", checks="read")


class Scene:
    """A pull request of a repository that has the dispatched workflow."""

    def __init__(self, github: Loopback, folder: Path) -> None:
        self.github, self.folder = github, folder
        self.repo: Repository = github.repo("acme/widgets")
        self.repo.commit({".github/workflows/assay-run.yml": "on: workflow_dispatch", "w": "1"})
        self.repo.permissions["ada"] = "write"
        self.repo.commit({"w": "2"}, branch="feature")
        self.number = self.repo.pull("feature")

    def say(self, body: str, comment: int | None = None) -> int:
        """Write a comment (or deliver one again) and answer it; returns the comment's id."""
        comment = comment if comment is not None else self.repo.comment(self.number, body)
        event = events.issue_comment(self.github, self.repo, comment)
        bot = client(self.github, COMMANDER)
        shelf = ledger(self.github, self.folder / "cache", COMMANDER)
        answer(comment_facts("issue_comment", event), bot, shelf, lambda sha: [sha], lambda _: None)
        return comment

    def replies(self) -> list[str]:
        return [c.body for c in self.repo.comments_on(self.number) if read_marker(c.body)]

    def push(self) -> str:
        self.repo.commit({"w": "3"}, branch="feature")
        return self.repo.synchronize(self.number)


@pytest.fixture
def scene(github_description: str | None, tmp_path: Path) -> Iterator[Scene]:
    with Loopback() as github:
        yield Scene(github, tmp_path)


def test_two_commands_and_a_push_at_once(scene: Scene) -> None:
    old = scene.repo.issues[scene.number].head_sha
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(scene.say, "/assay evaluate arc_easy")
        second = pool.submit(scene.say, "/assay evaluate hellaswag")
        head = pool.submit(scene.push).result()
        first.result(), second.result()
    assert len(scene.replies()) == 2
    assert len(scene.repo.dispatches) == 2
    checks = {c.external_id: c.head_sha for c in scene.repo.checks.values()}
    reader = client(scene.github, READER)
    for sent in scene.repo.dispatches:
        identifier, pinned = sent["inputs"]["id"], sent["inputs"]["head"]
        assert checks[identifier] == pinned
        assert pinned in (old, head)
        if pinned == head:
            assert verify(identifier, reader).head_sha == head
        else:
            with pytest.raises(InputError, match="has moved"):
                verify(identifier, reader)


def test_only_acknowledged_commands_may_run(scene: Scene) -> None:
    scene.say("/assay evaluate arc_easy")
    identifier = scene.repo.dispatches[0]["inputs"]["id"]
    reader = client(scene.github, READER)
    assert verify(identifier, reader).arguments == {"examples": "1000", "tasks": "arc_easy"}
    with pytest.raises(InputError, match="only commands that assay dispatched"):
        verify("00000000-0000-0000-0000-000000000000", reader)
    for check in scene.repo.checks.values():
        check.external_id = "another"
    with pytest.raises(InputError, match="was not acknowledged"):
        verify(identifier, reader)


def test_an_event_that_is_delivered_twice_is_answered_once(scene: Scene) -> None:
    comment = scene.say("/assay evaluate arc_easy")
    scene.say("/assay evaluate arc_easy", comment)
    assert len(scene.replies()) == 1
    assert len(scene.repo.dispatches) == 1


@pytest.mark.parametrize("path", ["/check-runs$", "/git/commits$", "/dispatches$"])
def test_a_failure_on_the_way_is_said_in_the_reply(scene: Scene, path: str) -> None:
    scene.github.faults.add("status", method="POST", path=path, status=422, times=50)
    with pytest.raises(AssayError):
        scene.say("/assay evaluate arc_easy")
    [reply] = scene.replies()
    assert "That did not work" in reply
    assert all(c.status == "completed" and c.conclusion == "failure" for c in scene.repo.checks.values())
    assert scene.repo.dispatches == []
    theirs = next(c for c in scene.repo.comments_on(scene.number) if c.author == "ada")
    assert [r["content"] for r in theirs.reactions] == ["eyes", "confused"]


def test_a_lost_reply_is_not_written_twice(scene: Scene) -> None:
    scene.github.faults.add("lost", method="POST", path="/comments$", times=1)
    scene.say("/assay evaluate arc_easy")
    assert len(scene.replies()) == 1
    assert len(scene.repo.dispatches) == 1


def test_what_was_spent_is_counted(scene: Scene) -> None:
    repo = scene.repo
    month = f"{datetime.now(UTC):%Y-%m}"
    name = "00000000-0000-0000-0000-00000000000"
    files = {f"spent/{month}/{scene.number}/ada/{name}{i}.{m}.json": "{}" for i, m in enumerate(("100.0", "130.5"))}
    repo.commit(files, branch="assay-journal", parents=())
    scene.say("/assay evaluate arc_easy examples=2000")
    assert "10 of 240 are left" in scene.replies()[-1]
    assert repo.dispatches == []
    scene.say("/assay status")
    assert "230 of 240 GPU minutes" in scene.replies()[-1]


def test_what_cannot_be_looked_at_is_said(scene: Scene) -> None:
    scene.github.faults.add("status", method="GET", path="/permission$", status=500, times=50)
    with pytest.raises(AssayError):
        scene.say("/assay evaluate arc_easy")
    [reply] = scene.replies()
    assert "That did not work" in reply
    with pytest.raises(AssayError):
        scene.say("/help")  # perhaps meant for another bot
    assert len(scene.replies()) == 1


def test_other_workflows_are_left_alone(scene: Scene) -> None:
    repo, head = scene.repo, scene.repo.issues[scene.number].head_sha
    lint = repo.start_run(head, branch="feature", name="lint")
    scene.say("/assay cancel")
    assert repo.runs[lint].status == "in_progress"
    repo.finish_run(lint)
    scene.say("/assay rerun")
    assert repo.runs[lint].attempt == 1
    mine = repo.start_run(head, branch="feature", name="assay measure")
    client(scene.github, COMMANDER).create_check("assay", head, external_id=f"{mine}-1")
    scene.say("/assay cancel")
    assert (repo.runs[mine].status, repo.runs[mine].conclusion) == ("completed", "cancelled")


@pytest.mark.parametrize(
    "changes", [{"reason": "x"}, {"up_to": "nan"}, {"up_to": "101"}, {"expires": "soon"}, {"task": ""}, {"by": 7}]
)
def test_a_malformed_acceptance_is_left_out(scene: Scene, changes: dict[str, object]) -> None:
    day = (datetime.now(UTC).date() + timedelta(days=9)).isoformat()
    entry = {
        "id": "i",
        "task": "t",
        "reason": "because",
        "by": "ada",
        "expires": day,
        "pull": 1,
        "created": f"{day}T00:00:00Z",
    }
    good, bad = json.dumps(entry), json.dumps({**entry, **changes})
    name = "00000000-0000-0000-0000-00000000000"
    files = {f"accepted/{day}/{name}{i}.json": text for i, text in enumerate((good, bad, "[]", "{"))}
    scene.repo.commit(files, branch="assay-journal", parents=())
    bot = client(scene.github, COMMANDER)
    found = entries.accepted(bot.journal_list(), bot.journal_get, datetime.now(UTC).date())
    assert [e.task for e in found] == ["t"]
    assert entries.as_policy(found)[0].reason == "because"
