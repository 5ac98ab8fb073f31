"""What registration costs per call: `python -m benchmarks.operators [--device cuda] [--out FILE]`.

One implementation (ours of softmax, path selection included) behind each of torch's ways to register it; the difference to
calling it directly is what registration costs. Small inputs, so that on a GPU too it is the host that is timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from assay.baselines.environment import capture
from assay.kernels import operators
from assay.kernels.operators import proof, rowwise

DIRECT = "called directly"
NAMESPACE = "assay_overhead"
MODES: dict[str, Callable[[], Any]] = {"default": torch.enable_grad, "inference_mode": torch.inference_mode}


def contenders(x: torch.Tensor) -> tuple[dict[str, Callable[[], Any]], Any]:
    """Ways to call softmax, name -> call, and the library that keeps them registered. Once per process."""
    implementation = rowwise.softmax

    def fake(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(x.shape)

    def keep(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
        ctx.save_for_backward(output)

    def derivative(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        dx: torch.Tensor = torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype)
        return dx

    made: Any = torch.library.Library
    library = made(NAMESPACE, "DEF")
    library.define("plain(Tensor x) -> Tensor")
    library.impl("plain", implementation, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::plain", fake, lib=library)
    plain = torch.ops.assay_overhead.plain.default

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = plain(x)
            return y

        setup_context = staticmethod(keep)
        backward = staticmethod(derivative)

    def typed(x: torch.Tensor) -> torch.Tensor:
        return implementation(x)

    custom = torch.library.custom_op(f"{NAMESPACE}::custom", typed, mutates_args=())
    custom.register_fake(fake)
    differentiable = torch.library.custom_op(f"{NAMESPACE}::differentiable", typed, mutates_args=())
    differentiable.register_fake(fake)
    differentiable.register_autograd(derivative, setup_context=keep)
    traced = torch.library.triton_op(f"{NAMESPACE}::traced", typed, mutates_args={})
    ours = torch.ops.assay.softmax.default
    calls: dict[str, Callable[[], Any]] = {
        DIRECT: lambda: implementation(x),
        "torch.softmax": lambda: torch.softmax(x, -1),
        "Library.define/impl": lambda: plain(x),
        "assay::softmax: define/impl and register_autograd": lambda: ours(x),
        "operators.softmax(x)": lambda: operators.softmax(x),
        "autograd.Function over define/impl": lambda: Function.apply(x),
        "custom_op": lambda: custom(x),
        "custom_op and register_autograd": lambda: differentiable(x),
        "triton_op": lambda: traced(x),
    }
    return calls, library


def measure(device: torch.device, rounds: int) -> dict[str, dict[str, float]]:
    """Mode -> way -> microseconds per call over calling directly (of `torch.softmax` and directly: the whole call)."""
    x = torch.randn(4, 16, device=device)
    calls, library = contenders(x)
    found = {}
    for mode, entered in MODES.items():
        with entered():
            times = proof.per_call(calls, calls=1_000, rounds=rounds, settle=proof.settling(device))
        over = proof.overhead(times, DIRECT)
        whole = {name: 1e6 * statistics.median(times[name]) for name in (DIRECT, "torch.softmax")}
        found[mode] = {**whole, **{name: us for name, us in over.items() if name not in whole}}
    library._destroy()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found = measure(torch.device(arguments.device), arguments.rounds)
    print(f"| us per call on {arguments.device} | " + " | ".join(found) + " |\n|---|" + "---:|" * len(found))
    for name in next(iter(found.values())):
        print(f"| {name} | " + " | ".join(f"{times[name]:.1f}" for times in found.values()) + " |")
    if arguments.out is not None:
        where = capture(("torch", "triton")).model_dump(mode="json")
        document = {"device": arguments.device, "rounds": arguments.rounds, "environment": where, "us": found}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
