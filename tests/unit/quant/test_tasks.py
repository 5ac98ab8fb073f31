from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.baselines.errors import InputError
from assay.quant.tasks import write_local_tasks


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    question = {"question": "2+2?", "choices": ["3", "4"], "answer": 1}
    write(folder / "mmlu_test.jsonl", [{"subject": s, **question} for s in ("algebra", "law", "algebra")])
    write(folder / "mmlu_dev.jsonl", [{"subject": "algebra", **question}])
    write(folder / "wikitext2_test.jsonl", [{"page": "a page"}])
    return folder


def write(path: Path, documents: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))


def test_task_files_of_what_is_there(data: Path, tmp_path: Path) -> None:
    names = write_local_tasks(data, tmp_path / "tasks")
    assert names == ["mmlu_cloze", "mmlu_cloze_algebra", "mmlu_cloze_law", "wikitext2_local"]
    config = yaml.safe_load((tmp_path / "tasks" / "mmlu_cloze_algebra.yaml").read_text())
    files = config["dataset_kwargs"]["data_files"]
    assert len(Path(files["validation"]).read_text().splitlines()) == 2
    assert len(Path(files["dev"]).read_text().splitlines()) == 1
    assert config["fewshot_config"] == {"sampler": "first_n"}
    assert (
        "dev"
        not in yaml.safe_load((tmp_path / "tasks" / "mmlu_cloze_law.yaml").read_text())["dataset_kwargs"]["data_files"]
    )


def test_subjects_can_be_chosen(data: Path, tmp_path: Path) -> None:
    assert write_local_tasks(data, tmp_path / "tasks", subjects=["law"]) == [
        "mmlu_cloze",
        "mmlu_cloze_law",
        "wikitext2_local",
    ]
    with pytest.raises(InputError, match="no subject physics"):
        write_local_tasks(data, tmp_path / "tasks", subjects=["physics"])


def test_data_that_is_not_there(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has none of"):
        write_local_tasks(tmp_path / "absent", tmp_path / "tasks")
    (data / "mmlu_test.jsonl").write_text('{"subject": "law"}\nnonsense\n')
    with pytest.raises(InputError, match="line 2"):
        write_local_tasks(data, tmp_path / "tasks")
