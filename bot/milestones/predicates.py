"""Whether what a milestone asks for is there: pure functions of evidence, files and the proposal's own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from assay.baselines.evidence import Environment, Metric
from assay.bot.milestones.contest import contest, holding, interval, names
from assay.bot.milestones.proposal import Capstone
from assay.bot.milestones.shelf import Kept, Link, Shelf, lacking
from assay.bot.milestones.vocabulary import (
    SHAPE,
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

CONTRACT = "contract."
"""Attribute of evidence for each case of the contract: `contract.<case>` is true or false."""
LOSING_REGIONS = "losing_regions"
"""Attribute of evidence: the shapes on which it loses, separated by commas, or `none`."""


@dataclass(frozen=True)
class Met:
    """It is there."""

    reason: str = ""
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Open:
    """It is not there yet."""

    reason: str
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Blocked:
    """It was measured and says no: more of the same work does not close the milestone."""

    reason: str
    links: tuple[Link, ...] = ()


Outcome = Met | Open | Blocked


def judge(predicate: Predicate, capstone: Capstone, shelf: Shelf) -> Outcome:
    """The state of one thing that a milestone asks for."""
    match predicate.asked:
        case ContractPassed() as asked:
            return _contract(asked, capstone, shelf)
        case ModelAgrees() as asked:
            return _model(asked, capstone, shelf)
        case Ablation() as asked:
            return _ablation(asked, shelf)
        case EnvironmentRecorded() as asked:
            return _environment(asked, shelf)
        case Contest() as asked:
            return _losing(asked, capstone, shelf)
        case Measured() as asked:
            return _measured(asked, capstone, shelf)
        case FileThere() as asked:
            return _file(asked, shelf)
        case Gate() as asked:
            return _gate(asked, shelf)
        case other:  # pragma: no cover - the vocabulary is closed
            raise TypeError(f"{type(other).__name__} is no predicate")


@dataclass(frozen=True)
class Comparison:
    """A predicted and a measured number."""

    metric: str
    predicted: float
    measured: Metric
    allowed_percent: float

    @property
    def percent(self) -> float:
        """Measured minus predicted, in percent of the predicted; infinite when nothing was predicted and something is there."""
        if self.predicted == 0:
            return 0.0 if self.measured.value == 0 else float("inf")
        return 100 * (self.measured.value - self.predicted) / abs(self.predicted)

    @property
    def agrees(self) -> bool:
        return abs(self.percent) <= self.allowed_percent + 1e-9


def model_against_measured(
    asked: ModelAgrees, capstone: Capstone, shelf: Shelf
) -> tuple[list[Comparison], list[str], Kept | None]:
    """The comparisons that can be made, the metrics without a measured or a predicted number, and the evidence."""
    wanted = names(asked.measured, capstone.input_family.shapes)
    kept = holding(shelf.matching(asked), [metric for _, metric in wanted])
    found, missing = [], []
    for shape, metric in wanted:
        measured = kept.evidence.metrics.get(metric) if kept is not None else None
        predicted = _reference(asked.predicted, shape, capstone, kept)
        if measured is None or predicted is None:
            missing.append(metric)
        else:
            found.append(Comparison(metric, predicted, measured, asked.within_percent))
    return found, missing, kept


def contract_cases(asked: ContractPassed, capstone: Capstone) -> list[str]:
    """The cases that must have passed."""
    return list(capstone.correctness_contract.cases) if asked.cases == "all" else list(asked.cases)


def _contract(asked: ContractPassed, capstone: Capstone, shelf: Shelf) -> Outcome:
    cases = contract_cases(asked, capstone)
    if not cases:
        return Open("correctness-contract declares no case")
    found = [k for k in shelf.matching(asked) if any(a.startswith(CONTRACT) for a in k.evidence.attributes)]
    if not found:
        return Open(_nothing(asked, "with a contract"))
    kept = found[0]
    results = {case: kept.evidence.attributes.get(CONTRACT + case) for case in cases}
    failed = [case for case, passed in results.items() if passed is False]
    unseen = [case for case, passed in results.items() if passed is not True and passed is not False]
    if failed:
        return Blocked(f"the contract failed on {_some(failed)}", (kept.link,))
    if unseen:
        return Open(f"the contract was not checked on {_some(unseen)}", (kept.link,))
    return Met(f"passed on {_all(len(cases), 'case')}", (kept.link,))


def _model(asked: ModelAgrees, capstone: Capstone, shelf: Shelf) -> Outcome:
    found, missing, kept = model_against_measured(asked, capstone, shelf)
    if kept is None:
        return Open(_nothing(asked, f"with {asked.measured}"))
    worst = max(found, key=lambda c: abs(c.percent), default=None)
    if worst is not None and not worst.agrees:
        side = "above" if worst.percent > 0 else "below"
        return Blocked(
            f"{worst.metric} is {abs(worst.percent):.1f}% {side} the model's {number(worst.predicted)}, over {asked.within_percent:g}%",
            (kept.link,),
        )
    if missing or worst is None:
        return Open(f"no predicted and measured number for {_some(missing or [asked.measured])}", (kept.link,))
    near = f"within {abs(worst.percent):.1f}%" if worst.percent else "equal"
    return Met(f"{near} on {_all(len(found), 'number')}", (kept.link,))


def _measured(asked: Measured, capstone: Capstone, shelf: Shelf) -> Outcome:
    found = shelf.matching(asked)
    if asked.metric is None:
        return Met("", (found[0].link,)) if found else Open(_nothing(asked))
    wanted = names(asked.metric, capstone.input_family.shapes)
    kept = holding(found, [metric for _, metric in wanted])
    if kept is None:
        return Open(_nothing(asked, f"with {asked.metric}"))
    open_: list[str] = []
    for shape, name in wanted:
        metric = kept.evidence.metrics.get(name)
        if metric is None:
            open_.append(f"{name} is not measured yet")
            continue
        state, reason = _bounds(asked, name, shape, metric, capstone, kept)
        if state is False:
            return Blocked(reason, (kept.link,))
        if state is None:
            open_.append(reason)
    if open_ or not wanted:
        return Open("; ".join(open_[:3]) or "input-family declares no shape", (kept.link,))
    values = f"{wanted[0][1]} is {_value(kept.evidence.metrics[wanted[0][1]])}"
    return Met(values if len(wanted) == 1 else f"on {_all(len(wanted), 'shape')}", (kept.link,))


def _bounds(
    asked: Measured, name: str, shape: str, metric: Metric, capstone: Capstone, kept: Kept
) -> tuple[bool | None, str]:
    """Whether a value lies where it should; None when its interval, or a number that it is compared with, cannot tell."""
    low, high = interval(metric)
    checks: list[tuple[float, float, str]] = []
    if asked.at_least is not None:
        checks.append((asked.at_least, float("inf"), f"at least {number(asked.at_least)}"))
    if asked.at_most is not None:
        checks.append((float("-inf"), asked.at_most, f"at most {number(asked.at_most)}"))
    if asked.within is not None:
        centre = _reference(asked.within.of, shape, capstone, kept)
        if centre is None:
            return None, f"there is no number {asked.within.of} to compare {name} with"
        reach = abs(centre) * asked.within.percent / 100
        checks.append((centre - reach, centre + reach, f"within {asked.within.percent:g}% of {number(centre)}"))
    for lower, upper, words in checks:
        if high < lower or low > upper:
            return False, f"{name} is {_value(metric)}, asked for {words}"
        if low < lower or high > upper:
            return None, f"the interval of {name} ({number(low)} to {number(high)}) does not tell whether it is {words}"
    return True, ""


def _losing(asked: Contest, capstone: Capstone, shelf: Shelf) -> Outcome:
    found = contest(asked, shelf, capstone.input_family.shapes)
    if found.ours is None or not found.pairings:
        return Open(_nothing(asked, "with both sides of the sweep"), found.links)
    if found.unlike:
        return Blocked(found.unlike, found.links)
    if found.missing:
        return Open(f"the sweep lacks {_some(found.missing)}", found.links)
    text = found.ours.evidence.attributes.get(LOSING_REGIONS)
    if not isinstance(text, str):
        return Open(f"the evidence has no attribute {LOSING_REGIONS}", found.links)
    listed = {part.strip() for part in text.split(",")} - {"", "none"}
    hidden = [shape for shape in found.lost if shape not in listed]
    if hidden:
        return Blocked(f"it loses on {_some(hidden)} and does not list that", found.links)
    return Met(f"{plural(len(found.lost), 'losing shape')} of {len(found.pairings)}, all listed", found.links)


def _ablation(asked: Ablation, shelf: Shelf) -> Outcome:
    found = [k for k in shelf.matching(asked) if asked.metric is None or asked.metric in k.evidence.metrics]
    links: list[Link] = []
    lacking_: list[str] = []
    for flag in asked.pairs:
        pair = next(((a, b) for a, b in combinations(found, 2) if _varied_alone(flag, a, b)), None)
        if pair is None:
            lacking_.append(flag)
        else:
            links += [kept.link for kept in pair]
    if lacking_:
        return Open(f"no two measurements differ in {_some(lacking_)} alone", tuple(dict.fromkeys(links)))
    return Met(f"{plural(len(asked.pairs), 'controlled pair')}", tuple(dict.fromkeys(links)))


def _varied_alone(flag: str, a: Kept, b: Kept) -> bool:
    one, other = dict(a.evidence.subject.configuration), dict(b.evidence.subject.configuration)
    if flag not in one or flag not in other or one.pop(flag) == other.pop(flag):
        return False
    same = a.evidence.protocol == b.evidence.protocol and a.evidence.environment == b.evidence.environment
    return same and one == other


def _environment(asked: EnvironmentRecorded, shelf: Shelf) -> Outcome:
    found = shelf.matching(asked)
    if not found:
        return Open(_nothing(asked))
    environment: Environment = found[0].evidence.environment
    empty = [field for field in asked.fields if not getattr(environment, field)]
    if empty:
        return Blocked(f"the evidence does not record {_some(empty)}", (found[0].link,))
    return Met("", (found[0].link,))


def _file(asked: FileThere, shelf: Shelf) -> Outcome:
    found = shelf.files.get(asked.path)
    if found is None:
        return Open(f"{asked.path} is not there yet")
    lacks = lacking(asked.contains_headings, found)
    if lacks:
        return Open(f"{asked.path} has no heading {_some(lacks)}", (shelf.file(asked.path),))
    return Met("", (shelf.file(asked.path),))


def _gate(asked: Gate, shelf: Shelf) -> Outcome:
    wanted = [asked.verdict] if isinstance(asked.verdict, str) else list(asked.verdict)
    verdict = shelf.verdicts.get(asked.kind)
    if verdict is None:
        return Open(f"no gate of kind {asked.kind} was decided for this commit")
    links = (Link(f"{asked.kind} gate", verdict.place),)
    if verdict.overall in wanted:
        return Met(verdict.overall, links)
    if verdict.overall in ("regressed", "improved", "equivalent"):
        return Blocked(f"the gate says {verdict.overall}", links)
    return Open(f"the gate says {verdict.overall.replace('_', ' ')}", links)


def _reference(of: str | float, shape: str, capstone: Capstone, kept: Kept | None) -> float | None:
    """A number, a prediction of the model by name, or a metric of the same evidence."""
    if not isinstance(of, str):
        return of
    name = of.replace(SHAPE, shape)
    predicted = next((p.value for p in capstone.quantitative_model.predictions if p.name == name), None)
    if predicted is not None or kept is None:
        return predicted
    metric = kept.evidence.metrics.get(name)
    return metric.value if metric is not None else None


def _nothing(asked: Selector, what: str = "") -> str:
    of = "" if asked.subject == "*" else f" of {asked.subject}"
    return f"no {asked.kind} evidence{of}{f' {what}' if what else ''} yet"


def _some(names_: Sequence[str]) -> str:
    more = f" and {len(names_) - 4} more" if len(names_) > 4 else ""
    return ", ".join(names_[:4]) + more


def _all(n: int, noun: str) -> str:
    return f"the one {noun}" if n == 1 else f"all {n:,} {noun}s"


def _value(metric: Metric) -> str:
    return f"{number(metric.value)}{f' {metric.unit}' if metric.unit else ''}"
