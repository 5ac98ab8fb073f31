"""Comments of gates that were audited, and the tracking issue, word for word (`ASSAY_GOLDEN=write` rewrites them)."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.states import BASE, HEAD, NOW, THREE, both, scene

from assay.baselines.audit import Flipped, GateTally, Tally, protocol_digest
from assay.baselines.compare import compare
from assay.baselines.compare.verdict import Comparison
from assay.baselines.policy import Policy
from assay.bot.audits.drift import CreateIssue, Issue, UpdateIssue
from assay.bot.audits.drift import plan as plan_drift
from assay.bot.operations import CloseCheck, CreateComment
from assay.bot.plan import plan
from assay.bot.sections import Baseline, Result
from assay.bot.snapshot import Snapshot

GOLDEN = Path(__file__).parents[2] / "golden" / "audits"


def compare_golden(name: str, page: str) -> None:
    path = GOLDEN / f"{name}.md"
    if os.environ.get("ASSAY_GOLDEN") == "write":
        path.write_text(page)
    assert path.read_text() == page


def tallied(comparison: Comparison, protocol: str, nights: int, alarms: dict[str, int], *, same: bool = False) -> Tally:
    flipped = Flipped(pairs=97, draws=2000, alarms=91) if same else None
    gates = tuple(
        GateTally(
            group=f.group, task=f.task, metric=f.metric, scale=f.scale, pooled=f.pooled, nights=nights,
            alarms=alarms.get(f.task, 0), identical=nights if same else 0,
            flipped=flipped if f.task == "hellaswag" else None,
        )
        for f in comparison.findings
    )  # fmt: skip
    return Tally(
        kind="evaluation", protocol=protocol, alpha=0.05, nights=nights, alarms=max(alarms.values(), default=0), gates=gates
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "nights", "alarms", "same"),
    [
        ("false-alarms", 28, {"hellaswag": 1}, False),
        ("deterministic", 28, {}, True),
        ("advisory", 20, {"hellaswag": 5}, False),
    ],
)
def test_comment(name: str, nights: int, alarms: dict[str, int], same: bool) -> None:
    only = {"hellaswag": THREE["hellaswag"], "mmlu": (8000, 33, 33, 0.412)}
    head, base = both(only)
    made = scene(head, base)
    policy = Policy.model_validate({"threshold": 0.5})
    found = compare(head, base, policy, NOW.date())
    audits = (tallied(found, protocol_digest(head.evidence), nights, alarms, same=same),)
    snapshot = made.snapshot.model_copy(update={"audits": audits})
    planned = plan(snapshot, made.records)
    kept = Snapshot.model_validate_json(snapshot.model_dump_json())  # what `assay simulate` replays
    assert plan(kept, made.records).operations == planned.operations
    [close] = [o for o in planned.operations if isinstance(o, CloseCheck)]
    [comment] = [o for o in planned.operations if isinstance(o, CreateComment)]
    assert close.conclusion == ("neutral" if name == "advisory" else "failure")
    assert planned.exit_code == (0 if name == "advisory" else 1)
    compare_golden(name, f"[//]: # (check: {close.conclusion.value}, exit {planned.exit_code})\n{comment.body}")


def against(broke: int, fixed: int, name: str = "the publication before", n: int = 4000) -> Result:
    head, base = both({"hellaswag": (n, broke, fixed, 0.465)})
    comparison = compare(head, base, Policy.model_validate({"threshold": 0.5}), NOW.date())
    return Result(
        workflow=f"against {name}",
        overall=comparison.overall,
        comparison=comparison,
        head=head.evidence,
        head_sha=HEAD,
        base=base.evidence,
        base_name=name,
        head_name="the newest",
        baseline=Baseline(f"baseline/main/{BASE[:12]}/evaluation/{'0' * 12}", "0" * 64, BASE, None, 1.0),
    )


WORSE, GOOD, UNSURE = against(120, 20), against(10, 10), against(8, 4, n=200)


def opened() -> CreateIssue:
    [step] = plan_drift([WORSE], [], "main", "evaluation")
    assert isinstance(step, CreateIssue)
    return step


def as_issue(step: CreateIssue | UpdateIssue, number: int = 5) -> Issue:
    return Issue(number, step.title, step.body, getattr(step, "open", True))


def test_the_issue_is_opened_once() -> None:
    step = opened()
    compare_golden("drift-opened", f"[//]: # (issue, open: {step.title})\n{step.body}")
    assert plan_drift([WORSE], [as_issue(step)], "main", "evaluation") == []


def test_the_issue_closes_on_recovery_and_opens_again() -> None:
    there = as_issue(opened())
    [step] = plan_drift([GOOD], [there], "main", "evaluation")
    assert isinstance(step, UpdateIssue)
    assert not step.open
    compare_golden("drift-recovered", f"[//]: # (issue, closed: {step.title})\n{step.body}")
    closed = as_issue(step)
    assert plan_drift([GOOD], [closed], "main", "evaluation") == []
    [again] = plan_drift([WORSE], [closed], "main", "evaluation")
    assert isinstance(again, UpdateIssue)
    assert (again.number, again.open) == (5, True)


def test_what_is_undecided_is_no_recovery_and_no_drift() -> None:
    assert plan_drift([UNSURE], [], "main", "evaluation") == []
    assert plan_drift([UNSURE], [as_issue(opened())], "main", "evaluation") == []
    assert plan_drift([], [as_issue(opened())], "main", "evaluation") == []


def test_slow_drift_shows_against_the_oldest() -> None:
    slow = [GOOD, replace(WORSE, workflow="against the oldest of the window", base_name="the oldest of the window")]
    [step] = plan_drift(slow, [], "main", "evaluation")
    assert isinstance(step, CreateIssue)
    assert "the oldest of the window" in step.body


def test_of_two_issues_the_oldest_stays() -> None:
    step = opened()
    [close] = plan_drift([WORSE], [as_issue(step, 9), as_issue(step, 5)], "main", "evaluation")
    assert isinstance(close, UpdateIssue)
    assert (close.number, close.open) == (9, False)
    assert "A duplicate of #5." in close.body


def test_issues_of_people_and_of_other_branches_are_left_alone() -> None:
    step = opened()
    theirs = Issue(3, "about assay", f"quoting\n{step.body}", True)
    other = Issue(4, step.title, step.body.replace("branch=main", "branch=next"), True)
    assert isinstance(plan_drift([WORSE], [theirs, other], "main", "evaluation")[0], CreateIssue)
    assert plan_drift([GOOD], [theirs, other], "main", "evaluation") == []


def test_every_golden_file_has_a_test() -> None:
    known = {"false-alarms", "deterministic", "advisory", "drift-opened", "drift-recovered"}
    assert {p.stem for p in GOLDEN.glob("*.md")} == known
