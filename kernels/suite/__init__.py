"""The evidence of this laboratory's own kernels: contract, ceilings, peers, ablations, profiler and machine code."""
