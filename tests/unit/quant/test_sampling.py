from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.baselines.errors import InputError
from assay.quant.plan import MetricPlan, Plan, TaskPlan
from assay.quant.sampling import Sampling, permutation, seeded


def test_permutation_is_the_same_on_every_machine() -> None:
    # Written down once; another platform or NumPy version must reproduce it, or published samples are no longer heads.
    assert permutation(1234, "mmlu_cloze", 10).tolist() == [4, 8, 3, 6, 9, 0, 5, 1, 7, 2]


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**40), task=st.text(max_size=20), examples=st.integers(1, 500))
def test_permutation_has_every_example_once(seed: int, task: str, examples: int) -> None:
    assert sorted(permutation(seed, task, examples).tolist()) == list(range(examples))


def test_permutation_depends_on_seed_and_task() -> None:
    first = permutation(1, "a", 100).tolist()
    assert first != permutation(2, "a", 100).tolist()
    assert first != permutation(1, "b", 100).tolist()


def test_head_of_the_permutation_is_spread_over_the_task() -> None:
    # MMLU is sorted by subject: a head of the file would be abstract algebra only.
    head = permutation(1234, "mmlu", 14_042)[:500]
    assert 6_000 < head.mean() < 8_000
    assert head.min() < 200
    assert head.max() > 13_800


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), 500),
        (Sampling(examples=20), 20),
        (Sampling(examples=900), 500),
        (Sampling(examples=40, cap=30), 30),
        (Sampling(grow=True, cap=100), 100),
    ],
)
def test_target(sampling: Sampling, expected: int) -> None:
    assert sampling.target(TaskPlan("t", 500, (MetricPlan("acc"),))) == expected


@pytest.mark.parametrize(
    "wrong", [{"examples": 0}, {"chunk": 0}, {"cap": -1}, {"seed": -1}, {"grow": True, "examples": 5}]
)
def test_impossible_samplings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="--"):
        Sampling(**wrong)  # type: ignore[arg-type]


def test_seed_belongs_to_the_protocol() -> None:
    from assay.baselines.evidence import Subject

    plan = Plan(Subject(name="m", digest="d"), {"batch_size": 1}, ())
    assert seeded(plan, Sampling(seed=7)).protocol == {"batch_size": 1, "sampling.seed": 7}


def test_tasks_that_must_not_stop_early() -> None:
    assert TaskPlan("t", 5, (MetricPlan("acc"),)).growable
    assert not TaskPlan("t", 5, (MetricPlan("acc"),), clustered=True).growable
    assert not TaskPlan("t", 5, (MetricPlan("word_perplexity", scale="loglik"),)).growable
