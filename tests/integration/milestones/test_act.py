"""A consumer with a capstone, from the push to the ticked checklist: act runs the documented workflows and our actions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.loopback import Loopback, act
from tests.loopback.consumer import Consumer

CAPSTONE = """\
title: INT8 weights for the toy
question: Do INT8 weights keep the toy's accuracy within 1 point?
material-gain: {value: 30, unit: percent of the size}
quantitative-model: {bound: {value: 75, unit: percent of the size}}
scope: {included: [{item: weights, reason: they are the size}], excluded: [{item: activations, reason: not needed}]}
stop-conditions: [bound-below-gain: true, scope-answered: {milestones: [1, 2]}]
milestones:
  - title: A measured baseline
    evidence:
      - evidence: {kind: evaluation, metric: toy/acc, at-least: 0.5}
      - environment-recorded: {kind: evaluation, fields: [hardware, python]}
  - title: The change keeps its accuracy
    evidence: [gate: {verdict: [equivalent, improved]}]
  - title: The report
    evidence: [file: {path: report.md, contains-headings: [Limitations]}]
"""


@pytest.fixture(scope="module")
def consumer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consumer]:
    assert act.binary() is not None, "these tests need act: `make setup` installs it"
    with Loopback() as github:
        made = Consumer(github, tmp_path_factory.mktemp("consumer"))
        (made.clone / "capstone.yml").write_text(CAPSTONE)
        made.git("add", "capstone.yml")
        made.git("commit", "-qm", "Propose INT8 weights")
        made.repo.import_clone(made.clone)
        made.publish()
        yield made


def ticked(comment: str) -> list[bool]:
    return [mark == "x" for mark in re.findall(r"^- \[([x ])\] \d\.", comment, re.MULTILINE)]


def commit(consumer: Consumer, branch: str, path: str, text: str) -> None:
    consumer.git("checkout", "-q", branch)
    Path(consumer.clone / path).write_text(text)
    consumer.git("add", path)
    consumer.git("commit", "-qm", f"Write {path}")
    consumer.git("checkout", "-q", "main")
    consumer.repo.import_clone(consumer.clone)


def test_the_checklist_follows_the_pull_request(consumer: Consumer) -> None:
    number = consumer.pull("int8", sharpness=2.0)
    consumer.report(consumer.measure(number, opened=False))
    comment = consumer.comment(number)
    assert comment.startswith("<!-- assay run=")
    assert "## ✓ Accuracy is equivalent" in comment
    assert ticked(comment) == [True, True, False]
    assert "**Stop adding:** the question is answered: milestones 1, 2 are done" in comment
    grown = CAPSTONE.replace("excluded: [{item: activations, reason: not needed}]", "excluded: []").replace(
        "[{item: weights, reason: they are the size}]",
        "[{item: weights, reason: they are the size}, {item: activations}]",
    )
    commit(consumer, "int8", "capstone.yml", grown)
    commit(consumer, "int8", "report.md", "# Report\n\n## Limitations\n\nOne toy.\n")
    consumer.repo.synchronize(number)
    consumer.report(consumer.measure(number, opened=False))
    comment = consumer.comment(number)
    assert ticked(comment) == [True, True, True]
    assert "**Scope grew without a reason:** activations is now included, which the base branch had excluded" in comment
    assert len(consumer.comments(number)) == 1


def test_a_regression_blocks_its_milestone(consumer: Consumer) -> None:
    number = consumer.pull("worse", broke=28, fixed=8)
    consumer.report(consumer.measure(number, opened=False))
    comment = consumer.comment(number)
    assert ticked(comment) == [True, False, False]
    assert "2. The change keeps its accuracy · **blocked**: the gate says regressed" in comment
    assert consumer.checks(number) == [("assay", "completed", "failure")]
