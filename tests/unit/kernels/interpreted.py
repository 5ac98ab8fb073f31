"""Runs the Triton kernels under Triton's interpreter and prints how far they lie from float64, as JSON.

A script of its own, because the interpreter is chosen when triton is imported.
"""

from __future__ import annotations

import json
import os

os.environ["TRITON_INTERPRET"] = "1"

import torch

from assay.kernels.attention import portable as attention
from assay.kernels.rowwise import gradient, portable


def gap(out: torch.Tensor, want: torch.Tensor) -> float:
    """Largest absolute difference; infinite when NaN do not agree."""
    if not torch.equal(out.isnan(), want.isnan()):
        return float("inf")
    return float((out.double() - want.double()).nan_to_num().abs().max()) if want.numel() else 0.0


def softmaxes() -> dict[str, float]:
    """Widths, layouts and values, on each path."""
    flags = {
        "whole": portable.Flags(),
        "blocks": portable.Flags(whole_row=0, block=64),
        "two-passes": portable.Flags(whole_row=0, block=64, online=False),
        "one-row": portable.Flags(rows_per_program=1),
    }
    inputs = {
        "one": torch.randn(4, 1),
        "odd": torch.randn(3, 67) * 5,
        "three-dimensions": torch.randn(2, 3, 40),
        "transposed": torch.randn(33, 5).t(),
        "sliced": torch.randn(4, 90)[:, 3:70],
        "large": torch.randn(3, 128) * 1e30,
        "masked": torch.randn(4, 100).masked_fill(torch.rand(4, 100) < 0.7, -torch.inf),
        "all-masked": torch.full((2, 70), -torch.inf),
        "nan": torch.randn(2, 70).index_fill(1, torch.tensor([65]), torch.nan),
        "infinite": torch.randn(2, 70).index_fill(1, torch.tensor([65]), torch.inf),
        "empty": torch.randn(0, 8),
    }
    return {
        f"softmax-{path}-{name}": gap(portable.softmax(x, flags=flag), torch.softmax(x.double(), -1))
        for path, flag in flags.items()
        for name, x in inputs.items()
    }


def norms() -> dict[str, float]:
    """Forward and backward, with and without a residual, in each of its three ways."""
    found = {}
    for operator in ("rmsnorm", "layernorm"):
        for columns in (1, 5, 64, 130, 4_100):  # the last in two pieces
            for residual in (False, True):
                for path, flags in (("whole", portable.Flags()), ("blocks", portable.Flags(whole_row=0, block=64))):
                    # Around 16 the one-pass variance would lose 5 digits.
                    x = torch.randn(7, columns) * 2 + (16 if columns > 1 else 0)
                    other = torch.randn(7, columns) if residual else None
                    weight, bias = torch.randn(columns), torch.randn(columns) if operator == "layernorm" else None
                    y, total, kept = portable.norm(operator, x, weight, bias, residual=other, epsilon=1e-3, flags=flags)
                    h = x if other is None else x + other
                    leaf, w = h.double().requires_grad_(), weight.double().requires_grad_()
                    b = None if bias is None else bias.double().requires_grad_()
                    if b is None:
                        want = leaf * torch.rsqrt(leaf.pow(2).mean(-1, keepdim=True) + 1e-3) * w
                    else:
                        want = torch.nn.functional.layer_norm(leaf, (columns,), w, b, 1e-3)
                    name = f"{operator}-{columns}-{'residual' if residual else 'plain'}-{path}"
                    found[f"forward-{name}"] = gap(y, want.detach())
                    if total is not None:
                        found[f"sum-{name}"] = gap(total, h)
                    slope, handed = torch.randn(7, columns), torch.randn(7, columns) if residual else None
                    leaves = [leaf, w] if b is None else [leaf, w, b]
                    expected = list(torch.autograd.grad(want, leaves, slope.double()))
                    if handed is not None:
                        expected[0] = expected[0] + handed
                    for way, limits, biased in (
                        ("fused", (8_192, 0), True),
                        ("long", (0, 16_384), False),
                        ("columns", (0, 0), True),
                    ):
                        got = gradient.norm_backward(
                            operator, h, slope, weight, kept, dtotal=handed, bias=biased and b is not None,
                            fused_limit=limits[0], long_limit=limits[1],
                        )  # fmt: skip
                        for part, out, ref in zip(("input", "weight", "bias"), got, expected, strict=False):
                            assert (out is None) == (part == "bias" and not biased)
                            if out is not None:
                                found[f"backward-{way}-{part}-{name}"] = gap(out, ref)
    return found


def attentions() -> dict[str, float]:
    """Lengths, heads, grouped heads and layouts, on each path."""
    found = {}
    flags = {
        "split": attention.Flags(rows=32, keys=32),
        "masked": attention.Flags(rows=32, keys=16, split_diagonal=False),
        "wide-keys": attention.Flags(rows=16, keys=32),
    }
    for batch, heads, kv_heads, length, head in (
        (1, 1, 1, 64, 32),
        (2, 4, 2, 70, 16),
        (1, 3, 1, 33, 16),
        (1, 2, 2, 1, 16),
    ):
        q = torch.randn(batch, length, heads, head).transpose(1, 2)
        k, v = (torch.randn(batch, kv_heads, length, head) for _ in range(2))
        want = torch.nn.functional.scaled_dot_product_attention(
            q.double(), k.double(), v.double(), is_causal=True, enable_gqa=True
        )
        for path, flag in flags.items():
            name = f"attention-{path}-{heads}-{kv_heads}-{length}"
            found[name] = gap(attention.attention(q, k, v, flags=flag), want)
    return found


if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps({**softmaxes(), **norms(), **attentions()}))
