"""False-alarm rates, what makes a gate advisory, and what a deterministic one is audited by."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.evidence import evaluation, outcomes

from assay.baselines import audit
from assay.baselines.audit import Night, Tally, advise, bounds, night, parse_night, sign_flips, tally
from assay.baselines.compare import compare
from assay.baselines.compare.verdict import Comparison, Overall, conclude
from assay.baselines.errors import InputError
from assay.baselines.policy import Policy
from assay.baselines.record import Record
from assay.bot.audits.words import about, by_gate, by_metric

COMMIT = "c" * 40
TODAY = date(2026, 11, 30)
START = datetime(2026, 11, 1, 3, tzinfo=UTC)
POLICY = Policy.model_validate({"threshold": 0.5})


def pair(i: int, broke: int = 0, fixed: int = 0, *, same: bool = False, seed: int = 0) -> tuple[Record, Record]:
    """One commit measured twice in night `i`."""
    one, two = outcomes(1000, broke, fixed)
    when = START + timedelta(days=i)
    more = {
        "commit": COMMIT,
        "responses": b"\x01" * 8 if same else None,
        "protocol": {"harness": "h", "sampling.seed": seed},
    }
    first = evaluation({"toy": one}, created=when, **more)  # type: ignore[arg-type]
    second = evaluation({"toy": two}, created=when + timedelta(hours=1), **more)  # type: ignore[arg-type]
    return Record(first.evidence, first.rows, f"{2 * i:064x}"), Record(
        second.evidence, second.rows, f"{2 * i + 1:064x}"
    )


def audited(i: int, broke: int = 0, fixed: int = 0, *, policy: Policy = POLICY, **more: object) -> Night:
    first, second = pair(i, broke, fixed, **more)  # type: ignore[arg-type]
    return night(first, second, compare(second, first, policy, TODAY))


def compared(broke: int, fixed: int = 0) -> tuple[Comparison, Record]:
    first, second = pair(99, broke, fixed)
    return compare(second, first, POLICY, TODAY), second


@settings(deadline=None, max_examples=80)
@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_bounds_are_those_of_the_beta_distribution(counts: tuple[int, int]) -> None:
    k, n = counts
    low, high = bounds(k, n)
    assert low == pytest.approx(0.0 if k == 0 else stats.beta.ppf(0.05, k, n - k + 1), abs=1e-9)
    assert high == pytest.approx(1.0 if k == n else stats.beta.ppf(0.95, k + 1, n - k), abs=1e-9)
    assert low <= k / n <= high
    if 0 < k < n:  # the definition, without the beta distribution
        assert stats.binom.sf(k - 1, n, low) == pytest.approx(0.05)
        assert stats.binom.cdf(k, n, high) == pytest.approx(0.05)


def test_a_night_says_what_the_gate_would_have_said() -> None:
    quiet, loud = audited(0, 12, 12), audited(1, 60, 10)
    assert [g.alarmed for g in quiet.gates] == [False]
    assert [g.alarmed for g in loud.gates] == [True]
    assert (loud.gates[0].broke, loud.gates[0].fixed, loud.gates[0].n) == (60, 10, 1000)
    assert loud.gates[0].p < 1e-6
    assert conclude(compared(60, 10)[0].overall, block_inconclusive=False)[1] == 1
    assert loud.path.startswith("audits/evaluation/2026-11-02T040000Z-")
    assert audit.PATH.match(loud.path)
    assert parse_night(loud.dump(), "it") == loud


def test_an_audit_is_of_one_commit_measured_twice() -> None:
    first, second = pair(0)
    found = compare(second, first, POLICY, TODAY)
    with pytest.raises(InputError, match="one and the same"):
        night(first, first, found)
    other = evaluation({"toy": outcomes(1000, 0, 0)[0]}, commit="d" * 40)
    with pytest.raises(InputError, match="not of one commit"):
        night(first, other, found)


def test_the_tally_counts_nights_of_the_same_protocol_once() -> None:
    nights = [audited(0, 60), audited(1), audited(2, seed=5), audited(3, 5, 5)]
    newest = audited(4)
    found = tally([*nights, nights[0], newest], newest, {})
    assert (found.nights, found.alarms) == (4, 1)
    assert [(g.task, g.nights, g.alarms) for g in found.gates] == [("toy", 4, 1)]


def test_another_alpha_begins_a_new_series() -> None:
    """Alarms at 0.2 are what was asked for, and no reason to call a gate of 0.01 one that cries wolf."""
    loose, strict = (Policy.model_validate({"threshold": 0.5, "alpha": alpha}) for alpha in (0.2, 0.01))
    nights = [audited(i, 18 if i < 3 else 0, 9 if i < 3 else 0, policy=loose) for i in range(6)]
    before = tally(nights[:-1], nights[-1], {})
    assert (before.nights, before.alarms) == (6, 3)
    newest = audited(6, policy=strict)
    found = tally(nights, newest, {})
    assert (found.nights, found.alarms, found.advisory()) == (1, 0, [])
    first, second = pair(99, 60, 10)
    blocked = compare(second, first, strict, TODAY)
    assert advise(blocked, second.evidence, [before]).tally is None
    assert advise(blocked, second.evidence, [before]).comparison.overall is Overall.REGRESSED


def test_old_nights_do_not_count() -> None:
    nights = [audited(i, 60) for i in range(3)] + [audited(i) for i in range(3, 3 + audit.WINDOW)]
    found = tally(nights[:-1], nights[-1], {})
    assert (found.nights, found.alarms) == (audit.WINDOW, 0)


def made(alarms: int, nights: int) -> Tally:
    all_ = [audited(i, 60 if i < alarms else 0) for i in range(nights)]
    return tally(all_[:-1], all_[-1], {})


@pytest.mark.parametrize(
    ("alarms", "nights", "advisory"),
    [(0, 5, False), (1, 1, False), (2, 2, True), (2, 8, False), (2, 6, True), (1, 28, False)],
)
def test_only_a_rate_shown_to_be_over_alpha_makes_a_gate_advisory(alarms: int, nights: int, advisory: bool) -> None:
    assert bool(made(alarms, nights).advisory()) is advisory


def test_an_advisory_gate_does_not_block_and_is_no_pass() -> None:
    comparison, head = compared(60)
    assert comparison.overall is Overall.REGRESSED
    advised = advise(comparison, head.evidence, [made(3, 5)]).comparison
    assert advised.overall is Overall.ADVISORY
    assert not advised.regressed
    assert conclude(advised.overall, block_inconclusive=True) == ("neutral", 0)
    assert advise(comparison, head.evidence, [made(2, 8)]).comparison.overall is Overall.REGRESSED  # recovered


def test_a_floor_blocks_also_where_the_gate_is_advisory() -> None:
    first, second = pair(99, 60)
    strict = Policy.model_validate({"threshold": 0.5, "tasks": {"toy": {"floor": 0.9}}})
    comparison = compare(second, first, strict, TODAY)
    assert advise(comparison, second.evidence, [made(3, 5)]).comparison.overall is Overall.REGRESSED


def test_audits_of_another_protocol_say_nothing() -> None:
    comparison, head = compared(60)
    other = made(3, 5).model_copy(update={"protocol": "0" * 64})
    assert advise(comparison, head.evidence, [other]) == audit.Advised(comparison, None)


def test_sign_flips_are_calibrated_and_use_real_pairs() -> None:
    comparison, _ = compared(40, 60)
    [found] = sign_flips([comparison]).values()
    assert (found.pairs, found.draws) == (100, audit.DRAWS)
    exact = np.arange(101)
    size = stats.binom.pmf(exact, 100, 0.5)[audit.midp_worse(exact, 100 - exact) < 0.05].sum()
    assert found.alarms / found.draws == pytest.approx(size, abs=4 * np.sqrt(size / audit.DRAWS))
    assert sign_flips([compared(0)[0], comparison]) == sign_flips([comparison])  # the newest that has changes


def test_words() -> None:
    comparison, head = compared(0)
    [line] = about(advise(comparison, head.evidence, [made(1, 28)]))
    assert line == "This gate's false alarms on identical commits: 1 in 28 nights (at most 0.16 with 95% confidence)"
    _, advisory = about(advise(comparison, head.evidence, [made(3, 5)]))
    assert advisory.startswith("Advisory until it recovers")
    assert "toy (3 in 5 nights, at least 0.19 with 95% confidence)" in advisory


def test_words_of_a_deterministic_gate() -> None:
    nights = [audited(i, same=True) for i in range(3)]
    found = tally(nights[:-1], nights[-1], sign_flips([compared(40, 60)[0]]))
    assert found.deterministic
    comparison, head = compared(0)
    rate, flips = about(advise(comparison, head.evidence, [found]))
    assert "0 in 3 nights, every answer of which was the same to the last bit" in rate
    assert "random sign flips: of 100 real changed examples of toy" in flips


def test_what_is_no_night_is_refused_with_a_line() -> None:
    with pytest.raises(InputError, match="is no self-audit"):
        parse_night(b'{"kind": "evaluation"}', "audits/x.json")


def two_metrics(i: int, acc: bool, f1: bool) -> Night:
    """Night `i` with a second metric beside the first, and whether each alarmed."""
    one = audited(i)
    [gate] = one.gates
    first = gate.model_copy(update={"metric": "acc", "alarmed": acc})
    other = gate.model_copy(update={"task": "other", "metric": "f1", "alarmed": f1})
    return one.model_copy(update={"gates": (first, other)})


def test_rates_of_each_metric_and_each_gate() -> None:
    """A metric alarms in a night when any of its gates does; each count has its own interval."""
    nights = [two_metrics(i, acc=i < 2, f1=False) for i in range(12)]
    found = tally(nights[:-1], nights[-1], {})
    assert [(m.metric, m.alarms, m.nights) for m in found.metrics] == [("acc", 2, 12), ("f1", 0, 12)]
    assert by_metric(found) == ["By metric: acc 2 in 12 nights (0.03 to 0.44); f1 0 in 12 nights (0 to 0.22)"]
    assert by_gate(found) == ["By gate: toy acc 2 in 12 nights (0.03 to 0.44); other f1 0 in 12 nights (0 to 0.22)"]
    assert stats.beta.ppf(0.05, 2, 11) == pytest.approx(0.0305, abs=1e-4)
    assert stats.beta.ppf(0.95, 3, 10) == pytest.approx(0.4381, abs=1e-4)


def test_few_nights_give_no_rate() -> None:
    nights = [two_metrics(i, acc=False, f1=i == 0) for i in range(9)]
    found = tally(nights[:-1], nights[-1], {})
    assert by_metric(found) == [
        "By metric: acc 0 in 9 nights (too few for a rate); f1 1 in 9 nights (too few for a rate)"
    ]
    assert "(too few for a rate)" in by_gate(found)[0]


def test_one_gate_alone_is_the_whole() -> None:
    found = tally([], audited(0), {})
    assert (by_metric(found), by_gate(found)) == ([], [])
