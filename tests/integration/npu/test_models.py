"""Models of Hugging Face and torchvision at random weights: what eager gives, on the NPU but for operators named here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from assay.npu_backend import isa
from assay.npu_backend.conformance_models import LIMIT, classifiers, compare, main, transformers_models
from assay.npu_backend.lowering import RULES, Call

RECORD = Path(__file__).parents[3] / "docs" / "results" / "npu" / "models.json"
EMBEDDING, POOL = "aten.embedding.default", "aten.max_pool2d_with_indices.default"
LANGUAGE = {
    # Its mask is made of places in the one that was passed.
    "hf/bert": {EMBEDDING: 1, "aten.index.Tensor": 1},
    "hf/distilbert": {EMBEDDING: 1, "aten.index.Tensor": 1},
    "hf/gpt2": {EMBEDDING: 1},
    "hf/llama": {EMBEDDING: 1},
    "hf/whisper": {EMBEDDING: 1},
    "hf/vit": {},
}
"""Model -> what runs on the host."""
VISION: dict[str, dict[str, int]] = {
    "alexnet": {POOL: 3, "aten._adaptive_avg_pool2d.default": 1},  # 1 x 2 pixels to 6 x 6
    "convnext_tiny": {},
    "densenet121": {POOL: 1},
    "efficientnet_b0": {},
    "googlenet": {POOL: 13},
    "mnasnet0_5": {},
    "mobilenet_v2": {},
    "mobilenet_v3_large": {},
    "mobilenet_v3_small": {},
    "regnet_y_400mf": {},
    "resnet18": {POOL: 1},
    "resnext50_32x4d": {POOL: 1},
    "shufflenet_v2_x0_5": {POOL: 1},
    "squeezenet1_1": {POOL: 3},
    "swin_t": {},  # rows of the table of position biases, by a buffer of places, are chosen as weights are loaded
    "swin_v2_t": {},
    "vit_b_32": {},
}


@pytest.mark.parametrize(("name", "host"), LANGUAGE.items())
def test_a_language_model(name: str, host: dict[str, int]) -> None:
    found = compare(*transformers_models()[name]())
    assert found.error < LIMIT
    assert found.fallbacks == host
    assert found.share >= 0.99
    assert found.macs > 0


@pytest.mark.parametrize(("name", "host"), VISION.items())
def test_a_classifier(name: str, host: dict[str, int]) -> None:
    found = compare(*classifiers()[name]())
    assert found.error < LIMIT
    assert found.fallbacks == host
    assert found.share == 1.0
    # A pool on the host parts the programs before and after it.
    assert found.partitions <= 1 + sum(host.values())


def test_the_record_is_of_all_classifiers_and_has_no_fault() -> None:
    recorded = json.loads(RECORD.read_text())["models"]
    assert set(recorded) == {*classifiers(), *transformers_models()}
    assert all(entry["error"] < LIMIT for entry in recorded.values())
    assert all(entry["share"] >= 0.99 for entry in recorded.values())
    for name, host in (LANGUAGE | VISION).items():
        assert recorded[name]["fallbacks"] == host


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["vit_b_32", "convnext_tiny"])
def test_every_parameter_matters(name: str) -> None:
    model, arguments = classifiers()[name]()
    parameters = dict(model.named_parameters())
    assert all(value.std() > 1e-4 for value in parameters.values() if value.numel() > 1)
    with torch.no_grad():
        before = model(**arguments)
        first = next(value for name, value in parameters.items() if "layer_scale" in name or "class_token" in name)
        first.mul_(2)
        assert (model(**arguments) - before).abs().max() > 1e-3 * before.abs().max() > 0


def test_products_are_counted_and_buffers_compared() -> None:
    model = Small().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = compare(model, {"x": torch.randn(2, 3, 6, 8)}, backward=True)
    assert found.error < LIMIT
    assert found.graphs == 2
    # The convolution and its two gradients (that of the image is not asked for), the head and its two.
    conv, head = 2 * 4 * 4 * 6 * 27, 2 * 4 * 5
    assert found.macs == conv + conv + 3 * head
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_model_that_gives_something_else_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(call: Call) -> str:
        return call.emit(isa.Relu, x=call.args[0], function="abs")

    monkeypatch.setitem(RULES, "aten.relu.default", replace(RULES["aten.relu.default"], body=wrong))
    assert compare(Small().eval(), {"x": torch.randn(2, 3, 6, 8)}).error > 100 * LIMIT


@pytest.mark.parametrize("kind", ["hf/bert", "hf/llama"])
def test_a_language_model_trains(kind: str) -> None:
    model, arguments = transformers_models()[kind]()
    found = compare(model.train(), arguments, backward=True)
    assert found.error < LIMIT
    assert found.share >= 0.99


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "models.json"
    assert main(["--out", str(path), "--only", "^squeezenet1_1$"]) == 0
    table: dict[str, Any] = json.loads(path.read_text())
    assert set(table["models"]) == {"squeezenet1_1"}
    table["models"]["squeezenet1_1"]["error"] = 1.0
    path.write_text(json.dumps(table))
    assert main(["--out", str(path), "--only", "^squeezenet1_1$"]) == 1  # it continues, and what is wrong stays wrong
    path.write_text("[]")
    assert main(["--out", str(path)]) == 2
    capsys.readouterr()
