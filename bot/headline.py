"""The verdict of an evaluation in words: the one line that everybody reads."""

from __future__ import annotations

from collections.abc import Sequence

from assay.baselines.compare.verdict import Finding, Overall, State, over
from assay.bot import text
from assay.bot.sections import Result


def headline(result: Result) -> str:
    """The verdict in words."""
    if result.comparison is None:
        return {
            Overall.NO_BASELINE: "No baseline to compare with yet",
            Overall.MISMATCH: "Not comparable: main and this PR were measured differently",
            Overall.INVALID: "The evidence cannot be used",
            Overall.BROKEN: "The measurement failed",
        }.get(result.overall, "No verdict")
    findings = result.comparison.findings
    tasks = [f for f in findings if not f.pooled]
    worse = [f for f in tasks if f.blocks]
    pooled = " and pooled" if any(f.blocks for f in findings if f.pooled) else ""
    match result.overall:
        case Overall.REGRESSED if worse:
            # A score under its floor blocks whichever way it moved.
            low = all(f.below_floor and not dropped(f, result.comparison.alpha) for f in worse)
            verb = "is below its floor" if low else "regressed"
            return f"{_what(worse)} {verb} on {_of(worse, tasks)}{',' + pooled if pooled else ''}"
        case Overall.REGRESSED:
            many = any(f.accepted for f in tasks)
            alone = "no other task alone" if many else "no single task"
            return f"{_what(findings)} regressed over {'the other' if many else 'all'} tasks pooled, though on {alone}"
        case Overall.ADVISORY:
            open_ = [f for f in findings if f.advised]
            advised = [f for f in open_ if not f.pooled]
            where = f"on {_of(advised, tasks)}" if advised else "over all tasks pooled"
            return f"{_what(open_)} may have regressed {where}: the gate is advisory there{_apart(findings)}"
        case Overall.IMPROVED:
            better = [f for f in tasks if f.state is State.IMPROVED]
            where = f"on {_of(better, tasks)}" if better else "over all tasks pooled"
            return f"{_what(better or tasks)} improved {where}{_apart(findings)}"
        case Overall.INCONCLUSIVE:
            open_ = [f for f in findings if f.state is State.INCONCLUSIVE]
            undecided = [f for f in open_ if not f.pooled]
            where = (
                f" on {_of(undecided, tasks)}"
                if undecided and len({f.task for f in tasks}) > 1
                else " over all tasks pooled"
                if not undecided
                else ""
            )
            return f"Inconclusive{where}: these examples cannot tell{_apart(findings)}"
        case _:
            left = [f for f in findings if not f.accepted]
            if not left:
                return f"{_what(tasks)} regressed, and that was accepted"
            if all(f.identical for f in tasks):
                return f"{_what(tasks)} is unchanged: every answer is the same to the last bit"
            held = "not worse" if any(f.one_sided for f in left) else "equivalent"
            return f"{_what(left)} {'are' if ' and ' in _what(left) else 'is'} {held}{_apart(findings)}"


def _what(findings: Sequence[Finding]) -> str:
    """What the findings measure, in the words of the first line."""
    scales = {"loglik" if f.scale == "loglik" else "score" for f in findings}
    graded = all(f.scale == "bounded" for f in findings if f.scale != "loglik")
    score = "Score" if graded else "Accuracy"
    return "Perplexity" if scales == {"loglik"} else score if scales == {"score"} else f"{score} and perplexity"


def _apart(findings: Sequence[Finding]) -> str:
    return ", apart from what was accepted" if any(f.accepted for f in findings) else ""


def dropped(f: Finding, alpha: float) -> bool:
    """Whether the drop alone would block, without a floor."""
    return over(f.drop, f.threshold) and f.adjusted_worse < alpha


def _of(some: Sequence[Finding], tasks: Sequence[Finding]) -> str:
    """How many of the tasks, or the name of the only one; a task of two groups counts once."""
    all_, these = {f.task for f in tasks}, {f.task for f in some}
    return f"{len(these)} of {len(all_)} tasks" if len(all_) > 1 else text.plain(tasks[0].task, 60)
