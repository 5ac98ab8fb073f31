"""Every comment on compiled models that the bot can write, word for word (`make golden` rewrites the files)."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from tests.npu_states import STATES

from assay.baselines.compare.verdict import Overall
from assay.bot.comment import render, title
from assay.bot.observe import load, save
from assay.bot.operations import CloseCheck, CreateComment
from assay.bot.plan import plan
from assay.bot.report import to_json, to_junit

GOLDEN = Path(__file__).parents[2] / "golden" / "npu"
EXPECTED = {
    "better": ("improved", "success"),
    "same": ("equivalent", "success"),
    "worse": ("regressed", "failure"),
    "within-the-limit": ("equivalent", "success"),
    "fallback-gained": ("regressed", "failure"),
    "fallback-allowed": ("equivalent", "success"),
    "fallback-lost": ("improved", "success"),
    "over-budget": ("regressed", "failure"),
    "new-model-within-budget": ("equivalent", "success"),
    "new-model": ("no-baseline", "neutral"),
    "no-baseline": ("no-baseline", "neutral"),
    "nondeterministic": ("inconclusive", "neutral"),
    "does-not-compile": ("regressed", "failure"),
    "compiles-on-neither": ("inconclusive", "neutral"),
    "another-compiler": ("advisory", "neutral"),
    "mismatch": ("mismatch", "failure"),
    "accepted": ("equivalent", "success"),
    "many-layers": ("regressed", "failure"),
    "many-models": ("regressed", "failure"),
    "hostile": ("regressed", "failure"),
}


@pytest.mark.parametrize("state", STATES)
def test_comment_of_state(state: str) -> None:
    made = STATES[state]()
    planned = plan(made.snapshot, made.records)
    [close] = [o for o in planned.operations if isinstance(o, CloseCheck)]
    [comment] = [o for o in planned.operations if isinstance(o, CreateComment)]
    assert planned.overall is not None
    assert (planned.overall.value, close.conclusion.value) == EXPECTED[state]
    page = f"[//]: # (check: {close.conclusion.value}, exit {planned.exit_code})\n{comment.body}"
    path = GOLDEN / f"{state}.md"
    if os.environ.get("ASSAY_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(page)
    assert path.read_text() == page


def test_every_golden_file_has_a_state() -> None:
    assert {p.stem for p in GOLDEN.glob("*.md")} == set(STATES)


@pytest.mark.parametrize("state", STATES)
def test_other_machines_can_read_it(state: str) -> None:
    made = STATES[state]()
    planned = plan(made.snapshot, made.records)
    [result] = planned.results
    document = json.loads(to_json(result, planned.conclusion, planned.exit_code))  # type: ignore[arg-type]
    assert document["overall"] == EXPECTED[state][0]
    blocking = [f for f in document.get("findings", ()) if f["blocks"]]
    assert bool(blocking) == (planned.overall is Overall.REGRESSED)
    assert f'failures="{len(blocking)}"' in to_junit(result, block_inconclusive=False)


def test_a_saved_snapshot_replays(tmp_path: Path) -> None:
    made = STATES["worse"]()
    snapshot, records = load(save(made.snapshot, made.records, tmp_path))
    assert plan(snapshot, records).operations == plan(made.snapshot, made.records).operations


@pytest.mark.parametrize("budget", [60_000, 8_000, 2_500])
@pytest.mark.parametrize("state", ["many-layers", "many-models", "hostile", "over-budget", "fallback-gained"])
def test_the_verdict_is_kept_whatever_does_not_fit(state: str, budget: int) -> None:
    made = STATES[state]()
    results = plan(made.snapshot, made.records).results
    body = render(results, None, budget)
    assert len(body.encode()) <= budget
    assert body.startswith(f"## {title(results)}\n")
    tags = re.sub(r"`[^`]*`", "", body)  # what stands in a code span is no tag
    assert tags.count("<details>") == tags.count("</details>")


def test_what_is_left_out_is_counted() -> None:
    made = STATES["many-models"]()
    results = plan(made.snapshot, made.records).results
    assert "The other 18 models" in render(results, None)
    small = render(results, None, 4_000)
    assert "did not fit here" in small
    layers = plan(STATES["many-layers"]().snapshot, STATES["many-layers"]().records).results
    assert "60 of 159 shown, the largest change first" in render(layers, None)
