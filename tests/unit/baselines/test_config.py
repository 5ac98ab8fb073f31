"""`assay.yml`: every mistake is one line that names its key."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from assay.baselines.config import Configuration, json_schema, load_configuration, parse_configuration
from assay.baselines.errors import InputError
from assay.baselines.policy import Group, Policy, accepted_for, limits_for, pool_limits

ROOT = Path(__file__).parents[3]


def test_empty_means_defaults() -> None:
    assert parse_configuration(b"") == Configuration()
    assert parse_configuration(b"").gate.threshold == 0.5
    assert parse_configuration(b"").gate.alpha == 0.05


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gate: {treshold: 1}", "did you mean 'threshold'"),
        ("gates: {}", "did you mean 'gate'"),
        ("gate: {alpha: 2}", "gate.alpha"),
        ("gate: {alpha: .nan}", "gate.alpha"),
        ("gate: {threshold: 3, margin: 1}", "margin 1 is below threshold 3"),
        ("gate: {threshold: '1'}\nversion: 2", "version"),
        ("gate: {accepted: [{task: x, reason: because, by: me, expires: someday}]}", "expires"),
        (
            "gate: {pool: {enabled: false}, accepted: [{task: pool, reason: because, by: me, expires: 2027-01-31}]}",
            "'pool' accepts a pooled comparison that this policy does not make (it has none); enable the pool or remove",
        ),
        (
            "gate: {accepted: [{task: 'pool:code', reason: because, by: me, expires: 2027-01-31}]}",
            "'pool:code' accepts a pooled comparison that this policy does not make (it has only pool, pool:all)",
        ),
        ("gate: {on-inconclusive: maybe}", "on-inconclusive"),
        ("- a", "must be a mapping"),
        ("a: 1\na: 2", "'a' is there twice"),
        ("a: [", "line 1"),
        ("gate: !!python/object/apply:os.system [ls]", "not plain YAML"),
        ("gate: {tasks: {mmlu: {floor: 40}}}", "floor"),
    ],
)
def test_mistakes_are_named(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_configuration(text.encode())
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("task", ["pool", "pool:talk", "pool:*", "mmlu", "pooling", "*"])
def test_pools_that_are_compared_can_be_accepted(task: str) -> None:
    groups = "groups: {talk: {tasks: [mmlu]}, code: {tasks: [humaneval], pool: {enabled: false}}}"
    accepted = f"accepted: [{{task: '{task}', reason: because, by: me, expires: 2027-01-31}}]"
    assert parse_configuration(f"gate: {{{groups}, {accepted}}}".encode()).gate.accepted[0].task == task
    with pytest.raises(InputError, match="pool:code"):
        parse_configuration(f"gate: {{{groups}, {accepted.replace(task, 'pool:code')}}}".encode())


def test_yaml_bombs_are_refused_quickly() -> None:
    laughs = "a: &a [x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(20)
    )
    for bomb in (laughs, "[" * 5000, "{a: " * 500, "x: " + "y" * 300_000, "\x00", "gate: &x {}\ncomment: *x"):
        with pytest.raises(InputError):
            parse_configuration(bomb.encode())


def test_missing_file() -> None:
    with pytest.raises(InputError, match="cannot read"):
        load_configuration(Path("no/such/assay.yml"))


def test_published_schema_is_the_model() -> None:
    published = json.loads((ROOT / "docs" / "assay.schema.json").read_text())
    assert published == json_schema(), "run `make schema`"
    Draft202012Validator.check_schema(published)
    validator = Draft202012Validator(published)
    assert not list(validator.iter_errors({"gate": {"threshold": 1, "tasks": {"mmlu_*": {"floor": 0.4}}}}))
    assert list(validator.iter_errors({"gate": {"treshold": 1}}))


def test_every_setting_is_described() -> None:
    schema = json_schema()
    for name, definition in {**schema["$defs"], "": schema}.items():
        for key, value in definition.get("properties", {}).items():
            assert value.get("description"), f"{name}.{key}"
            assert key == key.lower()
            assert "_" not in key


def test_limits_are_inherited_and_later_entries_win() -> None:
    policy = Policy.model_validate(
        {
            "threshold": 0.5,
            "margin": 2,
            "tasks": {"mmlu_*": {"threshold": 1.0, "floor": 0.4}, "mmlu_law": {"threshold": 2.0, "metric": "acc"}},
            "groups": {"mmlu": {"tasks": ["mmlu_*"], "margin": 3.0, "pool": {"threshold": 0.2}}},
        }
    )
    group = policy.family_groups()["mmlu"]
    law = limits_for(policy, group, "mmlu_law", perplexity=False)
    assert (law.threshold, law.margin, law.metric, law.floor) == (0.02, 0.03, "acc", 0.4)
    assert limits_for(policy, group, "mmlu_art", perplexity=False).threshold == 0.01
    assert (pool_limits(policy, group).threshold, pool_limits(policy, group).margin) == (0.002, 0.03)
    perplexity = limits_for(policy, Group(tasks=["*"]), "wikitext", perplexity=True)
    assert (perplexity.threshold, perplexity.margin) == (0.01, 0.02)


def test_accepted_expire_and_have_a_limit() -> None:
    entry = {"task": "mmlu*", "reason": "known", "by": "octocat", "expires": date(2026, 12, 1), "up-to": 2.0}
    policy = Policy.model_validate({"accepted": [entry]})
    assert accepted_for(policy, "mmlu_law", "acc", 0.02, date(2026, 12, 1)) is policy.accepted[0]
    assert accepted_for(policy, "mmlu_law", "acc", 0.021, date(2026, 12, 1)) is None
    assert accepted_for(policy, "mmlu_law", "acc", 0.02, date(2026, 12, 2)) is None
    assert accepted_for(policy, "arc", "acc", 0.01, date(2026, 12, 1)) is None


def test_own_configuration_is_valid() -> None:
    assert load_configuration(ROOT / ".github" / "assay.yml").gate.threshold == 0.5
