"""The backend end to end: both modes give what eager gives, forward and backward, at every size."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import nn

from assay.baselines.errors import InputError
from assay.npu_backend.register_backend import MODES, Report, get_npu_program, mock_npu

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(24, 40), nn.ReLU(), nn.Linear(40, 8))


def test_the_specifications_sample() -> None:
    printed = str(get_npu_program(nn.Sequential(nn.Linear(512, 512), nn.ReLU()), torch.randn(8, 512)))
    assert "Estimated cycles: 2,359,296\nVTCM peak: 1.0 MB / 8 MB capacity\n" in printed
    assert "(fused with MATMUL)" in printed
    assert "On the host" not in printed
    opcodes = [line.split()[0] for line in printed.splitlines() if line.startswith("  ")]
    assert opcodes == ["LOAD_TILE", "LOAD_TILE", "LOAD_TILE", "MATMUL", "RELU", "STORE_TILE"]


@pytest.mark.parametrize("mode", MODES)
def test_inference_in_both_modes(mode: str) -> None:
    model, x, report = mlp().eval(), torch.randn(5, 24), Report()
    compiled = torch.compile(
        model, backend="mock_npu", fullgraph=True, options={"mode": mode, "strict": True, "report": report}
    )
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    assert len(report.graphs) == 1
    assert [i.OPCODE for i in report.programs[0].instructions].count("MATMUL") == 2
    assert report.fallbacks == []


def test_training_runs_forward_and_backward_and_leaves_the_module_alone() -> None:
    model, report = mlp(), Report()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(6, 24)
    model(x).square().sum().backward()
    want = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    compiled = torch.compile(model, backend="mock_npu", options={"mode": "simulate", "report": report})
    compiled(x).square().sum().backward()
    got = [p.grad for p in model.parameters()]
    torch.testing.assert_close(got, want)
    assert len(report.graphs) == 2, "one graph forward, one backward"
    assert all(graph.plans and graph.module is not model for graph in report.graphs)
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)


def test_weights_that_an_optimizer_changes_are_read_again() -> None:
    model, x = mlp(), torch.randn(3, 24)
    compiled = torch.compile(model, backend="mock_npu", options={"mode": "simulate"})
    with torch.no_grad():
        compiled(x)
        for parameter in model.parameters():
            parameter.add_(0.5)
        torch.testing.assert_close(compiled(x), model(x))


def test_a_dynamic_batch_compiles_one_graph_and_a_plan_for_each_size() -> None:
    model, report = mlp().eval(), Report()
    compiled = torch.compile(model, backend="mock_npu", dynamic=True, options={"mode": "simulate", "report": report})
    sizes = [2, 5, 3, 9, 5, 2]
    with torch.no_grad():
        for size in sizes:
            x = torch.randn(size, 24)
            torch.testing.assert_close(compiled(x), model(x))
    assert len(report.graphs) == 1
    assert len(report.graphs[0].plans) == len(set(sizes))


def test_several_graphs() -> None:
    report = Report()

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        torch._dynamo.graph_break()
        return torch.sigmoid(y) * 2

    compiled = torch.compile(function, backend="mock_npu", options={"mode": "simulate", "report": report})
    x = torch.randn(4, 4)
    torch.testing.assert_close(compiled(x), function(x))
    assert len(report.graphs) == 2


def test_what_no_instruction_expresses_runs_on_the_host_and_is_listed() -> None:
    report = Report()

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.cumsum(torch.relu(x), 0))

    x = torch.randn(4, 4)
    compiled = torch.compile(function, backend="mock_npu", options={"mode": "simulate", "report": report})
    torch.testing.assert_close(compiled(x), function(x))
    assert [fallback.op for fallback in report.fallbacks] == ["aten.cumsum.default"]
    assert len(report.programs) == 2
    torch._dynamo.reset()
    strict = torch.compile(function, backend="mock_npu", options={"strict": True})
    with pytest.raises(
        Exception, match=r"aten\.cumsum\.default would run on the host .*test_backend\.py:\d+"
    ) as caught:
        strict(x)
    assert "InputError" in repr(caught.value) or isinstance(caught.value.__cause__, InputError)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"speed": 1}, "no option 'speed'"), ({"mode": "fast"}, "no mode 'fast'"), ({"without": ["x"]}, "no fusion pass")],
)
def test_options_that_are_none(options: dict[str, object], message: str) -> None:
    with pytest.raises(Exception, match=message):
        torch.compile(torch.relu, backend="mock_npu", options=options)(torch.randn(2))


def test_the_entry_point_names_the_backend() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["torch_dynamo_backends"]["mock_npu"].partition(":")
    assert getattr(import_module(module), name) is mock_npu
