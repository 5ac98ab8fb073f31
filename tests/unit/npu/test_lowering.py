"""Every rule against eager PyTorch: the programs are run by the interpreter, under all of VTCM and under very little."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from tests.unit.npu.cases import MORE
from tests.unit.npu.lowered import SMALL, Function, compiled, operators, positive, randn
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from assay.baselines.errors import InputError
from assay.npu_backend import isa
from assay.npu_backend.isa import INSTRUCTIONS
from assay.npu_backend.lowering import RULES, Call
from assay.npu_backend.partition import Settings, plan, run_plan

aten = torch.ops.aten


def norm(x: torch.Tensor, scale: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    return functional.batch_norm(x, mean, scale.abs() + 0.5, scale, mean, eps=1e-3)


MASK = torch.zeros(2, 1, 6, 6)
MASK[0, 0, 3] = -torch.inf
MASK[1, 0, 2, 4:] = -torch.inf
MASK[1, 0, 5] = torch.finfo(torch.float32).min
X4 = randn(2, 6, 9, 8)

ACTIVATIONS = ("relu", "abs", "neg", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos")

CASES: dict[str, tuple[Function, tuple[torch.Tensor, ...]]] = {
    "mm": (torch.mm, (randn(17, 33), randn(33, 21))),
    "bmm": (torch.bmm, (randn(3, 7, 11), randn(3, 11, 5))),
    "addmm": (torch.addmm, (randn(21), randn(17, 33), randn(33, 21))),
    "addmm of a matrix": (torch.addmm, (randn(17, 21), randn(17, 33), randn(33, 21))),
    "baddbmm": (torch.baddbmm, (randn(3, 7, 5), randn(3, 7, 11), randn(3, 11, 5))),
    "a b^T": (lambda a, b: a @ b.transpose(-1, -2), (randn(3, 7, 11), randn(3, 5, 11))),
    "x x^T": (lambda a: a @ a.t(), (randn(19, 23),)),
    "conv": (functional.conv2d, (X4, randn(10, 6, 3, 3), randn(10))),
    "conv strided": (lambda x, w: functional.conv2d(x, w, None, 2, (1, 2), (2, 1)), (X4, randn(10, 6, 3, 3))),
    "conv 1x1": (functional.conv2d, (X4, randn(10, 6, 1, 1))),
    "conv wide padding": (lambda x, w: functional.conv2d(x, w, None, 3, 4), (X4, randn(10, 6, 3, 3))),
    "conv valid": (lambda x, w: functional.conv2d(x, w, None, 2, "valid"), (X4, randn(10, 6, 2, 3))),
    "conv same": (lambda x, w: functional.conv2d(x, w, None, 1, "same", 2), (X4, randn(10, 6, 2, 3))),
    "conv groups": (lambda x, w, b: functional.conv2d(x, w, b, 1, 1, 1, 3), (X4, randn(12, 2, 3, 3), randn(12))),
    "conv depthwise": (lambda x, w: functional.conv2d(x, w, None, 2, 1, 1, 6), (X4, randn(6, 1, 3, 3))),
    "conv depthwise doubled": (lambda x, w: functional.conv2d(x, w, None, 1, 1, 1, 6), (X4, randn(12, 1, 3, 3))),
    "conv1d": (lambda x, w, b: functional.conv1d(x, w, b, 2, 1), (randn(2, 6, 19), randn(8, 6, 3), randn(8))),
    "add": (torch.add, (randn(4, 1, 6), randn(5, 6))),
    "add alpha": (lambda a, b: torch.add(a, b, alpha=3), (randn(4, 6), randn(6))),
    "add a number": (lambda a: a + 1.5, (randn(40, 30),)),
    "subtract": (torch.sub, (randn(4, 6), randn(4, 1))),
    "subtract from a number": (lambda a: 2 - a, (randn(4, 6),)),
    "multiply": (torch.mul, (randn(40, 30), randn(40, 1))),
    "square": (lambda a: a * a, (randn(40, 30),)),
    "divide": (torch.div, (randn(4, 6), positive(4, 6))),
    "divide by a number": (lambda a: a / 8, (randn(4, 6),)),
    "maximum": (torch.maximum, (randn(4, 6), randn(4, 6))),
    "minimum": (torch.minimum, (randn(4, 6), randn(4, 6))),
    "clamp": (lambda a: torch.clamp(a, -0.5, 0.5), (randn(4, 6),)),
    "clamp below": (lambda a: torch.clamp(a, min=0.25), (randn(4, 6),)),
    "relu6": (functional.relu6, (randn(4, 6) * 6,)),
    "power 2": (lambda a: a**2, (randn(4, 6),)),
    "power 3": (lambda a: a**3, (randn(4, 6),)),
    "power 0.5": (lambda a: a**0.5, (positive(4, 6),)),
    "power -0.5": (lambda a: a**-0.5, (positive(4, 6),)),
    "gelu": (functional.gelu, (randn(40, 30),)),
    "gelu tanh": (lambda a: functional.gelu(a, approximate="tanh"), (randn(4, 6),)),
    "softmax": (lambda a: torch.softmax(a, -1), (randn(40, 30),)),
    "softmax of the first axis": (lambda a: torch.softmax(a, 0), (randn(40, 30),)),
    "layer norm": (lambda a, w, b: functional.layer_norm(a, (6,), w, b), (randn(3, 40, 6), randn(6), randn(6))),
    "layer norm of two axes": (lambda a: functional.layer_norm(a, (4, 6)), (randn(9, 4, 6),)),
    "rms norm": (lambda a, w: functional.rms_norm(a, (6,), w, 1e-6), (randn(3, 40, 6), randn(6))),
    "batch norm": (norm, (X4, randn(6), randn(6))),
    "mean": (lambda a: a.mean(1), (randn(4, 6, 5),)),
    "mean of two axes": (lambda a: a.mean((2, 3), keepdim=True), (X4,)),
    "mean of all": (torch.mean, (randn(4, 6),)),
    "sum": (lambda a: a.sum(-1), (randn(4, 6, 5),)),
    "sum of all": (torch.sum, (randn(4, 6),)),
    "average pool": (lambda a: functional.avg_pool2d(a, 3, 2, 1), (X4,)),
    "adaptive average pool": (lambda a: functional.adaptive_avg_pool2d(a, 1), (X4,)),
    "view": (lambda a: a.view(3, 5, 16) * 1, (randn(3, 80),)),
    "view across": (lambda a: a.view(8, 90), (randn(90, 8),)),
    "squeeze": (lambda a: a.unsqueeze(0).squeeze(2), (randn(40, 1, 30),)),
    "permute": (lambda a: a.permute(2, 0, 1).contiguous(), (randn(30, 5, 16),)),
    "transpose twice": (lambda a: a.transpose(0, 1).relu().transpose(0, 2).contiguous(), (randn(4, 6, 5),)),
    "expand": (lambda a: a.expand(7, 40, 6).clone(), (randn(40, 1),)),
    "cat": (lambda a, b: torch.cat([a, b], 1), (randn(40, 6), randn(40, 5))),
    "slice": (lambda a: a[3:30, 1:-1] + 1, (randn(40, 6),)),
    "select": (lambda a: a[:, -2].relu(), (randn(40, 6, 5),)),
    "split": (lambda a: [p.relu() for p in a.split([2, 1, 3], 1)][::2], (randn(40, 6),)),
    "unbind": (lambda a: [p.relu() for p in a.unbind(1)][1], (randn(40, 3, 5),)),
    "attention": (functional.scaled_dot_product_attention, (randn(2, 3, 6, 4), randn(2, 3, 6, 4), randn(2, 3, 6, 4))),
    "causal attention": (
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        (randn(2, 3, 6, 4), randn(2, 3, 6, 4), randn(2, 3, 6, 4)),
    ),
    "masked attention": (
        lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, m),
        (randn(2, 3, 6, 4), randn(2, 3, 6, 4), randn(2, 3, 6, 4), MASK),
    ),
    "scores in float16": (lambda a, b: torch.softmax(a @ b, -1), (randn(20, 24).half(), randn(24, 16).half())),
    "linear of three dimensions": (lambda x, w: x @ w, (randn(3, 7, 11), randn(11, 5))),
    "split evenly": (lambda a: [p.relu() for p in a.split(2, 1)], (randn(40, 6),)),
    "squeeze all": (lambda a: torch.squeeze(a).relu(), (randn(1, 40, 1),)),
    "squeeze some": (lambda a: torch.squeeze(a, (0, 2)).relu(), (randn(1, 40, 1),)),
    "add.Scalar": (lambda a: aten.add.Scalar(a, 2), (randn(4, 6),)),
    "sub.Scalar": (lambda a: aten.sub.Scalar(a, 2), (randn(4, 6),)),
    "mul.Scalar": (lambda a: aten.mul.Scalar(a, 2), (randn(4, 6),)),
    "div.Scalar": (lambda a: aten.div.Scalar(a, 2), (randn(4, 6),)),
    "rsub.Tensor": (aten.rsub.Tensor, (randn(4, 6), randn(4, 6))),
    "detach": (lambda a: a.relu().detach() + 1, (randn(4, 6),)),
    "alias": (lambda a: aten.alias(a.relu()) + 1, (randn(4, 6),)),
    "constant": (lambda a: a + torch.tensor([1.0, 2.0]), (randn(4, 2),)),
    "same dtype": (lambda a: aten._to_copy(a.relu(), dtype=torch.float32) + 1, (randn(4, 6),)),
    "sum of a number": (lambda a: torch.sum(a, 0), (torch.tensor(3.5),)),
    "conv without batch": (functional.conv2d, (randn(4, 5, 5), randn(3, 4, 2, 3), randn(3))),
    "integer sums": (lambda a, b: (a + b) * a - 3, (torch.arange(60).view(6, 10), torch.arange(10) - 4)),
    "narrow integers": (lambda a: torch.relu(a - 1), (torch.arange(-60, 60, dtype=torch.int32),)),
} | {
    name: (getattr(torch, name), (positive(40, 30) if name in ("log", "sqrt", "rsqrt", "reciprocal") else randn(40, 30),))
    for name in ACTIVATIONS
} | {
    name: (getattr(functional, name), (randn(40, 30) * 4,)) for name in ("silu", "hardsigmoid", "hardswish")
} | MORE  # fmt: skip


WHOLE = ("conv wide padding", "roll")
"""Cases that no small tile can express: rows of the output that read padding alone, and a part of a long axis."""


@pytest.mark.parametrize("vtcm", [8 << 20, SMALL])
@pytest.mark.parametrize("case", CASES)
def test_rules_give_what_eager_gives(case: str, vtcm: int) -> None:
    function, inputs = CASES[case]
    made, got = compiled(function, *inputs, vtcm=vtcm, strict=case not in WHOLE or vtcm != SMALL)
    assert made.programs or made.fallbacks
    want = function(*inputs)
    want = list(want) if isinstance(want, list | tuple) else [want]
    half = inputs[0].dtype == torch.float16
    for mine, eager in zip(got, want, strict=True):
        # float32 sums in another order; float16 rounds after each instruction.
        torch.testing.assert_close(
            mine, eager, rtol=5e-3 if half else 2e-5, atol=5e-3 if half else 2e-5, check_stride=False, equal_nan=True
        )


def test_every_rule_is_exercised_above() -> None:
    seen: set[str] = set()
    for function, inputs in CASES.values():
        seen |= operators(function, *inputs)
    assert set(RULES) - seen == set()


def test_rules_name_instructions_that_exist() -> None:
    for rule in RULES.values():
        assert set(rule.gives) <= set(INSTRUCTIONS), rule.op
        assert re.fullmatch(r"(aten|quantized_decomposed)\.\w+\.\w+", rule.op)
        assert (rule.body.__doc__ or rule.op).strip()


@pytest.mark.parametrize(
    ("function", "inputs", "why"),
    [
        (torch.mm, (torch.ones(2, 2, dtype=torch.int64),) * 2, "int64 is not floating"),
        (lambda a: a.double() * 2, (randn(3),), "no instruction knows float64"),
        (lambda a: functional.max_pool2d(a, 2), (X4,), "there is no rule"),
        (lambda a: a.long() + 1, (randn(3),), "change of dtype"),
        (lambda a: a.double().mean(0), (randn(3),), "float64"),
        (lambda a, b: a[b], (randn(9), torch.tensor([3, 1])), "depend on data"),
        (lambda a: functional.adaptive_avg_pool2d(a, (4, 3)), (X4,), "does not divide"),
        (lambda a, w: functional.conv3d(a, w), (randn(1, 2, 4, 4, 4), randn(3, 2, 2, 2, 2)), "three-dimensional"),
        (lambda a, w: functional.conv_transpose2d(a, w), (randn(1, 2, 3, 3), randn(2, 1, 1, 40)), "taps"),
        (lambda a: torch.var(a, 0, correction=6), (randn(6, 2),), "too few"),
        (lambda a: a.as_strided((2, 3), (1, 1)) * 2, (randn(6, 2),), "repeat or reorder"),
        (lambda a: a.as_strided((2, 3), (3, 1)) * 2, (randn(6, 2),), "leave out"),
        (lambda a: a.as_strided((6, 2), (2, 1), 0) * 2, (randn(7, 2)[1:],), "leave out"),
        (lambda a, i: functional.embedding(i, a), (randn(6, 2), torch.tensor([3, 1])), "there is no rule"),
    ],
)
def test_what_rules_refuse_goes_to_the_host_with_a_reason(
    function: Function, inputs: tuple[torch.Tensor, ...], why: str
) -> None:
    made, got = compiled(function, *inputs)
    assert any(re.search(why, fallback.why) for fallback in made.fallbacks)
    torch.testing.assert_close(got[0], function(*inputs))


def test_a_rule_that_fails_costs_the_node_its_place_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(call: Call) -> str:
        call.emit(isa.Relu, x=call.args[0])
        raise ZeroDivisionError("a\nb")

    monkeypatch.setitem(RULES, "aten.tanh.default", replace(RULES["aten.tanh.default"], body=broken))
    made, got = compiled(lambda x: torch.tanh(x * 2) + 1, randn(3, 4))
    torch.testing.assert_close(got[0], torch.tanh(randn(3, 4) * 2) + 1)
    assert [entry.why for entry in made.fallbacks] == ["its rule fails (ZeroDivisionError: a b)"]
    assert [i.OPCODE for program in made.programs for i in program.instructions].count("RELU") == 0


def test_a_layer_that_no_tile_fits_runs_on_the_host() -> None:
    made, got = compiled(lambda a: torch.softmax(a, -1).relu(), randn(2, 4000), vtcm=SMALL)
    assert [(f.op, f.why) for f in made.fallbacks] == [("aten._softmax.default", "no tile of it fits VTCM")]
    torch.testing.assert_close(got[0], torch.softmax(randn(2, 4000), -1))


def test_a_shape_that_depends_on_data_puts_the_graph_on_the_host() -> None:
    x = randn(4, 6)
    module = make_fx(lambda a: [torch.relu(torch.masked_select(a, a > 0))])(x)
    made = plan(module, [x])
    got = run_plan(module, made, [x], Settings())
    assert made.programs == []
    assert "depends on data" in made.fallbacks[0].why
    torch.testing.assert_close(got[0], x[x > 0])
    with pytest.raises(InputError, match="depends on data"):
        plan(module, [x], settings=Settings(strict=True))


def test_results_that_repeat_in_memory_keep_their_strides() -> None:
    _, got = compiled(lambda a: a.relu().expand(5, 4, 6), randn(4, 6))
    assert got[0].stride() == (0, 6, 1)
    torch.testing.assert_close(got[0], randn(4, 6).relu().expand(5, 4, 6))


def test_embedding_stays_on_the_host_and_the_rest_does_not() -> None:
    table, places = randn(50, 8), torch.arange(0, 40, 3)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def function(table: torch.Tensor, places: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(functional.embedding(places, table) @ w)

    made, got = compiled(function, table, places, model[0].weight.detach())
    assert [f.op for f in made.fallbacks] == ["aten.embedding.default"]
    torch.testing.assert_close(got[0], function(table, places, model[0].weight.detach()))
