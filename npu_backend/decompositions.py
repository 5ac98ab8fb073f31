"""How operators that hide their products are taken apart before rules see them.

PyTorch's core table, without what a rule lowers whole, and with attention, dropout and the fast paths of attention layers
written here: PyTorch leaves those whole, or takes them apart for inference alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import core_aten_decompositions
from torch._prims_common import compute_elementwise_output_logical_to_physical_perm
from torch.nn import functional

from assay.npu_backend.lowering import RULES

aten = torch.ops.aten


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Overload -> function, for AOTAutograd and for `torch.export`."""
    table = dict(core_aten_decompositions())
    for op in list(table):
        if str(op) in RULES:
            del table[op]
    table[aten._scaled_dot_product_flash_attention_for_cpu.default] = attention
    table[aten._scaled_dot_product_flash_attention_for_cpu_backward.default] = attention_gradients
    table[aten.native_dropout.default] = dropout
    table[aten._native_multi_head_attention.default] = attention_layer
    table[aten._transformer_encoder_layer_fwd.default] = encoder_layer
    return table


def _scores(
    q: torch.Tensor, k: torch.Tensor, causal: bool, mask: torch.Tensor | None, scale: float | None
) -> tuple[torch.Tensor, float]:
    """q k^T scale + mask, (B, H, L, S), and the scale."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    # PyTorch's kernel sums in float32; products of 16-bit floats would overflow before they are scaled.
    half = q.dtype == torch.float16
    scores = (q * scale) @ k.transpose(-1, -2) if half else (q @ k.transpose(-1, -2)) * scale
    if causal:
        hidden = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
        mask = torch.zeros_like(hidden, dtype=q.dtype).masked_fill(hidden, -math.inf)
    return (scores if mask is None else scores + mask), scale


def _repeated(x: torch.Tensor, heads: int) -> torch.Tensor:
    """Keys or values of grouped heads, (B, G, S, D) -> (B, heads, S, D)."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(q k^T scale + mask) v, and the logarithm of the softmax's sums, (B, H, L) in float32.

    The result lies as PyTorch's kernel lays it: heads inside positions.
    """
    if dropout_p:
        return NotImplemented  # type: ignore[no-any-return]
    k, v = _repeated(key, query.shape[1]), _repeated(value, query.shape[1])
    scores, _ = _scores(query, k, is_causal, attn_mask, scale)
    mixed = aten._safe_softmax.default(scores, -1) @ v
    mixed = mixed.transpose(1, 2).contiguous().transpose(1, 2)
    return mixed, torch.logsumexp(scores.float(), -1)


def attention_gradients(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients by query, key and value; the softmax is computed again."""
    if dropout_p:
        return NotImplemented  # type: ignore[no-any-return]
    heads = query.shape[1]
    k, v = _repeated(key, heads), _repeated(value, heads)
    scores, factor = _scores(query, k, is_causal, attn_mask, scale)
    weights = aten._safe_softmax.default(scores, -1)
    inner = grad_out @ v.transpose(-1, -2)
    gradient = weights * (inner - (grad_out * out).sum(-1, keepdim=True)) * factor
    by_key, by_value = gradient.transpose(-1, -2) @ query, weights.transpose(-1, -2) @ grad_out
    return gradient @ k, _gathered(by_key, key), _gathered(by_value, value)


def _gathered(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Gradients of repeated heads, summed."""
    if x.shape == like.shape:
        return x
    return x.reshape(x.shape[0], like.shape[1], -1, *x.shape[2:]).sum(2)


def dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """x mask / (1 - p) and the mask, drawn as PyTorch's own operator draws it, so that one seed gives one result."""
    if not train or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    # Numbers are drawn in the order of memory, in which the mask lies like x.
    order = compute_elementwise_output_logical_to_physical_perm(x)[0]
    sizes = [x.shape[axis] for axis in order]
    everywhere = aten.full.default(sizes, True, dtype=torch.bool, device=x.device, pin_memory=False)
    mask = aten.bernoulli.p(everywhere, 1 - p)
    if list(order) != sorted(order):
        mask = mask.permute([list(order).index(axis) for axis in range(x.dim())])
    return x * mask * (0.0 if p == 1 else 1 / (1 - p)), mask


def _split(x: torch.Tensor, heads: int) -> torch.Tensor:
    """(B, L, E) -> (B, H, L, E / H)."""
    return x.reshape(*x.shape[:-1], heads, -1).transpose(1, 2)


def _hidden(mask: torch.Tensor, mask_type: int | None, scores: torch.Tensor) -> torch.Tensor:
    """Scores with -inf where a mask is true: 0 is (L, L), 1 is (B, L) over keys, 2 is (B, H, L, L) already."""
    if mask_type == 1:
        mask = mask[:, None, None, :]
    if mask.dtype != torch.bool:
        mask = mask != 0
    return scores.masked_fill(mask, -math.inf)


def attention_layer(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`nn.MultiheadAttention` in inference: (B, L, E), and the weights or an empty tensor."""
    if query.is_nested:
        return NotImplemented  # type: ignore[no-any-return]
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    q, k, v = (
        _split(functional.linear(x, w, b), num_head)
        for x, w, b in zip((query, key, value), weights, biases, strict=True)
    )
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-1, -2)
    if mask is not None:
        scores = _hidden(mask, mask_type, scores)
    shares = aten._safe_softmax.default(scores, -1) if mask is not None else torch.softmax(scores, -1)
    mixed = (shares @ v).transpose(1, 2).flatten(2)
    out = functional.linear(mixed, proj_weight, proj_bias)
    if not need_weights:
        return out, query.new_empty(0)
    return out, shares.mean(1) if average_attn_weights else shares


def encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """`nn.TransformerEncoderLayer` in inference: (B, L, E)."""
    if src.is_nested:
        return NotImplemented  # type: ignore[no-any-return]
    norms: Sequence[tuple[torch.Tensor, torch.Tensor]] = ((norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2))

    def normed(x: torch.Tensor, place: int) -> torch.Tensor:
        return functional.layer_norm(x, (embed_dim,), *norms[place], eps)

    def mixed(x: torch.Tensor) -> torch.Tensor:
        qkv = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return attention_layer(x, x, x, embed_dim, num_heads, *qkv, mask, False, True, mask_type)[0]

    def widened(x: torch.Tensor) -> torch.Tensor:
        inner = functional.linear(x, ffn_weight_1, ffn_bias_1)
        inner = functional.gelu(inner) if use_gelu else functional.relu(inner)
        return functional.linear(inner, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + mixed(normed(src, 0))
        return x + widened(normed(x, 1))
    x = normed(src + mixed(src), 0)
    return normed(x + widened(x), 1)
