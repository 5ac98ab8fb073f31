"""Byte and operation models: what a perfect kernel moves and computes, from the shape alone.

Compulsory traffic only: every input is read once and every output written once (the roofline model of Williams et al.
2009 takes its intensity from these two numbers).
"""

from __future__ import annotations

from dataclasses import dataclass

ITEMSIZE = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True)
class Cost:
    """Compulsory traffic and arithmetic of one call."""

    bytes: float
    flops: float

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes if self.bytes else 0.0

    def floor_seconds(self, bandwidth: float, operations: float) -> float:
        """Seconds below which no kernel can be: the larger of bytes / (bytes/s) and FLOP / (FLOP/s)."""
        return max(self.bytes / bandwidth, self.flops / operations)


def softmax(rows: int, columns: int, dtype: str) -> Cost:
    """Reads and writes the matrix once; subtract, exponentiate, add, divide and compare for each element."""
    return Cost(2.0 * ITEMSIZE[dtype] * rows * columns, 5.0 * rows * columns)


def norm(operator: str, rows: int, columns: int, dtype: str, *, residual: bool = False) -> Cost:
    """RMSNorm or LayerNorm forward with its weight (and bias). A residual adds one tensor read and one written."""
    tensors = 4 if residual else 2
    parameters = 2 if operator == "layernorm" else 1
    elements = float(rows) * columns
    work = (7 if operator == "layernorm" else 4) + (1 if residual else 0)
    return Cost(ITEMSIZE[dtype] * (tensors * elements + parameters * columns), work * elements)


def norm_backward(operator: str, rows: int, columns: int, dtype: str) -> Cost:
    """Reads the input and the slope, writes the gradient; the two statistics of a row and the sums over rows besides."""
    parameters = 2 if operator == "layernorm" else 1
    elements = float(rows) * columns
    moved = ITEMSIZE[dtype] * (3 * elements + 2 * parameters * columns) + 8.0 * rows
    return Cost(moved, (12 if operator == "layernorm" else 9) * elements)


def causal_attention(batch: int, heads: int, kv_heads: int, length: int, head: int, dtype: str = "bfloat16") -> Cost:
    """Q and the output once for each head, K and V once for each key head; half of 4 B H S^2 D operations.

    The half is the convention of Dao 2023 (FlashAttention-2, section 4.1); the exact share is (S + 1) / 2S.
    """
    moved = ITEMSIZE[dtype] * batch * length * head * (2.0 * heads + 2.0 * kv_heads)
    return Cost(moved, 2.0 * batch * heads * float(length) ** 2 * head)
