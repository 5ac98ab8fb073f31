from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from assay.baselines.errors import InputError
from assay.quant.classifier import Classifier, ClassifierOptions
from assay.quant.sampling import Sampling

SOURCE = """
import numpy as np
import torch


def pairs():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(200, 4, generator=generator)
    return [(inputs[i], int(inputs[i].argmax())) for i in range(200)]


def arrays():
    found = pairs()
    return np.stack([x.numpy() for x, _ in found]), np.array([y for _, y in found])


def twins():
    return [pairs()[0], pairs()[0], pairs()[1]]


def exact():
    model = torch.nn.Linear(4, 4, bias=False)
    torch.nn.init.eye_(model.weight)
    return model


def coarse():
    model = exact()
    with torch.no_grad():
        model.weight[0, 1] = 0.4
    return model


def function():
    return lambda batch: batch


def broken():
    model = exact()
    with torch.no_grad():
        model.weight[0, 0] = float("nan")
    return model


def scalar():
    return lambda batch: batch.sum()


def raising():
    raise RuntimeError("no such\\nweights")


def odd_labels():
    return [(torch.zeros(4), 9)] * 3


def ragged():
    return [(torch.zeros(4), 0), (torch.zeros(5), 1)]


def text_labels():
    return [(torch.zeros(4), "cat")]


def empty():
    return []


VALUE = 3
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    # A module of its own per test, so that no test sees what another imported.
    name = f"user_{abs(hash(request.node.nodeid)):x}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(os.fspath(tmp_path))
    return name


def classifier(module: str, model: str, dataset: str, **options: Any) -> Classifier:
    return Classifier(ClassifierOptions(f"{module}:{model}", f"{module}:{dataset}", device="cpu", **options))


def test_scores_answers_and_margins(module: str, run: Any, tmp_path: Path) -> None:
    record = run(classifier(module, "exact", "pairs", task="digits"), Sampling(), tmp_path / "r").record
    metric = record.evidence.metrics["digits/acc"]
    assert (metric.value, metric.n, metric.chance, metric.scale) == (1.0, 200, 0.25, "binary")
    assert record.evidence.metrics["size"].value == 64
    assert record.evidence.subject.format == "float32"
    row = record.rows.to_pylist()[0]
    assert row["text"] == f"example {row['doc_id']}, label {row['answer']}"
    assert row["margin"] > 0


def test_pairs_and_arrays_are_the_same_examples(module: str, run: Any, tmp_path: Path) -> None:
    first = run(classifier(module, "exact", "pairs", task="t"), Sampling(), tmp_path / "a").record
    second = run(classifier(module, "function", "arrays", task="t"), Sampling(), tmp_path / "b").record
    assert first.rows.column("item").equals(second.rows.column("item"))
    assert first.rows.column("response").equals(second.rows.column("response"))


def test_identical_examples_are_numbered(module: str, run: Any, tmp_path: Path) -> None:
    rows = run(classifier(module, "exact", "twins"), Sampling(), tmp_path / "r").record.rows.to_pylist()
    assert sorted(row["occurrence"] for row in rows) == [0, 0, 1]


def test_the_digest_follows_the_weights(module: str) -> None:
    def digest(model: str) -> str:
        return classifier(module, model, "pairs").prepare().subject.digest

    assert digest("exact") == digest("exact")
    assert digest("exact") != digest("coarse")


def test_batches_do_not_change_rows(module: str, run: Any, tmp_path: Path) -> None:
    tables = [
        run(classifier(module, "coarse", "pairs", batch_size=size), Sampling(), tmp_path / str(size)).record.rows
        for size in (1, 7, 200)
    ]
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])
    assert 0.5 < sum(tables[0].column("score").to_pylist()) / 200 < 1


def test_latency_has_an_interval(module: str, run: Any, tmp_path: Path) -> None:
    metric = run(
        classifier(module, "exact", "pairs", latency=True), Sampling(examples=5), tmp_path / "r"
    ).record.evidence.metrics["latency"]
    assert metric.low is not None
    assert metric.high is not None
    assert 0 < metric.low <= metric.value <= metric.high


@pytest.mark.parametrize(
    ("model", "dataset", "message"),
    [
        ("broken", "pairs", "logits that are not finite"),
        ("scalar", "pairs", "return logits of shape"),
        ("raising", "pairs", "raised RuntimeError: no such weights"),
        ("absent", "pairs", "has no absent"),
        ("VALUE", "pairs", "is a int, not a function"),
        ("exact", "odd_labels", "has label 9, and the model has 4 classes"),
        ("exact", "ragged", "cannot be stacked"),
        ("exact", "text_labels", "'cat', not a whole number"),
        ("exact", "empty", "returned no examples"),
        ("exact", "VALUE", "is a int, not a function"),
        ("pairs", "pairs", "return a torch"),
    ],
)
def test_mistakes_in_user_code_are_one_line(
    module: str, run: Any, tmp_path: Path, model: str, dataset: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        run(classifier(module, model, dataset), Sampling(), tmp_path / "r")
    assert "\n" not in str(caught.value)
    assert module in str(caught.value)


def test_specs_that_name_nothing(module: str) -> None:
    with pytest.raises(InputError, match="not of the form"):
        classifier(module, "exact", "pairs", task="t").__class__(
            ClassifierOptions("models", f"{module}:pairs")
        ).prepare()
    with pytest.raises(InputError, match="no module absent_module"):
        Classifier(ClassifierOptions("absent_module:f", f"{module}:pairs")).prepare()
