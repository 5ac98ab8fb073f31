"""The tables of a report, each a pure function of the proposal and the evidence, so that one can be made again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from assay.baselines.evidence import Metric
from assay.bot.milestones.contest import Sweep, contest, interval
from assay.bot.milestones.predicates import CONTRACT, Comparison, model_against_measured
from assay.bot.milestones.proposal import Capstone
from assay.bot.milestones.shelf import Kept, Shelf
from assay.bot.milestones.vocabulary import ContractPassed, ModelAgrees
from assay.bot.text import number, plain


@dataclass(frozen=True)
class Table:
    """A table, its cells as text. Cells are plain text; `markdown` makes them inert."""

    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """The table between the marks by which `taken_from` finds it."""
        lines = [_line(self.header), "|" + "---|" * len(self.header), *(_line(row) for row in self.rows)]
        return "\n".join([start_of(self.name), "", *lines, "", end_of(self.name)])


def contract(capstone: Capstone, shelf: Shelf) -> Table:
    """Each case of the contract in each evidence that a milestone takes it from, the newest first."""
    rows: list[tuple[str, ...]] = []
    seen: set[str] = set()
    for asked in (p.asked for p in capstone.predicates()):
        if not isinstance(asked, ContractPassed):
            continue
        kept = next(
            (k for k in shelf.matching(asked) if any(a.startswith(CONTRACT) for a in k.evidence.attributes)), None
        )
        if kept is None or kept.digest in seen:
            continue
        seen.add(kept.digest)
        for case in capstone.correctness_contract.cases:
            passed = kept.evidence.attributes.get(CONTRACT + case)
            said = "passed" if passed is True else "failed" if passed is False else "not checked"
            rows.append((kept.evidence.subject.name, case, said, kept.digest[:12]))
    return Table("contract", ("subject", "case", "result", "evidence"), tuple(rows))


def comparisons(capstone: Capstone, shelf: Shelf) -> list[tuple[Comparison, Kept]]:
    """Every predicted and measured number that milestones compare, each once."""
    found: dict[tuple[str, str], tuple[Comparison, Kept]] = {}
    for asked in (p.asked for p in capstone.predicates()):
        if isinstance(asked, ModelAgrees):
            compared, _, kept = model_against_measured(asked, capstone, shelf)
            for comparison in compared:
                assert kept is not None
                found.setdefault((kept.digest, comparison.metric), (comparison, kept))
    return list(found.values())


def model(capstone: Capstone, shelf: Shelf) -> Table:
    """Model against measurement."""
    rows = tuple(
        (
            c.metric,
            _value(c.predicted, c.measured.unit),
            _value(c.measured.value, c.measured.unit),
            f"{c.percent:+.1f}%",
            f"{c.allowed_percent:g}%",
            "agrees" if c.agrees else "disagrees",
            kept.digest[:12],
        )
        for c, kept in comparisons(capstone, shelf)
    )
    return Table("model", ("number", "predicted", "measured", "difference", "allowed", "", "evidence"), rows)


def sweeps(capstone: Capstone, shelf: Shelf) -> list[Sweep]:
    """Every contest of the proposal that has been measured at all."""
    found = [contest(c, shelf, capstone.input_family.shapes) for c in capstone.contests()]
    return [sweep for sweep in found if sweep.pairings]


def results(capstone: Capstone, shelf: Shelf) -> Table:
    """Contender against baseline on every shape, with 95% intervals where they were measured."""
    rows = tuple(
        (
            p.shape,
            _with_interval(p.ours),
            _with_interval(p.theirs),
            f"{p.ours.value / p.theirs.value:.3f}" if p.theirs.value else "–",
            _side(p.rank.value, p.ours),
        )
        for sweep in sweeps(capstone, shelf)
        for p in sweep.pairings
    )
    return Table("results", ("shape", "contender", "baseline", "ratio", "the contender is"), rows)


def functional(capstone: Capstone, shelf: Shelf) -> Table:
    """The functional case: those of its numbers that come out the same on every machine."""
    case = capstone.functional_case
    kept = next(iter(shelf.matching(case.evidence)), None) if case.evidence is not None else None
    metrics = kept.evidence.metrics if kept is not None else {}
    rows = tuple(
        (name, f"{metric.value:.10g}", metric.unit)
        for name, metric in sorted(metrics.items())
        if any(fnmatchcase(name, pattern) for pattern in case.metrics)
    )
    return Table("functional", ("number", "value", "unit"), rows)


TABLES: dict[str, Callable[[Capstone, Shelf], Table]] = {
    "contract": contract,
    "model": model,
    "results": results,
    "functional": functional,
}


def start_of(name: str) -> str:
    return f"<!-- table {name} -->"


def end_of(name: str) -> str:
    return f"<!-- /table {name} -->"


def taken_from(report: str, name: str) -> str | None:
    """The table of that name as a report prints it, with its marks; None when the report has none."""
    first = report.find(start_of(name))
    last = report.find(end_of(name), first)
    return report[first : last + len(end_of(name))] if 0 <= first < last else None


def differences(printed: str, made: str) -> list[str]:
    """The lines in which two tables differ, as a person would read them."""
    old, new = printed.splitlines(), made.splitlines()
    gone = [f"- {line}" for line in old if line not in new]
    came = [f"+ {line}" for line in new if line not in old]
    if not gone and not came and old != new:
        return ["the lines are the same in another order"]
    return gone + came


def _line(cells: Sequence[str]) -> str:
    # A cell never starts a line, so that the joiner which `plain` puts before a sign or a number there is not needed.
    return "| " + " | ".join(plain(cell, 120).removeprefix("\u2060") for cell in cells) + " |"


def _value(value: float, unit: str) -> str:
    return f"{number(value)}{f' {unit}' if unit else ''}"


def _with_interval(metric: Metric) -> str:
    low, high = interval(metric)
    spread = f" ({number(low)} to {number(high)})" if low != high else ""
    return f"{number(metric.value)}{f' {metric.unit}' if metric.unit else ''}{spread}"


def _side(rank: str, metric: Metric) -> str:
    """`faster` and `slower` are words for time; for another unit, ahead and behind."""
    if metric.unit in ("s", "ms", "us", "µs", "ns", "TB/s", "GB/s", "TFLOP/s", "GFLOP/s", "tokens/s", "requests/s"):
        return rank
    return {"faster": "ahead", "slower": "behind"}.get(rank, rank)
