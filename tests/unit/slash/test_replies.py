"""Every reply that a command can get, word for word (`make golden` rewrites them), and the page that lists the verbs."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assay.bot.slash.plan import plan
from assay.bot.slash.replies import help_text
from assay.bot.slash.simulation import describe
from assay.bot.slash.snapshot import AcceptedFacts, CommandSnapshot, RunFacts

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


CASES: dict[str, CommandSnapshot] = {
    "help": seen("/assay help"),
    "help-accept": seen("/assay help accept"),
    "help-unknown": seen("/assay help acept"),
    "evaluate": seen("/assay evaluate arc_easy examples=1000", spent_pull=100.0),
    "evaluate-growing": seen("/assay evaluate hellaswag,mmlu examples=4,000 --grow"),
    "unknown-verb": seen("/assay evalute arc_easy"),
    "unknown-option": seen("/assay evaluate arc_easy exampels=3"),
    "missing-argument": seen("/assay accept hellaswag expires=2027-01-31"),
    "too-many-words": seen("/assay evaluate arc_easy hellaswag"),
    "open-quote": seen('/assay accept hellaswag reason="it is fine expires=2027-01-31'),
    "hostile": seen("/assay evaluate $(reboot)`id`;::set-env name=x::y|@octocat<img>"),
    "denied": seen("/assay evaluate arc_easy", permission="read"),
    "closed": seen("/assay evaluate arc_easy", open=False),
    "no-workflow": seen("/assay bench softmax"),
    "over-budget-of-pull": seen("/assay evaluate examples=4000", spent_pull=235.0),
    "over-budget-of-user": seen("/assay evaluate arc_easy examples=2000", spent_user=1195.0),
    "bad-policy": seen("/assay evaluate arc_easy", configuration="gates: {}"),
    "accept": seen('/assay accept hellaswag reason="INT4 ships to 4 GB phones" expires=2027-01-31 up-to=3'),
    "accept-past": seen('/assay accept hellaswag reason="INT4 ships" expires=2026-11-29'),
    "accept-too-long": seen('/assay accept hellaswag reason="INT4 ships" expires=2027-11-29'),
    "gate": seen("/assay gate", runs=(DONE,)),
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
    assert {p.stem for p in GOLDEN.glob("*.md")} == set(CASES)


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


def test_page_lists_the_registered_verbs() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    table = help_text().split("\n\n")[0]
    assert table in page, "copy the table of `/assay help` (tests/golden/slash/help.md) into docs/commands.md"
