"""The operators on a CPU: values, strides, derivatives, vmap, fake tensors, graphs, and the dispatch log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from assay.kernels import operators
from assay.kernels.operators import dispatch, proof
from assay.kernels.operators.eligibility import Choice, Path
from assay.kernels.operators.library import SCHEMAS

OPS = torch.ops.assay
F64 = torch.float64
COLUMNS = 6


def tensor(*shape: int, dtype: torch.dtype = F64, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=dtype)


def arguments(name: str, x: torch.Tensor, *, parameters: bool = True) -> tuple[Any, ...]:
    """Arguments of an operator for an x."""
    vectors = [tensor(x.shape[-1], dtype=x.dtype, seed=s) if parameters else None for s in (1, 2)]
    residual = [proof.permuted(torch.randn_like(x)) if not x.is_contiguous() else torch.randn_like(x)]
    return {
        "softmax": (x,),
        "rms_norm": (x, vectors[0]),
        "layer_norm": (x, *vectors),
        "add_rms_norm": (x, *residual, vectors[0]),
        "add_layer_norm": (x, *residual, *vectors),
    }[name]


def expected(name: str, x: torch.Tensor, *others: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
    """What the framework computes."""
    if name == "softmax":
        return (torch.softmax(x, -1),)
    h, rest = x, list(others)
    if name.startswith("add"):
        h = x + rest.pop(0)
    shape = (x.shape[-1],)
    layer = "layer" in name
    y = functional.layer_norm(h, shape, *rest, 1e-5) if layer else functional.rms_norm(h, shape, *rest, 1e-6)
    return (y, h) if name.startswith("add") else (y,)


def results(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


ROWWISE = ["softmax", "rms_norm", "layer_norm", "add_rms_norm", "add_layer_norm"]
LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: tensor(3, COLUMNS),
    "dense permuted": lambda: tensor(COLUMNS, 3).t(),
    "permuted 3-d": lambda: tensor(3, 2, COLUMNS).transpose(0, 1),
    "gaps between rows": lambda: tensor(3, 2 * COLUMNS)[:, :COLUMNS],
    "every second": lambda: tensor(3, 2 * COLUMNS)[:, ::2],
    "expanded": lambda: tensor(COLUMNS).expand(3, COLUMNS),
    "one column": lambda: tensor(1, 5).t(),
    "one row": lambda: tensor(COLUMNS),
    "empty": lambda: tensor(0, COLUMNS),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ROWWISE)
def test_values_and_strides_are_the_same_real_and_fake(name: str, layout: str) -> None:
    given = arguments(name, LAYOUTS[layout]())
    operator = getattr(OPS, name)
    real = results(operator(*given))
    for found, wanted in zip(real, expected(name, *given), strict=False):
        torch.testing.assert_close(found, wanted)
        assert found.is_contiguous()
    meta = results(operator(*(g.to("meta") if g is not None else None for g in given)))
    assert [(m.shape, m.stride(), m.dtype) for m in meta] == [(r.shape, r.stride(), r.dtype) for r in real]


@pytest.mark.parametrize("permute", [False, True])
@pytest.mark.parametrize("name", ROWWISE)
def test_opcheck_and_gradcheck(name: str, permute: bool) -> None:
    x = tensor(4, COLUMNS)
    given = [g.clone().requires_grad_() for g in arguments(name, proof.permuted(x) if permute else x)]
    assert given[0].is_contiguous() is not permute
    operator = getattr(OPS, name).default
    assert not any(proof.checked(operator, given).values())

    def differentiable(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(result for result in results(operator(*inputs)) if result.requires_grad)

    assert torch.autograd.gradcheck(differentiable, given)


def test_softmax_can_be_differentiated_twice_and_a_norm_says_that_it_cannot() -> None:
    x = tensor(3, COLUMNS).requires_grad_()
    assert torch.autograd.gradgradcheck(operators.softmax, (x,))
    (slope,) = torch.autograd.grad(operators.rms_norm(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        slope.sum().backward()


def test_a_gradient_reaches_both_summands_through_either_result() -> None:
    x, residual = tensor(3, COLUMNS).requires_grad_(), tensor(3, COLUMNS, seed=9).requires_grad_()
    h = x + residual
    theirs = (functional.layer_norm(h, (COLUMNS,)), h)
    for one, other in ((1, 0), (0, 1), (1, 2)):
        losses = [
            one * y.pow(3).sum() + other * total.pow(3).sum()
            for y, total in (operators.layer_norm(x, residual=residual), theirs)
        ]
        mine, wanted = (torch.autograd.grad(loss, (x, residual), retain_graph=True) for loss in losses)
        torch.testing.assert_close(mine, wanted)
    alone = [
        torch.autograd.grad(y.sum(), x, retain_graph=True) for y in (operators.layer_norm(x, residual=x)[1], x + x)
    ]
    torch.testing.assert_close(*alone)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", ROWWISE)
def test_statistics_and_gradients_are_not_rounded_to_the_inputs_dtype(name: str, dtype: torch.dtype) -> None:
    exact = arguments(name, tensor(16, 64))
    given = [g.to(dtype).requires_grad_() for g in exact]
    wide = [g.detach().double().requires_grad_() for g in given]
    found, wanted = results(getattr(OPS, name)(*given)), expected(name, *wide)
    if name != "softmax":
        assert found[-1].dtype == torch.float32
    slope = tensor(16, 64, seed=5)
    mine = torch.autograd.grad(found[0], given, slope.to(dtype))
    theirs = torch.autograd.grad(wanted[0], wide, slope.to(dtype).double())
    for one, other in zip(mine, theirs, strict=True):
        error = (one.double() - other).norm() / other.norm()
        assert error < 4 * torch.finfo(dtype).eps


def test_gradients_of_parameters_of_a_wider_dtype_are_not_rounded_to_the_inputs() -> None:
    x, slope = (tensor(9, 64, dtype=torch.bfloat16, seed=seed) for seed in (0, 5))
    weight, bias = (tensor(64, dtype=torch.float32, seed=seed) for seed in (1, 2))
    _, statistics = torch.ops.assay.layer_norm(x, weight, bias, 1e-5)
    _, dweight, dbias = torch.ops.assay.norm_backward(slope, None, x, weight, statistics, True, True)
    assert dweight.dtype == dbias.dtype == torch.float32
    # 9 numbers of 8 bits: their sum needs more than 8, and is exact in float32.
    assert torch.equal(dbias.double(), slope.double().sum(0))


def test_a_weight_of_another_dtype_is_used_as_it_is() -> None:
    x, weight = tensor(4, 64, dtype=torch.bfloat16), tensor(64, dtype=torch.float32)
    y = operators.rms_norm(x, weight)
    assert y.dtype == torch.bfloat16
    wide = functional.rms_norm(x.double(), (64,), weight.double(), 1e-6)
    assert torch.equal(y, wide.bfloat16())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: operators.softmax(x.long()), "floating-point"),
        (lambda x: operators.softmax(x.sum()), "no dimension"),
        (lambda x: operators.rms_norm(x, x), "weight is float64"),
        (lambda x: operators.rms_norm(x, x[0, :-1]), r"\(5,\)"),
        (lambda x: operators.layer_norm(x, None, x[:, 0]), "bias is"),
        (lambda x: operators.layer_norm(x, residual=x[:1]), "residual is"),
        (lambda x: operators.layer_norm(x, residual=x.float()), "residual is float32"),
        (lambda x: operators.causal_attention(x, x, x), "4 dimensions"),
    ],
)
def test_what_is_refused_is_refused_real_and_fake(call: Any, said: str) -> None:
    for x in (tensor(4, COLUMNS), tensor(4, COLUMNS).to("meta")):
        with pytest.raises(ValueError, match=said):
            call(x)


def heads(batch: int = 2, count: int = 4, length: int = 5, *, seed: int = 0) -> torch.Tensor:
    """(batch, heads, length, 16), laid out as (batch, length, heads, 16)."""
    return tensor(batch, length, count, 16, seed=seed).transpose(1, 2)


@pytest.mark.parametrize("key_heads", [4, 2, 1])
@pytest.mark.parametrize("scale", [None, 0.5])
def test_attention_is_the_frameworks_and_laid_out_like_q(key_heads: int, scale: float | None) -> None:
    q, k, v = heads(), heads(count=key_heads, seed=1), heads(count=key_heads, seed=2)
    for query in (q, q.contiguous(), q.transpose(2, 3).contiguous().transpose(2, 3)):
        y = operators.causal_attention(query, k, v, scale=scale)
        wide = [t.repeat_interleave(4 // key_heads, 1) for t in (k, v)]
        scores = (query @ wide[0].mT) * (scale or 0.25)
        masked = scores.masked_fill(~torch.ones(5, 5, dtype=torch.bool).tril(), -torch.inf)
        torch.testing.assert_close(y, masked.softmax(-1) @ wide[1])
        assert y.stride() == query.stride() == torch.empty_like(query, device="meta").stride()
        assert not any(proof.checked(OPS.causal_attention.default, (query, k, v, scale)).values())


def test_attention_refuses_a_gradient_in_words() -> None:
    q = heads().requires_grad_()
    with pytest.raises(RuntimeError, match="forward only"):
        operators.causal_attention(q, heads(), heads()).sum().backward()
    with torch.no_grad():
        assert not operators.causal_attention(q, heads(), heads()).requires_grad


def test_attention_of_shapes_that_do_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="do not belong together"):
        operators.causal_attention(heads(), heads(length=6), heads(length=6))
    with pytest.raises(ValueError, match="3 key heads do not divide 4"):
        operators.causal_attention(heads(), heads(count=3), heads(count=3))
    with pytest.raises(ValueError, match="one dtype"):
        operators.causal_attention(heads(), heads().float(), heads())


@pytest.mark.parametrize("name", ROWWISE)
def test_vmap_over_rows_is_one_call(name: str) -> None:
    given = arguments(name, tensor(3, 4, COLUMNS))
    per_row = 2 if name.startswith("add") else 1
    operator = getattr(OPS, name)
    for place in (0, 1):
        dispatch.clear()
        dims = (place,) * per_row + (None,) * (len(given) - per_row)
        found = results(torch.vmap(operator, dims, place)(*given))
        assert sum(dispatch.counts().values()) == 1
        for one, other in zip(found, results(operator(*given)), strict=True):
            torch.testing.assert_close(one, other)


def test_vmap_over_weights_and_over_gradients() -> None:
    x, weights = tensor(3, COLUMNS), tensor(2, COLUMNS)
    found = torch.vmap(lambda w: operators.rms_norm(x, w))(weights)
    torch.testing.assert_close(found, torch.stack([operators.rms_norm(x, w) for w in weights]))
    leaf, weight = x.clone().requires_grad_(), weights[0].clone().requires_grad_()
    slopes = tensor(4, 3, COLUMNS)
    y = operators.rms_norm(leaf, weight)
    together = torch.autograd.grad(y, (leaf, weight), slopes, is_grads_batched=True, retain_graph=True)
    for number, slope in enumerate(slopes):
        alone = torch.autograd.grad(y, (leaf, weight), slope, retain_graph=True)
        torch.testing.assert_close([t[number] for t in together], list(alone))


def test_vmap_of_attention_joins_the_batch() -> None:
    q, k = torch.stack([heads(), heads(seed=4)]), heads(count=2, seed=1)
    found = torch.vmap(operators.causal_attention, (0, None, None))(q, k, k)
    torch.testing.assert_close(found, torch.stack([operators.causal_attention(one, k, k) for one in q]))


def block(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """All kinds of operators in one function."""
    y, h = operators.rms_norm(x, weight, residual=residual)
    z = operators.layer_norm(h * 2, weight, weight)
    q = operators.softmax(y + z)[:, None, None, :]
    return operators.causal_attention(q, q, q).squeeze()


def test_the_compiler_sees_one_graph_and_compiles_once_for_every_batch() -> None:
    calls = [(tensor(n, 16), tensor(n, 16, seed=1), tensor(16)) for n in (4, 7, 33)]
    capture = proof.captured(block, calls[0])
    assert (capture.breaks, capture.reason) == (0, "")
    ours = [target for target in capture.targets if target.startswith("assay.")]
    assert ours == ["assay.add_rms_norm", "assay.layer_norm", "assay.softmax", "assay.causal_attention"]
    assert "torch.ops.assay.softmax" in capture.text
    assert "# File" not in capture.text
    assert proof.recompiled(block, calls) == ""


def test_a_break_and_a_recompilation_are_seen() -> None:
    def breaks(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return operators.softmax(x)

    capture = proof.captured(lambda x: breaks(x + 1) * 2, (tensor(3, 4),))
    assert capture.breaks > 0
    assert capture.reason

    def prints(x: torch.Tensor) -> torch.Tensor:
        print("a traced function may not")
        return operators.softmax(x)

    assert proof.captured(prints, (tensor(3, 4),)).breaks == 1

    def specialised(x: torch.Tensor) -> torch.Tensor:
        return operators.softmax(x) * (2 if x.shape[0] == 4 else 3)

    assert "Recompiling" in proof.recompiled(specialised, [(tensor(4, 4),), (tensor(5, 4),)])


def test_gradients_through_the_compiled_graph_are_those_of_eager() -> None:
    def loss(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y, h = operators.rms_norm(x, weight, residual=residual)
        return (operators.softmax(y) * h).square().sum()

    given = [t.requires_grad_() for t in (tensor(4, 8), tensor(4, 8, seed=1), tensor(8))]
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(*given), given), torch.autograd.grad(loss(*given), given))


def test_the_log_counts_calls_also_of_a_compiled_function() -> None:
    compiled = torch.compile(lambda x: operators.softmax(x) + 1, backend="aot_eager", fullgraph=True)
    compiled(tensor(3, 4))
    dispatch.clear()
    for _ in range(3):
        compiled(tensor(3, 4))
    compiled(tensor(0, 4))
    reason = "on cpu, not on a GPU"
    assert dispatch.counts()["softmax", Path.FRAMEWORK, reason] == 3
    assert dispatch.counts()["softmax", Path.EMPTY, "no elements"] == 1
    assert f"softmax: 3 x framework ({reason})" in dispatch.lines()


def test_the_log_loses_nothing_between_threads() -> None:
    dispatch.clear()
    choice = Choice(Path.CUDA, "")
    threads = [
        threading.Thread(target=lambda: [dispatch.note("softmax", choice) for _ in range(2_000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert dispatch.counts() == {("softmax", Path.CUDA, ""): 8_000}


def test_paths_are_switched_off_for_as_long_as_asked() -> None:
    cpu = torch.device("cpu")
    with dispatch.without(Path.CUDA):
        with dispatch.without(Path.TRITON):
            assert dispatch.machine(cpu).off == {Path.CUDA, Path.TRITON}
        assert dispatch.machine(cpu).off == {Path.CUDA}
    assert dispatch.machine(cpu).off == frozenset()


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_registered_as_documented(name: str) -> None:
    assert getattr(OPS, name).default._schema == torch._C.parse_schema(f"assay::{name}{SCHEMAS[name]}")


@pytest.mark.parametrize("name", ROWWISE)
def test_gradients_of_nothing_are_zero(name: str) -> None:
    given = [g.requires_grad_() for g in arguments(name, tensor(0, COLUMNS))]
    found = torch.autograd.grad(results(getattr(OPS, name)(*given))[0].sum(), given)
    assert [(f.shape, int(f.count_nonzero())) for f in found] == [(g.shape, 0) for g in given]


def test_a_model_is_exported_with_the_operators_and_a_free_batch() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return operators.softmax(operators.rms_norm(x))

    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(Model(), (tensor(4, COLUMNS),), dynamic_shapes={"x": {0: batch}})
    called = [str(node.target) for node in program.graph.nodes if str(node.target).startswith("assay.")]
    assert called == ["assay.rms_norm.default", "assay.softmax.default"]
    x = tensor(9, COLUMNS)
    torch.testing.assert_close(program.module()(x), operators.softmax(operators.rms_norm(x)))


def test_autocast_leaves_dtypes_as_they_are() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert operators.softmax(tensor(2, 4, dtype=torch.float32)).dtype == torch.float32
        assert operators.softmax(tensor(2, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_transforms_without_a_rule_raise_and_are_never_silently_zero() -> None:
    x = tensor(3, COLUMNS)
    with pytest.raises(RuntimeError, match="functorch"):
        torch.func.grad(lambda x: operators.rms_norm(x).square().sum())(x)
    calls = {
        "jvp": lambda: torch.func.jvp(operators.softmax, (x,), (x,)),
        "jvp over vmap": lambda: torch.func.jvp(torch.vmap(operators.softmax), (x,), (x,)),
        "jacfwd": lambda: torch.func.jacfwd(operators.rms_norm)(x),
        "attention": lambda: torch.func.jvp(lambda q: operators.causal_attention(q, q, q), (heads(),), (heads(),)),
    }
    for call in calls.values():
        with pytest.raises(RuntimeError, match="no forward-mode derivative"):
            call()
    with torch.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError, match="no forward-mode derivative"):
        operators.softmax(torch.autograd.forward_ad.make_dual(x, x))
    operators.softmax(x)
