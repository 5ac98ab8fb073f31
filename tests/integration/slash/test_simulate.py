"""`assay simulate` prints what the live run did: for every verb, for refusals, and for the end of a dispatched run."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.integration.bot.stage import Stage
from tests.integration.slash.talk import Talk
from tests.loopback import Loopback, events
from tests.loopback.fixtures import loopback

from assay.baselines.ledger.history import history
from assay.bot.commands.command import checklist, rebuild
from assay.bot.commands.simulate import simulate
from assay.bot.observe import event_facts, save
from assay.bot.reaction import react
from assay.bot.simulation import describe
from assay.bot.slash.observe import comment_facts
from assay.bot.slash.reaction import answer
from assay.bot.slash.route import check_name, redirect
from assay.bot.slash.simulation import describe as described
from assay.bot.slash.snapshot import CommandSnapshot
from assay.bot.slash.verbs import BY_NAME

__all__ = ["loopback"]
DAY = (datetime.now(UTC).date() + timedelta(days=30)).isoformat()
LINES = {
    "help": "/assay help accept",
    "evaluate": "/assay evaluate mmlu",
    "bench": "/assay bench",
    "compile": "/assay compile",
    "profile": "/assay profile",
    "quantize": "/assay quantize",
    "recommend": "/assay recommend",
    "gate": "/assay gate",
    "baseline": "/assay baseline refresh",
    "accept": f'/assay accept mmlu reason="it ships" expires={DAY}',
    "milestones": "/assay milestones",
    "rerun": "/assay rerun",
    "cancel": "/assay cancel",
    "status": "/assay status",
}
OTHERS = ["/assay baseline show", "/assay evalute mmlu", "/assay accept mmlu", "/assay evaluate mmlu --grow", "thanks!"]


@pytest.fixture
def talk(loopback: Loopback, tmp_path: Path) -> Talk:
    talk = Talk(Stage(loopback, tmp_path))
    talk.stage.react(talk.stage.measured(broke=60))
    return talk


def printed(payload: Any, snapshot: Path, *, with_event: bool) -> str:
    """What the command prints, from the snapshot alone or with the event file too."""
    event = snapshot.parent / "event.json"
    event.write_text(json.dumps(payload))
    arguments = [str(event)] if with_event else []
    done = CliRunner().invoke(simulate, [*arguments, "--snapshot", str(snapshot)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output.rstrip("\n")


def replays(talk: Talk, line: str, folder: Path) -> str:
    """Answer a line live and hold both replays against what was done; returns it in words."""
    payload = events.issue_comment(talk.stage.github, talk.repo, talk.repo.comment(talk.stage.number, line, "ada"))
    kept: list[CommandSnapshot] = []
    bot = talk.place.github()
    done = answer(
        comment_facts("issue_comment", payload),
        bot,
        talk.place.ledger(),
        partial(history, bot.repository),
        lambda head: rebuild(head, talk.place),
        checklist=lambda pull: checklist(pull, talk.place),
        keep=kept.append,
        pause=lambda _: None,
    )
    snapshot = folder / "command.json"
    snapshot.write_text(kept[-1].model_dump_json(indent=1))
    words = described(done)
    assert printed(payload, snapshot, with_event=True) == words
    assert printed(payload, snapshot, with_event=False) == words
    return words


def test_every_verb(talk: Talk, tmp_path: Path) -> None:
    assert LINES.keys() == BY_NAME.keys()
    said = {verb: replays(talk, line, tmp_path) for verb, line in LINES.items()}
    assert all("reply on pull request" in words for words in said.values()), said
    assert "dispatch assay-run.yml" in said["evaluate"]
    assert "append accepted/" in said["accept"]
    for line in OTHERS:
        replays(talk, line, tmp_path)


@pytest.mark.parametrize("conclusion", ["success", "failure"])
def test_the_end_of_a_dispatched_run(talk: Talk, tmp_path: Path, conclusion: str) -> None:
    """The event names the commit of the workflow's file; the pinned head and the command are the snapshot's."""
    talk.say("/assay evaluate mmlu")
    run = talk.newest()
    words = ended(talk, run, tmp_path, conclusion)
    assert "close check 'assay/evaluate'" in words
    assert "store spent/" in words
    assert "rewrite comment" in words  # the reply to the command


def test_the_end_of_another_commands_run_is_not_replayed_from_this_snapshot(talk: Talk, tmp_path: Path) -> None:
    talk.say("/assay evaluate mmlu")
    ended(talk, talk.newest(), tmp_path, "success")
    talk.say("/assay evaluate gsm8k")
    payload = events.workflow_run(talk.stage.github, talk.repo, talk.newest())
    (tmp_path / "event.json").write_text(json.dumps(payload))
    arguments = [str(tmp_path / "event.json"), "--snapshot", str(tmp_path / "pull" / "snapshot.json")]
    done = CliRunner().invoke(simulate, arguments)
    assert "give the snapshot that this run saved" in str(done.exception)


def test_pull_requests_that_share_a_head(talk: Talk, tmp_path: Path) -> None:
    """One of them closes the check; the other's replay says that it does not."""
    talk.repo.pull("feature")
    words = ended(talk, talk.stage.measured(broke=60), tmp_path, "success", both=2)
    assert words.count("close check") == 1


def ended(talk: Talk, run: int, folder: Path, conclusion: str, *, both: int = 1) -> str:
    """End a run live, and hold the replays of every pull request's snapshot against what was done."""
    if conclusion == "success":
        talk.stage.finish(run, broke=60)
    talk.repo.finish_run(run, conclusion)
    payload = json.loads(json.dumps(events.workflow_run(talk.stage.github, talk.repo, run)))
    bot = talk.place.github()
    bot.remember(payload["repository"])
    facts, verb = redirect(event_facts("workflow_run", payload), payload["workflow_run"]["display_title"], bot)
    kept: list[Any] = []
    answers = react(
        facts,
        bot,
        talk.place.ledger(),
        partial(history, bot.repository),
        folder / "store",
        lambda _: None,
        check_name=check_name(verb) if verb else "assay",
        keep=lambda seen, records: kept.append((seen, dict(records))),
    )
    assert len(answers) == both
    words = []
    for done, (seen, records) in zip(answers, kept[-both:], strict=True):
        snapshot = save(seen, records, folder / "pull")
        words.append(describe(done.plan))
        assert printed(payload, snapshot, with_event=True) == words[-1]
        assert printed(payload, snapshot, with_event=False) == words[-1]
    return "\n".join(words)
