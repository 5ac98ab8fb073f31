"""The comparator of compiled models: limits are exact, budgets hold whichever way a count moved, voids touch one model alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.npu_states import BOTH, ENCODER, NET, POOL, record

from assay.baselines.compare import compare
from assay.baselines.compare.protocol import ProtocolMismatchError
from assay.baselines.compare.verdict import Comparison, Overall, State
from assay.baselines.config import parse_configuration
from assay.baselines.errors import InputError
from assay.baselines.npu import Row, rows_of, table
from assay.baselines.policy import Policy, model_limits
from assay.baselines.record import Record
from assay.bot.refusal import own_words

TODAY = date(2026, 11, 30)


def judged(head: Record, base: Record, npu: dict[str, Any] | None = None, **more: Any) -> Comparison:
    return compare(head, base, Policy.model_validate({"npu": npu or {}, **more}), TODAY)


def states(comparison: Comparison) -> dict[str, State]:
    return {f.name: f.state for f in comparison.findings}


def one(cycles: int, moved: int = 4000, **options: Any) -> Record:
    side = options.pop("side", "head")
    return record(side, {"m": {"a mm": (cycles, moved)}}, **options)


@settings(max_examples=60, deadline=None)
@given(
    base=st.integers(1, 10**12),
    change=st.integers(-(10**6), 10**6),
    limit=st.sampled_from([0.0, 0.5, 1.0, 10.0]),
)
def test_a_rise_over_the_limit_is_one(base: int, change: int, limit: float) -> None:
    head = max(1, base + change)
    found = judged(one(head), one(base, side="base"), {"cycles": limit})
    [finding] = found.findings
    # 100 (head - base) > limit base, in whole numbers.
    rise, fall = 1000 * (head - base), 1000 * (base - head)
    tolerance = round(limit * 10)
    if abs(rise - tolerance * base) > 1e-9 * base and abs(fall - tolerance * head) > 1e-9 * head:
        want = (
            State.REGRESSED
            if rise > tolerance * base
            else State.IMPROVED
            if fall > tolerance * head
            else State.EQUIVALENT
        )
        assert finding.state is want
    assert found.overall.value == {"regressed": "regressed", "improved": "improved"}.get(
        finding.state.value, "equivalent"
    )


def test_a_rise_of_the_limit_is_not_over_it() -> None:
    assert judged(one(10_100), one(10_000, side="base")).overall is Overall.EQUIVALENT
    assert judged(one(10_101), one(10_000, side="base")).overall is Overall.REGRESSED


def test_traffic_and_vtcm_are_judged_when_asked() -> None:
    head, base = one(100, 5200, vtcm=200), one(100, 4000, side="base", vtcm=300)
    assert states(judged(head, base)) == {"m/cycles": State.EQUIVALENT}
    found = judged(head, base, {"dram": 20, "vtcm": 20})
    assert states(found) == {"m/cycles": State.EQUIVALENT, "m/dram": State.REGRESSED, "m/vtcm": State.IMPROVED}
    assert judged(head, base, {"dram": 30}).overall is Overall.EQUIVALENT


@pytest.mark.parametrize(
    ("budget", "kept"),
    [
        ({"max-cycles": 100}, True),
        ({"max-cycles": 99}, False),
        ({"max-dram-bytes": 4000}, True),
        ({"max-dram-bytes": 3999}, False),
        ({"max-vtcm-bytes": 300}, True),
        ({"max-vtcm-bytes": 299}, False),
        ({"min-share": 0.8}, True),
        ({"min-share": 0.81}, False),
        ({"max-latency-ms": 0.091}, True),
        ({"max-latency-ms": 0.0900001}, False),
    ],
)
def test_budgets(budget: dict[str, Any], kept: bool) -> None:
    head, base = one(100, 4000, vtcm=300, host_macs=100), one(1000, 8000, side="base", vtcm=900, host_macs=100)
    found = judged(head, base, budget)
    assert (found.overall is not Overall.REGRESSED) == kept
    alone = judged(head, record("base", {}), budget)
    assert alone.overall is (Overall.EQUIVALENT if kept else Overall.REGRESSED)
    assert alone.warnings == ["m has no baseline yet"]


def test_a_latency_budget_needs_a_clock() -> None:
    found = judged(one(100, latency=False), one(100, side="base", latency=False), {"max-latency-ms": 0.0001})
    assert states(found) == {"m/cycles": State.EQUIVALENT}
    assert len(found.warnings) == 1
    assert found.warnings[0].startswith("max-latency-ms of m was not judged: this machine has no clock")
    with_clock = judged(one(100), one(100, side="base"), {"max-latency-ms": 0.0001})
    assert with_clock.warnings == []


def test_a_limit_of_a_model_that_nobody_compiled_is_named() -> None:
    npu = {"models": {"n*": {"cycles": 50}, "m": {"cycles": 50}}}
    found = judged(one(100), one(100, side="base"), npu)
    assert found.warnings == ["gate.npu.models names 'n*', which no compiled model is called"]


@pytest.mark.parametrize(
    ("now", "then", "npu", "state"),
    [
        (1, 0, {}, State.REGRESSED),
        (3, 2, {}, State.REGRESSED),
        (1, 2, {}, State.IMPROVED),
        (0, 2, {}, State.IMPROVED),
        (1, 0, {"allowed": ["aten.max_pool2d*"]}, State.EQUIVALENT),
        (1, 0, {"allowed": ["aten.relu*"]}, State.REGRESSED),
        (1, 0, {"fallbacks": "report"}, State.EQUIVALENT),
        (1, 0, {"models": {"m*": {"fallbacks": "report"}}}, State.EQUIVALENT),
        (1, 0, {"fallbacks": "report", "models": {"m": {"fallbacks": "block"}}}, State.REGRESSED),
    ],
)
def test_operators_on_the_host(now: int, then: int, npu: dict[str, Any], state: State) -> None:
    head, base = one(100, host={"m": [POOL] * now}), one(100, side="base", host={"m": [POOL] * then})
    found = judged(head, base, npu)
    assert states(found)[f"m/{POOL[0]}"] is state
    [part] = [p for p in found.parts if p.kind == "host"]
    assert (part.base or 0, part.head or 0) == (then, now)
    assert part.detail == "there is no rule for it, at features.2"


def test_operators_that_stay_are_no_finding() -> None:
    both = [one(100, side=side, host={"m": [POOL]}) for side in ("head", "base")]
    assert states(judged(*both)) == {"m/cycles": State.EQUIVALENT}


def test_a_void_model_decides_nothing_and_hides_nothing() -> None:
    head = record("head", BOTH, unstable={"encoder": "program 1 of 1 is not the same"})
    found = judged(head, record("base", BOTH), {"max-cycles": 1, "models": {"mobilenet": {"max-cycles": 10**9}}})
    assert found.overall is Overall.INCONCLUSIVE
    assert states(found)["encoder/cycles"] is State.INCONCLUSIVE
    assert "encoder" in found.reason
    # The other model is judged as ever.
    slower = record("head", {"encoder": ENCODER, "mobilenet": {**NET, "x mm": (10**6, 0)}}, unstable={"encoder": "?"})
    assert judged(slower, record("base", BOTH)).overall is Overall.REGRESSED
    # The base's doubts are doubts too.
    assert judged(record("head", BOTH), record("base", BOTH, unstable={"encoder": "?"})).overall is Overall.INCONCLUSIVE


@pytest.mark.parametrize(
    ("now", "then", "overall"),
    [
        (True, False, Overall.REGRESSED),
        (True, True, Overall.INCONCLUSIVE),
        (False, True, Overall.IMPROVED),
        (True, None, Overall.REGRESSED),
    ],
)
def test_models_that_do_not_compile(now: bool, then: bool | None, overall: Overall) -> None:
    head = one(100, failed={"m": "why"} if now else {})
    base = record("base", {}) if then is None else one(100, side="base", failed={"m": "why"} if then else {})
    assert judged(head, base).overall is overall


def test_another_compiler_advises() -> None:
    head = one(200, lease=None, host={"m": [POOL]})
    base = one(100, side="base", lease=None, compiler="0" * 12)
    found = judged(head, base)
    assert found.overall is Overall.ADVISORY
    assert all(f.advised for f in found.findings)
    assert "different compilers" in found.warnings[0]
    assert judged(head, base, {"on-compiler-change": "judge"}).overall is Overall.REGRESSED
    # A budget is of the head alone, and holds whatever made the baseline.
    assert judged(head, base, {"max-cycles": 150}).overall is Overall.REGRESSED
    assert judged(head, one(100, side="base", lease=None)).overall is Overall.REGRESSED
    # In one run both sides had one compiler, whatever the base's record says.
    assert judged(one(200), one(100, side="base", compiler="0" * 12)).overall is Overall.REGRESSED


def test_other_machines_and_shapes_are_not_compared() -> None:
    with pytest.raises(ProtocolMismatchError, match="machine is 'spec' in base"):
        judged(one(100), one(100, side="base", machine="spec"))
    with pytest.raises(ProtocolMismatchError, match=r"task\.m\.inputs"):
        judged(one(100, protocol={"task.m.inputs": "8x3x224x224"}), one(100, side="base"))


def test_a_model_that_the_head_lacks() -> None:
    head, base = record("head", {"encoder": ENCODER}), record("base", BOTH)
    with pytest.raises(InputError, match="the head has no results for mobilenet") as caught:
        judged(head, base)
    assert own_words(caught.value) == "a model of the base is missing in the head: compile the same models"
    some = compare(head, base, Policy(), TODAY, some_tasks=True)
    assert states(some) == {"encoder/cycles": State.EQUIVALENT}


def test_acceptances_are_of_a_model_and_a_metric() -> None:
    def found(**entry: Any) -> Overall:
        accepted = {"task": "m", "reason": "known", "by": "me", "expires": "2026-12-01", **entry}
        return judged(one(110), one(100, side="base"), accepted=[accepted]).overall

    assert found() is found(metric="cycles") is found(**{"up-to": 10}) is Overall.EQUIVALENT
    assert found(metric="dram") is found(task="n") is found(**{"up-to": 9.9}) is Overall.REGRESSED
    assert found(expires="2026-11-29") is Overall.REGRESSED


def test_an_environment_may_block() -> None:
    other = one(100, side="base", compiler="0" * 12)
    with pytest.raises(InputError, match="the environment changed"):
        judged(one(100), other, **{"on-environment-change": "block"})


def test_layers_that_changed() -> None:
    head = record("head", {"m": {"a mm": (100, 40), "b mm": (5, 8), "d mm": (1, 4)}})
    base = record("base", {"m": {"a mm": (100, 44), "b mm": (9, 8), "c mm": (50, 4), "d mm": (1, 4)}})
    found = judged(head, base)
    assert [(p.part, p.base, p.head) for p in found.parts] == [("c mm", 50, None), ("b mm", 9, 5), ("a mm", 100, 100)]
    assert found.parts_changed == 3
    assert (found.parts[2].base_bytes, found.parts[2].head_bytes) == (44, 40)


def with_rows(rows: pa.Table) -> Record:
    return Record(one(100).evidence, rows)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (None, "has no table of layers"),
        (pa.table({"x": [1]}), "unknown columns"),
        (table([Row("m", "layer", "", "mm", cycles=-1)]), "counts below zero"),
        (table([Row("m", "thing", "", "mm")]), "is no layer"),
    ],
)
def test_tables_that_are_none(rows: pa.Table | None, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        judged(with_rows(rows), one(100, side="base"))
    assert own_words(caught.value).endswith(("compile again", "measure again", "both workflows"))


def test_columns_of_another_type_and_nulls_are_refused() -> None:
    whole = table([Row("m", "layer", "a", "mm", cycles=3)])
    assert list(rows_of(whole, "head")) == [Row("m", "layer", "a", "mm", cycles=3)]
    for column, values in (("cycles", pa.array(["many"])), ("model", pa.array([None], pa.string()))):
        wrong = whole.set_column(whole.column_names.index(column), column, values)
        with pytest.raises(InputError, match=r"wrong type|has nulls"):
            list(rows_of(wrong, "head"))


def test_limits_are_inherited() -> None:
    text = b"gate: {npu: {dram: 5, max-cycles: 9, models: {m*: {cycles: 2}, mob*: {max-cycles: 7, dram: 0}}}}"
    policy = parse_configuration(text).gate
    assert model_limits(policy, "other").cycles == 1.0
    limits = model_limits(policy, "mobilenet")
    assert (limits.cycles, limits.dram, limits.max_cycles, limits.fallbacks) == (2.0, 0.0, 7, "block")
    assert model_limits(policy, "mlp").max_cycles == 9


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cycle: 1", "did you mean 'cycles'"),
        ("max-vtcm: 1", "did you mean 'max-vtcm-bytes'"),
        ("cycles: -1", "gate.npu.cycles"),
        ("min-share: 1.1", "gate.npu.min-share"),
        ("max-cycles: 1.5", "gate.npu.max-cycles"),
        ("fallbacks: never", "gate.npu.fallbacks"),
        ("models: {a: {models: {}}}", "unknown key"),
        ("models: {a: {max-latency-ms: 0}}", "max-latency-ms"),
    ],
)
def test_mistakes_in_the_policy_are_named(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_configuration(f"gate:\n  npu: {{{text}}}\n".encode())
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_least_share_of_no_products_is_not_kept_but_named() -> None:
    """A model that only reshapes has no multiply-accumulates, and so no share of them."""
    made = one(100)
    metrics = {name: metric for name, metric in made.evidence.metrics.items() if not name.startswith("npu-share/")}
    bare = replace(made, evidence=made.evidence.model_copy(update={"metrics": metrics}))
    found = judged(bare, one(100, side="base"), {"min-share": 0.99})
    assert states(found) == {"m/cycles": State.EQUIVALENT}
    assert found.warnings == ["min-share of m was not judged: the model has no multiply-accumulates"]
