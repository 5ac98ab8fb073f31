"""Where PyTorch's meaning is easily missed: views of storage, seeds, assertions, 16-bit sums, numbers out of range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import nn
from torch._higher_order_ops import while_loop
from torch.nn import functional

from assay.npu_backend.register_backend import Report

quantized = torch.ops.quantized_decomposed
X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def simulated(function: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> tuple[Any, Report]:
    report = Report()
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="mock_npu", options={"mode": "simulate", "report": report, **options})
    with torch.no_grad():
        return compiled(*inputs), report


@pytest.mark.parametrize(
    "function",
    [
        lambda a: torch.as_strided(a[1:], (2, 3), (6, 1), 0) + 1,
        lambda a: torch.as_strided((a * 2)[1:], (2, 3), (6, 1), 0) + 1,
        lambda a: torch.as_strided((a * 2).select(0, 2).unsqueeze(0), (2, 3), (1, 1)) + 1,
        lambda a: torch.as_strided_scatter((a * 2)[1:], torch.ones(2, 3), (2, 3), (6, 1), 6),
        lambda a: torch.as_strided((a + 1).t(), (3, 2), (2, 1)) * 2,
    ],
)
def test_what_addresses_the_storage_of_a_view_finds_it(function: Callable[..., Any]) -> None:
    got, report = simulated(function, X)
    torch.testing.assert_close(got, function(X), rtol=0, atol=0)
    assert any("as_strided" in entry.op for entry in report.fallbacks)


def layouts() -> dict[str, torch.Tensor]:
    return {
        "contiguous": torch.ones(3, 4, 5),
        "turned": torch.ones(5, 4, 3).permute(2, 1, 0),
        "channels last": torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "repeated": torch.ones(3, 1, 5).expand(3, 4, 5),
        "a part": torch.ones(6, 8, 5)[::2, 1:5],
    }


@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize("grad", [False, True])
def test_one_seed_drops_the_same_elements_in_any_layout(layout: str, grad: bool) -> None:
    x = layouts()[layout]

    def dropped(a: torch.Tensor) -> torch.Tensor:
        return functional.dropout(a * 1, 0.5)

    torch._dynamo.reset()
    compiled = torch.compile(dropped, backend="mock_npu", options={"mode": "simulate"})
    with torch.set_grad_enabled(grad):
        torch.manual_seed(3)
        want = dropped(x.detach().requires_grad_(grad))
        torch.manual_seed(3)
        got = compiled(x.detach().requires_grad_(grad))
    torch.testing.assert_close(got, want)
    assert 0 < int((want == 0).sum()) < want.numel()


def test_an_encoder_layer_drops_what_eager_drops() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).train()
    x = torch.randn(2, 5, 16)
    torch.manual_seed(1)
    want = layer(x)
    torch.manual_seed(1)
    torch._dynamo.reset()
    got = torch.compile(layer, backend="mock_npu", options={"mode": "simulate"})(x)
    torch.testing.assert_close(got, want)


def test_an_assertion_on_data_holds() -> None:
    def checked(a: torch.Tensor, limit: float) -> torch.Tensor:
        torch.ops.aten._assert_async.msg(a.sum() < limit, "too large")  # what TorchDynamo makes of `assert`
        return a * 2

    got, report = simulated(lambda a: checked(a, 1e9), X)
    torch.testing.assert_close(got, X * 2)
    assert any("assert" in entry.op for entry in report.fallbacks)
    with pytest.raises(RuntimeError, match="too large"):
        simulated(lambda a: checked(a, -1e9), X)


def q(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    small = quantized.quantize_per_tensor(x, 0.05, 3, limits.min, limits.max, dtype)
    return quantized.dequantize_per_tensor(small, 0.05, 3, limits.min, limits.max, dtype)


@pytest.mark.parametrize("policy", ["", "float16", "w8a8", "w8a16", "w4a8", "w4a16"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16])
def test_a_quantized_graph_compiles_under_every_policy(policy: str, dtype: torch.dtype) -> None:
    weight = torch.randn(6, 3, 3, 3)

    def product(a: torch.Tensor, b: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return q(a, dtype) @ q(b, dtype), functional.conv2d(q(image, dtype), q(weight, dtype)) * 2

    inputs = (torch.randn(3, 8), torch.randn(8, 4), torch.randn(1, 3, 5, 5))
    got, _ = simulated(product, *inputs, precision=policy)
    for found, want in zip(got, product(*inputs), strict=True):
        torch.testing.assert_close(found, want)


@pytest.mark.parametrize("policy", ["float16", "w8a8", "w8a16", "w4a8", "w4a16"])
def test_parts_of_weights_may_be_results_under_every_policy(policy: str) -> None:
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.places = nn.Linear(8, 6), nn.Parameter(torch.randn(1, 9, 8))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            places = self.places[:, :4]
            return self.linear(x + places), self.linear.bias[:2].clone(), self.linear.weight[1:3].clone(), places * 1

    model = Parts().eval()
    inputs = (torch.randn(2, 4, 8),)
    got, _ = simulated(model, *inputs, precision=policy)
    with torch.no_grad():
        for found, want in zip(got, model(*inputs), strict=True):
            torch.testing.assert_close(found, want)


def test_sums_of_16_bit_floats_do_not_overflow_where_pytorch_s_do_not() -> None:
    torch.manual_seed(0)
    heads = (torch.randn(1, 2, 4, 64) * 50).half()
    got, _ = simulated(lambda x: functional.scaled_dot_product_attention(x, x, x), heads)
    want = functional.scaled_dot_product_attention(heads, heads, heads)
    torch.testing.assert_close(got, want, rtol=5e-3, atol=5e-3)
    a, b, bias = torch.full((1, 3, 64), 100.0).half(), torch.full((1, 64, 2), 100.0).half(), torch.zeros(1, 3, 2).half()
    got, _ = simulated(lambda a, b: torch.baddbmm(bias, a, b, alpha=0.001), a, b)
    torch.testing.assert_close(got, torch.baddbmm(bias, a, b, alpha=0.001), rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_batch_norm_of_16_bit_floats_computes_in_32(dtype: torch.dtype) -> None:
    norm = nn.BatchNorm2d(4).eval()
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.fill_(1000.0)
    norm.running_var.fill_(1e-4)
    norm = norm.to(dtype)
    x = torch.full((1, 4, 2, 2), 1000.0, dtype=dtype)
    got, _ = simulated(norm, x)
    torch.testing.assert_close(got, norm(x), rtol=1e-2, atol=1e-2)
    both = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval().to(dtype)
    image = torch.randn(1, 3, 6, 6).to(dtype)
    got, report = simulated(both, image)
    with torch.no_grad():
        torch.testing.assert_close(got, both(image), rtol=1e-2, atol=1e-2)
    assert not any(i.OPCODE == "ELEMENTWISE_MUL" for program in report.programs for i in program.instructions)  # folded


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda a: a * 1e40, X),
        (lambda a: a - 1e40, X),
        (lambda a: a > 1e40, X),
        (lambda a: a + 300, torch.arange(4, dtype=torch.uint8)),
        (lambda a: a > 300, torch.arange(4, dtype=torch.uint8)),
        (lambda a: torch.full_like(a, 5) + a, X),
        (lambda a: functional.elu(a, alpha=float("inf")), X),
        (lambda a: a * 1e5, torch.tensor([1e-3, 1.0]).half()),
    ],
)
def test_numbers_that_a_dtype_does_not_hold(function: Callable[..., Any], x: torch.Tensor) -> None:
    got, _ = simulated(function, x)
    torch.testing.assert_close(got, function(x), equal_nan=True)


def test_sizes_that_tracing_does_not_know_are_planned_when_they_are_met() -> None:
    x = torch.randn(3, 4)
    torch._dynamo.decorators.mark_unbacked(x, 0)
    got, report = simulated(lambda a: (a * 2).sum(0), x)
    torch.testing.assert_close(got, (x * 2).sum(0))
    assert report.programs


def test_a_loop_that_stays_a_loop_runs_on_the_host() -> None:
    def looped(a: torch.Tensor) -> torch.Tensor:
        return while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * 2), (torch.tensor(0), a))[1]  # type: ignore[no-any-return]

    got, report = simulated(looped, X)
    torch.testing.assert_close(got, X * 8)
    assert [entry.why for entry in report.fallbacks] != []


@pytest.mark.parametrize("value", [1000.1, -3.3e4, 1e-3])
def test_a_norm_of_equal_elements_is_zero(value: float) -> None:
    x = torch.full((2, 768), value)
    got, _ = simulated(lambda a: functional.layer_norm(a, (768,)), x)
    assert got.abs().max() == functional.layer_norm(x, (768,)).abs().max() == 0
    x = torch.full((2, 6, 30), value)
    got, _ = simulated(lambda a: functional.group_norm(a, 3), x)
    assert got.abs().max() == 0
