"""Every comment on kernels that the bot can write, word for word (`make golden` rewrites the files)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.kernel_states import STATES
from tests.states import HEAD

from assay.baselines.compare.verdict import Overall
from assay.baselines.errors import InputError
from assay.baselines.record import write_record
from assay.bot.cli import assay
from assay.bot.observe import load, save
from assay.bot.operations import CloseCheck, CreateComment
from assay.bot.plan import plan
from assay.bot.report import to_json, to_junit

GOLDEN = Path(__file__).parents[2] / "golden" / "kernel"
EXPECTED = {
    "faster": ("improved", "success"),
    "same": ("equivalent", "success"),
    "slower": ("regressed", "failure"),
    "ambiguous": ("inconclusive", "neutral"),
    "void": ("inconclusive", "neutral"),
    "contract-failed": ("regressed", "failure"),
    "contract-failed-on-main-too": ("inconclusive", "neutral"),
    "cheat": ("regressed", "failure"),
    "base-refused": ("inconclusive", "neutral"),
    "contract-only": ("equivalent", "success"),
    "no-baseline": ("no-baseline", "neutral"),
    "two-leases": ("advisory", "neutral"),
    "mismatch": ("mismatch", "failure"),
    "another-reference": ("mismatch", "failure"),
    "accepted": ("equivalent", "success"),
    "accepted-too-little": ("regressed", "failure"),
    "policy-margin": ("regressed", "failure"),
    "throttled": ("equivalent", "success"),
    "not-stopped": ("equivalent", "success"),
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
    made = STATES["slower"]()
    snapshot, records = load(save(made.snapshot, made.records, tmp_path))
    assert plan(snapshot, records).operations == plan(made.snapshot, made.records).operations


def test_the_head_of_a_lease_can_be_published_and_its_base_not(tmp_path: Path) -> None:
    made = STATES["same"]()
    by_arm = {r.evidence.attributes["supplement"]: r for r in made.records.values()}
    for supplement, code in ((False, 0), (True, 2)):
        folder = tmp_path / str(supplement)
        write_record(folder, by_arm[supplement].evidence, by_arm[supplement].rows)
        arguments = ["baseline", "publish", str(folder), "--branch", "main", "--ledger", str(tmp_path / "ledger")]
        done = CliRunner().invoke(assay, arguments)
        assert (done.exit_code, isinstance(done.exception, InputError)) == ((0, False) if code == 0 else (1, True))
    listed = CliRunner().invoke(assay, ["baseline", "list", "--kind", "kernel", "--ledger", str(tmp_path / "ledger")])
    assert f"baseline/main/{HEAD[:12]}/kernel/" in listed.output
