"""Commands in process against the loopback: races, redelivery, failures on the way. No act."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.loopback import Loopback, Repository, Token, events, job_token
from tests.loopback.fixtures import client, ledger

from assay.baselines.errors import AssayError, InputError, ServiceError
from assay.baselines.ledger import Publication
from assay.bot.slash import entries
from assay.bot.slash.observe import comment_facts, observe
from assay.bot.slash.perform import perform
from assay.bot.slash.plan import plan
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
        answer(
            comment_facts("issue_comment", event),
            bot,
            shelf,
            lambda sha: [sha],
            lambda _: None,
            pause=lambda _: None,
        )
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
    """Whatever comes first, a command runs at the head that its author saw, or says that the branch was pushed to."""
    repo, old = scene.repo, scene.repo.issues[scene.number].head_sha
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(scene.say, "/assay evaluate arc_easy")
        second = pool.submit(scene.say, "/assay evaluate hellaswag")
        head = pool.submit(scene.push).result()
        comments = [first.result(), second.result()]
    [push] = [a for a in repo.activity if a["after"] == head]
    checks = {c.external_id: c.head_sha for c in repo.checks.values()}
    sent = {json.loads(d["inputs"]["arguments"])["tasks"]: d["inputs"] for d in repo.dispatches}
    reader = client(scene.github, READER)
    for comment, task in zip(comments, ("arc_easy", "hellaswag"), strict=True):
        [reply] = [r for r in scene.replies() if f" comment={comment} -->" in r]
        at_comment = head if push["when"] < repo.comments[comment].created else old
        if task not in sent:
            assert at_comment == old
            assert "The branch was pushed to after your comment" in reply
            continue
        identifier, pinned = sent[task]["id"], sent[task]["head"]
        assert checks[identifier] == pinned == at_comment
        assert f"at `{pinned[:12]}`" in reply
        if pinned == head:
            assert verify(identifier, reader).head_sha == head
        else:
            with pytest.raises(InputError, match="has moved"):
                verify(identifier, reader)


def test_a_push_between_the_comment_and_the_answer_is_not_pinned(scene: Scene) -> None:
    comment = scene.repo.comment(scene.number, "/assay evaluate arc_easy")
    head = scene.push()
    scene.say("/assay evaluate arc_easy", comment)
    [reply] = scene.replies()
    assert f"The branch was pushed to after your comment: its head is `{head[:12]}` now" in reply
    assert scene.repo.dispatches == []
    assert list(scene.repo.checks.values()) == []
    scene.say("/assay evaluate arc_easy")
    assert [d["inputs"]["head"] for d in scene.repo.dispatches] == [head]


def test_forged_commit_dates_change_nothing(scene: Scene) -> None:
    """A commit that was made long before the comment and pushed after it; and one that comes back by a forced push."""
    repo, first = scene.repo, scene.repo.issues[scene.number].head_sha
    early = repo.commit({"w": "9"}, branch=None, parents=(first,))
    comment = repo.comment(scene.number, "/assay evaluate arc_easy")
    assert repo.objects.commit(early).when < repo.comments[comment].created
    repo.move("refs/heads/feature", early)
    repo.synchronize(scene.number)
    scene.say("", comment)
    assert "was pushed to after your comment" in scene.replies()[-1]
    comment = repo.comment(scene.number, "/assay evaluate arc_easy")
    repo.move("refs/heads/feature", first)  # it was the head before, and is the head again since after the comment
    repo.synchronize(scene.number)
    scene.say("", comment)
    assert "was pushed to after your comment" in scene.replies()[-1]
    assert repo.dispatches == []


def test_where_pushes_are_not_listed_a_quiet_repository_is_enough(scene: Scene) -> None:
    """As for another owner's private fork, whose activity our token may not read: its last push to any branch came before."""
    scene.github.faults.add("status", method="GET", path="/activity", status=404, times=50)
    comment = scene.repo.comment(scene.number, "/assay evaluate arc_easy")
    scene.repo.commit({"w": "4"}, branch="elsewhere")
    scene.say("", comment)
    head = scene.repo.issues[scene.number].head_sha
    assert f"GitHub does not tell when `{head[:12]}` was pushed" in scene.replies()[-1]
    assert f"`head={head[:12]}`" in scene.replies()[-1]
    assert scene.repo.dispatches == []
    scene.say("/assay evaluate arc_easy")
    assert len(scene.repo.dispatches) == 1


def test_naming_the_head_settles_what_is_meant(scene: Scene) -> None:
    old = scene.repo.issues[scene.number].head_sha
    comment = scene.repo.comment(scene.number, f"/assay evaluate arc_easy head={old[:7]}")
    head = scene.push()
    scene.say("", comment)
    assert f"The head is `{head[:12]}`, not `{old[:7]}`" in scene.replies()[-1]
    comment = scene.repo.comment(scene.number, f"/assay evaluate arc_easy head={head[:9].upper()}")
    scene.say("", comment)
    [sent] = scene.repo.dispatches
    assert sent["inputs"]["head"] == head
    assert "head" not in json.loads(sent["inputs"]["arguments"])


def test_a_command_runs_once(scene: Scene) -> None:
    scene.say("/assay evaluate arc_easy")
    identifier = scene.repo.dispatches[0]["inputs"]["id"]
    reader = client(scene.github, READER)
    assert verify(identifier, reader).verb == "evaluate"
    with pytest.raises(InputError, match="days old"):
        verify(identifier, reader, datetime.now(UTC) + timedelta(days=3))
    month = f"{datetime.now(UTC):%Y-%m}"
    bot = client(scene.github, COMMANDER)
    bot.journal_put(f"spent/{month}/{scene.number}/ada/{identifier}.3.0.json", b"{}", "Spent")
    with pytest.raises(InputError, match="carried out already"):
        verify(identifier, reader)
    scene.say("/assay evaluate arc_easy")
    second = scene.repo.dispatches[1]["inputs"]["id"]
    [check] = [c for c in scene.repo.checks.values() if c.external_id == second]
    check.status, check.conclusion = "completed", "failure"
    with pytest.raises(InputError, match="carried out already"):
        verify(second, reader)


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


def test_an_apps_token_knows_its_own_replies(scene: Scene) -> None:
    """It may not ask `/user`, and is not github-actions[bot]."""
    app = Token("my-app[bot]", "installation", COMMANDER.permissions)
    comment = scene.repo.comment(scene.number, "/assay evaluate arc_easy")
    facts = comment_facts("issue_comment", events.issue_comment(scene.github, scene.repo, comment))
    for _ in range(2):
        shelf = ledger(scene.github, scene.folder / "cache", app)
        answer(facts, client(scene.github, app), shelf, lambda sha: [sha], lambda _: None, pause=lambda _: None)
    assert [c.author for c in scene.repo.comments_on(scene.number)] == ["ada", "my-app[bot]"]
    assert len(scene.repo.dispatches) == 1


def test_an_acceptance_that_was_written_down_is_not_told_as_failed(scene: Scene) -> None:
    def broken(head: str) -> None:
        raise ServiceError("GitHub could not list checks: 500.")

    day = (datetime.now(UTC).date() + timedelta(days=9)).isoformat()
    comment = scene.repo.comment(scene.number, f"/assay accept x reason=because expires={day}")
    facts = comment_facts("issue_comment", events.issue_comment(scene.github, scene.repo, comment))
    bot, shelf = client(scene.github, COMMANDER), Unreachable()
    with pytest.raises(ServiceError):
        answer(facts, bot, shelf, lambda sha: [sha], broken)
    [reply] = scene.replies()
    assert "ada accepts a regression of x" in reply
    assert "That much was done, but then something did not work" in reply
    assert any(path.startswith("accepted/") for path in bot.journal_list())


class Unreachable:
    """A ledger whose storage is away."""

    def publications(self, branch: str, kind: str | None = None) -> list[Publication]:
        raise ServiceError("the storage is away")


def test_a_double_that_was_answered_at_once_is_healed(scene: Scene) -> None:
    """Both deliveries saw no answer yet; the older reply stays, and its command alone is dispatched."""
    comment = scene.repo.comment(scene.number, "/assay evaluate arc_easy")
    event = events.issue_comment(scene.github, scene.repo, comment)
    facts = comment_facts("issue_comment", event)
    bots = [client(scene.github, COMMANDER), client(scene.github, COMMANDER)]
    shelf = ledger(scene.github, scene.folder / "cache", COMMANDER)
    plans = [plan(observe(facts, bot, shelf, lambda sha: [sha])) for bot in bots]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda pair: perform(pair[1], pair[0], lambda _: None), zip(bots, plans, strict=True)))
    assert sorted(done) == [False, True]
    assert len(scene.replies()) == 1
    assert len(scene.repo.dispatches) == 1
    assert len(scene.repo.checks) == 1


def test_reply_and_check_lead_to_the_run(scene: Scene) -> None:
    scene.say("/assay evaluate arc_easy")
    [reply] = scene.replies()
    run = scene.repo.dispatches[0]["run"]
    url = f"{scene.github.web}/acme/widgets/actions/runs/{run}"
    assert f"It runs: [Run]({url})." in reply
    [check] = scene.repo.checks.values()
    assert (check.details_url, check.status) == (url, "in_progress")


@pytest.mark.parametrize("how", ["lost", "unknown option"])
def test_a_run_that_did_start_is_found_by_its_title(scene: Scene, how: str) -> None:
    """A lost answer to the dispatch; and a server that refuses to say which run it started, as older ones do."""
    if how == "lost":
        scene.github.faults.add("lost", method="POST", path="/dispatches$", times=1)
    else:
        scene.repo.run_details = False
    scene.say("/assay evaluate arc_easy")
    [reply] = scene.replies()
    assert "That did not work" not in reply
    assert f"/actions/runs/{scene.repo.dispatches[0]['run']})" in reply
    assert len(scene.repo.dispatches) == 1
    assert [c.status for c in scene.repo.checks.values()] == ["in_progress"]


def test_a_dispatch_that_was_lost_and_never_started_is_void(scene: Scene) -> None:
    """GitHub answers 502 and starts nothing: the reply says so, and should a run appear after all, it may not measure."""
    scene.github.faults.add("status", method="POST", path="/dispatches$", status=502, times=1)
    with pytest.raises(AssayError):
        scene.say("/assay evaluate arc_easy")
    [reply] = scene.replies()
    assert "That did not work" in reply
    assert "Started" not in reply
    [check] = scene.repo.checks.values()
    assert check.status == "completed"
    with pytest.raises(InputError, match="carried out already"):
        verify(check.external_id, client(scene.github, READER))
    scene.say("/assay status")
    assert "Expected of what runs" not in scene.replies()[-1]  # nothing stays reserved


def test_what_runs_is_reserved(scene: Scene) -> None:
    scene.say("/assay evaluate arc_easy examples=20000")  # 103 minutes
    scene.say("/assay evaluate arc_easy examples=20000")
    assert len(scene.repo.dispatches) == 2
    scene.say("/assay evaluate arc_easy examples=20000")
    assert "34 of 240 are left for this pull request" in scene.replies()[-1]
    assert len(scene.repo.dispatches) == 2
    scene.say("/assay status")
    assert "Expected of what runs: 206 GPU minutes for this pull request, 206 by you." in scene.replies()[-1]


def test_two_commands_at_once_do_not_overdraw(scene: Scene) -> None:
    """Each fits alone and was planned before the other was written down."""
    bots, plans = [], []
    shelf = ledger(scene.github, scene.folder / "cache", COMMANDER)
    for task in ("arc_easy", "hellaswag"):
        comment = scene.repo.comment(scene.number, f"/assay evaluate {task} examples=40000")  # 203 minutes of 240
        facts = comment_facts("issue_comment", events.issue_comment(scene.github, scene.repo, comment))
        bots.append(client(scene.github, COMMANDER))
        plans.append(plan(observe(facts, bots[-1], shelf, lambda sha: [sha])))
    perform(plans[0], bots[0], lambda _: None)
    with pytest.raises(InputError, match="answered at the same time"):
        perform(plans[1], bots[1], lambda _: None)
    assert len(scene.repo.dispatches) == 1
    assert "That did not work: another command was answered at the same time" in scene.replies()[-1]


def test_rerun_and_refresh_are_counted(scene: Scene) -> None:
    repo, head = scene.repo, scene.repo.issues[scene.number].head_sha
    mine = repo.start_run(head, branch="feature", name="assay measure")
    client(scene.github, COMMANDER).create_check("assay", head, external_id=f"{mine}-1")
    repo.finish_run(mine)
    scene.say("/assay rerun")
    assert repo.runs[mine].attempt == 2
    scene.say("/assay status")
    assert "Spent: 18 of 240" in scene.replies()[-1]
    repo.commit({".github/workflows/assay-publish.yml": "on: workflow_dispatch"})
    scene.say("/assay baseline refresh")
    assert repo.dispatches[-1]["workflow"] == "assay-publish.yml"
    scene.say("/assay status")
    assert "Spent: 36 of 240" in scene.replies()[-1]


def test_the_default_branch_sets_the_budget(scene: Scene) -> None:
    scene.repo.commit({".github/assay.yml": "commands: {minutes-per-pull: 100000}"}, branch="generous")
    scene.repo.issues[scene.number].base_ref = "generous"
    scene.say("/assay evaluate arc_easy examples=100000")
    assert "of 240 are left" in scene.replies()[-1]


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
    scene.github.faults.add("status", method="GET", path="/pulls/", status=500, times=50)
    with pytest.raises(AssayError):
        scene.say("/help")  # perhaps meant for another bot
    assert len(scene.replies()) == 1


def test_another_bots_command_costs_two_requests(scene: Scene) -> None:
    before = len(scene.github.log)
    scene.say("/help")
    assert [e.path.rsplit("/", 2)[-2:] for e in scene.github.log[before:]] == [["pulls", "1"], [".github", "assay.yml"]]
    scene.repo.commit({".github/assay.yml": "commands: {bare: true}"})
    scene.say("/help")
    assert "| command | what it does | needs |" in scene.replies()[-1]


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


def test_what_runs_for_an_earlier_head_can_be_cancelled(scene: Scene) -> None:
    scene.say("/assay evaluate arc_easy")
    run = scene.repo.runs[scene.repo.dispatches[0]["run"]]
    scene.push()
    scene.say("/assay cancel")
    assert (run.status, run.conclusion) == ("completed", "cancelled")
    assert "Cancelled: [assay run]" in scene.replies()[-1]
    scene.say("/assay cancel")
    assert "Nothing runs" in scene.replies()[-1]


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
