"""Every reply that a command can get, word for word (`make golden` rewrites them), and the page that lists the verbs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from assay.baselines.errors import InputError
from assay.bot.cli import COMMANDS, assay
from assay.bot.slash import replies
from assay.bot.slash.operations import Reply
from assay.bot.slash.plan import plan
from assay.bot.slash.replies import help_text
from assay.bot.slash.route import verify
from assay.bot.slash.simulation import describe
from assay.bot.slash.snapshot import AcceptedFacts, CommandSnapshot, RunFacts
from assay.bot.slash.verbs import VERBS

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "slash"
ID = "3f6c1d52-8f0e-4b5e-9a41-0c6d2f1b7a90"
RUNNING = RunFacts(
    id=12, workflow="assay measure", url="https://github.com/acme/widgets/actions/runs/12", finished=False
)
DONE = RunFacts(id=11, workflow="assay measure", url="https://github.com/acme/widgets/actions/runs/11", finished=True)
ACCEPTED = AcceptedFacts(
    id=ID,
    task="hellaswag",
    reason="INT4 ships to 4 GB phones | see #12",
    by="octocat",
    expires="2027-01-31",
    pull=3,
    created=datetime(2026, 11, 1, tzinfo=UTC),
)


COMMENTED = datetime(2026, 11, 30, 8, 59, 50, tzinfo=UTC)


@dataclass
class Repository:
    """The answers that `verify` gets: a command that may run, but for what a test changes."""

    entry: dict[str, Any] | bytes | None = field(default_factory=dict)
    check: str | None = "in_progress"
    spent: bool = False
    state: str = "open"
    head: str = "4f2c9e1d0b7a" + "5" * 28

    def journal_list(self) -> list[str]:
        kept = [] if self.entry is None else [f"commands/7/4f2c9e1d0b7a/{ID}.ada.8.0.20261130T0900Z.json"]
        return [*kept, f"spent/2026-11/7/ada/{ID}.8.0.json"] if self.spent else kept

    def journal_get(self, path: str) -> bytes | None:
        if not isinstance(self.entry, dict):
            return self.entry
        entry = {
            "schema_version": 1, "id": ID, "pull": 7, "head_sha": "4f2c9e1d0b7a" + "5" * 28, "verb": "evaluate",
            "arguments": {"tasks": "arc_easy", "examples": "1000"}, "by": "ada", "comment": 41, "estimate_minutes": 8.0,
            "created": "2026-11-30T09:00:00+00:00",
        }  # fmt: skip
        return json.dumps(entry | self.entry).encode()

    def checks(self, head_sha: str, name: str | None = None) -> list[SimpleNamespace]:
        return [SimpleNamespace(external_id=ID, status=self.check)] if self.check is not None else []

    def pull(self, number: int) -> SimpleNamespace:
        return SimpleNamespace(state=self.state, head_sha=self.head)


def seen(body: str, **changes: Any) -> CommandSnapshot:
    facts: dict[str, Any] = {
        "repository": "acme/widgets",
        "now": datetime(2026, 11, 30, 9, 0, tzinfo=UTC),
        "id": ID,
        "comment": 41,
        "body": body,
        "author": "ada",
        "pull": 7,
        "head_sha": "4f2c9e1d0b7a" + "5" * 28,
        "permission": "write",
        "workflows": ("assay-run.yml", "assay-publish.yml"),
    }
    return CommandSnapshot(**{**facts, **changes})


def refused(**changes: Any) -> Callable[[], str]:
    """The one line with which `verify` refuses a command on a repository that is otherwise as it should be."""

    def words() -> str:
        with pytest.raises(InputError) as refusal:
            verify(ID, Repository(**changes), datetime(2026, 11, 30, 10, tzinfo=UTC))
        return str(refusal.value)

    return words


URL = "https://github.com/acme/widgets/actions/runs/12"
STARTED = "<!-- assay command=3f6c1d52-8f0e-4b5e-9a41-0c6d2f1b7a90 comment=41 -->\nStarted `evaluate`."
WORDS: dict[str, Callable[[], str]] = {
    "verify-unknown": refused(entry=None),
    "verify-garbled": refused(entry=b"{"),
    "verify-another": refused(entry={"id": "00000000-0000-0000-0000-000000000000"}),
    "verify-moved-entry": refused(entry={"pull": 8}),
    "verify-injected": refused(entry={"arguments": {"sha": "4" * 40}}),
    "verify-not-acknowledged": refused(check=None),
    "verify-carried-out": refused(check="completed"),
    "verify-spent": refused(spent=True),
    "verify-old": refused(entry={"created": "2026-11-27T09:00:00+00:00"}),
    "verify-closed": refused(state="closed"),
    "verify-moved": refused(head="91d0c3aa5e21" + "5" * 28),
    "failed": lambda: replies.failed("GitHub could not dispatch assay-run.yml: 422 no | `such` <input>."),
    "half-done": lambda: replies.half_done("GitHub could not store spent/2026-11/7: 500."),
    "running": lambda: replies.with_line(STARTED, URL, replies.running(URL)),
    "ended": lambda: replies.with_line(
        replies.with_line(STARTED, URL, replies.running(URL)),
        URL,
        replies.finished("evaluate", "✗ Accuracy regressed on mmlu", "4f2c9e1d0b7a" + "5" * 28, URL, 12.0),
    ),
    "voided": lambda: replies.with_line(
        replies.with_line(STARTED, URL, replies.running(URL)),
        URL,
        replies.voided("evaluate", "4f2c9e1d0b7a" + "5" * 28, URL),
    ),
}

CASES: dict[str, CommandSnapshot] = {
    "help": seen("/assay help"),
    "help-accept": seen("/assay help accept"),
    "help-milestones": seen("/assay help milestones", permission="read"),
    "help-unknown": seen("/assay help acept"),
    "evaluate": seen("/assay evaluate arc_easy examples=1000", spent_pull=100.0),
    "evaluate-growing": seen("/assay evaluate hellaswag,mmlu examples=4,000 --grow"),
    "unknown-verb": seen("/assay evalute arc_easy"),
    "unknown-option": seen("/assay evaluate arc_easy exampels=3"),
    "missing-argument": seen("/assay accept hellaswag expires=2027-01-31"),
    "too-many-words": seen("/assay evaluate arc_easy hellaswag"),
    "help-baseline": seen("/assay help baseline", permission="read"),
    "long-option": seen("/assay evaluate arc_easy --examples=2000"),
    "flag-with-value": seen("/assay evaluate arc_easy --grow=true"),
    "accept-nothing-of-a-drop": seen('/assay accept hellaswag reason="INT4 ships" expires=2027-01-31 up-to=0.0'),
    "closed-cancel": seen("/assay cancel", open=False, runs=(RUNNING,)),
    "rerun-not-approved": seen(
        "/assay rerun",
        runs=(DONE.model_copy(update={"conclusion": "action_required"}), DONE.model_copy(update={"id": 10})),
    ),
    "status-of-a-metric": seen(
        "/assay status", accepted=(ACCEPTED.model_copy(update={"metric": "acc_norm", "up_to": "1"}),)
    ),
    "open-quote": seen('/assay accept hellaswag reason="it is fine expires=2027-01-31'),
    "hostile": seen("/assay evaluate $(reboot)`id`;::set-env name=x::y|@octocat<img>"),
    "denied": seen("/assay evaluate arc_easy", permission="read"),
    "closed": seen("/assay evaluate arc_easy", open=False),
    "closed-status": seen("/assay status", open=False, permission="read"),
    "bad-policy-cancel": seen("/assay cancel", configuration="gates: {}", runs=(RUNNING,)),
    "no-workflow": seen("/assay bench softmax"),
    "over-budget-of-pull": seen("/assay evaluate examples=4000", spent_pull=235.0),
    "over-budget-of-user": seen("/assay evaluate arc_easy examples=2000", spent_user=1195.0),
    "bad-policy": seen("/assay evaluate arc_easy", configuration="gates: {}"),
    "accept": seen('/assay accept hellaswag reason="INT4 ships to 4 GB phones" expires=2027-01-31 up-to=3'),
    "accept-past": seen('/assay accept hellaswag reason="INT4 ships" expires=2026-11-29'),
    "accept-too-long": seen('/assay accept hellaswag reason="INT4 ships" expires=2027-11-29'),
    "accept-pool": seen('/assay accept pool reason="INT4 ships" expires=2027-01-31', metrics=("mmlu/acc", "arc/acc")),
    "accept-no-pool": seen(
        '/assay accept pool reason="INT4 ships" expires=2027-01-31',
        metrics=("mmlu/acc", "arc/acc"),
        configuration="gate: {pool: {enabled: false}}",
    ),
    "accept-no-pool-of-a-group": seen(
        '/assay accept pool:code reason="INT4 ships" expires=2027-01-31',
        metrics=None,
        configuration="gate: {groups: {talk: {tasks: [mmlu]}, code: {tasks: [humaneval], pool: {enabled: false}}}}",
    ),
    "accept-unknown-pool": seen(
        '/assay accept pool:tlak reason="INT4 ships" expires=2027-01-31',
        metrics=("mmlu/acc",),
        configuration="gate: {groups: {talk: {tasks: [mmlu]}}}",
    ),
    "accept-a-task-called-pool": seen(
        '/assay accept pool reason="it is smaller" expires=2027-01-31',
        metrics=(),
        compared=(("pool", "cycles"),),
        configuration="gate: {pool: {enabled: false}}",
    ),
    "accept-unknown-task": seen(
        '/assay accept hellaswga reason="INT4 ships" expires=2027-01-31',
        metrics=("hellaswag/acc", "hellaswag/acc_norm", "mmlu/acc"),
    ),
    "accept-unknown-metric": seen(
        '/assay accept hellaswag/acc_nrom reason="INT4 ships" expires=2027-01-31',
        metrics=("hellaswag/acc", "hellaswag/acc_norm", "mmlu/acc"),
    ),
    "accept-kernel": seen(
        '/assay accept c4096/latency reason="it fuses two" expires=2027-01-31',
        metrics=(),
        compared=(("c4096", "latency"), ("c1024", "latency")),
    ),
    "accept-unknown-kernel": seen(
        '/assay accept c4960 reason="it fuses two" expires=2027-01-31',
        metrics=("mmlu/acc",),
        compared=(("c4096", "latency"),),
    ),
    "accept-nothing-published": seen('/assay accept hellaswag reason="INT4 ships" expires=2027-01-31', metrics=()),
    "pushed-after": seen("/assay evaluate arc_easy", commented=COMMENTED, pushed=COMMENTED + timedelta(seconds=2)),
    "pushed-in-the-same-second": seen("/assay evaluate arc_easy", commented=COMMENTED, pushed=COMMENTED),
    "push-unknown": seen("/assay evaluate arc_easy", commented=COMMENTED),
    "push-unknown-but-busy": seen(
        "/assay evaluate arc_easy", commented=COMMENTED, last_push=COMMENTED + timedelta(seconds=1)
    ),
    "push-unknown-but-quiet": seen(
        "/assay evaluate arc_easy", commented=COMMENTED, last_push=COMMENTED - timedelta(seconds=1)
    ),
    "head-named": seen("/assay evaluate arc_easy head=4F2C9E1", commented=COMMENTED),
    "head-another": seen("/assay evaluate arc_easy head=91d0c3aa", commented=COMMENTED),
    "head-too-short": seen("/assay evaluate arc_easy head=4f2c9e"),
    "over-budget-by-what-runs": seen("/assay evaluate arc_easy", spent_pull=100.0, reserved_pull=135.0),
    "over-budget-of-group": seen(
        "/assay evaluate mmlu", metrics=tuple(f"mmlu_{subject}/acc" for subject in map(str, range(57)))
    ),
    "over-budget-of-rerun": seen("/assay rerun", runs=(DONE,), spent_pull=235.0),
    "over-budget-of-refresh": seen("/assay baseline refresh", spent_user=1195.0),
    "recommend": seen("/assay recommend floor=60 latency=1,250", workflows=("assay-recommend.yml",)),
    "recommend-impossible": seen("/assay recommend floor=60 latency=0"),
    "gate": seen("/assay gate", runs=(DONE,)),
    "gate-nothing": seen("/assay gate"),
    "gate-not-approved": seen("/assay gate", runs=(DONE.model_copy(update={"conclusion": "action_required"}),)),
    "gate-running": seen("/assay gate", runs=(RUNNING,)),
    "milestones": seen("/assay milestones", milestones="### Milestones of INT8: 1 of 3 done\n", permission="read"),
    "milestones-none": seen("/assay milestones", permission="read"),
    "baseline-show": seen(
        "/assay baseline", baseline="baseline/main/ab12cd34ef56/evaluation/91c4aaaaaaaa", permission="read"
    ),
    "baseline-none": seen("/assay baseline show", permission="read"),
    "baseline-refresh": seen("/assay baseline refresh"),
    "baseline-refresh-denied": seen("/assay baseline refresh", permission="read"),
    "rerun": seen("/assay rerun", runs=(DONE,)),
    "rerun-nothing": seen("/assay rerun", runs=(RUNNING,)),
    "cancel": seen("/assay cancel", runs=(RUNNING, DONE)),
    "cancel-nothing": seen("/assay cancel", runs=(DONE,)),
    "status": seen("/assay status", runs=(RUNNING, DONE), spent_pull=12.4, accepted=(ACCEPTED,), permission="read"),
    "status-of-200": seen(
        "/assay status",
        accepted=tuple(ACCEPTED.model_copy(update={"task": f"task_{i}"}) for i in range(200)),
        reserved_pull=43.0,
        reserved_user=63.0,
    ),
    "bare": seen("/evaluate arc_easy", configuration="commands: {bare: true}"),
}


@pytest.mark.parametrize("case", CASES)
def test_reply(case: str) -> None:
    text = describe(plan(CASES[case])) + "\n"
    path = GOLDEN / f"{case}.md"
    if os.environ.get("ASSAY_GOLDEN") == "write":
        path.write_text(text)
    assert path.read_text() == text


def test_every_golden_file_has_a_case() -> None:
    assert {p.stem for p in GOLDEN.glob("*.md")} == set(CASES) | set(WORDS)


def test_a_pool_of_another_base_branch_is_not_refused_by_a_policy_that_does_not_count() -> None:
    line = '/assay accept pool reason="INT4 ships" expires=2027-01-31'
    other = seen(line, configuration="gate: {pool: {enabled: false}}", base_ref="release")
    assert [type(o).__name__ for o in plan(other)] == ["React", "Reply", "Record", "Report", "React"]


@pytest.mark.parametrize("case", WORDS)
def test_words(case: str) -> None:
    """What is said after the plan: in the run's log by `assay command verify`, and in the reply as the run goes on."""
    text = WORDS[case]() + "\n"
    path = GOLDEN / f"{case}.md"
    if os.environ.get("ASSAY_GOLDEN") == "write":
        path.write_text(text)
    assert path.read_text() == text


def test_a_status_of_200_hostile_acceptances_fits_a_comment() -> None:
    """GitHub takes 65,536 characters; 500 of these become 2,500 as entities."""
    hostile = [ACCEPTED.model_copy(update={"task": "*" * 80, "by": "_" * 60, "reason": "<&>*" * 125})] * 200
    [reply] = [o for o in plan(seen("/assay status", accepted=tuple(hostile))) if isinstance(o, Reply)]
    assert len(reply.body) < 65_536
    assert "And 180 more" in reply.body


@pytest.mark.parametrize(
    "silent",
    [
        seen("/assay evaluate x", bot=True),
        seen("/assay evaluate x", action="edited"),
        seen("/assay evaluate x", pull=None),
        seen("/assay evaluate x", answered=True),
        seen("please /assay evaluate x"),
        seen("> /assay evaluate x"),
        seen("thanks\n/assay evaluate x"),
        seen("/evaluate x"),
        seen("/assayer evaluate x"),
        seen(""),
    ],
    ids=[
        "bot",
        "edited",
        "issue",
        "delivered-twice",
        "later-word",
        "quoted",
        "second-line",
        "bare",
        "other-word",
        "empty",
    ],
)
def test_what_is_not_for_us_is_left_alone(silent: CommandSnapshot) -> None:
    assert plan(silent) == []


def test_the_checklist_is_named_the_other_way_wherever_people_look_for_it() -> None:
    def said(*arguments: str) -> str:
        return " ".join(CliRunner().invoke(assay, arguments).output.split())

    for place in (said("capstone", "--help"), said("capstone", "status", "--help")):
        assert "`/assay milestones`" in place
    for place in (help_text("milestones"), said("milestones"), (ROOT / "docs" / "commands.md").read_text()):
        assert "`assay capstone status`" in place
    page = (ROOT / "docs" / "milestones.md").read_text()
    assert "`/assay milestones`" in page
    assert "`assay capstone status`" in page


@pytest.mark.parametrize("verb", [v.name for v in VERBS if v.name not in COMMANDS])
def test_a_verb_in_a_terminal_is_told_from_a_slip(verb: str) -> None:
    done = CliRunner().invoke(assay, [verb])
    assert done.exit_code == 2
    assert f"`/assay {verb}` is a comment on a pull request." in " ".join(done.output.split())
    assert "is a comment" not in CliRunner().invoke(assay, ["nosuch"]).output


def test_page_lists_the_registered_verbs() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    table = help_text().split("\n\n")[0]
    assert table in page, "copy the table of `/assay help` (tests/golden/slash/help.md) into docs/commands.md"
