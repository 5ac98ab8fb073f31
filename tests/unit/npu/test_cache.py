"""Plans on disk: the same plan comes back, anything else is another key, damage is survived, and the folder stays bounded."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.npu.compiling import DECLARED, invoke
from torch import nn

from assay.baselines.errors import InputError
from assay.npu_backend.cache import PlanCache, cache_at
from assay.npu_backend.codegen import dump_program
from assay.npu_backend.layers import LayerGraph
from assay.npu_backend.partition import Fallback, HostPart, NpuPart, Plan
from assay.npu_backend.register_backend import Report, mock_npu


class Net(nn.Module):
    """Two programs with an operator on the host between them, a constant, and a norm that folds."""

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3)).sort(1).values * self.scale
        return self.head(y + torch.arange(4, dtype=y.dtype))


def run(folder: Path, model: nn.Module, x: torch.Tensor, **options: Any) -> tuple[torch.Tensor, Report]:
    torch._dynamo.reset()
    report = Report()
    given = {"report": report, "cache": folder, "mode": "simulate", **options}
    compiled = torch.compile(model, backend=mock_npu, options=given, dynamic=False)
    with torch.no_grad():
        return compiled(x), report


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.json"))


def shown(report: Report) -> list[str]:
    return [dump_program(p) for p in report.programs] + [repr(f) for f in report.fallbacks]


def only(report: Report) -> Plan:
    [graph] = report.graphs
    [made] = graph.plans.values()
    return made


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def test_the_same_plan_comes_back(model: nn.Module, x: torch.Tensor, tmp_path: Path) -> None:
    first, made = run(tmp_path, model, x)
    [entry] = entries(tmp_path)
    again, kept = run(tmp_path, model, x)
    assert entries(tmp_path) == [entry]
    assert shown(made) == shown(kept)
    assert [type(part) for part in only(made).parts] == [type(part) for part in only(kept).parts]
    assert len(made.programs) > 1
    assert made.fallbacks
    assert torch.equal(first, again)
    torch.testing.assert_close(again, model(x))
    for (node, value), (other, found) in zip(only(made).values.items(), only(kept).values.items(), strict=True):
        assert node.name == other.name
        if isinstance(value, torch.Tensor):
            assert (value.shape, value.stride(), value.dtype) == (found.shape, found.stride(), found.dtype)


def test_an_entry_is_what_is_used(model: nn.Module, x: torch.Tensor, tmp_path: Path) -> None:
    run(tmp_path, model, x)
    [entry] = entries(tmp_path)
    document = json.loads(entry.read_bytes().partition(b"\n")[2])
    document["fallbacks"][0][2] = "a reason that no rule gives"
    text = json.dumps(document).encode()
    entry.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    assert next(f.why for f in run(tmp_path, model, x)[1].fallbacks) == "a reason that no rule gives"


def test_source_lines_are_those_of_the_code_as_it_is(model: nn.Module, x: torch.Tensor, tmp_path: Path) -> None:
    run(tmp_path, model, x)
    [fallback] = [f for f in run(tmp_path, model, x)[1].fallbacks if "sort" in f.op]
    assert "test_cache.py" in fallback.line
    assert b"test_cache.py" not in entries(tmp_path)[0].read_bytes()


def test_training_has_a_plan_for_each_direction(model: nn.Module, x: torch.Tensor, tmp_path: Path) -> None:
    gradients = []
    for _ in range(2):
        torch._dynamo.reset()
        report = Report()
        fresh = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
        fresh.load_state_dict(
            {k: torch.linspace(-1, 1, v.numel()).reshape(v.shape) for k, v in fresh.state_dict().items()}
        )
        given = {"report": report, "cache": tmp_path, "mode": "simulate"}
        torch.compile(fresh, backend=mock_npu, options=given)(torch.ones(3, 8)).sum().backward()
        gradients.append(fresh[0].weight.grad)
        assert len(report.graphs) == 2
    assert len(entries(tmp_path)) == 2
    assert torch.equal(gradients[0], gradients[1])


@pytest.mark.parametrize(
    "other",
    [
        {"without": ("batch-norm",)},
        {"vtcm_bytes": 3000},
        {"x": torch.zeros(3, 3, 8, 8)},
        {"x": torch.zeros(2, 3, 8, 8).to(memory_format=torch.channels_last)},
        {"model": Net(3.0).eval()},
    ],
    ids=["passes", "vtcm", "shape", "strides", "constant"],
)
def test_another_plan_has_another_key(other: dict[str, Any], model: nn.Module, x: torch.Tensor, tmp_path: Path) -> None:
    run(tmp_path, model, x)
    given = dict(other)
    run(tmp_path, given.pop("model", model), given.pop("x", x), **given)
    assert len(entries(tmp_path)) == 2


def test_weights_are_no_part_of_a_plan(model: nn.Module, x: torch.Tensor, tmp_path: Path) -> None:
    run(tmp_path, model, x)
    torch.manual_seed(7)
    other = Net().eval()
    found, _ = run(tmp_path, other, x)
    assert len(entries(tmp_path)) == 1
    torch.testing.assert_close(found, other(x))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data.replace(b"MATMUL", b"MATMIL", 1),
        lambda data: hashlib.sha256(b"{}").hexdigest().encode() + b"\n{}",
        lambda data: hashlib.sha256(b"\xff").hexdigest().encode() + b"\n\xff",
        lambda data: b"\xff\xfe\n" + data,
    ],
    ids=["truncated", "empty", "changed", "of another form", "no text", "no digest"],
)
def test_damage_is_named_and_mended(damage: Any, model: nn.Module, x: torch.Tensor, tmp_path: Path) -> None:
    want, _ = run(tmp_path, model, x)
    [entry] = entries(tmp_path)
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    with pytest.warns(RuntimeWarning, match="is damaged"):
        found, _ = run(tmp_path, model, x)
    assert torch.equal(found, want)
    assert entry.read_bytes() == whole


def test_whoever_compiles_hears_of_damage_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import warnings; warnings.simplefilter('ignore')\n"
    for name in "ab":
        text += f"{name} = Declaration('{name}', lambda: nn.Linear(4, 4), lambda: torch.zeros(2, 4))\n"
    (tmp_path / "models.py").write_text(DECLARED + text)
    monkeypatch.setenv("ASSAY_NPU_CACHE", str(tmp_path / "plans"))
    monkeypatch.chdir(tmp_path)
    assert "note" not in invoke("models.py", "--once").stderr
    [entry] = entries(tmp_path / "plans")
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-9])
    ran = invoke("models.py", "--once")
    assert ran.exit_code == 0
    [note] = [line for line in ran.stderr.splitlines() if "note" in line]
    assert note == f"head: note: the plan {entry} is damaged (it does not match its digest.): it is made anew."
    assert entry.read_bytes() == whole
    monkeypatch.setenv("ASSAY_NPU_CACHE", "models.py")
    ran = invoke("models.py", "--once")
    assert ran.exit_code == 0
    notes = [line for line in ran.stderr.splitlines() if "note" in line]
    assert ["cannot be read (Not a directory)" in notes[0], "the plan cannot be kept" in notes[1]] == [True, True]
    assert len(notes) == 2
    monkeypatch.setenv("ASSAY_NPU_CACHE_MB", "many")
    assert "ASSAY_NPU_CACHE_MB is 'many'" in str(invoke("models.py", "--once").exception)


def test_a_folder_that_cannot_be_written_costs_only_the_cache(
    model: nn.Module, x: torch.Tensor, tmp_path: Path
) -> None:
    place = tmp_path / "file"
    place.write_text("not a folder")
    with pytest.warns(RuntimeWarning, match=r"cannot be (read|kept)"):
        found, _ = run(place, model, x)
    torch.testing.assert_close(found, model(x))


def test_the_least_recently_used_go_first(model: nn.Module, x: torch.Tensor, tmp_path: Path) -> None:
    for batch in (1, 2, 3):
        run(tmp_path, model, x[:1].expand(batch, 3, 8, 8).contiguous())
    size = sum(path.stat().st_size for path in entries(tmp_path))
    by_age = sorted(entries(tmp_path), key=lambda path: path.stat().st_mtime_ns)
    os.utime(by_age[0])  # used again
    cache = PlanCache(tmp_path, max_bytes=size - 1)
    cache._prune()
    assert entries(tmp_path) == sorted([by_age[0], by_age[2]])


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_NPU_CACHE", raising=False)
    assert cache_at(None) is None
    monkeypatch.setenv("ASSAY_NPU_CACHE", str(tmp_path))
    monkeypatch.setenv("ASSAY_NPU_CACHE_MB", "3")
    assert cache_at(None) == PlanCache(tmp_path, 3 << 20)
    assert cache_at("elsewhere") == PlanCache(Path("elsewhere"), 3 << 20)
    for wrong in ("0", "-1", "many", "1.5"):
        monkeypatch.setenv("ASSAY_NPU_CACHE_MB", wrong)
        with pytest.raises(InputError, match="whole number of megabytes"):
            cache_at(None)


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        (Plan, {"parts", "values", "fallbacks", "constant", "whole_on_host"}),
        (NpuPart, {"program", "graph", "outputs", "inputs", "nodes"}),
        (HostPart, {"node"}),
        (Fallback, {"node", "op", "why", "line"}),
        (LayerGraph, {"name", "tensors", "layers", "constants", "preamble", "origin"}),
    ],
)
def test_every_field_of_a_plan_is_kept(kind: Any, kept: set[str]) -> None:
    """A field that is new must be written and read by `cache.py`, and `VERSION` there go up."""
    assert {field.name for field in fields(kind)} == kept
