"""Implementations of the row-wise operators on real tensors: the path is chosen here, where strides are known.

Results are contiguous on every path, as the framework's own softmax and norms are; sums over a row are float32, or
float64 for float64 inputs.
"""

from __future__ import annotations

import functools
from types import ModuleType

import torch

from assay.kernels.operators import dispatch
from assay.kernels.operators.eligibility import Choice, Layout, Path, rowwise

Pair = tuple[torch.Tensor, torch.Tensor]
Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
NAMES = {False: "rmsnorm", True: "layernorm"}


@functools.cache
def kernels(path: Path) -> ModuleType:
    """The module of a path, imported at its first use: a machine without a GPU needs neither Triton nor cuda-bindings."""
    if path is Path.CUDA:
        from assay.kernels.rowwise import hopper

        return hopper
    from assay.kernels.rowwise import portable

    return portable


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension."""
    choice = rowwise(dispatch.machine(x.device), (x.dtype, x.shape, x.stride()))
    dispatch.note("softmax", choice)
    if choice.path is Path.FRAMEWORK:
        y = torch.softmax(x, -1)
    elif choice.path is Path.EMPTY:
        y = x.new_empty(x.shape)
    elif choice.path is Path.TRITON:
        y = kernels(choice.path).softmax(x)
    else:
        with dispatch.LAUNCHING:
            y = kernels(choice.path).softmax(x)
    return laid_out(y, choice)


def norm(
    name: str,
    center: bool,
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    epsilon: float,
) -> Triple:
    """(y, x + residual, statistics) of RMSNorm, or of LayerNorm with `center`. Without a residual the sum is x itself.

    `statistics`: (..., 2), mean (0 for RMSNorm) and reciprocal deviation of each row.
    """
    choice = rowwise(dispatch.machine(x.device), _layout(x), _maybe(residual), _maybe(weight), _maybe(bias))
    dispatch.note(name, choice)
    if choice.path is Path.EMPTY:
        kept = x.new_zeros((*x.shape[:-1], 2), dtype=wide(x.dtype))
        return x.new_empty(x.shape), x if residual is None else x.new_empty(x.shape), kept
    if choice.path is Path.FRAMEWORK:
        total = x if residual is None else x + residual
        y, kept = framework_norm(center, total, weight, bias, epsilon)
    else:
        run = kernels(choice.path).norm
        given = {"residual": residual, "epsilon": epsilon}
        if choice.path is Path.TRITON:
            y, summed, kept = run(NAMES[center], x, weight, bias, **given)
        else:
            with dispatch.LAUNCHING:
                y, summed, kept = run(NAMES[center], x, weight, bias, **given, statistics=True)
        total = x if summed is None else summed
        kept = kept.view(*x.shape[:-1], 2)
    return laid_out(y, choice), total if residual is None else laid_out(total, choice), kept


def framework_norm(
    center: bool, h: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, epsilon: float
) -> Pair:
    """(y, statistics) by the framework's own norms."""
    accumulated = wide(h.dtype)
    if any(vector is not None and vector.dtype != h.dtype for vector in (weight, bias)):
        parameters = [None if vector is None else vector.to(accumulated) for vector in (weight, bias)]
        y, kept = framework_norm(center, h.to(accumulated), parameters[0], parameters[1], epsilon)
        return y.to(h.dtype), kept
    shape = h.shape[-1:]
    if center:
        y, mean, scale = torch.native_layer_norm(h, shape, weight, bias, epsilon)
    else:
        y, scale = torch.ops.aten._fused_rms_norm(h, shape, weight, epsilon)
        mean = torch.zeros_like(scale)
    if scale.dtype != accumulated:
        # On a CPU the framework keeps the statistics of a bfloat16 LayerNorm in bfloat16: too coarse for the gradient.
        variance, mean = torch.var_mean(h.to(accumulated), -1, correction=0, keepdim=True)
        scale = (variance + epsilon).rsqrt()
    return y, torch.cat((mean, scale), -1)


def norm_backward(
    dy: torch.Tensor,
    dsum: torch.Tensor | None,
    h: torch.Tensor,
    weight: torch.Tensor | None,
    statistics: torch.Tensor,
    center: bool,
    bias: bool,
) -> Triple:
    """(dh, dweight, dbias) of a norm of h; a gradient that does not exist has no elements.

    `dsum` is the gradient of the sum with a residual. The formula stands in `kernels/rowwise/gradient.py`.
    """
    choice = rowwise(dispatch.machine(h.device), _layout(h), _layout(dy), _maybe(weight), None)
    if choice.path is Path.CUDA:
        choice = choice._replace(path=Path.TRITON, reason="the backward is in Triton")
        if Path.TRITON in dispatch.machine(h.device).off or not dispatch.machine(h.device).triton:
            choice = choice._replace(path=Path.FRAMEWORK)
    dispatch.note("norm_backward", choice)
    nothing = h.new_empty(0)
    if choice.path is not Path.TRITON:
        dh, dweight, dbias = _framework_backward(dy, dsum, h, weight, statistics, center, bias)
    else:
        from assay.kernels.rowwise import gradient

        dh, dweight, dbias = gradient.norm_backward(
            NAMES[center], h, dy, weight, statistics.view(-1, 2), dtotal=dsum, bias=bias
        )
    return laid_out(dh, choice), nothing if dweight is None else dweight, h.new_empty(0) if dbias is None else dbias


def _framework_backward(
    dy: torch.Tensor,
    dsum: torch.Tensor | None,
    h: torch.Tensor,
    weight: torch.Tensor | None,
    statistics: torch.Tensor,
    center: bool,
    bias: bool,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    mean, scale = statistics[..., :1], statistics[..., 1:]
    slope = dy.to(statistics.dtype)
    hat = (h.to(statistics.dtype) - mean) * scale
    g = slope if weight is None else slope * weight.to(slope.dtype)
    dh = g - hat * (g * hat).mean(-1, keepdim=True)
    if center:
        dh = dh - g.mean(-1, keepdim=True)
    dh = dh * scale
    if dsum is not None:
        dh = dh + dsum
    over_rows = tuple(range(h.dim() - 1))
    dweight = None if weight is None else _summed(slope * hat, over_rows).to(weight.dtype)
    kept = h.dtype if weight is None else weight.dtype
    return dh.to(h.dtype), dweight, _summed(slope, over_rows).to(kept) if bias else None


def _summed(value: torch.Tensor, dimensions: tuple[int, ...]) -> torch.Tensor:
    # A sum over no dimensions would be one over all of them.
    return value.sum(dimensions) if dimensions else value.clone()


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums over a row."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def laid_out(y: torch.Tensor, choice: Choice) -> torch.Tensor:
    """y with exactly the strides that the fake implementation promises, also in dimensions of one element."""
    return y if y.stride() == choice.strides else y.contiguous().view(-1).view(y.shape)


def _layout(x: torch.Tensor) -> Layout:
    return x.dtype, x.shape, x.stride()


def _maybe(x: torch.Tensor | None) -> Layout | None:
    return None if x is None else (x.dtype, x.shape, x.stride())
