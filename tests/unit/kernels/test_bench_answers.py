"""What a worker answers is taken apart strictly, and the workflows of kernels fit those of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.baselines.errors import ServiceError
from assay.kernels.bench.answers import checkout_of, contract_of

ROOT = Path(__file__).parents[3]


def description(**case: Any) -> dict[str, Any]:
    facts = {"parameters": "{}", "dtype": "float32", "tolerance": "t", "inputs": "0", "bytes": 8.0, "flops": 1.0}
    kernel = {"name": "k", "configuration": {}, "cases": {"a": {**facts, **case}}}
    return {"kernels": [kernel], "import_seconds": 0.1, "setup_seconds": 0.0}


def contract(**changed: Any) -> dict[str, Any]:
    return {
        "results": [["a", True, 0.0, 0.0, ""]],
        "first_seconds": {"a": 0.1},
        "norms": {"a": 3.0},
        "source": "sha256:0",
        **changed,
    }


def test_a_right_answer_is_taken() -> None:
    checkout = checkout_of("head", {}, description())
    assert checkout.described["k"]["cases"]["a"]["bytes"] == 8.0
    found = contract_of("head", contract())
    checkout.contract["k"] = [*found.results, ["b", False, float("inf"), 1.0, "wrong"]]
    assert checkout.failed("k") == ["b"]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {**description(), "kernels": None},
        {**description(), "kernels": [{"name": 3, "cases": {}, "configuration": {}}]},
        {**description(), "import_seconds": "0.1"},
        description(bytes="8"),
        description(bytes=-8.0),
        description(flops=float("nan")),
        description(more=1),
    ],
)
def test_a_description_in_another_form_is_one_line(answer: dict[str, Any]) -> None:
    with pytest.raises(ServiceError, match="the head worker ") as caught:
        checkout_of("head", {}, answer)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"results": "passed"},
        {"results": [["a", True]]},
        {"results": [["a", 1, 0.0, 0.0, ""]]},
        {"results": [["a", True, "0", 0.0, ""]]},
        {"norms": {"a": None}},
        {"first_seconds": []},
        {"source": None},
    ],
)
def test_a_contract_in_another_form_is_one_line(changed: dict[str, Any]) -> None:
    with pytest.raises(ServiceError, match="the base worker "):
        contract_of("base", contract(**changed))


@pytest.mark.parametrize("folder", [".github/workflows", "docs/workflows"])
def test_the_command_dispatches_bench_as_it_dispatches_run(folder: str) -> None:
    bench, run = (yaml.safe_load((ROOT / folder / f"assay-{name}.yml").read_text()) for name in ("bench", "run"))
    assert bench[True] == run[True]  # YAML reads `on` as true
    assert bench["run-name"] == run["run-name"]
    assert bench["permissions"] == {}
    assert {job: spec["permissions"] for job, spec in bench["jobs"].items()} == {
        job: spec["permissions"] for job, spec in run["jobs"].items()
    }


def test_reports_follow_the_workflows_of_kernels() -> None:
    report = yaml.safe_load((ROOT / "docs/workflows/assay-report.yml").read_text())
    names = {
        yaml.safe_load((ROOT / f"docs/workflows/assay-{name}.yml").read_text())["name"] for name in ("kernels", "bench")
    }
    assert names <= set(report[True]["workflow_run"]["workflows"])
