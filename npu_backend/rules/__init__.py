"""Lowering rules, one module for each family of operators. Importing the package registers them all."""

from assay.npu_backend.rules import matrix, pointwise, reduction, shape

__all__ = ["matrix", "pointwise", "reduction", "shape"]
