"""What runs under Nsight Compute: each profiled kernel once, between the profiler's start and stop.

python -m assay.kernels.suite.profiled
"""

from __future__ import annotations

from typing import Any

import torch

from assay.kernels.suite.declarations import declared
from assay.kernels.suite.stages import PROFILED


def main() -> None:
    """Launches in the order of `PROFILED`, one kernel each."""
    cudart: Any = torch.cuda.cudart
    runtime = cudart()
    for name, case in PROFILED:
        declaration = declared()[name]
        generator = torch.Generator(device="cuda").manual_seed(3)
        inputs = declaration.inputs(declaration.cases[case], generator, torch.device("cuda"))
        declaration.kernel(**inputs)  # builds, and clears the tile counter, outside the profiled range
        torch.cuda.synchronize()
        runtime.cudaProfilerStart()
        declaration.kernel(**inputs)
        torch.cuda.synchronize()
        runtime.cudaProfilerStop()
        del inputs
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
