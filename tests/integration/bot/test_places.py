"""Forks, closed and moved pull requests, tokens that may less, private repositories, other servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.bot.stage import Stage, headline
from tests.loopback import Loopback, Token, events, job_token
from tests.loopback.fixtures import WRITER, client
from tests.loopback.state import FORK_TOKEN

from assay.baselines.errors import ServiceError
from assay.bot.cli import main

RESULT = "## ✗ Accuracy regressed on mmlu"


def without(resource: str, level: str = "read") -> Token:
    return Token(permissions={**WRITER.permissions, resource: level})


def forked(stage: Stage, owner: str, branch: str = "smaller") -> tuple[int, int]:
    """A pull request from a fork, and its measuring run."""
    fork = stage.repo.fork(f"{owner}/widgets")
    fork.refs[f"refs/heads/{branch}"] = stage.head
    number = stage.repo.pull(branch, fork=fork, author=owner)
    return number, stage.start(branch=branch, head_repository=fork)


def test_a_fork_is_found_by_its_head(stage: Stage) -> None:
    stage.repo.issues[stage.number].state = "closed"
    number, run = forked(stage, "bob")
    event = events.workflow_run(stage.github, stage.repo, run)
    assert event["workflow_run"]["pull_requests"] == []
    stage.react(run, "requested")
    stage.finish(run, broke=60)
    stage.react(run)
    assert headline(stage.comment(number)) == RESULT
    assert stage.verdict(run) == ("completed", "failure")
    assert stage.comments() == []


def test_two_forks_with_the_same_head_are_told_apart(stage: Stage) -> None:
    stage.repo.issues[stage.number].state = "closed"
    bob, run = forked(stage, "bob")
    eve, _ = forked(stage, "eve", "other")
    stage.finish(run, broke=60)
    stage.react(run)
    assert len(stage.comments(bob)) == 1
    assert stage.comments(eve) == []


def test_two_pull_requests_with_one_head_share_a_check_that_the_worse_one_closes(stage: Stage) -> None:
    stage.repo.commit({"x": "1"}, branch="release", parents=())
    other = stage.repo.pull("feature", base="release")
    stage.repo.refs["refs/heads/release"] = stage.base
    run = stage.start()
    stage.react(run, "requested")
    stage.finish(run, broke=60)
    stage.react(run)
    assert headline(stage.comment()) == RESULT
    assert headline(stage.comment(other)) == "## – No baseline to compare with yet"
    assert stage.verdict(run) == ("completed", "failure")


def test_one_pull_request_that_refuses_comments_does_not_keep_the_other_from_its_own(stage: Stage) -> None:
    other = stage.repo.pull("feature")
    run = stage.measured(broke=60)
    stage.github.faults.add("status", method="POST", path=f"/issues/{stage.number}/comments", status=403, times=9)
    with pytest.raises(ServiceError, match=f"comment on {stage.number}"):
        stage.react(run)
    assert headline(stage.comment(other)) == RESULT
    assert stage.verdict(run) == ("completed", "failure")
    assert len(stage.summary) == 2


def test_a_closed_pull_request_gets_no_comment_and_its_check_ends(stage: Stage) -> None:
    run = stage.start()
    stage.react(run, "requested")
    stage.finish(run, broke=60)
    stage.repo.issues[stage.number].state = "closed"
    stage.react(run)
    assert stage.comments() == []
    assert stage.verdict(run) == ("completed", "neutral")


def test_a_head_that_moved_between_measuring_and_reporting(stage: Stage) -> None:
    run = stage.start()
    stage.react(run, "requested")
    stage.finish(run, broke=60)
    newer = stage.repo.commit({"weights.txt": "3"}, branch="feature")
    stage.repo.synchronize(stage.number)
    stage.react(run)
    assert stage.comments() == []
    assert stage.verdict(run) == ("completed", "neutral")
    assert "Superseded" in (stage.check(run).title or "")
    assert stage.checks(newer) == []


@pytest.mark.parametrize("token", [without("issues"), FORK_TOKEN], ids=["no comments", "read only"])
def test_a_token_that_may_not_comment(stage: Stage, token: Token) -> None:
    run = stage.measured(broke=60)
    if token is not FORK_TOKEN:
        token = Token(permissions={**token.permissions, "pull-requests": "read"})
    with pytest.raises(ServiceError, match="check the workflow's `permissions:`") as caught:
        stage.react(run, token=token)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)
    assert stage.comments() == []
    [summary] = stage.summary
    assert headline(summary) == RESULT
    assert "assay-journal" not in summary or stage.repo.sha("assay-journal") is not None


def test_without_contents_write_the_picture_is_left_out(stage: Stage) -> None:
    run = stage.measured(broke=60)
    stage.react(run, token=without("contents"))
    body = stage.comment()
    assert headline(body) == RESULT
    assert "quadrantChart" in body
    for text in (body, stage.check(run).summary or "", *stage.summary):
        assert "assay-journal" not in text
    assert stage.verdict(run) == ("completed", "failure")
    stage.react(run)  # the permission is granted: the picture comes
    assert "/raw/assay-journal/plots/" in stage.comment()


def test_a_journal_that_somebody_tampered_with(stage: Stage) -> None:
    """Another file lies where the plot belongs: the plot is left out, and the verdict is not."""
    run = stage.measured(broke=60)
    stage.react(run)
    path = stage.comment().partition("/raw/assay-journal/")[2].partition(")")[0]
    stage.repo.commit({path: "<svg/>"}, branch="assay-journal")
    stage.repo.comments.clear()
    stage.react(run)
    assert headline(stage.comment()) == RESULT
    assert "assay-journal" not in stage.comment()


def test_no_permission_for_checks(stage: Stage) -> None:
    run = stage.measured(broke=60)
    with pytest.raises(ServiceError, match="open the check"):
        stage.react(run, token=without("checks"))
    assert headline(stage.comment()) == RESULT
    assert headline(stage.summary[0]) == RESULT


def test_private_repository(loopback: Loopback, tmp_path: Path) -> None:
    stage = Stage(loopback, tmp_path, private=True)
    run = stage.measured(broke=60)
    bot = client(loopback)
    bot.server_url = "https://github.com"
    stage.react(run, bot=bot)
    [image] = [line for line in stage.comment().splitlines() if line.startswith("[![")]
    assert "](https://github.com/acme/widgets/raw/assay-journal/plots/" in image
    assert "raw.githubusercontent.com" not in stage.comment()


def test_public_repository_of_github(stage: Stage) -> None:
    run = stage.measured(broke=60)
    bot = client(stage.github)
    bot.server_url = "https://github.com"
    stage.react(run, bot=bot)
    assert "](https://raw.githubusercontent.com/acme/widgets/assay-journal/plots/" in stage.comment()


def arguments(stage: Stage, event: Path, summary: Path, token: Token = WRITER) -> list[str]:
    return ["comment", "--event", str(event), "--repository", "acme/widgets", "--api-url", stage.github.url,
            "--server-url", stage.github.web, "--github-token", stage.github.token(token), "--summary", str(summary)]  # fmt: skip


def test_enterprise_server_by_the_command(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole command, as the action calls it, with an API below /api/v3 and links to the server."""
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    run = stage.start()
    assert stage.github.url.endswith("/api/v3")
    event, summary = tmp_path / "event.json", tmp_path / "summary.md"
    for action in ("requested", "completed"):
        event.write_text(json.dumps(events.workflow_run(stage.github, stage.repo, run, action)))
        with pytest.raises(SystemExit) as left:
            main(arguments(stage, event, summary))
        assert left.value.code == 0
        if action == "requested":
            assert stage.verdict(run) == ("in_progress", None)
            stage.finish(run, broke=60)
    assert f"pull request {stage.number}: regressed" in capsys.readouterr().out
    assert f"]({stage.github.web}/acme/widgets/raw/assay-journal/plots/" in stage.comment()
    assert headline(summary.read_text()) == RESULT
    assert stage.verdict(run) == ("completed", "failure")


def test_a_read_only_token_by_the_command(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    run = stage.measured(broke=60)
    event, summary = tmp_path / "event.json", tmp_path / "summary.md"
    event.write_text(json.dumps(events.workflow_run(stage.github, stage.repo, run)))
    with pytest.raises(SystemExit) as left:
        main(arguments(stage, event, summary, FORK_TOKEN))
    assert left.value.code == 3
    assert headline(summary.read_text()) == RESULT
    errors = [line for line in capsys.readouterr().err.splitlines() if "could not comment" in line]
    assert len(errors) == 1
    assert stage.comments() == []


@pytest.mark.parametrize(
    "event",
    ["{}", "[]", "not json", '{"workflow_run": {"id": "x"}}', '{"workflow_run": {"id": Infinity}}', "[" * 100_000],
)
def test_events_that_are_none(stage: Stage, event: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "event.json"
    path.write_text(event)
    with pytest.raises(SystemExit) as left:
        main(arguments(stage, path, tmp_path / "summary.md"))
    assert left.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("assay: ")


def test_anonymous_reading_is_enough_to_look(stage: Stage) -> None:
    run = stage.measured(broke=60)
    with pytest.raises(ServiceError):
        stage.react(run, token=None)
    assert stage.comments() == []


def test_job_token_without_any_permission(stage: Stage) -> None:
    with pytest.raises(ServiceError, match="permission"):
        stage.react(stage.measured(broke=60), token=job_token())
