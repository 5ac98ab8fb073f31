"""Each rule on the narrowed example with one thing spoiled; the shipped examples as a whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.milestones.workbench import ATTENTION, EXAMPLES, ROOT

from assay.bot.milestones.lint import Finding, lint
from assay.bot.milestones.proposal import STEPS, Capstone, parse_capstone

Document = dict[str, Any]


def findings(document: Document) -> list[Finding]:
    return lint(parse_capstone(yaml.safe_dump(document, sort_keys=False).encode()))


def document() -> Document:
    loaded: Document = yaml.safe_load(ATTENTION)
    return loaded


def drop(*path: str | int) -> Callable[[Document], None]:
    def change(d: Any) -> None:
        for key in path[:-1]:
            d = d[key]
        del d[path[-1]]

    return change


def put(value: Any, *path: str | int) -> Callable[[Document], None]:
    def change(d: Any) -> None:
        for key in path[:-1]:
            d = d[key]
        d[path[-1]] = value

    return change


TITLE = "HBM traffic of forward, causal attention with an online softmax"
LAST = {"kind": "kernel", "subject": "decoder-forward"}
LAYERS = ["measurement", "gpu-kernel", "online-softmax-tiling", "backward"]
NEW = "2 layers are new at once"
LOOSE = ("correctness-contract", "tolerances", "bfloat16", "relative")
CASES = ("milestones", 0, "evidence", 0, "contract-passed", "cases")

SPOILED: list[tuple[str, Callable[[Document], None], str, str]] = [
    ("no question", drop("question"), "question", "is missing"),
    ("vague question", put("Is a tiled kernel faster?", "question"), "question", "'faster' has no number"),
    ("vague result", put("A significant speedup on FlashAttention-2 shapes.", "expected-result"), "expected-result", "no number"),
    ("question repeats the title", put(TITLE, "question"), "question", "repeats the title"),
    ("no decision", drop("decision"), "decision", "is missing"),
    ("no user", put("  ", "user"), "user", "is missing"),
    ("no baseline", drop("baseline"), "baseline", "is missing"),
    ("easy baseline", drop("baseline", "mature"), "baseline.mature", "unfair"),
    ("other hardware", put(False, "baseline", "same-hardware"), "baseline.same-hardware", "unfair"),
    ("inputs not said", drop("baseline", "same-inputs"), "baseline.same-inputs", "is not said"),
    ("baseline without evidence", drop("baseline", "evidence"), "baseline.evidence", "is missing"),
    ("baseline measured last", put(LAST, "baseline", "evidence"), "baseline.evidence", "milestones 1 to 2"),
    ("no metric", drop("metric"), "metric", "is missing"),
    ("unbounded inputs", put({}, "input-family"), "input-family", "unbounded"),
    ("no shapes", put([], "input-family", "shapes"), "input-family.shapes", "is empty"),
    ("no reference", drop("correctness-contract", "reference"), "correctness-contract.reference", "is missing"),
    ("no tolerance", put({}, "correctness-contract", "tolerances"), "correctness-contract.tolerances", "is missing"),
    ("tolerance of everything", put(0.9, *LOOSE), "correctness-contract.tolerances.bfloat16", "half"),
    ("no cases", put([], "correctness-contract", "cases"), "correctness-contract.cases", "is missing"),
    ("no formula", drop("quantitative-model", "formula"), "quantitative-model.formula", "is missing"),
    ("no gain", drop("material-gain"), "material-gain", "no number"),
    ("gain of nothing", put(0, "material-gain", "value"), "material-gain", "no number"),
    ("no bound", drop("quantitative-model", "bound"), "quantitative-model.bound", "is missing"),
    ("bound in another unit", put("ms", "quantitative-model", "bound", "unit"), "quantitative-model.bound", "is in 'ms'"),
    ("no hours", drop("resources", "compute-hours"), "resources.compute-hours", "is missing"),
    ("no storage", drop("resources", "storage-gb"), "resources.storage-gb", "is missing"),
    ("no change", drop("intervention", "change"), "intervention.change", "is missing"),
    ("no layers", put([], "intervention", "layers"), "intervention.layers", "is missing"),
    ("two new layers", put(LAYERS, "intervention", "layers"), "intervention.layers", NEW),
    ("undemonstrated prerequisite", put(False, "prerequisites", 1, "demonstrated"), "intervention.layers", NEW),
    ("misspelt layer", put("kernels", "prerequisites", 1, "layer"), "prerequisites.1.layer", "'kernels' is none"),
    ("no prerequisites", put([], "prerequisites"), "prerequisites", "is missing"),
    ("no hardware", put([], "resources", "hardware"), "resources.hardware", "is missing"),
    ("64 GPUs", put("Does the plan scale to 90% on 64 H200 GPUs?", "question"), "question", "claims 64 machines"),
    ("1,024 nodes", put("95% on a 1,024-node cluster", "expected-result"), "expected-result", "claims 1,024 machines"),
    ("no functional case", drop("functional-case"), "functional-case", "is missing"),
    ("functional case shows nothing", drop("functional-case", "shows"), "functional-case.shows", "is missing"),
    ("nothing included", put([], "scope", "included"), "scope.included", "is empty"),
    ("item without reason", drop("scope", "excluded", 1, "reason"), "scope.excluded.1", "has no reason"),
    ("item in two lists", put("Backward  pass", "scope", "deferred", 0, "item"), "scope.deferred.0", "is also excluded"),
    ("no stops", put([], "stop-conditions"), "stop-conditions", "is missing"),
    ("stop without number", put([{"scope-answered": {}}], "stop-conditions"), "stop-conditions", "none has a number"),
    ("four milestones", drop("milestones", 4), "milestones", "there are 4, not 5"),
    ("nothing decisive", put([{"file": {"path": "report.md"}}], "milestones", 4, "evidence"), "milestones.4.evidence", "nothing decides"),
    ("no evidence", put([], "milestones", 2, "evidence"), "milestones.2.evidence", "nothing decides"),
    ("no review", drop("milestones", 1, "review"), "milestones.1.review", "is missing"),
    ("unknown case", put(["randon"], *CASES), "milestones.0.evidence.0.contract-passed.cases", "'randon' is no case"),
    *[(f"no {s}", drop("measurement-sequence", s.replace("_", "-")), f"measurement-sequence.{s.replace('_', '-')}", "is missing") for s in STEPS],
]  # fmt: skip


@pytest.mark.parametrize(("change", "key", "problem"), [pytest.param(*rest, id=name) for name, *rest in SPOILED])
def test_one_spoiled_thing_is_named(change: Callable[[Document], None], key: str, problem: str) -> None:
    spoiled = document()
    assert findings(spoiled) == []
    change(spoiled)
    found = findings(spoiled)
    assert [f for f in found if f.key == key and problem in str(f)], found
    assert all(f.mend and "\n" not in str(f) for f in found)


def test_success_only_against_a_library_is_named_unless_a_model_is_tested() -> None:
    d = document()
    d["expected-result"] = "10% faster than the library"
    assert findings(d) == []
    for milestone in d["milestones"]:
        milestone["evidence"] = [p for p in milestone["evidence"] if "model-agrees" not in p]
    d["quantitative-model"]["predictions"] = []
    assert {f.key for f in findings(d)} == {"expected-result", "quantitative-model.predictions"}


def test_a_claim_limited_to_simulation_may_be_larger_than_the_hardware() -> None:
    d = document()
    d["question"] = "Does the simulated plan keep 90% of its throughput on 64 GPUs?"
    d["resources"]["simulation"] = {"mechanism-test": "all-reduce on 1 GPU", "remains-modeled": "the other 63"}
    assert findings(d) == []


@pytest.mark.parametrize(
    "claim", ["Does it reach 90% on 1 GPU?", "Is H200 GPU traffic within 5%?", "64 heads within 5% on one GPU?"]
)
def test_numbers_that_are_no_machines(claim: str) -> None:
    d = document()
    d["question"] = claim
    assert findings(d) == []


def test_a_prerequisite_that_is_not_in_the_repository_is_named() -> None:
    d = document()
    d["prerequisites"][0]["demonstrated"] = {"path": "benchmarks/softmax.py"}
    made = parse_capstone(yaml.safe_dump(d).encode())
    assert [f.key for f in lint(made, lambda _: False)] == ["prerequisites.0.demonstrated.path"]
    assert lint(made, lambda path: path == "benchmarks/softmax.py") == []


@pytest.mark.parametrize("title", ["implement FlashAttention", "64 GPUs, much faster"])
def test_a_title_alone_is_one_finding(title: str) -> None:
    [found] = lint(Capstone(title=title))
    assert found.key == "title"
    assert "only a title" in found.problem


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "assay.bot.cli", "capstone", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
    )


@pytest.mark.parametrize("example", ["attention", "registration"])
def test_narrow_examples_pass(example: str) -> None:
    done = run(EXAMPLES / example, "lint")
    assert (done.returncode, done.stdout) == (0, "")


def test_our_own_proposal_passes() -> None:
    done = run(ROOT / "docs" / "proposals" / "hopper-attention", "lint")
    assert (done.returncode, done.stdout) == (0, "")


def test_the_broad_example_is_rejected_as_its_page_shows() -> None:
    done = run(EXAMPLES / "broad", "lint")
    assert done.returncode == 1
    assert done.stdout == (EXAMPLES / "broad" / "lint.txt").read_text()
    for rule in ("5 layers are new at once", "claims 64 machines", "unfair", "no reason", "none has a number", "not 5"):
        assert rule in done.stdout
    alone = run(EXAMPLES / "broad", "lint", "title-only.yml")
    assert alone.returncode == 1
    assert alone.stdout.count("\n") == 1
