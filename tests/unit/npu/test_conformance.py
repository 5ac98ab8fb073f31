"""PyTorch's operator database through the backend: a fixed sample of it, and the harness that would see a fault."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.baselines.errors import InputError
from assay.npu_backend import conformance, isa
from assay.npu_backend.conformance import (
    GOOD,
    STATUSES,
    Outcome,
    check,
    load,
    main,
    operators,
    run,
    samples_of,
    summary,
    write,
)
from assay.npu_backend.lowering import RULES, Call

RECORD = Path(__file__).parents[3] / "docs" / "results" / "npu" / "conformance.json"
SLOW = re.compile(
    r"^(linalg|fft|nn\.functional\.(max_unpool|ctc|multi_margin|gaussian_nll)|masked|signal|special|svd|ormqr|lu)"
)
"""Host operators with many samples, of which `make conformance` tries each."""


def sample() -> list[str]:
    """Every operator of the record that used the NPU and is not slow, and some that do not."""
    recorded = load(RECORD)
    npu = [name for name, outcome in recorded.items() if outcome.npu and not SLOW.match(name)]
    other = [name for name, outcome in recorded.items() if not outcome.npu and not SLOW.match(name)]
    return sorted({*npu[:: max(1, len(npu) // 130)], *other[:: max(1, len(other) // 30)]})


@pytest.fixture(scope="module")
def database() -> dict[str, Any]:
    return operators()


def test_the_record_is_of_the_whole_database_and_has_no_fault(database: dict[str, Any]) -> None:
    recorded = load(RECORD)
    assert {outcome.status for outcome in recorded.values()} <= set(GOOD)
    assert all(outcome.why for outcome in recorded.values() if outcome.status != "npu")
    if json.loads(RECORD.read_text())["torch"] == torch.__version__.split("+")[0]:
        assert set(recorded) == set(database)


def test_the_sample_has_at_least_150_operators() -> None:
    assert len(sample()) >= 150


@pytest.mark.parametrize("name", sample())
def test_an_operator_of_the_sample(name: str, database: dict[str, Any]) -> None:
    if name not in database:
        pytest.skip("this torch has no such operator")
    table = json.loads(RECORD.read_text())
    outcome = check(database[name], name, table["samples"])
    assert outcome.status in GOOD, outcome.why
    if table["torch"] == torch.__version__.split("+")[0]:
        # What a change of the rules gains or loses shows here, and make conformance writes it down.
        assert outcome == load(RECORD)[name]


def planted(monkeypatch: pytest.MonkeyPatch, op: str, body: Any) -> None:
    monkeypatch.setitem(RULES, op, replace(RULES[op], body=body))


def test_a_wrong_rule_is_seen(monkeypatch: pytest.MonkeyPatch, database: dict[str, Any]) -> None:
    def wrong(call: Call) -> str:
        return call.emit(isa.Relu, x=call.args[0], function="abs")

    planted(monkeypatch, "aten.relu.default", wrong)
    outcome = check(database["nn.functional.relu"], "nn.functional.relu", 2)
    assert outcome.status == "wrong"
    assert "Tensor-likes are not close" in outcome.why


def test_a_rule_that_raises_is_seen(monkeypatch: pytest.MonkeyPatch, database: dict[str, Any]) -> None:
    def broken(call: Call) -> str:
        raise RuntimeError("no\nluck")

    planted(monkeypatch, "aten.relu.default", broken)
    outcome = check(database["nn.functional.relu"], "nn.functional.relu", 2)
    assert outcome.status == "error"
    assert "no luck" in outcome.why


@pytest.mark.parametrize(
    ("got", "want", "difference"),
    [
        (torch.ones(2), torch.ones(2), ""),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), "dtype"),
        (torch.ones(2), torch.ones(2, 1), "shape"),
        (torch.tensor([torch.nan]), torch.tensor([torch.nan]), ""),
        (torch.tensor([1.0]), torch.tensor([1.001]), "close"),
        (torch.tensor([1.0]), torch.tensor([torch.nan]), "close"),
        ([torch.ones(1)], [torch.ones(1), torch.ones(1)], "1 results instead of 2"),
        (3, 3.0, "3 instead of 3.0"),
        (3, 4, "3 instead of 4"),
    ],
)
def test_differences(got: Any, want: Any, difference: str) -> None:
    found = conformance._differs(got, want)
    assert difference in found
    assert bool(found) == bool(difference)


def test_random_operators_are_compared_by_shape_alone(database: dict[str, Any]) -> None:
    outcome = check(database["empty_like"], "empty_like", 2)
    assert (outcome.status, outcome.samples) == ("listed", 2)
    assert "random or uninitialised" in outcome.why


def test_random_operators_reach_the_backend(database: dict[str, Any]) -> None:
    outcome = check(database["nn.functional.dropout"], "nn.functional.dropout", 2)
    assert outcome.npu > 0
    attention = check(database["nn.functional.scaled_dot_product_attention"], "attention", 0)
    assert attention.status in ("npu", "mixed")  # by the samples that drop nothing


def test_what_never_reaches_the_backend_is_not_called_the_same(database: dict[str, Any]) -> None:
    outcome = check(database["nonzero"], "nonzero", 1)
    assert (outcome.status, outcome.why) == ("listed", "PyTorch compiles no graph of it, so that it runs in eager")
    outcome = check(database["zeros"], "zeros", 1)
    assert outcome.status == "host"
    assert "depends on sizes alone" in outcome.why


def test_samples_are_spread(database: dict[str, Any]) -> None:
    every = samples_of(database["add"], 0)
    few = samples_of(database["add"], 3)
    assert len(few) == 3 < len(every)
    same = [index for index, given in enumerate(every) for one in few if given.input.shape == one.input.shape]
    assert max(same) > len(every) // 2


def test_a_run_continues_and_names_the_operator_that_died(tmp_path: Path, database: dict[str, Any]) -> None:
    path, shown = tmp_path / "table.json", []
    ops = {name: database[name] for name in ("abs", "neg", "sort")}

    def stop(table: Any) -> None:
        write(path, table, 1)
        if table.get("neg") == Outcome("error", 0, why="the process died"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(ops, {}, count=1, save=stop, show=shown.append)
    died = load(path)
    assert died["neg"].why == "the process died"
    again = run(ops, died, count=1, save=lambda table: write(path, table, 1), show=shown.append)
    assert {name: outcome.status for name, outcome in again.items()} == {"abs": "npu", "neg": "error", "sort": "host"}
    assert again == load(path)
    assert sum(line.startswith("[1/3] abs") for line in shown) == 1
    assert "| host | 1 |" in summary(again)
    assert summary(again).count("\n") == 2 + len(STATUSES)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "deep" / "table.json"
    assert main(["--out", str(path), "--only", "^(abs|sort)$", "--samples", "1"]) == 0
    assert set(load(path)) == {"abs", "sort"}
    text = path.read_text().replace('"npu",', '"wrong",', 1)
    path.write_text(text)
    assert main(["--out", str(path), "--only", "^(abs|sort)$", "--samples", "1"]) == 1  # what the table has is kept
    assert main(["--out", str(path), "--only", "^(abs|sort)$", "--samples", "1", "--fresh"]) == 0
    capsys.readouterr()
    path.write_text("{")
    assert main(["--out", str(path)]) == 2
    assert "is no table of operators: delete it or name another file" in capsys.readouterr().out
    assert main(["--out", str(tmp_path / "other.json"), "--only", "("]) == 2


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.testing._internal.common_methods_invocations", None)
    with pytest.raises(InputError, match="pip install expecttest"):
        operators()
