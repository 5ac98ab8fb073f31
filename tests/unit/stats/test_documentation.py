"""docs/statistics.md: its examples run, and its tables are the recorded results."""

from __future__ import annotations

import doctest
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "statistics.md").read_text()


def benchmark(name: str) -> ModuleType:
    """A script of benchmarks/, which is no package, as a module."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_examples_run() -> None:
    blocks = re.findall(r"```pycon\n(.*?)```", PAGE, flags=re.DOTALL)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "statistics.md", "statistics.md", 0)
    report: list[str] = []
    outcome = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=report.append)
    assert outcome.attempted > 30
    assert outcome.failed == 0, "".join(report)


@pytest.mark.parametrize("name", ["sequential", "truth"])
def test_tables_are_the_recorded_results(name: str) -> None:
    module = benchmark(name)
    document = json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text())
    rows = [module.Row(**row) for row in document["rows"]]
    if name == "sequential":
        planned = [row for row in rows if row.planned_churn == row.churn]
        count = next(i for i, row in enumerate(rows) if row.planned_churn != row.churn)
        assert len(planned) >= count
        tables = [module.markdown(rows[:count]), module.markdown(rows[count:])]
    else:
        tables = [module.markdown(rows)]
    for table in tables:
        assert table in PAGE


def test_recorded_sequential_test_keeps_its_level() -> None:
    document = json.loads((ROOT / "docs" / "results" / "sequential.json").read_text())
    alpha, runs = document["settings"]["alpha"], document["settings"]["runs"]
    slack = 3 * (alpha * (1 - alpha) / runs) ** 0.5
    for row in document["rows"]:
        if row["drop"] == 0:
            assert row["regressed_sequential"] <= alpha + slack
        if row["drop"] * 100 == document["settings"]["margin"]:
            assert row["not_worse_sequential"] <= alpha + slack


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("sequential", ["--runs", "60", "--churn", "0.02", "--drop", "0", "2"], "| 2% | 2 |"),
        ("truth", ["--runs", "20", "--n", "200", "--churn", "0.06", "--drop", "0", "2"], "| 200 | 6% | 2 |"),
    ],
)
def test_benchmarks_run(name: str, arguments: list[str], expected: str, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *arguments, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
    document = json.loads(out.read_text())
    assert document["benchmark"] == name
    assert document["rows"]


def test_benchmark_refuses_a_record_that_is_none(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "truth.py"), "--base", str(tmp_path), "--head", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no evidence" in done.stderr
