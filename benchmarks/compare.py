"""Comparing and rendering a 57-task, 14,042-example evaluation, from Parquet to finished comment, against two others.

`python -m benchmarks.compare [--out FILE] [--scales 1,10,100]` prints CPU seconds and peak memory of fresh processes and
the ratio to (a) the usual script: statsmodels task by task after a Python loop over the examples, and (b) the best
vectorised pandas version. Every contender reads the same Parquet files, pairs by example id, and writes a Markdown table
with counts, difference, interval, p and verdict for each task and the pool; assay also lists flips and renders the whole
comment.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).parents[1]
CONTENDERS = ("assay", "pandas", "loop")


def make(folder: Path, scale: int) -> None:
    """Two records with 57 tasks and 14,042 x scale examples, about 5% of which flip."""
    from tests.evidence import evaluation

    from assay.baselines.record import write_record

    rng = np.random.default_rng(0)
    sizes = [(246 + (i < 20)) * scale for i in range(57)]
    base, head = {}, {}
    for i, n in enumerate(sizes):
        before = rng.random(n) < 0.35 + 0.005 * i
        flips = rng.random(n) < 0.05
        base[f"mmlu_subject_{i:02d}"] = list(before.astype(float))
        head[f"mmlu_subject_{i:02d}"] = list((before ^ flips).astype(float))
    for name, scores, commit in (("base", base, "a" * 40), ("head", head, "b" * 40)):
        record = evaluation(scores, commit=commit, name=name)
        assert record.rows is not None
        order = rng.permutation(record.rows.num_rows) if name == "head" else np.arange(record.rows.num_rows)
        write_record(folder / name, record.evidence, record.rows.take(pa.array(order)))


def assay(folder: Path) -> str:
    from datetime import UTC, datetime

    from assay.baselines.compare import compare
    from assay.baselines.policy import Policy
    from assay.baselines.record import read_record
    from assay.bot.comment import Marker, render
    from assay.bot.sections import Result

    head, base = read_record(folder / "head"), read_record(folder / "base")
    comparison = compare(head, base, Policy(), datetime.now(UTC).date())
    result = Result(
        "measure", comparison.overall, comparison=comparison, head=head.evidence, base=base.evidence, head_sha="b" * 40
    )
    return render([result], Marker(1, 1, "b" * 40))


def pandas(folder: Path) -> str:
    """One merge, one grouped sum, and scipy on whole columns."""
    import pandas as pd
    from scipy.stats import binom, norm

    columns = ["task", "item", "occurrence", "score"]
    base, head = (pd.read_parquet(folder / side / "rows.parquet", columns=columns) for side in ("base", "head"))
    both = base.merge(head, on=["task", "item", "occurrence"], suffixes=("_base", "_head"), validate="one_to_one")
    both["broke"] = (both.score_base > both.score_head).astype(int)
    both["fixed"] = (both.score_base < both.score_head).astype(int)
    table = both.groupby("task", observed=True).agg(
        n=("broke", "size"),
        base=("score_base", "mean"),
        head=("score_head", "mean"),
        broke=("broke", "sum"),
        fixed=("fixed", "sum"),
    )
    pool = pd.DataFrame(
        {
            "n": [len(both)],
            "base": [both.score_base.mean()],
            "head": [both.score_head.mean()],
            "broke": [both.broke.sum()],
            "fixed": [both.fixed.sum()],
        },
        index=["all pooled"],
    )
    table = pd.concat([table, pool])
    changed = table.broke + table.fixed
    table["p"] = binom.sf(table.broke - 1, changed, 0.5) - binom.pmf(table.broke, changed, 0.5) / 2
    spread = norm.ppf(0.975) * np.sqrt(changed - (table.broke - table.fixed) ** 2 / table.n) / table.n
    table["change"] = table["head"] - table["base"]
    table["low"], table["high"] = table.change - spread, table.change + spread
    order = table.p.rank(method="first")
    table["adjusted"] = np.minimum(1, table.p * (len(table) + 1 - order))
    table["verdict"] = np.where((table.change < -0.005) & (table.adjusted < 0.05), "regressed", "")
    return "\n".join(
        f"| {i} | {r.n} | {r.base:.3f} | {r['head']:.3f} | {r.change:+.3f} ({r.low:+.3f}, {r.high:+.3f}) "
        f"| {r.broke}/{r.fixed} | {r.p:.3f} | {r.verdict} |"
        for i, r in table.iterrows()
    )


def loop(folder: Path) -> str:
    """A dictionary of examples, a Python loop, statsmodels for each task."""
    import pyarrow.parquet as pq
    from statsmodels.stats.contingency_tables import mcnemar
    from statsmodels.stats.multitest import multipletests

    sides = []
    for side in ("base", "head"):
        table = pq.read_table(folder / side / "rows.parquet", columns=["task", "item", "occurrence", "score"])
        sides.append({(row["task"], row["item"], row["occurrence"]): row["score"] for row in table.to_pylist()})
    base, head = sides
    cells: dict[str, list[list[int]]] = {}
    for key, before in base.items():
        after = head[key]
        for name in (key[0], "all pooled"):
            cell = cells.setdefault(name, [[0, 0], [0, 0]])
            cell[0 if before else 1][0 if after else 1] += 1
    names = list(cells)
    tests = [mcnemar(cells[name], exact=True).pvalue for name in names]
    adjusted = multipletests(tests, method="holm")[1]
    lines = []
    for name, p, q in zip(names, tests, adjusted, strict=True):
        (_, broke), (fixed, _) = cells[name]
        n = sum(map(sum, cells[name]))
        change = (fixed - broke) / n
        half = 1.96 * np.sqrt(broke + fixed - (broke - fixed) ** 2 / n) / n
        verdict = "regressed" if change < -0.005 and q < 0.05 else ""
        lines.append(
            f"| {name} | {n} | {change:+.3f} ({change - half:+.3f}, {change + half:+.3f}) | {broke}/{fixed} | {p:.3f} | {verdict} |"
        )
    return "\n".join(lines)


def child(contender: str, folder: Path) -> None:
    """Run one contender and report what this process used, imports included."""
    text = {"assay": assay, "pandas": pandas, "loop": loop}[contender](folder)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps({"cpu_s": used.ru_utime + used.ru_stime, "peak_mib": used.ru_maxrss / 1024, "characters": len(text)})
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scales", default="1,10,100", help="multiples of 14,042 examples")
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes for each figure; the median counts")
    parser.add_argument("--out", type=Path, help="also write the figures as JSON")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], Path(options.child[1]))
        return
    rows = []
    for scale in (int(s) for s in options.scales.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), scale)
            for contender in CONTENDERS:
                runs = []
                for _ in range(options.repeats if scale == 1 else min(options.repeats, 3)):
                    command = [sys.executable, "-m", "benchmarks.compare", "--child", contender, folder]
                    runs.append(
                        json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
                    )
                rows.append(
                    {
                        "examples": 57 * 246 * scale + 20 * scale,
                        "contender": contender,
                        "cpu_s": round(statistics.median(r["cpu_s"] for r in runs), 3),
                        "peak_mib": round(statistics.median(r["peak_mib"] for r in runs), 1),
                    }
                )
    print(f"{'examples':>10} {'contender':<8} {'CPU s':>8} {'ratio':>7} {'peak MiB':>9}")
    for row in rows:
        own = next(r for r in rows if r["contender"] == "assay" and r["examples"] == row["examples"])
        row["ratio"] = round(row["cpu_s"] / own["cpu_s"], 2)
        print(
            f"{row['examples']:>10,} {row['contender']:<8} {row['cpu_s']:>8.2f} {row['ratio']:>7.2f} {row['peak_mib']:>9.0f}"
        )
    if options.out:
        import statsmodels

        environment = {
            "machine": platform.processor() or platform.machine(),
            "python": platform.python_version(),
            "pyarrow": pa.__version__,
            "statsmodels": statsmodels.__version__,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
