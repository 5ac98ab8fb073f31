"""Every comment that the bot can write, word for word (`make golden` rewrites the files after a deliberate change)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.states import STATES

from assay.bot.operations import CloseCheck, CreateComment, WriteSummary
from assay.bot.plan import plan

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.mark.parametrize("state", STATES)
def test_comment_of_state(state: str) -> None:
    made = STATES[state]()
    planned = plan(made.snapshot, made.records)
    [close] = [o for o in planned.operations if isinstance(o, CloseCheck)]
    comments = [o for o in planned.operations if isinstance(o, CreateComment)]
    [summary] = [o for o in planned.operations if isinstance(o, WriteSummary)]
    body = comments[0].body if comments else summary.text
    place = "comment" if comments else "step summary (no comment: the token may not)"
    page = f"[//]: # (check: {close.conclusion.value}, exit {planned.exit_code}, {place})\n{body}"
    path = GOLDEN / f"{state}.md"
    if os.environ.get("ASSAY_GOLDEN") == "write":
        path.write_text(page)
    assert path.read_text() == page


def test_every_golden_file_has_a_state() -> None:
    assert {p.stem for p in GOLDEN.glob("*.md")} == set(STATES)
