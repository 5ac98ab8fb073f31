"""Reading `capstone.yml`: strict, one line for each mistake, described by the published schema."""

from __future__ import annotations

import json

import pytest
import yaml
from tests.unit.milestones.workbench import ATTENTION, EXAMPLES, ROOT

from assay.baselines.errors import InputError
from assay.bot.milestones import proposal
from assay.bot.milestones.lint import lint
from assay.bot.milestones.proposal import Capstone, json_schema, parse_capstone
from assay.bot.milestones.wording import stop_words, words

WRONG = {
    "title: x\nquestoin: what?": "unknown key 'questoin'; did you mean 'question'?",
    "question: what?": "title: Field required",
    "title: x\nmilestones: [{title: a, evidence: [{contract-pased: {kind: kernel}}]}]": "did you mean 'contract-passed'?",
    "title: x\nmilestones: [{title: a, evidence: [{}]}]": "exactly one of evidence, contract-passed",
    "title: x\nmilestones: [{title: a, evidence: [{file: {path: a}, gate: {verdict: improved}}]}]": "has file and gate",
    "title: x\nmilestones: [{title: a, evidence: [{file: {path: ../secret}}]}]": "stays inside the repository",
    "title: x\nmilestones: [{title: a, evidence: [{file: {path: /etc/passwd}}]}]": "stays inside the repository",
    "title: x\nmilestones: [{title: a, evidence: [{evidence: {kind: kernel, at-least: 3}}]}]": "need a metric",
    "title: x\nmilestones: [{title: a, evidence: [{evidence: {kind: Kernel}}]}]": "kind",
    "title: x\nmilestones: [{title: a, evidence: [{losing-regions-listed: {kind: kernel, metric: m}}]}]": "two sides",
    "title: x\nstop-conditions: [{}]": "exactly one of bound-below-gain",
    "title: x\nstop-conditions: [{bound-below-gain: true, scope-answered: {}}]": "exactly one of",
    "title: x\nprerequisites: [{name: a, demonstrated: {}}]": "evidence or path",
    "title: x\nprerequisites: [{name: a, demonstrated: yes}]": "demonstrated",
    "title: x\nquantitative-model: {predictions: [{name: a, value: .inf, unit: s}]}": "finite",
    "title: x\nquantitative-model: {predictions: [{name: a, value: 1}, {name: a, value: 2}]}": "is there twice",
    "title: x\ntitle: y": "is there twice",
    "title: &a x\nquestion: *a": "anchors",
    "- x": "must be a mapping such as 'question:'",
    "title: [": "not plain YAML",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_is_one_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_capstone(text.encode())
    assert WRONG[text] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "Value error" not in str(caught.value)


def test_at_most_ten_files_are_asked_for() -> None:
    files = [{"file": {"path": f"docs/{i}.md"}} for i in range(11)]
    text = yaml.safe_dump({"title": "x", "milestones": [{"title": "a", "evidence": files}]})
    with pytest.raises(InputError, match="11 files are asked for, and at most 10"):
        parse_capstone(text.encode())


def test_the_published_schema_is_this_one() -> None:
    assert json.loads((ROOT / "docs" / "capstone.schema.json").read_text()) == json.loads(json.dumps(json_schema()))


def test_the_form_is_read_and_asks_to_be_filled_in() -> None:
    text = (ROOT / "bot" / "milestones" / "scaffold.yaml").read_bytes()
    made = parse_capstone(text)
    keys = {f.key for f in lint(made)}
    assert {"question", "baseline", "metric", "material-gain", "functional-case", "milestones.1.evidence"} <= keys
    assert "milestones" not in keys  # all five are there
    named = set(yaml.safe_load(text)) | {"metric", "material-gain"}  # these two stand there as comments
    assert named == set(Capstone.model_json_schema(by_alias=True)["properties"])
    assert (proposal.NAME, len(made.milestones)) == ("capstone.yml", 5)


def test_what_is_looked_at() -> None:
    made = parse_capstone(ATTENTION.encode())
    assert made.kinds() == ["kernel"]
    assert made.paths() == ["report.md"]
    assert made.gates() == []
    [contest] = made.contests()  # the milestone's and the stop condition's are one
    assert contest.baseline == "attention-library"


@pytest.mark.parametrize("example", ["attention", "registration"])
def test_everything_has_words(example: str) -> None:
    made = parse_capstone((EXAMPLES / example / "capstone.yml").read_bytes())
    said = [words(p) for p in made.predicates()] + [stop_words(s, made) for s in made.stop_conditions]
    assert all(said)
    assert len(set(said)) == len(said)
