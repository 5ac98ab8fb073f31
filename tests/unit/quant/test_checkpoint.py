from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from assay.baselines.errors import InputError, ServiceError
from assay.quant.checkpoint import locate


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"architectures": ["X"]}))
    save_file({"a": torch.zeros(10, 10), "b": torch.zeros(3, dtype=torch.int64)}, path / "model.safetensors")
    return path


def test_format_and_size_come_from_the_files(folder: Path) -> None:
    found = locate(str(folder))
    assert found.format == "float32"
    assert found.weight_bytes == (folder / "model.safetensors").stat().st_size
    assert locate(str(folder), weight_format="int4-g32").format == "int4-g32"


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq-int4-g128"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes-int8"),
        ({"quant_method": "awq", "bits": 4, "group_size": -1}, "awq-int4"),
    ],
)
def test_declared_quantization(folder: Path, quantization: dict[str, Any], expected: str) -> None:
    (folder / "config.json").write_text(json.dumps({"quantization_config": quantization}))
    assert locate(str(folder)).format == expected


def test_the_digest_names_the_content(folder: Path, tmp_path: Path) -> None:
    before = locate(str(folder)).digest
    moved = folder.rename(tmp_path / "elsewhere")
    assert locate(str(moved)).digest == before
    save_file({"a": torch.ones(10, 10), "b": torch.zeros(3, dtype=torch.int64)}, moved / "model.safetensors")
    assert locate(str(moved)).digest != before


def test_what_is_no_checkpoint(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        locate(str(tmp_path / "absent"))
    with pytest.raises(InputError, match="is a file"):
        locate(str(folder / "config.json"))
    (folder / "model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(InputError, match="not a readable safetensors"):
        locate(str(folder))
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="no weight files"):
        locate(str(folder))
    (folder / "config.json").write_text("[]")
    (folder / "x.bin").write_bytes(b"1")
    with pytest.raises(InputError, match="not a JSON object"):
        locate(str(folder))
    (folder / "config.json").unlink()
    with pytest.raises(InputError, match=r"no config\.json"):
        locate(str(folder))


def test_a_hub_that_cannot_be_reached_is_not_the_users_mistake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ServiceError, match=r"no folder owner/model here, and the hub could not be reached"):
        locate("owner/model")
