"""The backend end to end: both modes give what eager gives, forward and backward, at every size."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

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


class Block(nn.Module):
    """A small transformer layer: attention with a mask, GELU, two layer norms."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, length, width))
        return x + self.down(functional.gelu(self.up(self.second(x))))  # type: ignore[no-any-return]


def test_a_transformer_layer_is_one_program() -> None:
    model, x, report = Block().eval(), torch.randn(2, 9, 32), Report()
    options = {"mode": "simulate", "strict": True, "report": report}
    with torch.no_grad():
        got = torch.compile(model, backend="mock_npu", fullgraph=True, options=options)(x)
        torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-5)
    assert len(report.programs) == 1
    opcodes = {i.OPCODE for i in report.programs[0].instructions}
    assert {"MATMUL", "SOFTMAX", "LAYERNORM", "GELU"} <= opcodes


def test_a_transformer_layer_trains() -> None:
    model, x = Block(), torch.randn(2, 9, 32)
    model(x).square().mean().backward()
    want = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    torch.compile(model, backend="mock_npu", options={"mode": "simulate"})(x).square().mean().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, want[name], rtol=1e-3, atol=1e-6)


def test_resnet18_falls_back_for_its_max_pool_alone() -> None:
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    model, x, report = models.resnet18().eval(), torch.randn(1, 3, 48, 48), Report()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    options = {"mode": "simulate", "report": report}
    with torch.no_grad():
        got = torch.compile(model, backend="mock_npu", fullgraph=True, options=options)(x)
        torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-4)
    assert [fallback.op for fallback in report.fallbacks] == ["aten.max_pool2d_with_indices.default"]
    assert "maxpool" in report.fallbacks[0].line, "the source line of the fallback"
    loaded = [i.OPCODE for program in report.programs for i in program.instructions if not i.fused]
    assert "ELEMENTWISE_MUL" not in loaded, "every batch norm is folded"
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)


def test_a_module_that_does_not_export() -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if bool(x.sum() > 0) else x

    with pytest.raises(InputError, match="does not export") as caught:
        get_npu_program(Branch(), torch.randn(3))
    assert "\n" not in str(caught.value)
