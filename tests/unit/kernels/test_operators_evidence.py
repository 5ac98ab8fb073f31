"""The operators' evidence: what it finds, and that the registration proposal's milestones are met by it."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from assay.baselines.environment import Environment
from assay.baselines.kernel import check_rows
from assay.baselines.record import read_record
from assay.bot.milestones.predicates import Met, Open, judge
from assay.bot.milestones.proposal import parse_capstone
from assay.bot.milestones.shelf import Kept, Shelf
from assay.kernels.operators import proof
from assay.kernels.operators.evidence import FRAMEWORK, KERNEL, OPERATOR, Proven, main
from assay.kernels.operators.library import SCHEMAS
from assay.kernels.operators.report import markdown, write_records

ROOT = Path(__file__).resolve().parents[3]
CASES = ("c128", "c1023", "c1024", "c4096", "c16384", "c65536")
CONTRACT = ("random", "odd-widths", "fully-masked-rows", "non-contiguous-falls-back", "opcheck")


def proven(*, framework: float = 3e-5) -> Proven:
    """An operator of 20 us, 4 of them dispatch, in a graph of which the framework's softmax takes 40%."""
    times = {KERNEL: [1.6e-5] * 8, OPERATOR: [2e-5] * 8, FRAMEWORK: [framework] * 8}
    return Proven(
        "softmax",
        "cuda",
        contract=dict.fromkeys(CONTRACT, ""),
        paths={"random": ["softmax: 2 x CUDA C++"]},
        graph="y = torch.ops.assay.softmax(x)",
        first_use_ms=3.0,
        seconds={case: {who: list(seconds) for who, seconds in times.items()} for case in CASES},
        graphs={OPERATOR: [0.9e-4] * 8, FRAMEWORK: [1e-4] * 8, "none": [0.6e-4] * 8},
        graph_case="c4096",
        compiler="inductor",
    )


def shelf(found: Proven, folder: Path) -> Shelf:
    where = Environment(hardware="one GPU", driver="NVIDIA 1", libraries={"torch": "2"})
    assert write_records([found], folder, environment=where) == 3
    records = [read_record(path) for path in sorted(folder.iterdir())]
    assert all(check_rows(record.rows, "r").num_rows == 6 * 8 for record in records)
    return Shelf(kept=tuple(Kept(record.digest, record.evidence) for record in records))


def test_derived_numbers() -> None:
    found = proven()
    assert found.dispatch_us == pytest.approx(4)
    assert found.graph_share == pytest.approx(0.4)
    assert found.graph_gain_percent == pytest.approx(10)
    assert found.losing(OPERATOR) == []
    assert proven(framework=1.8e-5).losing(OPERATOR) == list(CASES)
    assert proven(framework=1.8e-5).losing(KERNEL) == []


def test_the_records_meet_the_milestones_of_the_registration_proposal(tmp_path: Path) -> None:
    capstone = parse_capstone((ROOT / "docs" / "examples" / "registration" / "capstone.yml").read_bytes())
    kept = shelf(proven(), tmp_path)
    for milestone in capstone.milestones[1:4]:
        outcomes = [judge(predicate, capstone, kept) for predicate in milestone.evidence]
        assert [type(outcome) for outcome in outcomes] == [Met] * len(outcomes), outcomes


def test_losing_shapes_are_listed_and_a_slow_dispatch_is_not_met(tmp_path: Path) -> None:
    capstone = parse_capstone((ROOT / "docs" / "examples" / "registration" / "capstone.yml").read_bytes())
    found = proven(framework=1.8e-5)
    found.seconds["c128"][OPERATOR] = [4e-5] * 8
    kept = shelf(found, tmp_path)
    by_name = {
        kind: judge(predicate, capstone, kept)
        for milestone in capstone.milestones[2:4]
        for predicate in milestone.evidence
        for kind in [getattr(predicate.asked, "metric", None)]
    }
    assert isinstance(by_name["latency/{shape}"], Met)  # it loses on all six, and lists them
    assert not isinstance(by_name["dispatch"], Met | Open)


def test_the_command_proves_an_operator_on_the_cpu(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["--operator", "rms_norm", "--rounds", "4", "--out", str(tmp_path)], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    assert "| `assay::rms_norm` | 6 cases | passed | 0 | no |" in result.output
    assert "non-contiguous-falls-back: add_rms_norm: 2 x framework (on cpu, not on a GPU)" in result.output
    assert "torch.ops.assay.add_rms_norm" in result.output
    evidence = read_record(tmp_path / "rms-norm-operator").evidence
    assert evidence.attributes["contract.gradcheck"] is True
    assert "assay" not in str(tmp_path) or str(tmp_path) not in str(evidence)


def test_a_failure_is_on_the_page_and_in_the_record(tmp_path: Path) -> None:
    found = proven()
    found.contract["opcheck"] = "test_faketensor: wrong strides"
    assert "failed: opcheck | test_faketensor: wrong strides" in markdown([found])
    kept = shelf(found, tmp_path)
    attributes = next(k.evidence.attributes for k in kept.kept if "operator.opcheck" in k.evidence.attributes)
    assert attributes["contract.opcheck"] is False
    assert attributes["operator.opcheck"] == "test_faketensor: wrong strides"


def test_contenders_take_turns_and_overhead_is_paired() -> None:
    now = iter(range(1_000))
    times = proof.per_call({"a": int, "b": int}, calls=2, rounds=5, clock=lambda: float(next(now)))
    assert times == {"a": [0.5] * 5, "b": [0.5] * 5}
    drifting = {"a": [1.0, 2.0, 9.0], "b": [1.5, 2.5, 9.5]}
    assert proof.overhead(drifting, "a") == {"b": pytest.approx(5e5)}


def test_timing_gives_the_threads_back() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        proof.per_call({"bad": lambda: 1 / 0})
    assert torch.get_num_threads() == before


def test_the_page_documents_every_schema_as_it_is() -> None:
    page = (ROOT / "docs" / "operators.md").read_text()
    for name, schema in SCHEMAS.items():
        assert f"assay::{name}{schema}" in page


def test_the_page_has_the_recorded_overhead() -> None:
    page = (ROOT / "docs" / "operators.md").read_text().partition("<!-- overhead -->")[2].partition("<!-- /overhead")[0]
    shown = {
        cells[1].strip(): [float(cells[2]), float(cells[3])] for cells in map(_cells, page.splitlines()[3:]) if cells
    }
    recorded = json.loads((ROOT / "docs" / "results" / "operators.json").read_text())["us"]
    names = {re.sub(r"`| alone", "", label): values for label, values in shown.items()}
    assert len(names) == 6
    for name, values in names.items():
        assert values == [round(recorded[mode][name], 1) for mode in ("default", "inference_mode")]


def _cells(line: str) -> list[str]:
    return line.split("|") if line.startswith("|") else []


def test_a_permuted_copy_is_dense_and_not_contiguous() -> None:
    x = torch.randn(2, 3, 4)
    y = proof.permuted(x)
    assert torch.equal(x, y)
    assert not y.is_contiguous()
    assert sorted(y.stride()) == [1, 2, 6]
    assert dataclasses.replace(proof.captured(torch.neg, (x,)), text="").breaks == 0


def test_created_times_are_those_of_the_run(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    kept = shelf(proven(), tmp_path)
    assert all(before <= k.evidence.provenance.created <= datetime.now(UTC) for k in kept.kept)
