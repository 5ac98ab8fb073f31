"""The comparator of kernels: its states, what refuses a comparison, and which names it uses."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.kernel_states import EVEN, pair, record

from assay.baselines import kernel
from assay.baselines.compare import compare
from assay.baselines.compare.kernel import refusal_of
from assay.baselines.compare.protocol import ProtocolMismatchError
from assay.baselines.compare.verdict import Overall, State
from assay.baselines.errors import InputError
from assay.baselines.kernel import BUSY, REFUSALS
from assay.baselines.policy import Policy, speed_limits
from assay.baselines.record import Record
from assay.baselines.stats.speed import paired_change
from assay.kernels.bench.arm import RefusedTimeError

TODAY = date(2026, 11, 30)


def states(head: Record, base: Record, **policy: Any) -> dict[str, State]:
    compared = compare(head, base, Policy.model_validate(policy), TODAY)
    return {f.task: f.state for f in compared.findings}


def test_four_states() -> None:
    head, base = pair({"c1024": 0.8, "c4096": 1.2})
    assert states(head, base) == {
        "c1024": State.IMPROVED,
        "c4096": State.REGRESSED,
        "c131072": State.EQUIVALENT,
    }
    head, base = pair({"c4096": 1.015}, noise=0.08, base={"noise": 0.08})
    assert states(head, base)["c4096"] is State.INCONCLUSIVE


@pytest.mark.parametrize(("ratio", "blocked"), [(1.005, False), (1.015, False), (1.03, True)])
def test_a_slowdown_blocks_when_it_is_shown_to_be_over_the_margin(ratio: float, blocked: bool) -> None:
    head, base = pair({"c4096": ratio}, noise=0.002, base={"noise": 0.002})
    overall = compare(head, base, Policy(), TODAY).overall
    assert (overall is Overall.REGRESSED) == blocked


def test_inconclusive_says_how_many_blocks_would_decide() -> None:
    head, base = pair({"c4096": 1.012}, noise=0.08, base={"noise": 0.08})
    finding = next(f for f in compare(head, base, Policy(), TODAY).findings if f.task == "c4096")
    assert finding.state is State.INCONCLUSIVE
    assert finding.needed is not None
    assert finding.needed > 60


def test_blocks_are_paired_by_number_and_only_within_a_lease() -> None:
    head, base = pair({}, noise=0.001, base={"noise": 0.001})
    together = compare(head, base, Policy(), TODAY)
    apart = compare(record("head", EVEN, noise=0.001, lease="other"), base, Policy(), TODAY)
    width = {name: [f.high - f.low for f in c.findings] for name, c in (("one", together), ("two", apart))}
    assert max(width["one"]) < min(width["two"]) / 3  # what disturbed both arms alike has gone
    assert not together.warnings
    assert "two leases" in apart.warnings[0]
    assert apart.facts == ()


def test_a_slowdown_between_two_leases_advises() -> None:
    compared = compare(record("head", {**EVEN, "c4096": 1.5}, lease=None), record("base", EVEN), Policy(), TODAY)
    assert compared.overall is Overall.ADVISORY
    [finding] = [f for f in compared.findings if f.state is State.REGRESSED]
    assert finding.advised
    assert not finding.blocks


def test_a_control_that_moves_voids_every_case() -> None:
    head, base = pair({"c4096": 1.5}, base={"control": 1.03})
    compared = compare(head, base, Policy(), TODAY)
    assert compared.overall is Overall.INCONCLUSIVE
    assert {f.state for f in compared.findings} == {State.INCONCLUSIVE}
    assert "base against itself moved by" in compared.reason
    steady = compare(*pair({"c4096": 1.5}, base={"control": 1.005}), Policy(), TODAY)
    assert steady.overall is Overall.REGRESSED


def test_rounds_that_disagree_are_no_verdict() -> None:
    head, base = pair({"c4096": 1.0}, noise=0.002, base={"noise": 0.002})
    assert head.rows is not None
    columns = {name: head.rows.column(name).to_pylist() for name in head.rows.column_names}
    for i, (case, turn) in enumerate(zip(columns["case"], columns["round"], strict=True)):
        if case == "c4096" and turn == 1:
            columns["seconds"][i] *= 1.3  # one process was unlucky
    rows = pa.table({f.name: pa.array(columns[f.name], type=f.type) for f in head.rows.schema}, schema=head.rows.schema)
    compared = compare(Record(head.evidence, rows), base, Policy(), TODAY)
    assert compared.overall is Overall.INCONCLUSIVE
    assert "c4096 changed by" in compared.warnings[0]
    assert "in rounds of fresh processes" in compared.warnings[0]


def test_a_failed_contract_blocks_whatever_the_times() -> None:
    head, base = pair({}, untimed=True, contract={"tail": "NaN"}, base={"untimed": True})
    compared = compare(head, base, Policy(), TODAY)
    assert compared.overall is Overall.REGRESSED
    assert [(f.task, f.scale) for f in compared.findings] == [("tail", "contract")]


def test_a_mended_contract_improves() -> None:
    head, base = pair({}, untimed=True, base={"untimed": True, "contract": {"tail": "NaN"}})
    compared = compare(head, base, Policy(), TODAY)
    assert compared.overall is Overall.IMPROVED
    assert "the base fails its contract on tail" in compared.warnings[0]


@pytest.mark.parametrize("code", [*(code for code in REFUSALS if code != BUSY), "whatever a forger writes | @octocat"])
def test_a_refused_time_blocks_in_our_words(code: str) -> None:
    head, base = pair({}, refused={"c1024": code})
    assert compare(head, base, Policy(), TODAY).overall is Overall.REGRESSED
    words = refusal_of(head.evidence, "c1024")
    assert words == REFUSALS.get(code, "its time cannot be trusted")


def test_a_busy_machine_accuses_nobody_and_passes_nobody() -> None:
    head, base = pair({}, refused={"c1024": BUSY})
    compared = compare(head, base, Policy(), TODAY)
    assert compared.overall is Overall.INCONCLUSIVE
    assert [(f.task, f.state) for f in compared.findings if f.scale == "refused"] == [("c1024", State.INCONCLUSIVE)]


def test_workers_know_no_other_codes() -> None:
    assert RefusedTimeError("clock", "").fault.code in REFUSALS


def test_a_dropped_case_refuses_and_a_new_one_is_named() -> None:
    few = {"c1024": 1.0}
    with pytest.raises(InputError, match="the head has no results for c4096, c131072"):
        compare(record("head", few), record("base", EVEN), Policy(), TODAY)
    some = compare(record("head", few), record("base", EVEN), Policy(), TODAY, some_tasks=True)
    assert [f.task for f in some.findings] == ["c1024"]
    more = compare(record("head", {**EVEN, "c512": 1.0}), record("base", EVEN), Policy(), TODAY)
    assert more.warnings == ["c512 has no baseline yet"]


@pytest.mark.parametrize(
    "changed",
    [
        {"protocol": {"timer": "perf_counter_ns"}},
        {"protocol": {"task.c1024.inputs": "x"}},
        {"attributes": {"norm.c1024": 64.3}},
    ],
    ids=["timer", "inputs", "reference"],
)
def test_measured_differently(changed: dict[str, Any]) -> None:
    head, base = pair({}, base=changed)
    with pytest.raises(ProtocolMismatchError):
        compare(head, base, Policy(), TODAY)


def test_limits_come_from_the_margin_then_the_policy_then_the_case() -> None:
    assert speed_limits(Policy(), "c1024", 0.03).model_dump(include={"threshold", "margin"}) == {
        "threshold": 0.03,
        "margin": 0.03,
    }
    policy = Policy.model_validate(
        {"speed": {"threshold": 1, "margin": 2}, "tasks": {"c1*": {"threshold": 4, "margin": 5}}}
    )
    assert speed_limits(policy, "c4096", 0.5).margin == pytest.approx(0.02)
    assert speed_limits(policy, "c1024", 0.5).threshold == pytest.approx(0.04)
    with pytest.raises(InputError, match="margin 3 is below threshold 4"):
        speed_limits(Policy.model_validate({"speed": {"threshold": 4}}), "c1024", 0.03)


def test_an_acceptance_covers_a_case() -> None:
    accepted = [{"task": "c4*", "metric": "latency", "reason": "on purpose", "by": "me", "expires": "2027-01-31"}]
    head, base = pair({"c4096": 1.2})
    compared = compare(head, base, Policy.model_validate({"accepted": accepted}), TODAY)
    assert compared.overall is Overall.EQUIVALENT


def test_rows_are_checked() -> None:
    head, base = pair({})
    assert head.rows is not None
    wrong = Record(head.evidence, head.rows.drop(["wall"]))
    with pytest.raises(InputError, match="unknown columns"):
        compare(wrong, base, Policy(), TODAY)
    with pytest.raises(InputError, match="no table of blocks"):
        compare(Record(head.evidence, None), base, Policy(), TODAY)
    twice = Record(head.evidence, pa.concat_tables([head.rows, head.rows.slice(0, 1)]))
    with pytest.raises(InputError, match="occurs twice"):
        compare(twice, base, Policy(), TODAY)


def test_a_table_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    head, base = pair({})
    monkeypatch.setattr(kernel, "MAX_BLOCKS", 59)
    with pytest.raises(InputError, match="c1024 has over 59 blocks"):
        compare(head, base, Policy(), TODAY)
    monkeypatch.undo()
    monkeypatch.setattr(kernel, "MAX_CASES", 0)
    with pytest.raises(InputError, match="over 0 cases"):
        compare(head, base, Policy(), TODAY)


def test_many_blocks_are_resampled_within_memory() -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, (2, 50_000))
    found = paired_change(np.exp(noise[0]), np.exp(noise[1] + 0.03), threshold=0.02)
    assert found.low < np.expm1(0.03) < found.high
