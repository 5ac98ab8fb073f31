"""Verdicts of whole evaluations: the states, their order, and everything that refuses a comparison."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.evidence import evaluation, outcomes

from assay.baselines.compare import compare
from assay.baselines.compare.growth import PlannedTask, Tally, decided, preflight
from assay.baselines.compare.protocol import ProtocolMismatchError
from assay.baselines.compare.verdict import Conclusion, Overall, State, conclude
from assay.baselines.errors import InputError
from assay.baselines.policy import Policy
from assay.baselines.record import Record

TODAY = date(2026, 11, 30)


def run(counts: dict[str, tuple[int, int, int, float]], policy: Policy | None = None, **options: Any):  # type: ignore[no-untyped-def]
    pairs = {task: outcomes(*c) for task, c in counts.items()}
    base = evaluation({t: b for t, (b, _) in pairs.items()}, **options)
    head = evaluation({t: h for t, (_, h) in pairs.items()}, **options)
    return compare(head, base, policy or Policy(), TODAY)


def policy(**settings: Any) -> Policy:
    return Policy.model_validate({k.replace("_", "-"): v for k, v in settings.items()})


def test_two_percent_at_200_is_inconclusive_and_blocked_at_what_it_asks_for() -> None:
    small = run({"mmlu": (200, 8, 4, 0.5)})
    [finding] = small.findings
    assert small.overall is Overall.INCONCLUSIVE
    assert conclude(small.overall, block_inconclusive=False) == (Conclusion.NEUTRAL, 0)
    assert conclude(small.overall, block_inconclusive=True) == (Conclusion.ACTION_REQUIRED, 1)
    n = finding.needed
    assert n == 926  # the published 80% figure for one-sided mid-p at churn 0.06
    asked = run({"mmlu": (n, round(n * 0.04), round(n * 0.02), 0.5)})
    assert asked.overall is Overall.REGRESSED
    assert conclude(asked.overall, block_inconclusive=False) == (Conclusion.FAILURE, 1)


@pytest.mark.parametrize("tasks", [2, 5, 20])
def test_what_is_asked_for_is_enough_inside_a_family_too(tasks: int) -> None:
    def counts(n: int) -> dict[str, tuple[int, int, int, float]]:
        others = {f"t{i}": (n, 0, 0, 0.5) for i in range(tasks - 1)}
        return {"dropping": (n, round(n * 0.04), round(n * 0.02), 0.5), **others}

    first = run(counts(200), policy(pool={"enabled": False}))
    dropping = next(f for f in first.findings if f.task == "dropping")
    assert dropping.state is State.INCONCLUSIVE
    assert dropping.needed is not None
    again = run(counts(dropping.needed), policy(pool={"enabled": False}))
    assert next(f for f in again.findings if f.task == "dropping").state is State.REGRESSED
    assert dropping.needed > 926


def test_states_in_order() -> None:
    found = run(
        {
            "worse": (1000, 61, 20, 0.5),
            "better": (1000, 20, 61, 0.5),
            "same": (4000, 10, 10, 0.5),
            "unknown": (200, 8, 4, 0.5),
        },
        policy(pool={"enabled": False}),
    )
    assert {f.task: f.state.value for f in found.findings} == {
        "worse": "regressed",
        "better": "improved",
        "same": "equivalent",
        "unknown": "inconclusive",
    }
    assert found.overall is Overall.REGRESSED
    assert (found.broke, found.fixed) == (99, 95)


def test_published_counts_of_the_example_comment() -> None:
    """61/36 of 1,000: one-sided mid-p 0.0056, exact 0.0144, Tango 0.58 to 4.49 points."""
    [finding] = run({"hellaswag": (1000, 61, 36, 0.465)}).findings
    assert finding.p_worse == pytest.approx(0.0056, abs=5e-5)
    assert finding.p_two_sided == pytest.approx(0.0144, abs=5e-5)
    assert (-finding.high, -finding.low) == (pytest.approx(0.0058, abs=5e-5), pytest.approx(0.0449, abs=5e-5))


def test_a_significant_drop_below_the_threshold_does_not_block() -> None:
    [finding] = run({"t": (60_000, 300, 180, 0.5)}).findings
    assert finding.p_worse < 1e-6
    assert finding.drop == pytest.approx(0.002)
    assert finding.state is State.EQUIVALENT


def test_no_flip_at_200_proves_nothing_unless_the_responses_are_identical() -> None:
    assert run({"t": (200, 0, 0, 0.5)}).overall is Overall.INCONCLUSIVE
    same = run({"t": (200, 0, 0, 0.5)}, responses=b"\x07" * 8)
    assert same.overall is Overall.EQUIVALENT
    assert same.findings[0].identical


def test_gain_of_unknown_size_passes_as_not_worse() -> None:
    [finding] = run({"t": (1000, 20, 24, 0.5)}).findings
    assert finding.state is State.EQUIVALENT
    assert finding.one_sided


def test_pool_is_one_more_hypothesis_and_hides_no_task() -> None:
    found = run({"down": (1000, 80, 30, 0.5), **{f"up{i}": (1000, 20, 30, 0.5) for i in range(4)}})
    assert found.hypotheses == {"all": 6}
    assert {f.task for f in found.findings if f.state is State.REGRESSED} == {"down"}
    assert found.overall is Overall.REGRESSED


def test_small_losses_everywhere_are_seen_by_the_pool() -> None:
    found = run({f"t{i}": (1000, 25, 15, 0.5) for i in range(6)})
    assert [f.task for f in found.findings if f.state is State.REGRESSED] == ["pool"]


def test_accepted_regressions_do_not_block_and_leave_the_pool() -> None:
    entry = {"task": "a", "reason": "known", "by": "octocat", "expires": "2026-12-24"}
    counts = {"a": (1000, 61, 20, 0.5), "b": (4000, 10, 10, 0.5), "c": (4000, 9, 10, 0.5)}
    assert run(counts).overall is Overall.REGRESSED
    accepted = compare_with(counts, Policy.model_validate({"accepted": [{**entry, "expires": date(2026, 12, 24)}]}))
    assert accepted.overall is Overall.EQUIVALENT
    [finding] = [f for f in accepted.findings if f.state is State.REGRESSED]
    assert finding.accepted is not None
    assert next(f for f in accepted.findings if f.pooled).n == 8000
    expired = compare_with(counts, Policy.model_validate({"accepted": [{**entry, "expires": date(2026, 11, 29)}]}))
    assert expired.overall is Overall.REGRESSED
    assert all(f.exceeded is None for f in expired.findings)
    small, larger = ({**entry, "expires": date(2026, 12, 24), "up_to": points} for points in (1.0, 2.0))
    short = compare_with(counts, Policy.model_validate({"accepted": [larger, small]}))
    assert short.overall is Overall.REGRESSED
    [finding] = [f for f in short.findings if f.state is State.REGRESSED and not f.pooled]
    assert (finding.accepted, finding.exceeded and finding.exceeded.up_to) == (None, 2.0)
    enough = compare_with(counts, Policy.model_validate({"accepted": [small, {**larger, "up_to": 5.0}]}))
    assert enough.overall is Overall.EQUIVALENT
    assert all(f.exceeded is None for f in enough.findings)


def compare_with(counts: dict[str, tuple[int, int, int, float]], chosen: Policy):  # type: ignore[no-untyped-def]
    return run(counts, chosen)


def test_floor() -> None:
    floor = policy(tasks={"t": {"floor": 0.5}})
    assert run({"t": (4000, 10, 10, 0.41)}, floor).findings[0].below_floor
    assert run({"t": (4000, 10, 10, 0.41)}, floor).overall is Overall.REGRESSED
    assert run({"t": (4000, 10, 10, 0.495)}, floor).overall is Overall.INCONCLUSIVE
    assert run({"t": (4000, 10, 10, 0.51)}, floor).overall is Overall.EQUIVALENT


def test_clustered_examples_weaken_the_evidence() -> None:
    base, head = [1] * 400 + [0] * 400, [1] * 400 + [0] * 400
    head[:24] = [0] * 24
    alone = compare(evaluation({"t": head}), evaluation({"t": base}), policy(), TODAY).findings[0]
    clusters = [f"passage {i // 24}" for i in range(800)]
    grouped = compare(
        evaluation({"t": head}, clusters=clusters), evaluation({"t": base}, clusters=clusters), policy(), TODAY
    ).findings[0]
    assert alone.state is State.REGRESSED
    assert grouped.clusters == 34
    assert grouped.p_worse > 100 * alone.p_worse
    assert grouped.high - grouped.low > alone.high - alone.low


def test_bounded_scores_and_perplexity() -> None:
    rng = np.random.default_rng(0)
    base = np.clip(rng.normal(0.6, 0.2, 600), 0, 1)
    head = np.clip(base - 0.03 + rng.normal(0, 0.05, 600), 0, 1)
    graded = {"scale": "bounded", "metric": "f1", "low": 0.0, "high": 1.0}
    found = compare(evaluation({"t": list(head)}, **graded), evaluation({"t": list(base)}, **graded), policy(), TODAY)  # type: ignore[arg-type]
    assert found.overall is Overall.REGRESSED
    assert found.findings[0].broke is None
    weights = list(rng.integers(50, 200, 60).astype(float))
    loglik = -3 * np.array(weights)
    options = {"scale": "loglik", "metric": "word_perplexity", "weights": weights}
    worse = loglik - 0.05 * np.array(weights) * rng.uniform(0.5, 1.5, 60)
    perplexity = compare(
        evaluation({"p": list(worse)}, **options), evaluation({"p": list(loglik)}, **options), policy(), TODAY
    )  # type: ignore[arg-type]
    assert perplexity.overall is Overall.REGRESSED
    assert perplexity.findings[0].base == pytest.approx(np.exp(3))
    assert perplexity.findings[0].change == pytest.approx(0.05, abs=0.01)


def test_growing_samples_use_anytime_p_values_and_never_mid_p() -> None:
    fixed = run({"t": (1000, 61, 36, 0.465)})
    growing = run({"t": (1000, 61, 36, 0.465)}, attributes={"sampling": "growing"})
    assert fixed.overall is Overall.REGRESSED
    assert growing.findings[0].growing
    assert growing.findings[0].p_worse > fixed.findings[0].p_worse
    assert growing.findings[0].high - growing.findings[0].low > fixed.findings[0].high - fixed.findings[0].low
    assert run({"t": (1000, 80, 20, 0.465)}, attributes={"sampling": "growing"}).overall is Overall.REGRESSED


# -- what refuses a comparison ---------------------------------------------------------------------------------------


def both() -> tuple[Record, Record]:
    base, head = outcomes(100, 5, 3)
    return evaluation({"t": head}), evaluation({"t": base})


def protocol(**changes: Any) -> dict[str, Any]:
    return {"harness": "lm-eval 0.4.13", "sampling.seed": 0, "batch_size": 16, **changes}


@pytest.mark.parametrize(
    ("field", "value"),
    [("batch_size", 8), ("batch_size", 16.0), ("batch_size", True), ("new", None), ("new", 1), ("task.t.version", "2")],
)
def test_protocol_must_agree_and_the_field_is_named(field: str, value: Any) -> None:
    base, head = outcomes(100, 5, 3)
    changed = evaluation({"t": head}, protocol=protocol(**{field: value}))
    if field == "new" and value is None:
        compare(changed, evaluation({"t": base}), policy(), TODAY)  # an undeclared fact is no fact
        return
    with pytest.raises(ProtocolMismatchError, match=field):
        compare(changed, evaluation({"t": base}), policy(), TODAY)


def test_facts_of_other_tasks_do_not_count() -> None:
    base, head = outcomes(100, 5, 3)
    changed = evaluation({"t": head}, protocol=protocol(**{"task.other.version": "2"}))
    assert compare(changed, evaluation({"t": base}), policy(), TODAY).findings


def test_weights_and_format_may_differ() -> None:
    head, base = both()
    other = head.evidence.subject.model_copy(update={"format": "int4", "digest": "sha256:other", "name": "other"})
    compare(Record(head.evidence.model_copy(update={"subject": other}), head.rows), base, policy(), TODAY)


def test_undeclared_protocol_is_said() -> None:
    base, head = outcomes(100, 5, 3)
    found = compare(evaluation({"t": head}, protocol="undeclared"), evaluation({"t": base}), policy(), TODAY)
    assert any("undeclared" in w for w in found.warnings)


def change(record: Record, **columns: Any) -> Record:
    table = record.rows
    assert table is not None
    for name, values in columns.items():
        index = table.column_names.index(name)
        table = table.set_column(index, table.schema.field(name), pa.array(values, type=table.schema.field(name).type))
    return Record(record.evidence, table)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_scores_are_a_failure(bad: float) -> None:
    head, base = both()
    assert head.rows is not None
    scores = head.rows.column("score").to_pylist()
    with pytest.raises(InputError, match="a failure is not a score"):
        compare(change(head, score=[bad, *scores[1:]]), base, policy(), TODAY)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan")])
def test_weights_must_be_positive(weight: float) -> None:
    head, base = both()
    with pytest.raises(InputError, match="weight"):
        compare(change(head, weight=[weight] + [1.0] * 99), base, policy(), TODAY)


@pytest.mark.parametrize("side", ["base", "head", "both"])
def test_duplicate_ids_are_refused(side: str) -> None:
    head, base = both()
    assert head.rows is not None
    items = head.rows.column("item").to_pylist()
    twice = [items[1], *items[1:]]
    head = change(head, item=twice) if side in ("head", "both") else head
    base = change(base, item=twice) if side in ("base", "both") else base
    with pytest.raises(InputError, match="duplicate example ids"):
        compare(head, base, policy(), TODAY)


def test_exact_duplicates_are_told_apart_by_occurrence() -> None:
    head, base = both()
    assert head.rows is not None
    items = head.rows.column("item").to_pylist()
    twice, occurrence = [items[1], *items[1:]], [1] + [0] * 99
    found = compare(
        change(head, item=twice, occurrence=occurrence),
        change(base, item=twice, occurrence=occurrence),
        policy(),
        TODAY,
    )
    assert found.examples == 100


def test_unequal_example_sets() -> None:
    base, head = outcomes(100, 5, 3)
    some = evaluation({"t": head[:80]})
    assert compare(some, evaluation({"t": base}), policy(), TODAY).examples == 80  # the head of one seeded order
    with pytest.raises(InputError, match="20 examples of t are in head and not in base"):
        compare(evaluation({"t": head}), evaluation({"t": base[:80]}), policy(), TODAY)
    imported = evaluation({"t": head[:80]}, protocol="undeclared")
    with pytest.raises(InputError, match="in base and not in head"):
        compare(imported, evaluation({"t": base}), policy(), TODAY)
    assert compare(imported, evaluation({"t": base}), policy(), TODAY, intersect=True).examples == 80


def test_tasks_may_be_added_but_not_dropped() -> None:
    base, head = outcomes(100, 5, 3)
    found = compare(evaluation({"t": head, "new": head}), evaluation({"t": base}), policy(), TODAY)
    assert any("new has no baseline yet" in w for w in found.warnings)
    with pytest.raises(InputError, match="no results for u"):
        compare(evaluation({"t": head}), evaluation({"t": base, "u": base}), policy(), TODAY)
    both_tasks = evaluation({"t": base, "u": base})
    asked = compare(evaluation({"t": head}), both_tasks, policy(), TODAY, some_tasks=True)
    assert [f.task for f in asked.findings] == ["t"]
    with pytest.raises(InputError, match="share no task"):
        compare(evaluation({"a": head}), evaluation({"b": base}), policy(), TODAY)


def test_scales_and_ranges_are_checked() -> None:
    with pytest.raises(InputError, match="declared binary"):
        compare(evaluation({"t": [0.5, 1]}), evaluation({"t": [0, 1]}), policy(at_chance="warn"), TODAY)
    graded = {"scale": "bounded", "low": 0.0, "high": 1.0}
    with pytest.raises(InputError, match="outside its declared range"):
        compare(evaluation({"t": [0.5, 2]}, **graded), evaluation({"t": [0.5, 1]}, **graded), policy(), TODAY)  # type: ignore[arg-type]
    wider = {**graded, "high": 2.0}
    with pytest.raises(InputError, match="another range"):
        compare(evaluation({"t": [0.5, 1]}, **wider), evaluation({"t": [0.5, 1]}, **graded), policy(), TODAY)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="binary in base and bounded in head"):
        compare(evaluation({"t": [0.5, 1]}, **graded), evaluation({"t": [0, 1]}), policy(), TODAY)  # type: ignore[arg-type]


def test_strange_tables() -> None:
    head, base = both()
    assert head.rows is not None
    with pytest.raises(InputError, match="no column 'score'"):
        compare(Record(head.evidence, head.rows.drop_columns(["score"])), base, policy(), TODAY)
    with pytest.raises(InputError, match="unknown column"):
        compare(Record(head.evidence, head.rows.append_column("x", head.rows.column("score"))), base, policy(), TODAY)
    with pytest.raises(InputError, match="no table"):
        compare(Record(head.evidence, None), base, policy(), TODAY)
    for kind in ("quack", "verdict", "judge", "pairing"):  # modules beside the comparators are no kinds
        strange = head.evidence.model_copy(update={"kind": kind})
        with pytest.raises(InputError, match="unknown to this assay"):
            compare(Record(strange, head.rows), Record(strange, base.rows), policy(), TODAY)


def test_environment_is_reported_and_blocks_only_by_policy() -> None:
    base, head = outcomes(100, 5, 3)
    other = evaluation({"t": head}, hardware="another CPU")
    assert compare(other, evaluation({"t": base}), policy(), TODAY).environment == ["hardware: test CPU → another CPU"]
    with pytest.raises(InputError, match="environment changed"):
        compare(other, evaluation({"t": base}), policy(on_environment_change="block"), TODAY)


def test_baseline_at_chance() -> None:
    with pytest.raises(InputError, match="no better than guessing"):
        run({"t": (200, 8, 4, 0.256)})
    found = run({"t": (200, 8, 4, 0.256)}, policy(at_chance="warn"))
    assert "no better than guessing" in found.warnings[0]
    one_low = run({"low": (200, 8, 4, 0.25), "high": (1000, 8, 4, 0.6)})
    assert any("not clearly above guessing on low" in w for w in one_low.warnings)


# -- before and during a growing evaluation ------------------------------------------------------------------------------


def test_preflight_names_what_cannot_work() -> None:
    base = evaluation({"t": outcomes(500, 0, 0, 0.25)[0]}).evidence
    with pytest.raises(InputError, match="no better than guessing"):
        preflight([PlannedTask("t", 500)], base, policy())
    [warning] = preflight([PlannedTask("t", 200)], None, policy())
    assert "cannot prove a margin of 1 points" in warning
    assert "268 could" in warning
    with pytest.raises(InputError, match="cannot prove"):
        preflight([PlannedTask("t", 200)], None, policy(too_few="refuse"))
    assert preflight([PlannedTask("t", 20_000)], None, policy()) == []
    assert "show drops of" in preflight([PlannedTask("t", 500)], None, policy())[0]


def test_growth_stops_when_decided_and_stays_decided() -> None:
    rules = policy()
    assert decided({"t": Tally(0, 0, 100)}, rules) == set()
    assert decided({"t": Tally(0, 0, 4000)}, rules) == {"t"}
    assert decided({"t": Tally(40, 2, 400)}, rules) == {"t"}
    assert decided({"t": Tally(9, 5, 200)}, rules) == set()
    [finding] = run({"t": (400, 40, 2, 0.5)}, attributes={"sampling": "growing"}).findings
    assert finding.state is State.REGRESSED


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(60, 300), st.integers(0, 25), st.integers(0, 25), st.floats(0.35, 0.6)),
        min_size=1,
        max_size=4,
    )
)
def test_swapping_base_and_head_mirrors_the_findings(counts: list[tuple[int, int, int, float]]) -> None:
    pairs = {f"t{i}": outcomes(*c) for i, c in enumerate(counts)}
    base, head = (evaluation({t: p[side] for t, p in pairs.items()}) for side in (0, 1))
    rules = policy(at_chance="warn")
    there, back = compare(head, base, rules, TODAY), compare(base, head, rules, TODAY)
    mirror = {State.REGRESSED: State.IMPROVED, State.IMPROVED: State.REGRESSED}
    for a, b in zip(there.findings, back.findings, strict=True):
        assert (a.broke, a.fixed) == (b.fixed, b.broke)
        assert a.change == pytest.approx(-b.change)
        assert (a.low, a.high) == (pytest.approx(-b.high, abs=1e-9), pytest.approx(-b.low, abs=1e-9))
        assert a.p_worse == pytest.approx(b.p_better)
        if a.state in mirror:
            assert b.state is mirror[a.state]


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(40)), st.integers(0, 2**32 - 1))
def test_the_order_of_rows_does_not_matter(order: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    base, head = rng.integers(0, 2, 40), rng.integers(0, 2, 40)
    left, right = evaluation({"t": list(head)}), evaluation({"t": list(base)})
    rules = policy(at_chance="warn")
    assert left.rows is not None
    shuffled = replace(left, rows=left.rows.take(pa.array(order)))
    assert compare(left, right, rules, TODAY).findings == compare(shuffled, right, rules, TODAY).findings
