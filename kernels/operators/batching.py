"""vmap rules: the new dimension joins the rows, or the batch of attention, so that a batched call is still one launch.

Where weight or bias is batched, and in the norms' backward, whose sums over rows must stay apart, the call is repeated
for each element instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Rule = Callable[..., tuple[Any, Any]]


def _front(value: Any, dimension: int | None, size: int) -> Any:
    """The value with the new dimension first, expanded where it was not batched."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.expand(size, *value.shape) if dimension is None else value.movedim(dimension, 0)


def _each(operator: Any, info: Any, dimensions: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    """One call for each element."""
    results = []
    for index in range(info.batch_size):
        chosen = [
            value.select(dimension, index) if isinstance(value, torch.Tensor) and dimension is not None else value
            for value, dimension in zip(arguments, dimensions, strict=True)
        ]
        results.append(operator(*chosen))
    stacked = tuple(torch.stack(column) for column in zip(*results, strict=True))
    return stacked, (0,) * len(stacked)


def softmax(info: Any, dimensions: tuple[Any, ...], x: torch.Tensor) -> tuple[Any, Any]:
    """`assay::softmax` of x with one more leading dimension."""
    return torch.ops.assay.softmax(_front(x, dimensions[0], info.batch_size)), 0


def _norm(name: str, tensors: int, results: int) -> Rule:
    """The rule of a norm whose first `tensors` arguments are shaped like x."""

    def rule(info: Any, dimensions: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        operator = getattr(torch.ops.assay, name)
        if any(dimension is not None for dimension in dimensions[tensors:]):
            return _each(operator, info, dimensions, arguments)
        moved = [_front(arguments[i], dimensions[i], info.batch_size) for i in range(tensors)]
        return operator(*moved, *arguments[tensors:]), (0,) * results

    return rule


rms_norm = _norm("rms_norm", 1, 2)
layer_norm = _norm("layer_norm", 1, 2)
add_rms_norm = _norm("add_rms_norm", 2, 3)
add_layer_norm = _norm("add_layer_norm", 2, 3)


def norm_backward(info: Any, dimensions: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    """`assay::norm_backward`, one call for each element."""
    return _each(torch.ops.assay.norm_backward, info, dimensions, arguments)


def causal_attention(info: Any, dimensions: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    """`assay::causal_attention` with the new dimension folded into the batch."""
    size = info.batch_size
    q, k, v = (_front(arguments[i], dimensions[i], size).flatten(0, 1) for i in range(3))
    y = torch.ops.assay.causal_attention(q, k, v, *arguments[3:])
    return y.unflatten(0, (size, -1)), 0
