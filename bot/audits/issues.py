"""The tracking issue over REST."""

from __future__ import annotations

from collections.abc import Sequence

from assay.baselines.ledger.service import ReplyLost
from assay.bot.audits.drift import LABEL, CreateIssue, Issue, Step, UpdateIssue, plan
from assay.bot.rest import Rest
from assay.bot.sections import Result

LOOKS = 4


def issues_of(rest: Rest) -> list[Issue]:
    """All issues with our label, open or closed."""
    listed = rest.pages("/issues", "list the tracking issues", {"state": "all", "labels": LABEL})
    return [
        Issue(int(i["number"]), str(i["title"]), str(i["body"] or "").replace("\r\n", "\n"), i["state"] == "open")
        for i in listed
        if "pull_request" not in i
    ]


def track(results: Sequence[Result], rest: Rest, branch: str, kind: str, *, dry_run: bool = False) -> list[str]:
    """Look, plan and perform until nothing is left to do, so that two runs at once end with one issue. Says what was done."""
    said: list[str] = []
    for _ in range(LOOKS):
        steps = plan(results, issues_of(rest), branch, kind)
        said += [_words(step, dry_run) for step in steps]
        if dry_run or not steps:
            break
        for step in steps:
            _perform(step, rest)
    return said


def _perform(step: Step, rest: Rest) -> None:
    if isinstance(step, CreateIssue):
        body = {"title": step.title, "body": step.body, "labels": [LABEL]}
        try:
            rest.send("POST", "/issues", body, "open the tracking issue", once=True)
        except ReplyLost:
            return  # the next look shows whether it is there
    else:
        changes = {"title": step.title, "body": step.body, "state": "open" if step.open else "closed"}
        rest.send("PATCH", f"/issues/{step.number}", changes, f"rewrite issue {step.number}")


def _words(step: Step, dry_run: bool) -> str:
    would = "would " if dry_run else ""
    match step:
        case CreateIssue():
            return f"{would}open an issue: {step.title}"
        case UpdateIssue():
            return f"{would}rewrite issue {step.number} ({'open' if step.open else 'closed'}): {step.title}"
