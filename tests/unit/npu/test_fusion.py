"""Passes: each one does its work where it should, keeps results, and can be switched off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import aot_function, make_boxed_func
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx, nn

from assay.baselines.errors import InputError
from assay.npu_backend import isa
from assay.npu_backend.decompositions import decompositions
from assay.npu_backend.fusion import PASSES, fuse
from assay.npu_backend.layers import LayerGraph, run_layers
from assay.npu_backend.partition import NpuPart, Settings, plan, run_plan
from assay.npu_backend.tensor import Role


def compiled(
    model: nn.Module, *inputs: torch.Tensor, without: tuple[str, ...] = (), vtcm: int = 8 << 20
) -> tuple[list[Any], Any]:
    """Instructions of a model in inference whose parameters are weights, and what they give."""
    parameters = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    found: list[Any] = []

    def function(weights: list[torch.Tensor], *values: torch.Tensor) -> torch.Tensor:
        named = dict(zip(parameters, weights, strict=True))
        return torch.func.functional_call(model, named, values)  # type: ignore[no-any-return]

    def compiler(module: fx.GraphModule, values: list[torch.Tensor]) -> Callable[..., Any]:
        names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
        chosen = Settings(without=without, strict=True, vtcm_bytes=vtcm)
        made = plan(module, values, weights=names[: len(parameters)], settings=chosen)
        found.extend(i for part in made.parts if isinstance(part, NpuPart) for i in part.program.instructions)
        return make_boxed_func(lambda *given: run_plan(module, made, given, chosen))

    with torch.no_grad():
        got = aot_function(function, compiler, decompositions=decompositions())(list(parameters.values()), *inputs)
    return found, got


class Scores(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) * 0.25 + mask, -1)


class Residual(nn.Module):
    def __init__(self, before: bool) -> None:
        super().__init__()
        self.norm, self.drop, self.before = nn.LayerNorm(12), nn.Dropout(0.5), before

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.norm(x + y) if self.before else y + self.drop(self.norm(x))  # type: ignore[no-any-return]


class Rms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Chain(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x * y) * y + 1


class Turned(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(1, 2, 0).permute(2, 0, 1).contiguous() * 2


class Heads(nn.Module):
    """Attention whose heads `bmm` merges."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.matmul(q, k.transpose(-1, -2)) * 0.25, -1) @ v


def normed(bias: bool) -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 5, 3, bias=bias), nn.BatchNorm2d(5), nn.ReLU())
    with torch.no_grad():
        model[1].running_mean.normal_()  # type: ignore[union-attr, operator]
        model[1].running_var.uniform_(0.5, 2)  # type: ignore[union-attr, operator]
        model[1].weight.normal_()  # type: ignore[union-attr, operator]
        model[1].bias.normal_()  # type: ignore[union-attr, operator]
    return model.eval()


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


class Dropped(nn.Module):
    """A layer norm and a dropout whose mask is given."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x, (12,)) * mask * 1.25


X = (randn(2, 4, 12), randn(2, 4, 12))
MODELS: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    "linear, relu": (nn.Sequential(nn.Linear(12, 8), nn.ReLU()), (randn(5, 12),)),
    "linear, gelu": (nn.Sequential(nn.Linear(12, 8), nn.GELU()), (randn(5, 12),)),
    "conv, norm, relu": (normed(False), (randn(2, 3, 9, 9),)),
    "conv with bias, norm, relu": (normed(True), (randn(2, 3, 9, 9),)),
    "scores": (Scores(), (*X, torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf))),
    "add, layer norm": (Residual(True).eval(), X),
    "layer norm, dropout, add": (Residual(False).eval(), X),
    "layer norm, mask": (Dropped(), (X[0], X[1] > -0.5)),
    "rms norm": (Rms(), X[:1]),
    "chain": (Chain(), X),
    "permutations": (Turned(), X[:1]),
    "heads": (Heads(), (randn(2, 3, 5, 8), randn(2, 3, 5, 8) + 1, randn(2, 3, 5, 8) - 1)),
    "linear on rows, gelu": (nn.Sequential(nn.Linear(12, 8), nn.GELU(), nn.Linear(8, 5)), (randn(2, 4, 12),)),
}
# model -> pass that matters to it -> opcodes that stand alone with the pass, and without it.
EFFECTS = [
    ("linear, relu", "transpose", "RESHAPE", 0, 0),  # without it the weight is turned on the host: see below
    ("linear, relu", "bias", "ELEMENTWISE_ADD", 0, 0),  # without it the sum rides: see below
    ("linear, relu", "activation", "RELU", 0, 0),
    ("conv, norm, relu", "batch-norm", "LOAD_TILE", 3, 4),
    ("conv with bias, norm, relu", "batch-norm", "LOAD_TILE", 3, 5),
    ("scores", "softmax", "SOFTMAX", 0, 1),
    ("add, layer norm", "norm", "LAYERNORM", 0, 1),
    ("layer norm, dropout, add", "norm", "ELEMENTWISE_ADD", 0, 0),
    ("layer norm, mask", "dropout", "ELEMENTWISE_MUL", 0, 2),
    ("rms norm", "rms-norm", "MATMUL", 0, 1),
    ("chain", "elementwise", "ELEMENTWISE_ADD", 0, 1),
    ("permutations", "reshape", "RESHAPE", 0, 2),
    ("heads", "batch", "RESHAPE", 0, 7),
    ("linear on rows, gelu", "rows", "RESHAPE", 0, 4),
    ("conv, norm, relu", "weights", "CONV2D", 1, 1),
]


def alone(instructions: list[Any]) -> Counter[str]:
    return Counter(i.OPCODE for i in instructions if not i.fused)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("without", [(), *[(p.name,) for p in PASSES], tuple(p.name for p in PASSES)])
def test_results_are_kept_with_and_without_each_pass(name: str, without: tuple[str, ...]) -> None:
    model, inputs = MODELS[name]
    _, got = compiled(model, *inputs, without=without)
    with torch.no_grad():
        torch.testing.assert_close(got, model(*inputs), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("name", "switched", "opcode", "with_pass", "without_pass"), EFFECTS)
def test_each_pass_does_its_work(name: str, switched: str, opcode: str, with_pass: int, without_pass: int) -> None:
    model, inputs = MODELS[name]
    assert alone(compiled(model, *inputs)[0])[opcode] == with_pass
    rest = ("elementwise",) if switched in ("norm", "softmax", "dropout") and with_pass != without_pass else ()
    assert alone(compiled(model, *inputs, without=(switched, *rest))[0])[opcode] == without_pass


def test_bias_and_transposition_become_operands() -> None:
    model, inputs = MODELS["linear, relu"]
    (product,) = [i for i in compiled(model, *inputs)[0] if isinstance(i, isa.MatMul)]
    assert product.transpose_b
    assert product.bias is not None
    (turned,) = [i for i in compiled(model, *inputs, without=("transpose",))[0] if isinstance(i, isa.MatMul)]
    assert not turned.transpose_b
    plain = compiled(model, *inputs, without=("bias", "elementwise", "activation"))[0]
    assert alone(plain)["ELEMENTWISE_ADD"] == 1
    assert alone(plain)["RELU"] == 1


def test_scale_and_softmax_ride_on_the_product_of_heads() -> None:
    model, inputs = MODELS["heads"]
    scores, mixed = (i for i in compiled(model, *inputs)[0] if isinstance(i, isa.MatMul))
    assert (scores.transpose_b, mixed.transpose_b) == (True, False)
    assert alone(compiled(model, *inputs)[0])["ELEMENTWISE_MUL"] == 0
    assert alone(compiled(model, *inputs, without=("batch",))[0])["ELEMENTWISE_MUL"] == 1


def test_a_batch_that_is_read_elsewhere_stays() -> None:
    class Both(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            product = torch.bmm(x.reshape(6, 4, 5), y.reshape(6, 5, 3))
            return product.reshape(2, 3, 4, 3) + 1, product

    inputs = (randn(2, 3, 4, 5), randn(2, 3, 5, 3))
    code, got = compiled(Both(), *inputs)
    torch.testing.assert_close(got, Both()(*inputs))
    assert alone(code)["RESHAPE"] == 3


def test_rows_of_a_batch_are_not_parted() -> None:
    class Mixed(nn.Module):
        """Rows of one product of the batch would meet the matrix of another one."""

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.bmm(x.reshape(2, 6, 5), y.reshape(2, 5, 3)).reshape(4, 3, 3) * 2

    inputs = (randn(2, 3, 2, 5), randn(2, 5, 3))
    _, got = compiled(Mixed(), *inputs)
    torch.testing.assert_close(got, Mixed()(*inputs))


def test_an_output_that_only_changes_its_name_is_written_where_it_is_made() -> None:
    class Same(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * 2).view(2, 48).view(2, 4, 12)

    code, got = compiled(Same(), *X[:1])
    torch.testing.assert_close(got, X[0] * 2)
    assert alone(code)["RESHAPE"] == 0


def test_a_factor_that_is_no_weight_is_not_folded() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 5, 1)

        def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
            return self.conv(x) * gate + gate  # type: ignore[no-any-return]

    model, inputs = Gated(), (randn(1, 3, 4, 4), randn(5, 1, 1))
    code, got = compiled(model, *inputs)
    with torch.no_grad():
        torch.testing.assert_close(got, model(*inputs))
    assert sum(isinstance(i, isa.ElementwiseMul) for i in code) == 1


def test_what_two_read_does_not_ride() -> None:
    class Twice(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            z = x + y
            return torch.relu(z), z

    code, got = compiled(Twice(), *X)
    assert not any(i.fused for i in code)
    torch.testing.assert_close(got, Twice()(*X))


def test_a_pass_that_is_none() -> None:
    with pytest.raises(InputError, match="no fusion pass 'magic': choose from reshape, "):
        fuse(LayerGraph("empty"), without=("magic",))


UNARY = [(isa.Relu, "relu"), (isa.Relu, "negate"), (isa.Gelu, "sigmoid"), (isa.Gelu, "tanh")]
BINARY = [(isa.ElementwiseAdd, "add"), (isa.ElementwiseAdd, "subtract"), (isa.ElementwiseMul, "multiply")]


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_random_layers_give_the_same_after_all_passes(data: st.DataObject) -> None:
    graph = LayerGraph("random")
    shapes = [(3, 4), (4,), (3, 1), (4, 4)]
    names = [graph.declare(f"x{n}", shape, "float32", Role.INPUT) for n, shape in enumerate(shapes)]
    names += [graph.declare(f"w{n}", shape, "float32", Role.WEIGHT) for n, shape in enumerate(shapes)]
    arguments = {
        name: torch.randn(graph.tensors[name].shape, generator=torch.Generator().manual_seed(7)) for name in names
    }
    for _ in range(data.draw(st.integers(2, 9))):
        kind, function = data.draw(
            st.sampled_from([*UNARY, *BINARY, (isa.MatMul, ""), (isa.Softmax, ""), (isa.LayerNorm, "")])
        )
        a, b = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names))
        fields: dict[str, Any] = {"a": a, "b": b} if kind in (isa.MatMul, *[k for k, _ in BINARY]) else {"x": a}
        if function:
            fields["function"] = function
        if kind in (isa.Softmax, isa.LayerNorm):
            fields["axis"] = len(graph.tensors[a].shape) - 1
        if kind is isa.LayerNorm:
            fields["epsilon"] = 1e-2
        try:
            names.append(graph.add(kind, "t", "t", **fields))
        except InputError:
            continue
    written = [layer.out for layer in graph.layers]
    graph.mark_outputs({*data.draw(st.lists(st.sampled_from(written), max_size=2)), written[-1]} if written else ())
    want = run_layers(graph, arguments)
    off = data.draw(st.lists(st.sampled_from([p.name for p in PASSES]), max_size=3))
    got = run_layers(fuse(graph, without=off), arguments)
    for name in (n for n in written if graph.tensors[n].role == Role.OUTPUT):
        torch.testing.assert_close(got[name], want[name], rtol=1e-4, atol=1e-4, equal_nan=True)
