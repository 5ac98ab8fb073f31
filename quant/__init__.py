"""Quantization and evaluation laboratory."""
