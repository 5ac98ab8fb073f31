"""Examples used by the sequential test, against a fixed sample of equal power.

Both designs are asked the same: find a drop of `--design` points with probability `--power`, and say "not worse by more
than the margin" where that is so, at one-sided alpha each. The fixed sample has the size that the mid-p test needs for
it at the churn that was planned for. The sequential one looks after every chunk and stops when the e-value against "no
worse" or against "worse by the margin" reaches 1 / alpha, or at a cap, which is chosen by simulation so that it finds
the design drop as often.

The first table plans for the churn that then occurs. The second plans for 6% and meets another: a fixed sample has to
be chosen before the churn is known, while the sequential test adapts to it.

    python benchmarks/sequential.py --out docs/results/sequential.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from assay.baselines.stats import intervals, mcnemar, power, sequential
from assay.baselines.stats.counts import Floats

LOOKS = 80
"""Looks within the fixed sample's size; a chunk is that fraction of it, at least 10 examples."""
REACH = 4
"""How many times the fixed sample the sequential one may be simulated to."""


@dataclass(frozen=True)
class Row:
    """One churn and true drop. Rates are proportions of simulated pull requests."""

    planned_churn: float
    churn: float
    drop: float
    fixed_n: int
    cap: int
    mean_n: float
    median_n: float
    saved: float
    """1 - mean_n / fixed_n; negative where the sequential test needs more."""
    regressed_fixed: float
    regressed_sequential: float
    not_worse_fixed: float
    not_worse_sequential: float
    regressed_peeking: float
    """The fixed-sample mid-p test repeated after every chunk up to the fixed size: what the e-value is there to avoid."""


@dataclass(frozen=True)
class Paths:
    """First look (index) at which each simulated evaluation crossed either threshold; `looks` where it never did."""

    regressed: Floats
    not_worse: Floats
    looks: int
    chunk: int


def simulate(
    churn: float, drop: float, margin: float, alpha: float, n: int, runs: int, seed: int
) -> tuple[Paths, Floats]:
    """`runs` evaluations that grow to `REACH` times n, and the looks up to n at which peeking would have rejected."""
    rng = np.random.default_rng(seed)
    chunk = max(10, math.ceil(n / LOOKS))
    looks = REACH * math.ceil(n / chunk)
    totals = np.arange(1, looks + 1) * chunk
    rates = [(churn + drop) / 2, (churn - drop) / 2, 1 - churn]
    regressed, not_worse, peeking = [], [], []
    for start in range(0, runs, 250):
        counts = rng.multinomial(chunk, rates, size=(min(250, runs - start), looks)).cumsum(axis=1)
        broke, fixed = counts[..., 0], counts[..., 1]
        threshold = -math.log(alpha)
        regressed.append(first(sequential.log_e_worse(broke, fixed, totals) >= threshold))
        not_worse.append(first(sequential.log_e_better(broke, fixed, totals, -margin) >= threshold))
        within = totals <= n
        peeking.append((mcnemar.midp_worse(broke[:, within], fixed[:, within]) < alpha).any(axis=1))
    return Paths(np.concatenate(regressed), np.concatenate(not_worse), looks, chunk), np.concatenate(peeking)


def first(crossed: np.ndarray) -> Floats:
    """Index of the first True of each row, the row's length where there is none."""
    return np.where(crossed.any(axis=1), crossed.argmax(axis=1), crossed.shape[1]).astype(float)


def cap_of_equal_power(paths: Paths, target: float) -> int:
    """Looks after which the evaluations of the design drop have been called regressed as often as `target`."""
    found = np.sort(np.where(paths.regressed < paths.not_worse, paths.regressed, np.inf))
    needed = found[min(math.ceil(target * found.size) - 1, found.size - 1)]
    return int(needed) + 1 if math.isfinite(needed) else paths.looks


def row(planned: float, churn: float, drop: float, n: int, cap: int, args: argparse.Namespace, seed: int) -> Row:
    """Both designs on the same kind of pull request."""
    margin, alpha = args.margin / 100, args.alpha
    paths, peeking = simulate(churn, drop, margin, alpha, n, args.runs, seed)
    stop = np.minimum(np.minimum(paths.regressed, paths.not_worse), cap - 1)
    used = (stop + 1) * paths.chunk
    decided = np.minimum(paths.regressed, paths.not_worse) < cap
    sample = np.random.default_rng(seed + 1).multinomial(
        n, [(churn + drop) / 2, (churn - drop) / 2, 1 - churn], args.runs
    )
    broke, fixed = sample[:, 0], sample[:, 1]
    worse = mcnemar.midp_worse(broke, fixed) < alpha
    fine = ~worse & (intervals.tango(broke, fixed, n, 1 - 2 * alpha).low > -margin)
    return Row(
        planned_churn=planned,
        churn=churn,
        drop=drop,
        fixed_n=n,
        cap=cap * paths.chunk,
        mean_n=float(used.mean()),
        median_n=float(np.median(used)),
        saved=float(1 - used.mean() / n),
        regressed_fixed=float(worse.mean()),
        regressed_sequential=float((decided & (paths.regressed <= paths.not_worse)).mean()),
        not_worse_fixed=float(fine.mean()),
        not_worse_sequential=float((decided & (paths.not_worse < paths.regressed)).mean()),
        regressed_peeking=float(peeking.mean()),
    )


def plan(churn: float, args: argparse.Namespace, seed: int) -> tuple[int, int]:
    """Size of the fixed sample, and the cap in looks that gives the sequential test the same power."""
    design = args.design / 100
    n = power.exact_examples_to_detect(churn, design, args.alpha, args.power)
    paths, _ = simulate(churn, design, args.margin / 100, args.alpha, n, args.runs, seed)
    return n, cap_of_equal_power(paths, args.power)


def as_planned(args: argparse.Namespace) -> list[Row]:
    """Rows whose churn is the one that was planned for."""
    rows = []
    for index, churn in enumerate(args.churn):
        seed = args.seed + 1000 * index
        n, cap = plan(churn, args, seed)
        for step, points in enumerate(args.drop):
            if points / 100 <= churn:
                rows.append(row(churn, churn, points / 100, n, cap, args, seed + 10 * step + 1))
    return rows


def otherwise(args: argparse.Namespace) -> list[Row]:
    """Rows without a drop, and with the design drop, whose churn differs from the planned one."""
    n, cap = plan(args.planned, args, args.seed - 1000)
    return [
        row(args.planned, churn, drop, n, cap, args, args.seed - 1000 + 10 * index + int(drop > 0))
        for index, churn in enumerate((0.0, 0.005, 0.01, 0.02, 0.04, 0.06, 0.10))
        for drop in (0.0, args.design / 100)
        if drop <= churn
    ]


def markdown(rows: Sequence[Row]) -> str:
    """The table as documents show it."""
    lines = [
        "| churn | true drop | fixed n | cap | examples used, mean (median) | saved | regressed: fixed / sequential |"
        " not worse: fixed / sequential | regressed by peeking |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {100 * r.churn:g}% | {100 * r.drop:g} | {r.fixed_n:,} | {r.cap:,} | {r.mean_n:,.0f} ({r.median_n:,.0f}) |"
        f" {100 * r.saved:+.0f}% | {r.regressed_fixed:.3f} / {r.regressed_sequential:.3f} |"
        f" {r.not_worse_fixed:.3f} / {r.not_worse_sequential:.3f} | {r.regressed_peeking:.3f} |"
        for r in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the table, and write it with its settings when `--out` is given."""
    parser = argparse.ArgumentParser(description="Examples used by the sequential test against a fixed sample.")
    parser.add_argument("--churn", type=float, nargs="+", default=[0.02, 0.06, 0.10, 0.16])
    parser.add_argument("--planned", type=float, default=0.06, help="churn that the second table plans for")
    parser.add_argument("--drop", type=float, nargs="+", default=[0, 0.5, 1, 2, 3, 5], help="true drops, points")
    parser.add_argument("--design", type=float, default=1.0, help="drop that both designs must find, points")
    parser.add_argument("--margin", type=float, default=1.0, help="margin of equivalence, points")
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--power", type=float, default=0.8)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=20240901)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    start = time.perf_counter()
    planned, surprised = as_planned(args), otherwise(args)
    print(f"Planned for the churn that occurs:\n\n{markdown(planned)}\n")
    print(f"Planned for {args.planned:.0%} churn:\n\n{markdown(surprised)}")
    print(f"\n{args.runs:,} simulated evaluations per row, {time.perf_counter() - start:.0f} s")
    if args.out is not None:
        settings = {name: value for name, value in vars(args).items() if name != "out"}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        document = {"benchmark": "sequential", "settings": settings, "rows": [asdict(r) for r in planned + surprised]}
        args.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
