"""Registration: schemas, implementations, fakes, derivatives and vmap rules of the `assay::` operators.

`Library.define` and `impl` are the path with the least overhead per call (docs/operators.md has the numbers): the
implementations are opaque to the compiler and choose their kernel on real tensors.
"""

from __future__ import annotations

from typing import Any

import torch

from assay.kernels.operators import attention, batching, rowwise
from assay.kernels.operators.checks import check_attention, check_norm, check_softmax

NAMESPACE = "assay"
SCHEMAS = {
    "softmax": "(Tensor x) -> Tensor",
    "rms_norm": "(Tensor x, Tensor? weight=None, float epsilon=1e-06) -> (Tensor y, Tensor statistics)",
    "layer_norm": (
        "(Tensor x, Tensor? weight=None, Tensor? bias=None, float epsilon=1e-05) -> (Tensor y, Tensor statistics)"
    ),
    "add_rms_norm": (
        "(Tensor x, Tensor residual, Tensor? weight=None, float epsilon=1e-06)"
        " -> (Tensor y, Tensor sum, Tensor statistics)"
    ),
    "add_layer_norm": (
        "(Tensor x, Tensor residual, Tensor? weight=None, Tensor? bias=None, float epsilon=1e-05)"
        " -> (Tensor y, Tensor sum, Tensor statistics)"
    ),
    "norm_backward": (
        "(Tensor dy, Tensor? dsum, Tensor h, Tensor? weight, Tensor statistics, bool center, bool bias)"
        " -> (Tensor dh, Tensor dweight, Tensor dbias)"
    ),
    "causal_attention": "(Tensor q, Tensor k, Tensor v, float? scale=None) -> Tensor",
}
"""Operator -> its schema. `statistics` is (..., 2): mean and reciprocal deviation of each row, for the backward."""
Optional = torch.Tensor | None


def _softmax(x: torch.Tensor) -> torch.Tensor:
    check_softmax(x)
    return rowwise.softmax(x)


def _rms_norm(x: torch.Tensor, weight: Optional = None, epsilon: float = 1e-6) -> rowwise.Pair:
    check_norm(x, None, weight, None)
    y, _, kept = rowwise.norm("rms_norm", False, x, None, weight, None, epsilon)
    return y, kept


def _layer_norm(x: torch.Tensor, weight: Optional = None, bias: Optional = None, epsilon: float = 1e-5) -> rowwise.Pair:
    check_norm(x, None, weight, bias)
    y, _, kept = rowwise.norm("layer_norm", True, x, None, weight, bias, epsilon)
    return y, kept


def _add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: Optional = None, epsilon: float = 1e-6
) -> rowwise.Triple:
    check_norm(x, residual, weight, None)
    return rowwise.norm("add_rms_norm", False, x, residual, weight, None, epsilon)


def _add_layer_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: Optional = None, bias: Optional = None, epsilon: float = 1e-5
) -> rowwise.Triple:
    check_norm(x, residual, weight, bias)
    return rowwise.norm("add_layer_norm", True, x, residual, weight, bias, epsilon)


def _causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None = None) -> torch.Tensor:
    check_attention(q, k, v)
    return attention.causal_attention(q, k, v, scale)


def _fake_softmax(x: torch.Tensor) -> torch.Tensor:
    check_softmax(x)
    return x.new_empty(x.shape)


def _fake_statistics(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], 2), dtype=rowwise.wide(x.dtype))


def _fake_rms_norm(x: torch.Tensor, weight: Optional = None, epsilon: float = 1e-6) -> rowwise.Pair:
    check_norm(x, None, weight, None)
    return x.new_empty(x.shape), _fake_statistics(x)


def _fake_layer_norm(
    x: torch.Tensor, weight: Optional = None, bias: Optional = None, epsilon: float = 1e-5
) -> rowwise.Pair:
    check_norm(x, None, weight, bias)
    return x.new_empty(x.shape), _fake_statistics(x)


def _fake_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: Optional = None, epsilon: float = 1e-6
) -> rowwise.Triple:
    check_norm(x, residual, weight, None)
    return x.new_empty(x.shape), x.new_empty(x.shape), _fake_statistics(x)


def _fake_add_layer_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: Optional = None, bias: Optional = None, epsilon: float = 1e-5
) -> rowwise.Triple:
    check_norm(x, residual, weight, bias)
    return x.new_empty(x.shape), x.new_empty(x.shape), _fake_statistics(x)


def _fake_norm_backward(
    dy: torch.Tensor,
    dsum: Optional,
    h: torch.Tensor,
    weight: Optional,
    statistics: torch.Tensor,
    center: bool,
    bias: bool,
) -> rowwise.Triple:
    dweight = h.new_empty(0) if weight is None else weight.new_empty(weight.shape)
    dbias = (h if weight is None else weight).new_empty(h.shape[-1]) if bias else h.new_empty(0)
    return h.new_empty(h.shape), dweight, dbias


def _fake_causal_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None = None
) -> torch.Tensor:
    check_attention(q, k, v)
    return torch.empty_like(q)


def _keep_softmax(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(output)


def _softmax_derivative(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
    (y,) = ctx.saved_tensors
    # The framework's own backward: the compiler fuses it, and it can be differentiated again.
    dx: torch.Tensor = torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype)
    return dx


def _keep_norm(ctx: Any, x: torch.Tensor, weight: Optional, bias: Optional, statistics: torch.Tensor) -> None:
    ctx.save_for_backward(x, weight, statistics)
    ctx.has_bias = bias is not None
    ctx.mark_non_differentiable(statistics)
    ctx.set_materialize_grads(False)


def _keep_rms_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    _keep_norm(ctx, inputs[0], inputs[1], None, output[-1])


def _keep_layer_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    _keep_norm(ctx, inputs[0], inputs[1], inputs[2], output[-1])


def _keep_add_rms_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    _keep_norm(ctx, output[1], inputs[2], None, output[-1])


def _keep_add_layer_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    _keep_norm(ctx, output[1], inputs[2], inputs[3], output[-1])


def _norm_derivative(ctx: Any, center: bool, dy: Optional, dsum: Optional) -> list[Optional]:
    """Gradients of h, weight and bias."""
    h, weight, statistics = ctx.saved_tensors
    if dy is None:
        return [dsum, None, None]
    dh, dweight, dbias = torch.ops.assay.norm_backward(dy, dsum, h, weight, statistics, center, ctx.has_bias)
    return [dh, None if weight is None else dweight, dbias if ctx.has_bias else None]


def _rms_norm_derivative(ctx: Any, dy: Optional, _: Any) -> tuple[Any, ...]:
    dx, dweight, _ = _norm_derivative(ctx, False, dy, None)
    return dx, dweight, None


def _layer_norm_derivative(ctx: Any, dy: Optional, _: Any) -> tuple[Any, ...]:
    return *_norm_derivative(ctx, True, dy, None), None


def _add_rms_norm_derivative(ctx: Any, dy: Optional, dsum: Optional, _: Any) -> tuple[Any, ...]:
    dx, dweight, _ = _norm_derivative(ctx, False, dy, dsum)
    return dx, dx, dweight, None


def _add_layer_norm_derivative(ctx: Any, dy: Optional, dsum: Optional, _: Any) -> tuple[Any, ...]:
    dx, dweight, dbias = _norm_derivative(ctx, True, dy, dsum)
    return dx, dx, dweight, dbias, None


def _no_second_derivative(ctx: Any, *_: Any) -> None:
    raise RuntimeError("assay's norms have no second derivative: use torch.nn.functional where one is needed.")


def _no_attention_derivative(ctx: Any, _: Any) -> None:
    raise RuntimeError(
        "assay::causal_attention is forward only: call it under torch.no_grad(), or use "
        "torch.nn.functional.scaled_dot_product_attention where a gradient is needed."
    )


_OPERATORS: dict[str, tuple[Any, Any, Any, Any, Any]] = {
    "softmax": (_softmax, _fake_softmax, _keep_softmax, _softmax_derivative, batching.softmax),
    "rms_norm": (_rms_norm, _fake_rms_norm, _keep_rms_norm, _rms_norm_derivative, batching.rms_norm),
    "layer_norm": (_layer_norm, _fake_layer_norm, _keep_layer_norm, _layer_norm_derivative, batching.layer_norm),
    "add_rms_norm": (
        _add_rms_norm, _fake_add_rms_norm, _keep_add_rms_norm, _add_rms_norm_derivative, batching.add_rms_norm,
    ),
    "add_layer_norm": (
        _add_layer_norm, _fake_add_layer_norm, _keep_add_layer_norm, _add_layer_norm_derivative,
        batching.add_layer_norm,
    ),
    "norm_backward": (
        rowwise.norm_backward, _fake_norm_backward, None, _no_second_derivative, batching.norm_backward,
    ),
    "causal_attention": (
        _causal_attention, _fake_causal_attention, None, _no_attention_derivative, batching.causal_attention,
    ),
}  # fmt: skip
"""Operator -> implementation, fake, what the derivative keeps, derivative, vmap rule."""


def _register() -> Any:
    made: Any = torch.library.Library  # its methods have no types
    library = made(NAMESPACE, "DEF")
    # Strides decide the path: the compiler must hand over the ones that eager execution would.
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
    for name, (run, fake, keep, derivative, batched) in _OPERATORS.items():
        library.define(name + SCHEMAS[name], tags=tags)
        library.impl(name, run, "CompositeExplicitAutograd")
        qualified = f"{NAMESPACE}::{name}"
        torch.library.register_fake(qualified, fake, lib=library)
        torch.library.register_autograd(qualified, derivative, setup_context=keep, lib=library)
        torch.library.register_vmap(qualified, batched, lib=library)
    return library


LIBRARY = _register()
"""Keeps the registrations alive."""
