"""How fast the compiler and the simulator are: seconds for each model, instructions a second, scaling, against Inductor.

`python -m benchmarks.npu_speed --out docs/results/npu/speed.json`. Seconds are of the process (both cores), on random weights.
Compile time against Inductor's is of `torch.compile` and the first call on the same module, each in a fresh process with an
empty cache.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from assay.npu_backend import isa
from assay.npu_backend.layers import LayerGraph
from assay.npu_backend.partition import Settings
from assay.npu_backend.register_backend import plan_model
from assay.npu_backend.simulator import preset, simulate
from assay.npu_backend.tensor import Role
from assay.npu_backend.tiling import tile
from assay.npu_backend.validation import validate
from benchmarks.npu_models import Built, classifier, llama_step, whisper_decoder, whisper_encoder

MODELS: dict[str, Callable[[], Built]] = {
    "MobileNetV3-Large": lambda: classifier("mobilenet_v3_large"),
    "ResNet-50": lambda: classifier("resnet50"),
    "ViT-B/16": lambda: classifier("vit_b_16"),
    "Whisper-tiny encoder": whisper_encoder,
    "Whisper-tiny decoder step": whisper_decoder,
    "LLaMA-3.2-1B decode step, one layer": lambda: llama_step(1, head=False),
    "LLaMA-3.2-1B decode step, 16 layers and head": lambda: llama_step(16, head=True),
}
SIZES = (1_000, 4_000, 16_000, 64_000)
"""Instructions of the programs that show scaling."""


def model_seconds(name: str) -> dict[str, Any]:
    """Seconds from the module to programs, and from programs to their cost on `htp_v75`."""
    model, inputs = MODELS[name]()
    begin = time.perf_counter()
    made = plan_model(model, *inputs, settings=Settings(precision="float16"))
    compiled = time.perf_counter()
    machine = preset("htp_v75")
    costs = [simulate(program, machine) for program in made.programs]
    simulated = time.perf_counter()
    instructions = sum(len(program.instructions) for program in made.programs)
    return {
        "programs": len(costs),
        "instructions": instructions,
        "host": sorted({entry.op for entry in made.fallbacks}),
        "gmacs": round(sum(cost.macs for cost in costs) / 1e9, 3),
        "compile_s": round(compiled - begin, 2),
        "simulate_s": round(simulated - compiled, 3),
        "instructions_per_s": round(instructions / (simulated - compiled)),
        "milliseconds": round(machine.milliseconds(sum(cost.cycles for cost in costs)) or 0.0, 3),
    }


def chain(length: int) -> LayerGraph:
    """Elementwise layers over a tensor that takes several tiles, `length` instructions or a few more."""
    graph = LayerGraph("chain")
    x = graph.declare("x", (64, 512), "float32", Role.INPUT)
    for _ in range(length // 16):
        w = graph.declare("w", (512, 512), "float32", Role.WEIGHT)
        x = graph.add(isa.MatMul, "h", "", a=x, b=w)
        x = graph.add(isa.Softmax, "p", "", x=x, axis=1)
    graph.mark_outputs([x])
    return graph


def scaling() -> list[dict[str, Any]]:
    """Tiling, validation and simulation of programs of growing length, in small VTCM."""
    found = []
    machine = replace(preset("htp_v75"), vtcm_bytes=1 << 20)
    for size in SIZES:
        graph = chain(size)
        begin = time.perf_counter()
        program = tile(graph, capacity=machine.vtcm_bytes)
        tiled = time.perf_counter()
        validate(program, capacity=machine.vtcm_bytes)
        validated = time.perf_counter()
        simulate(program, machine)
        simulated = time.perf_counter()
        number = len(program.instructions)
        found.append(
            {
                "instructions": number,
                "tile_s": round(tiled - begin, 3),
                "validate_s": round(validated - tiled, 3),
                "simulate_s": round(simulated - validated, 3),
                "instructions_per_s": round(number / (simulated - validated)),
            }
        )
    return found


def first_call(name: str, backend: str) -> float:
    """Seconds of `torch.compile` and the first call, in this process."""
    model, inputs = MODELS[name]()
    if backend == "mock_npu":
        import assay.npu_backend.register_backend  # noqa: F401 (registers the backend)
    with torch.no_grad():
        model(*inputs)  # kernels of the eager run are loaded before either backend is timed
        begin = time.perf_counter()
        torch.compile(model, backend=backend)(*inputs)
        return time.perf_counter() - begin


def cold(name: str, backend: str) -> float | None:
    """`first_call` in a fresh process with an empty cache; None when it fails."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_FX_GRAPH_CACHE": "0"}
        command = [sys.executable, "-m", "benchmarks.npu_speed", "--first-call", name, backend]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        print(f"{name} with {backend}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return float(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--first-call", nargs=2, metavar=("MODEL", "BACKEND"))
    parser.add_argument("--without-inductor", action="store_true")
    chosen = parser.parse_args()
    if chosen.first_call:
        print(first_call(*chosen.first_call))
        return
    result: dict[str, Any] = {
        "torch": torch.__version__,
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "models": {},
        "scaling": scaling(),
    }
    for name in MODELS:
        found = model_seconds(name)
        if not chosen.without_inductor:
            ours, inductor = cold(name, "mock_npu"), cold(name, "inductor")
            found |= {"first_call_s": ours and round(ours, 2), "inductor_first_call_s": inductor and round(inductor, 2)}
            found["ratio"] = round(ours / inductor, 2) if ours and inductor else None
        result["models"][name] = found
        print(name, found, file=sys.stderr, flush=True)
    text = json.dumps(result, indent=1) + "\n"
    if chosen.out:
        chosen.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
