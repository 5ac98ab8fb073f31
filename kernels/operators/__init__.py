"""The kernels as PyTorch operators: `assay::softmax`, `assay::rms_norm`, `assay::layer_norm`, `assay::causal_attention`.

from assay.kernels import operators

y = operators.softmax(x)
y, h = operators.rms_norm(x, weight, residual=residual)
operators.dispatch.counts()  # which path each call took, and why

Importing this package registers them. They run on every device: where no kernel of ours is eligible, the framework's own
operator does the work, and the dispatch log says why. docs/operators.md has schemas, regions and measurements.
"""

from assay.kernels.operators import dispatch
from assay.kernels.operators.functions import causal_attention, layer_norm, rms_norm, softmax

__all__ = ["causal_attention", "dispatch", "layer_norm", "rms_norm", "softmax"]
