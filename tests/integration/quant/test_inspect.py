"""Logs that the real inspect_ai package writes, read without it."""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assay.baselines.evidence import Provenance
from assay.baselines.record import Record
from assay.quant.importers import import_evidence

inspect_ai = pytest.importorskip("inspect_ai")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Six sums, two epochs; the answer is right at every second one."""
    from inspect_ai import Task
    from inspect_ai import eval as run
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import includes, match
    from inspect_ai.solver import generate

    def answers() -> list[ModelOutput]:
        outputs = []
        for _ in range(2):
            for number in range(6):
                output = ModelOutput.from_content("mockllm/model", f"It is {number + 1 + number % 2}")
                # With usage given, the package does not fetch a tokenizer to count tokens.
                output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
                outputs.append(output)
        return outputs

    samples = [Sample(id=f"q{n}", input=f"What is {n} + 1?", target=str(n + 1)) for n in range(6)]
    task = Task(dataset=MemoryDataset(samples), solver=generate(), scorer=[match(), includes()], name="sums")
    found = {}
    for kind in ("eval", "json"):
        folder = tmp_path_factory.mktemp(kind)
        model = get_model("mockllm/model", custom_outputs=answers(), memoize=False)
        (log,) = run(
            task, model=model, log_dir=str(folder), log_format=kind, display="none", epochs=2, max_connections=1
        )
        assert log.status == "success"
        found[kind] = next(folder.glob(f"*.{kind}"))
    return found


def load(path: Path, out: Path) -> Record:
    return import_evidence(path, out, provenance=Provenance(created=datetime.now(UTC)))


def test_the_archive_is_compressed_as_python_cannot_read_it(logs: dict[str, Path]) -> None:
    with zipfile.ZipFile(logs["eval"]) as archive:
        assert {info.compress_type for info in archive.infolist()} == {93}


@pytest.mark.parametrize("kind", ["eval", "json"])
def test_scores_are_those_of_the_package(logs: dict[str, Path], tmp_path: Path, kind: str) -> None:
    from inspect_ai.log import read_eval_log

    record = load(logs[kind], tmp_path / "r")
    official = read_eval_log(str(logs[kind]))
    assert official.results is not None
    for score in official.results.scores:
        metric = record.evidence.metrics[f"sums/{score.name}"]
        assert metric.value == pytest.approx(score.metrics["accuracy"].value)
        assert metric.n == 6
        assert 0 < metric.value < 1
    assert record.evidence.subject.name == "mockllm/model"
    assert record.evidence.metrics["sums/match"].primary
    assert record.rows is not None
    assert record.rows.to_pylist()[0]["text"] == "q0: What is 0 + 1?"


def test_both_forms_and_folders_name_the_same_examples(logs: dict[str, Path], tmp_path: Path) -> None:
    first, second = load(logs["eval"], tmp_path / "a"), load(logs["json"], tmp_path / "b")
    assert first.rows is not None
    assert second.rows is not None
    assert first.rows.column("item").equals(second.rows.column("item"))
    folder = load(logs["eval"].parent, tmp_path / "c")
    assert folder.rows is not None
    assert folder.rows.equals(first.rows)
