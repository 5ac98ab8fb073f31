"""Causal attention, forward only: bfloat16, head dimension 128, grouped-query heads."""
