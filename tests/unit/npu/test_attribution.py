"""Every cycle, byte and multiply-accumulate belongs to one layer, and layers have the names that people gave them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx, nn

from assay.baselines.errors import InputError
from assay.npu_backend import catalogue
from assay.npu_backend.attribution import host_macs, module_path, sources_of
from assay.npu_backend.compilation import Layer, attribute
from assay.npu_backend.declaration import Declaration
from assay.npu_backend.machine import SPEC
from assay.npu_backend.partition import NpuPart
from assay.npu_backend.register_backend import Report, mock_npu
from assay.npu_backend.simulator import simulate

OVERLAPPED = replace(
    SPEC,
    overlap=True,
    load_per_cycle=lambda tensor, elements: elements / 4,
    store_per_cycle=lambda tensor, elements: elements / 2,
)


def compiled(model: nn.Module, *inputs: torch.Tensor, **options: Any) -> Report:
    torch._dynamo.reset()
    report = Report()
    with torch.no_grad():
        torch.compile(model.eval(), backend=mock_npu, options={"report": report, **options}, dynamic=False)(*inputs)
    return report


def layers_of(report: Report, machine: Any = SPEC) -> tuple[dict[tuple[str, str], Layer], list[Any]]:
    layers: dict[tuple[str, str], Layer] = {}
    costs = []
    for graph in report.graphs:
        nodes = {node.name: node for node in graph.module.graph.nodes}
        for made in graph.plans.values():
            for part in made.parts:
                if isinstance(part, NpuPart) and part.program.instructions:
                    sources = sources_of(part, nodes, backward=False)
                    cost = simulate(part.program, machine)
                    named = [Layer(s.path, s.op, s.line) for s in sources]
                    attribute(part.program, cost, named, range(len(named)), layers)
                    costs.append(cost)
    return layers, costs


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.ModuleDict({"main": nn.Conv2d(width, width, 3, padding=1), "side": nn.Conv2d(width, width, 1)})
        self.norms = nn.ModuleList([nn.BatchNorm2d(width)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norms[0](self.convs["main"](x)) + self.convs["side"](x))


def test_layers_bear_the_names_of_their_modules() -> None:
    layers, _ = layers_of(compiled(nn.Sequential(Block(4), Block(4)), torch.randn(1, 4, 6, 6)))
    by_path = {path: op for path, op in layers if op == "convolution"}
    assert set(by_path) == {f"{block}.convs.{name}" for block in (0, 1) for name in ("main", "side")}
    macs = {path: layer.macs for (path, op), layer in layers.items() if op == "convolution"}
    # The norm is folded into the convolution before it, whose name the product bears.
    assert macs["0.convs.main"] == macs["1.convs.main"] == 36 * 4 * 4 * 9
    assert macs["0.convs.side"] == 36 * 4 * 4
    assert not any("norms" in path and layer.macs for (path, _), layer in layers.items())


def test_a_load_belongs_to_whoever_reads_it() -> None:
    """Whether what it brought is read at once or through another name for a part of it."""
    for vtcm in (8 << 20, 2000):
        model = nn.Sequential(nn.Linear(6, 6), nn.Softmax(-1), nn.Linear(6, 12), Halves())
        layers, _ = layers_of(compiled(model, torch.randn(2, 7, 6), vtcm_bytes=vtcm))
        assert "program" not in {op for _, op in layers}


class Halves(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return torch.relu(second.transpose(0, 1)).reshape(14, 6) @ first.reshape(6, 14)


WIDTH = 6
PIECES: dict[str, Any] = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "norm": lambda: nn.LayerNorm(WIDTH),
    "gelu": nn.GELU,
    "softmax": lambda: nn.Softmax(-1),
    "host": lambda: Sort(),
    "square": lambda: Square(),
}


class Sort(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sort(-1).values


class Square(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x.transpose(-1, -2) @ x


@settings(max_examples=12, deadline=None)
@given(
    names=st.lists(st.sampled_from(sorted(PIECES)), min_size=1, max_size=6),
    vtcm=st.sampled_from([2000, 8 << 20]),
    machine=st.sampled_from([SPEC, OVERLAPPED]),
)
def test_counts_add_up(names: list[str], vtcm: int, machine: Any) -> None:
    model = nn.Sequential(*(PIECES[name]() for name in names))
    layers, costs = layers_of(compiled(model, torch.randn(2, 7, WIDTH), vtcm_bytes=vtcm), machine)
    for count in ("cycles", "read_bytes", "written_bytes", "macs"):
        assert sum(getattr(layer, count) for layer in layers.values()) == sum(getattr(c, count) for c in costs)
    for unit in costs[0].busy if costs else ():
        assert sum(layer.busy[unit] for layer in layers.values()) == sum(c.busy[unit] for c in costs)
    assert all(layer.cycles >= 0 for layer in layers.values())
    for place, name in enumerate(names):
        if name == "linear":
            found = [layer for (path, _), layer in layers.items() if path == str(place)]
            assert sum(layer.macs for layer in found) == 14 * WIDTH * WIDTH


@pytest.mark.parametrize(
    ("stack", "path"),
    [
        ([("L['self']", nn.Module)], ""),
        ([("L['self'].features", nn.Module), ("L['self'].features.2.block", nn.Module)], "features.2.block"),
        ([("L['self'].layers[0].attn", nn.Module)], "layers.0.attn"),
        ([("L['self'].towers['left'].up", nn.Module)], "towers.left.up"),
        ([("L['self']._modules['0']._modules['x']", nn.Module)], "0.x"),
        ([("L['fn'].net", nn.Module)], "net"),
        ([("L['me'].up", nn.Module)], "up"),
        ([("a", nn.Module), ("", nn.Module)], "a"),
        ([], ""),
    ],
)
def test_paths_of_modules(stack: list[Any], path: str) -> None:
    node = fx.Graph().placeholder("x")
    node.meta["nn_module_stack"] = {str(place): entry for place, entry in enumerate(stack)}
    assert module_path(node) == path


class Precise(nn.Module):
    """A product that no instruction has, and one that one has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ x
        return y.double() @ torch.ones(6, 9, dtype=torch.float64)


def test_products_on_the_host_count_against_the_share() -> None:
    report = compiled(Precise(), torch.randn(6, 6))
    [graph] = report.graphs
    [made] = graph.plans.values()
    host = host_macs(made, graph.module, made.fallbacks)
    assert list(host.values()) == [6 * 6 * 9]
    assert {entry.op for entry in made.fallbacks if entry.node in host} == {"aten.mm.default"}
    assert sum(simulate(p).macs for p in report.programs) == 6 * 6 * 6


# -- models without a file -----------------------------------------------------------------------------------------------


def graphs(declaration: Declaration) -> int:
    made = declaration.inputs()
    model = declaration.model().eval()
    torch._dynamo.reset()
    with torch.no_grad():
        found = model(**made) if isinstance(made, dict) else model(made)
    return sum(isinstance(v, torch.Tensor) for v in torch.utils._pytree.tree_leaves(found))


def test_names_of_torchvision() -> None:
    pytest.importorskip("torchvision")
    with pytest.raises(InputError, match="did you mean mobilenet_v3_small"):
        catalogue.torchvision_model("mobilenet_v3_smal")
    assert tuple(catalogue.torchvision_model("inception_v3").inputs().shape) == (1, 3, 299, 299)
    assert tuple(catalogue.torchvision_model("r3d_18").inputs().shape) == (1, 3, 16, 112, 112)
    assert graphs(catalogue.torchvision_model("squeezenet1_1")) == 1


CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "BertConfig": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "vocab_size": 50,
    },
    "LlamaConfig": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 8,
        "vocab_size": 50,
        "architectures": ["LlamaForCausalLM"],
    },
    "ViTConfig": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "image_size": 32,
    },
    "WhisperConfig": {
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 8,
        "decoder_ffn_dim": 8,
        "vocab_size": 50,
        "max_source_positions": 20,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
    },
    "T5Config": {"d_model": 16, "d_kv": 8, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 50},
}


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_hugging_face_configurations(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "a model"
    getattr(transformers, kind)(**CONFIGURATIONS[kind]).save_pretrained(folder)
    made = catalogue.hugging_face_model(str(folder))
    assert made.name == "a-model"
    assert graphs(made) >= 1


def test_a_folder_without_a_configuration(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(InputError, match=r"has no config\.json"):
        catalogue.hugging_face_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="is not one that transformers reads"):
        catalogue.hugging_face_model(str(tmp_path))
