"""Write docs/figures.md from the recorded results: `python -m benchmarks.figures`. A test compares the page with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"

INTRODUCTION = """# Figures

Measured on one machine of 2 shared cores (the environment stands in each file of [results](results)); every table comes from
the command above it and this page from `make figures`. Ratios are taken within one run.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *_compare(), *_startup(), *_sequential(), *_storage(), *_truth(), *_flows()])


def _load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return loaded


def _compare() -> list[str]:
    lines = [
        "## From Parquet to the finished comment\n",
        "57 tasks, 14,042 examples and multiples of them: pair, test, list the flips, render. The usual script loops over the",
        "examples and calls statsmodels for each task; the pandas version merges once and works on whole columns. Neither lists",
        "flips or renders a comment. CPU seconds of a fresh process, imports included.\n",
        "```\npython -m benchmarks.compare --out docs/results/compare.json\n```\n",
        "| examples | | CPU s | ratio | peak MiB |\n|---:|---|---:|---:|---:|",
    ]
    names = {"assay": "assay", "pandas": "vectorised pandas", "loop": "statsmodels in a loop"}
    lines += [
        f"| {row['examples']:,} | {names[row['contender']]} | {row['cpu_s']:.2f} | {row['ratio']:.2f} "
        f"| {row['peak_mib']:.0f} |"
        for row in _load("compare")["rows"]
    ]
    lines += [
        "\nA hundred times the examples cost a good deal less than a hundred times the time and memory: most of the",
        "first row is imports.\n",
    ]
    return lines


def _startup() -> list[str]:
    lines = [
        "## Start of the command\n",
        "```\npython -m benchmarks.startup --out docs/results/startup.json\n```\n",
        "| command | CPU s |\n|---|---:|",
    ]
    lines += [f"| `{command}` | {seconds:.2f} |" for command, seconds in _load("startup")["cpu_seconds"].items()]
    return [*lines, ""]


def _sequential() -> list[str]:
    at_six = [row for row in _load("sequential")["rows"] if row["churn"] == row["planned_churn"] == 0.06]
    rows = list({row["drop"]: row for row in reversed(at_six)}.values())[::-1]
    rows.sort(key=lambda row: float(row["drop"]))
    lines = [
        "## Examples that a growing sample saves\n",
        "Against a fixed sample that finds a drop of 1 point with the same power, at 6% churn; the page on",
        "[statistics](statistics.md#what-it-saves) has all churns, and what it costs where the churn was planned wrong.\n",
        "```\npython benchmarks/sequential.py --runs 4000 --out docs/results/sequential.json\n```\n",
        "| true drop, points | fixed n | examples used (mean) | saved | regressed: fixed / growing |\n|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {100 * row['drop']:g} | {row['fixed_n']:,} | {row['mean_n']:,.0f} | {100 * row['saved']:+.0f}% | "
        f"{row['regressed_fixed']:.3f} / {row['regressed_sequential']:.3f} |"
        for row in rows
    ]
    lines.append(
        "\nIt saves nothing where there is no drop or exactly the planned one, and costs 40% more halfway between, where neither"
    )
    lines.append("answer is true. Its false alarms stay under the 5% that are allowed.\n")
    return lines


def _storage() -> list[str]:
    document = _load("storage")
    lines = [
        "## Bytes per stored example\n",
        "```\npython -m benchmarks.storage --out docs/results/storage.json\n```\n",
        "| task | examples | assay | lm-eval samples | ratio | lm-eval samples, gzip | ratio |\n|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in document["tasks"]:
        own, plain, packed = row["assay"], row["lm_eval"], row["lm_eval_gzip"]
        lines.append(
            f"| {row['task']} | {row['examples']:,} | {own:,.0f} | {plain:,.0f} | {plain / own:.1f} | "
            f"{packed:,.0f} | {packed / own:.1f} |"
        )
    lines.append("\nBoth keep every example's scores; lm-eval also keeps the documents and all responses in full.\n")
    return lines


def _truth() -> list[str]:
    lines = [
        "## Truth of verdicts\n",
        "Per cent blocked / passed / inconclusive over simulated pull requests at 6% churn; more in",
        "[statistics](statistics.md#truth-of-verdicts), with real outcomes.\n",
        "```\npython benchmarks/truth.py --runs 2000 --out docs/results/truth.json\n```\n",
    ]
    rows = [r for r in _load("truth")["rows"] if r["churn"] == 0.06]
    gates = list(dict.fromkeys(r["gate"] for r in rows))
    lines.append(f"| n | true drop, points | {' | '.join(gates)} |\n|---:|---:|{'---:|' * len(gates)}")
    for n, drop in dict.fromkeys((r["n"], r["drop"]) for r in rows):
        cells = []
        for gate in gates:
            [row] = [r for r in rows if (r["n"], r["drop"], r["gate"]) == (n, drop, gate)]
            cells.append(" / ".join(f"{100 * row[k]:.0f}" for k in ("blocked", "passed", "inconclusive")))
        lines.append(f"| {n:,} | {100 * drop:g} | {' | '.join(cells)} |")
    return [*lines, ""]


def _flows() -> list[str]:
    document = _load("flows")
    lines = [
        "## API calls of each flow, and events planned per second\n",
        "The real commands against the loopback GitHub of the tests, in a public repository; the pull request has 57 tasks and",
        "14,042 examples, and three baselines are published where a plot is drawn. A call is a request to the API or its upload",
        "host; commands are said where twenty regressions are accepted. Downloads are what storage serves, and the public addresses",
        "that redirect to it. In a private repository the files of a baseline cost two calls more, and the plot shows the base and",
        "the head alone. The rows of commands hold the reports that they ask for: after `/assay evaluate` there are two to rewrite.\n",
        "```\npython -m benchmarks.flows --out docs/results/flows.json\n```\n",
        "| flow | calls | of these, writes | downloads |\n|---|---:|---:|---:|",
    ]
    lines += [f"| {r['flow']} | {r['calls']} | {r['writes']} | {r['downloads']} |" for r in document["calls"]]
    lines.append("\nFrom a snapshot to its operations, comment rendered, one process, per second of CPU:\n")
    lines.append("| golden scene | events planned per second |\n|---|---:|")
    lines += [f"| {r['scene']} | {r['per_second']:.0f} |" for r in document["planned"]]
    return [*lines, ""]


if __name__ == "__main__":
    (ROOT / "docs" / "figures.md").write_text(page())
