"""Lowering rules, one module for each family of operators. Importing the package registers them all."""

from assay.npu_backend.rules import (
    comparison,
    convolution,
    gather,
    matrix,
    norm,
    pointwise,
    pooling,
    quantization,
    reduction,
    shape,
)

__all__ = [
    "comparison",
    "convolution",
    "gather",
    "matrix",
    "norm",
    "pointwise",
    "pooling",
    "quantization",
    "reduction",
    "shape",
]
