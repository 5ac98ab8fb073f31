from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from assay.baselines.errors import InputError
from assay.baselines.record import read_record
from assay.quant.cli import evaluate, import_results, require

SOURCE = """
import torch

def data():
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(3000, 4, generator=generator)
    return inputs, inputs.argmax(dim=1)

def net(spoil=0.0):
    model = torch.nn.Linear(4, 4, bias=False)
    torch.nn.init.eye_(model.weight)
    model.weight.data[0, 1] = spoil
    return model

def bad():
    return net(0.9)

def failing():
    raise RuntimeError("weights are missing")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cli_user_code.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ASSAY_HEAD_SHA", "a" * 40)
    monkeypatch.setenv("GITHUB_RUN_ID", "77")
    return tmp_path


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(evaluate, list(arguments), catch_exceptions=True)
    if result.exception is not None:
        raise result.exception
    return result.stdout


CLASSIFIER = ("--dataset", "cli_user_code:data", "--device", "cpu")


def test_evaluate_then_grow_against_the_record(folder: Path) -> None:
    printed = json.loads(
        invoke("--model", "cli_user_code:net", *CLASSIFIER, "--examples", "600", "--out", "base", "--json")
    )
    base = read_record(folder / "base", expect=printed["digest"])
    assert printed["metrics"]["data/acc"]["n"] == 600
    assert base.evidence.provenance.commit == "a" * 40
    assert base.evidence.provenance.run_id == 77
    text = invoke(
        "--model", "cli_user_code:bad", *CLASSIFIER, "--base", "base", "--base-model", "cli_user_code:net",
        "--grow", "--chunk", "100", "--out", "head",
    )  # fmt: skip
    head = read_record(folder / "head").evidence
    # A fifth of the answers break: the anytime-valid test sees that within a few chunks.
    assert head.attributes["decided.data"] is True
    n = head.metrics["data/acc"].n
    assert n is not None
    assert n <= 600
    assert f"Evidence {read_record(folder / 'head').digest[:12]}" in text


def test_a_protocol_that_differs_is_refused_before_measuring(folder: Path) -> None:
    invoke("--model", "cli_user_code:net", *CLASSIFIER, "--examples", "300", "--out", "base")
    with pytest.raises(InputError, match="batch_size is 16 in base and 8 in head"):
        invoke(
            "--model",
            "cli_user_code:bad",
            *CLASSIFIER,
            "--batch-size",
            "8",
            "--base",
            "base",
            "--examples",
            "300",
            "--out",
            "head",
        )
    assert not (folder / "head").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "say what to evaluate"),
        (("--checkpoint", "x", "--model", "a:b"), "say what to evaluate"),
        (("--checkpoint", "x"), "no task was named"),
        (("--checkpoint", "x", "--tasks", "t", "--dataset", "a:b"), "--dataset belongs to --model"),
        (("--model", "a:b"), "--model needs --dataset"),
        (("--model", "a:b", "--dataset", "a:c", "--tasks", "t"), "--tasks belongs to --checkpoint"),
        (("--model", "a:b", "--dataset", "a:c", "--grow"), "--grow needs something"),
        (("--model", "a:b", "--dataset", "a:c", "--base-model", "a:d"), "give --base as well"),
        (("--model", "a:b", "--dataset", "a:c", "--base", "absent"), "no evidence at absent"),
        (("--model", "a:b", "--dataset", "a:c", "--commit", "abc"), "not a full commit"),
        (("--model", "a:b", "--dataset", "a:c", "--examples", "0"), "--examples is 0"),
        (("--model", "a:b", "--dataset", "a:c", "--policy", "absent.yml"), "absent.yml"),
    ],
)
def test_bad_usage(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        invoke(*arguments, "--out", "r")
    assert not (folder / "r").exists()


def test_a_missing_package_names_the_extra() -> None:
    require("json")
    with pytest.raises(InputError, match=r"needs no_such_package.*assay-ci\[quant\]"):
        require("json", "no_such_package")


def test_help_teaches() -> None:
    text = CliRunner().invoke(evaluate, ["--help"]).output
    assert "assay evaluate --checkpoint ./checkpoint --tasks hellaswag,mmlu" in text
    assert "Exit codes" in text


def test_import(folder: Path) -> None:
    (folder / "scores.csv").write_text("id,score\na,1\nb,0\n")
    result = CliRunner().invoke(import_results, ["scores.csv", "--out", "r", "--json", "--name", "nightly"])
    assert result.exit_code == 0
    record = read_record(folder / "r", expect=json.loads(result.stdout)["digest"])
    assert record.evidence.subject.name == "nightly"
    assert record.evidence.provenance.commit == "a" * 40
    result = CliRunner().invoke(import_results, ["scores.csv", "--out", "r", "--low", "1"])
    assert isinstance(result.exception, InputError)


def test_debug_shows_where_user_code_failed(folder: Path) -> None:
    arguments = ["--model", "cli_user_code:failing", *CLASSIFIER, "--out", "r"]
    quiet, loud = (CliRunner().invoke(evaluate, [*arguments, *extra]) for extra in ((), ("--debug",)))
    assert isinstance(quiet.exception, InputError)
    assert "raised RuntimeError: weights are missing" in str(quiet.exception)
    assert "Traceback" not in quiet.stderr
    assert "in failing" in loud.stderr
