from __future__ import annotations

from typing import Any

import pytest

from assay.baselines.errors import InputError
from assay.quant.plan import MetricPlan
from assay.quant.samples import example_rows, letter, plan_metrics

METRICS = (MetricPlan("acc"), MetricPlan("acc_norm", primary=True))


def rows(**changes: Any) -> Any:
    example: dict[str, Any] = {
        "task": "t",
        "doc_id": 3,
        "arguments": [("Q", " a"), ("Q", " long answer")],
        "target": 1,
        "responses": [[[-2.0, False]], [[-5.0, True]]],
        "filtered": {"none": [[-2.0, False], [-5.0, True]]},
        "values": {"none": {"acc": 0.0, "acc_norm": 1.0}},
        "metrics": METRICS,
        "choices": ["a", "long answer"],
        "text": "Q",
    }
    return example_rows(**{**example, **changes})


def test_each_metric_has_its_own_answer_and_margin() -> None:
    acc, norm = rows()
    assert (acc.answer, acc.margin) == ("A", 3.0)
    assert norm.answer == "B"
    assert norm.margin == pytest.approx(2.0 - 5 / 11)
    assert (acc.score, norm.score) == (0.0, 1.0)


def test_the_key_covers_all_choices_and_the_target() -> None:
    key = rows()[0].item
    # lm-eval's own prompt_hash covers the first choice only.
    assert rows(arguments=[("Q", " a"), ("Q", " other answer")])[0].item != key
    assert rows(target=0)[0].item != key
    assert rows(doc_id=9, text="other", responses=[[[-1.0, False]], [[-5.0, True]]])[0].item == key


def test_the_response_key_sees_every_bit() -> None:
    import math

    changed = [[[math.nextafter(-2.0, 0), False]], [[-5.0, True]]]
    assert rows(responses=changed)[0].response != rows()[0].response
    assert rows()[0].response == rows()[1].response


@pytest.mark.parametrize("bad", [float("nan"), float("-inf"), float("inf")])
def test_responses_that_are_not_finite_name_task_and_document(bad: float) -> None:
    with pytest.raises(InputError, match=r"task t: document 3 got"):
        rows(responses=[[[-2.0, False]], [[bad, True]]])


@pytest.mark.parametrize(
    ("value", "message"),
    [(0.5, "0 or 1"), ((1, 2), "not a number"), ("x", "not a number"), (float("nan"), "nan"), (None, "not a number")],
)
def test_values_that_are_no_binary_score(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rows(values={"none": {"acc": value, "acc_norm": 1.0}})


def test_a_missing_value_is_refused() -> None:
    with pytest.raises(InputError, match="no value of metric acc_norm"):
        rows(values={"none": {"acc": 1.0}})


def test_perplexity_has_its_weight() -> None:
    metric = MetricPlan("word_perplexity", scale="loglik")
    (row,) = rows(metrics=(metric,), values={"none": {"word_perplexity": (-30.5, 12)}}, choices=None)
    assert (row.score, row.weight, row.answer) == (-30.5, 12.0, None)
    with pytest.raises(InputError, match="weight 0"):
        rows(metrics=(metric,), values={"none": {"word_perplexity": (-30.5, 0)}}, choices=None)


def test_bounded_scores_stay_in_their_range() -> None:
    metric = MetricPlan("rouge", scale="bounded", low=0.0, high=1.0)
    (row,) = rows(metrics=(metric,), values={"none": {"rouge": 0.25}}, choices=None)
    assert row.score == 0.25
    with pytest.raises(InputError, match=r"outside \[0, 1\]"):
        rows(metrics=(metric,), values={"none": {"rouge": 37.0}}, choices=None)


def test_metrics_without_a_score_per_example_are_left_out() -> None:
    plans, skipped = plan_metrics(
        ["acc", "acc_norm", "f1", "brier_score"], ["none"], output_type="multiple_choice", chance=0.25
    )
    assert [(p.name, p.primary, p.scale, p.chance) for p in plans] == [
        ("acc", False, "binary", 0.25),
        ("acc_norm", True, "binary", 0.25),
    ]
    assert skipped == ["f1", "brier_score"]


def test_bits_per_byte_are_the_rows_of_byte_perplexity() -> None:
    names = ["word_perplexity", "byte_perplexity", "bits_per_byte"]
    plans, _ = plan_metrics(names, ["none"], output_type="loglikelihood_rolling", chance=None)
    assert [p.name for p in plans] == ["word_perplexity", "byte_perplexity"]
    assert all(p.scale == "loglik" and p.direction == "lower" for p in plans)
    alone, _ = plan_metrics(["bits_per_byte"], ["none"], output_type="loglikelihood_rolling", chance=None)
    assert [p.name for p in alone] == ["bits_per_byte"]


def test_every_filter_is_a_series_and_the_first_is_primary() -> None:
    plans, _ = plan_metrics(["exact_match"], ["strict", "flexible"], output_type="generate_until", chance=None)
    assert [(p.filter, p.primary) for p in plans] == [("strict", True), ("flexible", False)]


def test_letters() -> None:
    assert [letter(i) for i in (0, 25, 26)] == ["A", "Z", "27"]
