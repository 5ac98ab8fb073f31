"""What a predicate and a stop condition ask for, in words."""

from __future__ import annotations

from assay.bot.milestones.proposal import Capstone, StopCondition
from assay.bot.milestones.vocabulary import (
    Ablation,
    Contest,
    ContractPassed,
    EnvironmentRecorded,
    FileThere,
    Gate,
    Measured,
    ModelAgrees,
    Predicate,
    Selector,
)
from assay.bot.text import number, plural


def words(predicate: Predicate) -> str:
    """One phrase for what is asked for; the author's own where there is one."""
    if predicate.says:
        return predicate.says
    match predicate.asked:
        case ContractPassed(cases=cases) as asked:
            which = "all declared cases" if cases == "all" else ", ".join(cases)
            return f"{_of(asked)}: contract passed on {which}"
        case ModelAgrees() as asked:
            predicted = asked.predicted if isinstance(asked.predicted, str) else number(asked.predicted)
            of = "what the model predicts" if predicted == asked.measured else predicted
            return f"{_of(asked)}: {asked.measured} within {asked.within_percent:g}% of {of}"
        case Ablation() as asked:
            return f"{_of(asked)}: ablation of {', '.join(asked.pairs)}"
        case EnvironmentRecorded() as asked:
            return f"{_of(asked)}: {', '.join(asked.fields)} recorded"
        case Contest() as asked:
            return f"{_of(asked)}: losing shapes of {asked.metric} listed"
        case Measured() as asked:
            return f"{_of(asked)}: {_bounds(asked)}"
        case FileThere(path=path, contains_headings=headings):
            return f"{path}{' with ' + ', '.join(headings) if headings else ''}"
        case Gate(kind=kind, verdict=verdict):
            return f"{kind} gate says {verdict if isinstance(verdict, str) else ' or '.join(verdict)}"
        case other:  # pragma: no cover - the vocabulary is closed
            raise TypeError(f"{type(other).__name__} is no predicate")


def stop_words(condition: StopCondition, capstone: Capstone) -> str:
    """When to stop, as one phrase."""
    if condition.bound_below_gain:
        gain = capstone.material_gain
        reach = f" of {gain.value:g} {gain.unit}" if gain is not None else ""
        return f"the analytic bound does not reach the material gain{reach}"
    if condition.library_faster is not None:
        shapes = plural(len(capstone.input_family.shapes), "required shape")
        by = f" by {condition.library_faster.by_percent:g}% or more" if condition.library_faster.by_percent else ""
        return f"the baseline is faster{by} on {shapes}, all of them"
    if condition.scope_answered is not None:
        return (
            f"milestones {', '.join(map(str, condition.scope_answered.milestones))} are done: the question is answered"
        )
    assert condition.deadline is not None
    return f"{condition.deadline.date:%Y-%m-%d}: {condition.deadline.then}"


def _of(selector: Selector) -> str:
    """`online-softmax (kernel)`."""
    return f"any {selector.kind}" if selector.subject == "*" else f"{selector.subject} ({selector.kind})"


def _bounds(asked: Measured) -> str:
    if asked.metric is None:
        return "measured"
    parts = []
    if asked.at_least is not None:
        parts.append(f"at least {number(asked.at_least)}")
    if asked.at_most is not None:
        parts.append(f"at most {number(asked.at_most)}")
    if asked.within is not None:
        of = asked.within.of if isinstance(asked.within.of, str) else number(asked.within.of)
        parts.append(f"within {asked.within.percent:g}% of {of}")
    return f"{asked.metric} {' and '.join(parts) or 'measured'}"
