"""Every checklist that the bot can write, word for word (`ASSAY_GOLDEN=write` rewrites the files)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.states import HOSTILE, Scene
from tests.unit.milestones.workbench import (
    ALL,
    ATTENTION,
    FIRST_TWO,
    LIBRARY,
    PASSED,
    REPORT,
    WITHOUT,
    kernel,
    latencies,
    ours,
    pull,
)

from assay.bot.comment import read_marker
from assay.bot.milestones.checklist import END, START, block
from assay.bot.operations import CreateComment, WriteSummary
from assay.bot.plan import plan
from assay.bot.snapshot import CommentFacts

GOLDEN = Path(__file__).parents[2] / "golden" / "milestones"
INCLUDED = "  included:\n"
NO_SCOPE_STOP = ATTENTION.replace("  - scope-answered: {milestones: [1, 2, 3, 4]}\n", "")
DROPOUT = "    - item: dropout and arbitrary masks\n      reason: they change the tiles that are loaded, and with them the model\n"


def grown(reason: str) -> str:
    """The example with dropout moved from the excluded items to the included ones, and one item that is wholly new."""
    assert DROPOUT in ATTENTION
    decode = "    - item: paged decode\n      reason: the serving team asks whether its bytes follow the model\n"
    new = f"    - item: Dropout and arbitrary masks\n{reason}{decode}"
    return ATTENTION.replace(DROPOUT, "").replace(INCLUDED, INCLUDED + new)


def hostile() -> Scene:
    capstone = ATTENTION.replace(
        "title: HBM traffic", 'title: "<script>x</script> | @octocat `x` <!-- /assay milestones -->" #'
    )
    head = grown("").replace("paged decode", "'</details> [x](javascript:1) ![y](https://evil.example) @octocat'")
    bad = kernel("online-softmax-functional", {"tile-bytes/s128": 1.0}, contract={**PASSED, "random": False}, day=9)
    return pull(bad, base=capstone, head=head, unseen=" ".join(HOSTILE))


SLOW = ours(
    attributes={"losing_regions": "s512, s1024, s2048, s4096"},
    day=5,
)
FAST_LIBRARY = kernel("attention-library", latencies(30.0, 40.0, 60.0, 90.0), day=5)

STATES: dict[str, Callable[[], Scene]] = {
    "none-done": pull,
    "some-done": lambda: pull(*FIRST_TWO),
    "blocked-by-contract": lambda: pull(*FIRST_TWO, WITHOUT, ours(contract={**PASSED, "all-masked": False})),
    "blocked-by-model": lambda: pull(*FIRST_TWO, WITHOUT, ours(traffic=(270.0, 269.0, 272.0, 305.0))),
    "blocked-by-hidden-loss": lambda: pull(*FIRST_TWO, WITHOUT, ours(attributes={"losing_regions": "s4096"})),
    "all-done": lambda: pull(*ALL, base=NO_SCOPE_STOP, head=NO_SCOPE_STOP, files={"report.md": REPORT}),
    "stop-question-answered": lambda: pull(*ALL),
    "stop-library-faster": lambda: pull(*FIRST_TWO, WITHOUT, SLOW, FAST_LIBRARY),
    "stop-bound-below-gain": lambda: pull(base=ATTENTION.replace("    value: 33\n", "    value: 3\n")),
    "stop-deadline": lambda: pull(LIBRARY, base=ATTENTION.replace("date: 2027-02-19", "date: 2026-11-28")),
    "scope-growth-without-reason": lambda: pull(*FIRST_TWO, head=grown("")),
    "scope-growth-with-reason": lambda: pull(
        *FIRST_TWO,
        head=grown("      reason: the decision is about masks as well, since the product uses two of them\n"),
    ),
    "invalid-file": lambda: pull(base="title: x\nquestoin: what?\n"),
    "invalid-head-file": lambda: pull(head="title: [\n"),
    "evidence-unseen": lambda: pull(unseen="GitHub could not list releases (503): run this again."),
    "hostile": hostile,
}


@pytest.mark.parametrize("state", STATES)
def test_checklist_of_state(state: str) -> None:
    made = STATES[state]()
    text = block(made.snapshot, made.records)
    path = GOLDEN / f"{state}.md"
    if os.environ.get("ASSAY_GOLDEN") == "write":
        path.write_text(text)
    assert path.read_text() == text
    assert text.startswith(START + "\n")
    assert text.endswith(END + "\n")
    assert text.count(END) == 1


def test_every_golden_file_has_a_state() -> None:
    assert {p.stem for p in GOLDEN.glob("*.md")} == set(STATES)


@pytest.mark.parametrize("state", STATES)
def test_the_comment_holds_the_block_once_below_its_results(state: str) -> None:
    made = STATES[state]()
    planned = plan(made.snapshot, made.records)
    [comment] = [o for o in planned.operations if isinstance(o, CreateComment)]
    [summary] = [o for o in planned.operations if isinstance(o, WriteSummary)]
    wanted = block(made.snapshot, made.records, planned.results)
    without = plan(made.snapshot.model_copy(update={"capstone": None}), made.records)
    [plain] = [o for o in without.operations if isinstance(o, CreateComment)]
    assert comment.body == f"{plain.body}\n{wanted}"
    assert summary.text.endswith(wanted)
    assert planned.conclusion is without.conclusion  # a checklist decides nothing about the gate


def test_a_pull_request_that_nothing_measured_has_the_checklist_alone() -> None:
    made = pull(*FIRST_TWO)
    unmeasured = made.snapshot.model_copy(update={"measurements": ()})
    planned = plan(unmeasured, made.records)
    [comment] = planned.operations
    assert isinstance(comment, CreateComment)
    marker, _, rest = comment.body.partition("\n")
    assert read_marker(marker) is not None
    assert rest == block(unmeasured, made.records)
    seen = unmeasured.model_copy(update={"comments": (CommentFacts(id=1, body=comment.body),)})
    assert plan(seen, made.records).operations == []
    assert plan(unmeasured.model_copy(update={"capstone": None}), made.records).operations == []


def test_hostile_text_starts_nothing() -> None:
    made = hostile()
    text = block(made.snapshot, made.records)
    body = text.replace("<details>", "").replace("</details>", "").replace("<summary>", "").replace("</summary>", "")
    inside = body.replace(START, "").replace(END, "")
    assert "<" not in inside
    assert "](javascript" not in inside
    assert "@octocat" not in inside
    assert "`x`" not in inside
