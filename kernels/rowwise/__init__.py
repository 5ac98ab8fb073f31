"""Row-wise softmax, RMSNorm and LayerNorm, with a residual added on the way in where asked."""
