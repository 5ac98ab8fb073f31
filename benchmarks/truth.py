"""Truth of verdicts: what each gate says of the same outcomes, over effect sizes, churn and n.

Four gates see the same paired outcomes of a main branch and a pull request:

- assay: the verdict of `assay.baselines.compare` under its default policy (threshold 0.5 points, margin 1 point);
- lm-eval: the two-sample z test of lm-eval's model comparator script, on the two accuracies and their standard errors,
  which blocks a drop with p < 0.05 and passes everything else;
- tolerance: blocks a drop of more than one point, passes everything else;
- evalsig: its gate, asked whether main is better than the pull request by 0.5 points (ALLOW: blocked; REJECT: passed;
  INCONCLUSIVE: inconclusive). Asked the way it is documented, whether the pull request is better than main, it also
  rejects pull requests that change nothing; the last column of the table counts how many it would let through.

Simulated outcomes are multinomial. For real ones give two record folders: examples are then drawn from them without
replacement, and the truth is the difference over all of them.

    python benchmarks/truth.py --out docs/results/truth.json
    python benchmarks/truth.py --base RECORD --head RECORD --task hellaswag
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import evalsig
import numpy as np
from scipy.special import ndtr

from assay.baselines.compare.judge import judge
from assay.baselines.compare.samples import Sample, measure
from assay.baselines.compare.verdict import State
from assay.baselines.errors import InputError
from assay.baselines.evaluation import check_rows, metric_key
from assay.baselines.policy import Group, Policy, limits_for
from assay.baselines.record import read_record
from assay.baselines.stats.counts import Floats

BLOCKED, PASSED, INCONCLUSIVE = 0, 1, 2
Verdicts = np.ndarray[tuple[int], np.dtype[np.int64]]
Tables = np.ndarray[tuple[int, int], np.dtype[np.int64]]
"""One pull request a row: both right, broke, fixed, both wrong."""
Gate = Callable[[Tables], Verdicts]
POLICY = Policy()
TOLERANCE = 0.01


@dataclass(frozen=True)
class Row:
    """One gate on one kind of pull request. Rates are proportions of the pull requests."""

    gate: str
    source: str
    n: int
    churn: float
    drop: float
    blocked: float
    passed: float
    inconclusive: float
    seconds: float
    """Per verdict, where verdicts of equal tables are computed once."""


def assay_gate(tables: Tables) -> Verdicts:
    """The verdict of the comparison's own code, as for one task of one group."""
    return np.array([_assay_verdict(int(t[0] + t[3]), int(t[1]), int(t[2])) for t in tables])


@cache
def _assay_verdict(same: int, broke: int, fixed: int) -> int:
    """Without a floor in the policy the verdict depends on the discordant pairs and n alone."""
    base, head = outcomes(same, broke, fixed, 0)
    limits = limits_for(POLICY, Group(tasks=["*"]), "task", perplexity=False)
    sample = Sample("all", "task", "acc", "binary", base, head, np.ones(base.size), limits)
    (finding,) = judge(measure([sample], POLICY.alpha, growing=False), POLICY.alpha, POLICY.power)
    if finding.state is State.REGRESSED:
        return BLOCKED
    return INCONCLUSIVE if finding.state is State.INCONCLUSIVE else PASSED


def lm_eval_gate(tables: Tables) -> Verdicts:
    """Two-sided z of two independent accuracies, with lm-eval's standard error (n - 1 in the denominator)."""
    both, broke, fixed, neither = tables.T
    n = both + broke + fixed + neither
    base, head = (both + broke) / n, (both + fixed) / n
    error = np.sqrt((base * (1 - base) + head * (1 - head)) / (n - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.where(error > 0, 2 * ndtr(-np.abs((base - head) / error)), 1.0)
    return np.where((p < 0.05) & (head < base), BLOCKED, PASSED)


def tolerance_gate(tables: Tables) -> Verdicts:
    """A fixed tolerance of one point."""
    n = tables.sum(axis=1)
    return np.where((tables[:, 1] - tables[:, 2]) / n > TOLERANCE + 1e-12, BLOCKED, PASSED)


def evalsig_gate(tables: Tables) -> Verdicts:
    """evalsig's gate with the roles swapped, so that ALLOW means "main is better"."""
    kinds = {"ALLOW": BLOCKED, "REJECT": PASSED, "INCONCLUSIVE": INCONCLUSIVE}
    return np.array([kinds[_evalsig_verdict(int(t[0] + t[3]), int(t[2]), int(t[1]))] for t in tables])


def evalsig_as_documented(tables: Tables) -> Verdicts:
    """evalsig's gate as its documentation has it: ALLOW passes, REJECT blocks."""
    kinds = {"ALLOW": PASSED, "REJECT": BLOCKED, "INCONCLUSIVE": INCONCLUSIVE}
    return np.array([kinds[_evalsig_verdict(int(t[0] + t[3]), int(t[1]), int(t[2]))] for t in tables])


@cache
def _evalsig_verdict(same: int, lost: int, won: int) -> str:
    """Whether the second run may ship over the first. Its McNemar test uses the discordant pairs and n alone."""
    first, second = outcomes(same, lost, won, 0)
    frames = [
        evalsig.RunFrame(name, name, "task", "accuracy", [evalsig.ItemResult(str(i), s) for i, s in enumerate(scores)])
        for name, scores in (("first", first.tolist()), ("second", second.tolist()))
    ]
    threshold = POLICY.threshold / 100
    return evalsig.gate(*frames, min_delta=threshold, alpha=POLICY.alpha, power=POLICY.power).verdict.value


GATES: dict[str, Gate] = {
    "assay": assay_gate,
    "lm-eval": lm_eval_gate,
    "tolerance": tolerance_gate,
    "evalsig": evalsig_gate,
    "evalsig as documented": evalsig_as_documented,
}


def outcomes(both_right: int, broke: int, fixed: int, both_wrong: int) -> tuple[Floats, Floats]:
    """Scores of base and head with these counts."""
    sizes = [both_right, broke, fixed, both_wrong]
    return np.repeat([1.0, 1.0, 0.0, 0.0], sizes), np.repeat([1.0, 0.0, 1.0, 0.0], sizes)


def simulated(n: int, churn: float, drop: float, accuracy: float, runs: int, rng: np.random.Generator) -> Tables:
    """Counts of `runs` pull requests with this true drop and churn on a base of this accuracy."""
    broke, fixed = (churn + drop) / 2, (churn - drop) / 2
    tables: Tables = rng.multinomial(n, [accuracy - broke, broke, fixed, 1 - accuracy - fixed], size=runs)
    return tables


def recorded(base: Floats, head: Floats, n: int, runs: int, rng: np.random.Generator) -> Tables:
    """Counts of `runs` draws of n examples, without replacement, from real paired 0/1 outcomes."""
    cells = (2 * (1 - base) + (1 - head)).astype(np.int64)
    totals = np.bincount(cells, minlength=4)
    tables: Tables = rng.multivariate_hypergeometric(totals, n, size=runs)
    return tables


def read_outcomes(folder: Path, task: str | None) -> dict[tuple[str, bytes, int], float]:
    """(task, item, occurrence) -> 0/1 score of a record's accuracy rows. Raises `InputError` when it has none."""
    record = read_record(folder)
    rows = check_rows(record.rows, str(folder)).to_pydict()
    binary = {key for key, metric in record.evidence.metrics.items() if metric.scale == "binary"}
    gated = {key for key in binary if record.evidence.metrics[key].primary} or binary
    names = ("task", "metric", "filter", "item", "occurrence", "score")
    found = {
        (name, item, occurrence): score
        for name, metric, filtered, item, occurrence, score in zip(*(rows[column] for column in names), strict=True)
        if (task is None or name == task) and metric_key(name, metric, filtered) in gated
    }
    if not found:
        raise InputError(f"{folder} has no 0/1 scores{f' of {task}' if task else ''}: name a task that it has.")
    return found


def rows_of(tables: Tables, source: str, churn: float, drop: float) -> list[Row]:
    """Every gate on the same tables."""
    rows = []
    for name, gate in GATES.items():
        start = time.perf_counter()
        verdicts = gate(tables)
        seconds = (time.perf_counter() - start) / len(tables)
        shares = [float(np.mean(verdicts == kind)) for kind in (BLOCKED, PASSED, INCONCLUSIVE)]
        rows.append(Row(name, source, int(tables[0].sum()), churn, drop, *shares, seconds))
    return rows


def markdown(rows: Sequence[Row]) -> str:
    """One line a kind of pull request; each gate as blocked / passed / inconclusive in per cent."""
    names = list(GATES)[:-1]
    lines = [
        "| n | churn | true drop | " + " | ".join(names) + " | evalsig as documented lets through |",
        "|---:|---:|---:|" + "---:|" * (len(names) + 1),
    ]
    for start in range(0, len(rows), len(GATES)):
        line = rows[start : start + len(GATES)]
        cells = [f"{100 * r.blocked:.0f} / {100 * r.passed:.0f} / {100 * r.inconclusive:.0f}" for r in line[:-1]]
        first = line[0]
        lines.append(
            f"| {first.n:,} | {100 * first.churn:.3g}% | {100 * first.drop:.3g} | {' | '.join(cells)} |"
            f" {100 * line[-1].passed:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table, and write it with its settings when `--out` is given."""
    parser = argparse.ArgumentParser(description="False alarms and detections of four gates on the same outcomes.")
    parser.add_argument("--n", type=int, nargs="+", default=[200, 1000, 4000])
    parser.add_argument("--churn", type=float, nargs="+", default=[0.02, 0.06, 0.16])
    parser.add_argument("--drop", type=float, nargs="+", default=[0, 0.5, 1, 2, 3], help="true drops, points")
    parser.add_argument("--accuracy", type=float, default=0.6, help="accuracy of the simulated base")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=20240902)
    parser.add_argument("--base", type=Path, help="record folder of the base: real outcomes instead of simulated ones")
    parser.add_argument("--head", type=Path, help="record folder of the head")
    parser.add_argument("--task", help="the task of the record folders to use; all of them if left out")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if (args.base is None) != (args.head is None):
        parser.error("give both --base and --head, or neither")
    rng, rows = np.random.default_rng(args.seed), []
    if args.base is not None:
        try:
            before, after = read_outcomes(args.base, args.task), read_outcomes(args.head, args.task)
        except InputError as error:
            parser.error(str(error))
        common = sorted(before.keys() & after.keys())
        if not common:
            parser.error("the two records share no example: evaluate the same examples")
        base, head = (np.array([side[key] for key in common]) for side in (before, after))
        churn, drop = float(np.mean(base != head)), float(np.mean(base - head))
        print(f"{len(common):,} common examples: {(base > head).sum()} broke, {(base < head).sum()} fixed\n")
        sizes = sorted({min(n, len(common)) for n in args.n})
        for n in sizes:
            rows += rows_of(recorded(base, head, n, args.runs, rng), "recorded", churn, drop)
    else:
        for n in args.n:
            for churn in args.churn:
                for points in args.drop:
                    if points / 100 <= churn:
                        tables = simulated(n, churn, points / 100, args.accuracy, args.runs, rng)
                        rows += rows_of(tables, "simulated", churn, points / 100)
    print("Per cent blocked / passed / inconclusive.\n")
    print(markdown(rows))
    slowest = max(rows, key=lambda row: row.seconds)
    print(
        f"\n{args.runs:,} pull requests a line; slowest gate {slowest.gate}: {1000 * slowest.seconds:.1f} ms a verdict"
    )
    if args.out is not None:
        settings = {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items() if k != "out"}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        document = {"benchmark": "truth", "settings": settings, "rows": [asdict(r) for r in rows]}
        args.out.write_text(json.dumps(document, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
