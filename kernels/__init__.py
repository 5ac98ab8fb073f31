"""GPU laboratory: kernels measured as evidence."""
