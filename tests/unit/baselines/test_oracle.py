"""Comparisons against other people's arithmetic and against themselves told differently."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from tests.evidence import evaluation, outcomes

from assay.baselines.compare import compare
from assay.baselines.compare.verdict import Comparison, Finding, Overall, State
from assay.baselines.errors import InputError
from assay.baselines.pareto import accuracy_of
from assay.baselines.policy import Policy
from assay.baselines.record import Record

TODAY = date(2026, 11, 30)
LOOSE = {"at-chance": "warn"}


def judged(head: Record, base: Record, policy: dict[str, Any] | None = None) -> Comparison:
    return compare(head, base, Policy.model_validate({**LOOSE, **(policy or {})}), TODAY)


def pair(scores: dict[str, tuple[Any, Any]], **options: Any) -> tuple[Record, Record]:
    """(head, base) of task -> (base scores, head scores)."""
    return (
        evaluation({t: list(h) for t, (_, h) in scores.items()}, **options),
        evaluation({t: list(b) for t, (b, _) in scores.items()}, **options),
    )


tasks = st.lists(st.tuples(st.integers(1, 400), st.floats(0, 0.4), st.floats(0, 0.4)), min_size=1, max_size=6)


@settings(max_examples=25, deadline=None)
@given(tasks, st.integers(0, 2**32 - 1))
def test_binary_families_against_scipy_and_statsmodels(shapes: list[tuple[int, float, float]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = {}
    for i, (n, broke, fixed) in enumerate(shapes):
        base = rng.integers(0, 2, n)
        u = rng.random(n)
        head = np.where((base == 1) & (u < broke), 0, np.where((base == 0) & (u < fixed), 1, base))
        scores[f"t{i}"] = (base, head)
    found = judged(*pair(scores))
    everything = {**scores}
    if len(scores) > 1:
        everything["pool"] = tuple(np.concatenate([s[k] for s in scores.values()]) for k in (0, 1))  # type: ignore[assignment]
    assert {f.task for f in found.findings} == set(everything)
    for f in found.findings:
        base, head = everything[f.task]
        b, c = int((base > head).sum()), int((base < head).sum())
        assert (f.n, f.broke, f.fixed) == (len(base), b, c)
        assert f.base == pytest.approx(base.mean())
        assert f.change == pytest.approx(head.mean() - base.mean())
        assert f.drop == -f.change
        midp = stats.binom.sf(b, b + c, 0.5) + stats.binom.pmf(b, b + c, 0.5) / 2
        assert f.p_worse == pytest.approx(midp, abs=1e-9)
        assert f.p_better == pytest.approx(1 - midp, abs=1e-9)
        assert f.p_two_sided == pytest.approx(mcnemar([[0, b], [c, 0]], exact=True).pvalue, abs=1e-9)
        assert f.low <= f.change <= f.high
    for p, adjusted in (("p_worse", "adjusted_worse"), ("p_better", "adjusted_better")):
        expected = multipletests([getattr(f, p) for f in found.findings], method="holm")[1]
        assert [getattr(f, adjusted) for f in found.findings] == pytest.approx(list(expected))
    assert (found.broke, found.fixed) == tuple(
        sum(getattr(f, side) or 0 for f in found.findings if not f.pooled) for side in ("broke", "fixed")
    )
    for f in found.findings:
        check_state(f)


def check_state(f: Finding, alpha: float = 0.05) -> None:
    """The order of verdicts, told once more from the published numbers."""
    if f.drop > f.threshold and f.adjusted_worse < alpha:
        assert f.state is State.REGRESSED
    elif -f.drop > f.threshold and f.adjusted_better < alpha:
        assert f.state is State.IMPROVED
    else:
        assert f.state in (State.EQUIVALENT, State.INCONCLUSIVE)
    if f.state is State.EQUIVALENT and not f.identical:
        assert f.drop < f.margin
    if f.state is State.INCONCLUSIVE and f.needed is not None:
        assert f.needed > f.n


@settings(max_examples=25, deadline=None)
@given(st.integers(4, 14), st.integers(0, 2**32 - 1))
def test_graded_scores_against_scipy(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    base, head = rng.integers(0, 5, n) / 4, rng.integers(0, 5, n) / 4
    [f] = judged(*pair({"t": (base, head)}, scale="bounded", low=0.0, high=1.0)).findings
    test = stats.permutation_test(
        (head - base,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="less"
    )
    assert f.p_worse == pytest.approx(test.pvalue, abs=1e-9)
    assert f.change == pytest.approx((head - base).mean())


# -- the same facts told differently ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(0.0, 10.0), (1.0, 5.0), (-1.0, 1.0), (0.0, 100.0)])
def test_a_range_changes_no_verdict(low: float, high: float) -> None:
    """Half a point means half a hundredth of the range, whatever a mark runs from and to."""
    rng = np.random.default_rng(1)
    base = rng.uniform(0.2, 0.9, 400)
    head = np.clip(base - 0.02 + rng.normal(0, 0.05, 400), 0, 1)
    [plain] = judged(*pair({"t": (base, head)}, scale="bounded", low=0.0, high=1.0)).findings
    scaled = judged(
        *pair({"t": (low + base * (high - low), low + head * (high - low))}, scale="bounded", low=low, high=high)
    )
    [f] = scaled.findings
    for name in ("base", "head", "change", "low", "high", "drop", "p_worse"):
        assert getattr(f, name) == pytest.approx(getattr(plain, name), abs=1e-9), name
    assert (f.state, f.needed) == (plain.state, plain.needed)
    assert any(f"share of its range, {low:g} to {high:g}" in w for w in scaled.warnings)


def test_a_pool_of_ranges_adds_like_to_like() -> None:
    rng = np.random.default_rng(2)
    marks, bleu = rng.uniform(2, 8, 300), rng.uniform(10, 40, 300)

    def side(drop: float) -> Record:
        parts = [
            evaluation({"marks": list(marks - drop * 10)}, scale="bounded", low=0.0, high=10.0),
            evaluation({"bleu": list(bleu - drop * 100)}, scale="bounded", low=0.0, high=100.0),
        ]
        metrics = {k: m for part in parts for k, m in part.evidence.metrics.items()}
        rows = pa.concat_tables([part.rows for part in parts]).unify_dictionaries()
        return Record(parts[0].evidence.model_copy(update={"metrics": metrics}), rows)

    pooled = next(f for f in judged(side(0.02), side(0.0)).findings if f.pooled)
    assert pooled.drop == pytest.approx(0.02)


def lower(record: Record) -> Record:
    metrics = {k: m.model_copy(update={"direction": "lower"}) for k, m in record.evidence.metrics.items()}
    return Record(record.evidence.model_copy(update={"metrics": metrics}), record.rows)


@pytest.mark.parametrize("scale", ["binary", "bounded"])
def test_less_can_be_better(scale: str) -> None:
    """An error rate that rises is a regression, and its mirror image as an accuracy has the same statistics."""
    options: dict[str, Any] = {"scale": scale, "low": 0.0, "high": 1.0} if scale == "bounded" else {"scale": scale}
    right, after = (np.array(x, dtype=float) for x in outcomes(1000, 80, 20))
    [accuracy] = judged(*pair({"t": (right, after)}, **options)).findings
    head, base = pair({"t": (1 - right, 1 - after)}, **options)
    found = judged(lower(head), lower(base))
    [error] = found.findings
    assert accuracy.state is error.state is State.REGRESSED
    assert (error.broke, error.fixed) == (accuracy.broke, accuracy.fixed)
    assert error.drop == pytest.approx(accuracy.drop)
    assert error.change == pytest.approx(-accuracy.change)
    assert error.head == pytest.approx(1 - accuracy.head)
    assert error.low <= error.change <= error.high
    if scale == "binary":
        assert sum(flip.broke for flip in found.flips) == found.broke == 80
    assert judged(lower(base), lower(head)).overall is Overall.IMPROVED
    with pytest.raises(InputError, match="counts as better when"):
        judged(lower(head), base)
    with pytest.raises(InputError, match="lower is better"):
        judged(lower(head), lower(base), {"tasks": {"t": {"floor": 0.5}}})
    assert accuracy_of(lower(head).evidence) is None


def test_order_and_slices_of_rows_change_nothing() -> None:
    head, base = pair({"a": outcomes(300, 20, 9), "b": outcomes(200, 5, 5)}, responses=b"\x01" * 8)
    assert head.rows is not None
    assert base.rows is not None
    first = judged(head, base)
    order = np.random.default_rng(0).permutation(500)
    shuffled = Record(head.evidence, head.rows.take(order))
    padded = pa.concat_tables([base.rows.slice(0, 7), base.rows]).combine_chunks().slice(7)
    for other in (
        judged(shuffled, base),
        judged(head, Record(base.evidence, padded)),
        judged(shuffled, Record(base.evidence, padded)),
    ):
        assert other.findings == first.findings
        assert {(f.task, f.example, f.broke) for f in other.flips} == {
            (f.task, f.example, f.broke) for f in first.flips
        }


def test_identical_responses_are_seen_in_a_slice() -> None:
    head, base = pair({"a": outcomes(50, 0, 0)}, responses=b"\x01" * 8)
    assert head.rows is not None
    other, _ = pair({"a": outcomes(50, 0, 0)}, responses=b"\x02" * 8)
    assert other.rows is not None
    mixed = pa.concat_tables([other.rows, head.rows]).combine_chunks().slice(50)
    assert judged(Record(head.evidence, mixed), base).findings[0].identical
    mixed = pa.concat_tables([head.rows, other.rows]).combine_chunks().slice(50)
    assert not judged(Record(head.evidence, mixed), base).findings[0].identical


# -- tables of other writers -----------------------------------------------------------------------------------------


def with_dictionary(record: Record, column: str, codes: list[int | None], values: list[str | None]) -> Record:
    assert record.rows is not None
    array = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(values, pa.string()))
    place = record.rows.schema.get_field_index(column)
    return Record(record.evidence, record.rows.set_column(place, record.rows.schema.field(place), array))


def test_a_value_twice_in_a_dictionary_is_one_name() -> None:
    head, base = pair({"t": outcomes(200, 30, 5)})
    doubled = with_dictionary(head, "task", [i % 2 for i in range(200)], ["t", "t"])
    assert judged(doubled, base).findings == judged(head, base).findings
    names = [str(i // 10) for i in range(200)]
    grouped_head, grouped_base = pair({"t": outcomes(200, 30, 5)}, clusters=names)
    codes = [i // 5 for i in range(200)]
    clusters = with_dictionary(grouped_head, "cluster", codes, [str(code // 2) for code in range(40)])
    assert judged(clusters, grouped_base).findings == judged(grouped_head, grouped_base).findings


def test_a_null_in_a_dictionary_is_a_missing_value() -> None:
    head, base = pair({"t": outcomes(200, 30, 5)})
    unused = with_dictionary(head, "task", [1] * 200, [None, "t"])
    assert judged(unused, base).findings == judged(head, base).findings
    with pytest.raises(InputError, match="'task' has nulls"):
        judged(with_dictionary(head, "task", [0] + [1] * 199, [None, "t"]), base)
    lonely = with_dictionary(head, "cluster", [0] * 100 + [None] * 100, [None])
    assert judged(lonely, base).findings == judged(head, base).findings


def test_series_whose_keys_collide_are_refused() -> None:
    head, base = pair({"a": outcomes(20, 1, 1)}, metric="b/c")
    assert head.rows is not None
    assert base.rows is not None

    def both(record: Record) -> Record:
        assert record.rows is not None
        twin = evaluation({"a/b": outcomes(20, 1, 1)[0]}, metric="c")
        return Record(record.evidence, pa.concat_tables([record.rows, twin.rows]).unify_dictionaries())

    with pytest.raises(InputError, match="two series of the head go by the name a/b/c"):
        judged(both(head), both(base))


# -- floors and what would decide ------------------------------------------------------------------------------------


def test_a_floor_holds_for_clusters_too() -> None:
    clusters = [str(i // 10) for i in range(4000)]
    scores = outcomes(4000, 9, 9, 0.4)
    [f] = judged(*pair({"t": scores}, clusters=clusters), {"tasks": {"t": {"floor": 0.5}}}).findings
    assert f.below_floor
    assert f.state is State.REGRESSED
    # All of one cluster right or wrong together: 4,000 examples are worth 40, which cannot show 0.4 to be below 0.5.
    together = np.repeat([1] * 16 + [0] * 24, 100)
    wide = [str(i // 100) for i in range(4000)]
    [f] = judged(*pair({"t": (together, together)}, clusters=wide), {"tasks": {"t": {"floor": 0.5}}}).findings
    assert f.floor_open
    assert f.state is State.INCONCLUSIVE


def test_what_a_floor_asks_for_shows_it() -> None:
    policy = {"tasks": {"t": {"floor": 0.46}}}
    [f] = judged(*pair({"t": outcomes(1000, 10, 10, 0.45)}), policy).findings
    assert f.state is State.INCONCLUSIVE
    assert f.needed is not None
    n = f.needed
    # The verdict is a function of the count of right answers: find the most that still shows it, then ask how likely.
    low, high = round(0.44 * n), round(0.46 * n)
    while high - low > 1:
        middle = (low + high) // 2
        [again] = judged(*pair({"t": outcomes(n, 10, 10, middle / n)}), policy).findings
        low, high = (middle, high) if again.below_floor else (low, middle)
    assert 0.75 < stats.binom.cdf(low, n, 0.45) < 0.85  # the policy's power is 0.8


@pytest.mark.parametrize("spread", [0.0, 0.001, 0.03])
@pytest.mark.parametrize("shift", [0.0, 0.004, -0.003])
def test_graded_scores_are_decided_at_what_was_asked(spread: float, shift: float) -> None:
    rng = np.random.default_rng(3)
    n = 60
    base = rng.uniform(0.3, 0.7, n)
    noise = rng.normal(0, spread, n)
    head = base - shift + noise - noise.mean()
    [f] = judged(*pair({"t": (base, head)}, scale="bounded", low=0.0, high=1.0)).findings
    if f.state is not State.INCONCLUSIVE:
        return
    assert f.needed is not None
    decided = 0
    for _ in range(30):
        rows = rng.integers(0, n, f.needed)
        [again] = judged(*pair({"t": (base[rows], head[rows])}, scale="bounded", low=0.0, high=1.0)).findings
        decided += again.state is not State.INCONCLUSIVE
    assert decided >= 30 * 0.58  # power 0.8, and three standard errors of 30 trials


def test_clusters_without_a_flip_are_decided_at_what_was_asked() -> None:
    def found(n: int) -> Finding:
        return judged(*pair({"t": outcomes(n, 0, 0)}, clusters=[str(i // 10) for i in range(n)])).findings[0]

    first = found(600)
    assert first.state is State.INCONCLUSIVE
    assert first.needed is not None
    rounded = -(-first.needed // 10) * 10
    assert found(rounded).state is State.EQUIVALENT
    assert found(rounded - 20).state is State.INCONCLUSIVE


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scale": "bounded", "low": 0.0, "high": 1.0}, "t: .*at least 2"),
        ({"scale": "loglik", "metric": "ppl"}, "t: 1 document"),
        ({"clusters": ["a"]}, "t: .*cluster"),
        ({"scale": "bounded", "low": 1.0, "high": 1.0}, "range .* is empty"),
    ],
)
def test_one_example_is_refused_by_the_name_of_its_task(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        judged(*pair({"t": ([1.0], [1.0])}, **options))


def test_any_share_of_right_answers_is_an_accuracy() -> None:
    """value * n is rarely a whole number in floating point; 1/49 of 49 is not 1."""
    for n in (3, 49, 199, 1319):
        for right in range(0, n + 1, max(1, n // 50)):
            [key] = evaluation({"t": [1] * right + [0] * (n - right)}).evidence.metrics.values()
            value = accuracy_of(evaluation({"t": [1] * right + [0] * (n - right)}).evidence)
            assert value is not None
            assert value.low <= key.value <= value.high


def test_accepting_one_regression_hides_no_other() -> None:
    counts = {"known": (1000, 80, 20, 0.5), "new": (1000, 70, 20, 0.5), "same": (4000, 9, 9, 0.5)}
    accepted = [{"task": "known", "reason": "by design", "by": "me", "expires": "2026-12-01"}]
    found = judged(*pair({t: outcomes(*c) for t, c in counts.items()}), {"accepted": accepted})
    assert found.overall is Overall.REGRESSED
    assert found.regressed[0].task == "new"
    pooled = next(f for f in found.findings if f.pooled)
    assert pooled.n == 5000
    expired = [{**accepted[0], "expires": "2026-11-29"}]
    found = judged(*pair({t: outcomes(*c) for t, c in counts.items()}), {"accepted": expired})
    assert "known" in {f.task for f in found.regressed}


@pytest.mark.parametrize(
    "policy",
    [
        {"threshold": 2, "margin": 1},
        {"perplexity": {"threshold": 5}},
        {"tasks": {"t": {"threshold": 5, "margin": 1}}},
        {"groups": {"g": {"tasks": ["t"], "pool": {"threshold": 5, "margin": 1}}}},
        {"alpha": 1e-300},
    ],
)
def test_policies_that_contradict_themselves(policy: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"margin|alpha"):
        Policy.model_validate(policy)


def test_limits_that_meet_and_contradict_are_refused_with_the_task() -> None:
    head, base = pair({"t": outcomes(100, 5, 5)})
    with pytest.raises(InputError, match="the policy for t: margin 1 is below threshold 5"):
        judged(head, base, {"tasks": {"t": {"threshold": 5}}})
    weights = [100.0] * 30
    options = {"scale": "loglik", "metric": "ppl", "weights": weights, "chance": None}
    head, base = pair({"p": ([-300.0] * 30, [-300.5] * 29 + [-300.0])}, **options)
    judged(
        head, base, {"tasks": {"p": {"threshold": 1.5}}}
    )  # over accuracy's margin of 1 point, under perplexity's of 2%
