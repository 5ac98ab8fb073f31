"""Compiles the peers of every shape in parallel processes, into the compiler's own cache, before anything is timed.

python -m assay.kernels.suite.warm PART PARTS
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import torch

from assay.kernels import model
from assay.kernels.suite import contenders as who
from assay.kernels.suite.declarations import HOPPER, contract, declared

PARTS = 8
_SECONDS = 240


def everything(say: Callable[[str], None], parts: int = PARTS) -> str:
    """Runs all parts and says in how many processes; one that fails costs time later, not correctness: it is only told."""
    parts = max(1, min(parts, (os.cpu_count() or 2) // 2))
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "assay.kernels.suite.warm", str(part), str(parts)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for part in range(parts)
    ]
    for part, process in enumerate(started):
        try:
            _, errors = process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            _, errors = process.communicate()
        if process.returncode:
            last = (errors or "").strip().splitlines()[-1:] or ["no message"]
            say(f"part {part} of the parallel compilation stopped: {last[0][:200]}")
    return f"{parts} processes"


def tasks() -> list[Callable[[], None]]:
    """One task for each compiled shape: makes the inputs and calls the compiled peer once."""
    found: list[Callable[[], None]] = []
    for declaration in HOPPER:
        for case in declaration.cases:
            found.append(_forward(declaration.name, case))  # noqa: PERF401
    for operator in ("rmsnorm", "layernorm"):
        for dtype in ("bfloat16", "float32"):
            for columns in contract()["timed"]["backward"]["widths"]:
                found.append(_backward(operator, dtype, columns))  # noqa: PERF401
    return found


def _forward(name: str, case: str) -> Callable[[], None]:
    def run() -> None:
        declaration = declared()[name]
        parameters = declaration.cases[case]
        generator = torch.Generator(device="cuda").manual_seed(1)
        inputs = declaration.inputs(parameters, generator, torch.device("cuda"))
        if name == "attention":
            who.flex(int(parameters["length"]), parameters["kv-heads"] != parameters["heads"])(inputs)
        else:
            who.compiled(name.removeprefix("add-"))(**inputs)

    return run


def _backward(operator: str, dtype: str, columns: int) -> Callable[[], None]:
    def run() -> None:
        rows = contract()["timed"]["backward"]["bytes"] // (columns * model.ITEMSIZE[dtype])
        generator = torch.Generator(device="cuda").manual_seed(1)
        parameters = {"rows": rows, "columns": columns, "dtype": dtype}
        inputs = declared()[operator].inputs(parameters, generator, torch.device("cuda"))
        inputs["slope"] = torch.randn_like(inputs["x"])
        who.backward(operator, inputs)[who.COMPILED]()

    return run


def main() -> None:
    """One part."""
    part, parts = int(sys.argv[1]), int(sys.argv[2])
    for task in tasks()[part::parts]:
        task()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
