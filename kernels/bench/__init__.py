"""The A/B benchmark: base and head in processes of their own, timed in turns under one coordinator."""
