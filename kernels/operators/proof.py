"""What a registration is proven by: torch's own checks, the captured graph, recompilation, and the time of a call.

Nothing here knows a particular operator; `evidence` uses it on ours, `assay bench --operator` on a user's.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

BACKEND = "aot_eager"
"""Captures and differentiates graphs as Inductor does, and compiles nothing, so that a proof takes seconds."""
ROUNDS = 40
"""Timed rounds of each contender; a round is many calls."""


@dataclass(frozen=True)
class Capture:
    """What the compiler saw of a function."""

    graphs: int
    text: str
    """The captured graphs as Python."""
    targets: tuple[str, ...]
    """What they call, in order."""
    reason: str = ""
    """Why it cannot be one graph, in one line."""

    @property
    def breaks(self) -> int:
        """How often the graph was interrupted; at least once when the whole cannot be captured."""
        return max(self.graphs - 1, 1 if self.reason else 0)


def checked(operator: Any, arguments: Sequence[Any], keywords: Mapping[str, Any] | None = None) -> dict[str, str]:
    """`torch.library.opcheck`: test -> "" or the failure in one line."""
    found = torch.library.opcheck(operator, tuple(arguments), dict(keywords or {}), raise_exception=False)
    return {name: "" if result == "SUCCESS" else line(result) for name, result in found.items()}


def permuted(tensor: torch.Tensor) -> torch.Tensor:
    """The same values laid out the other way round: dense, not contiguous, the inputs on which a fake's strides go wrong."""
    order = tuple(reversed(range(tensor.dim())))
    return tensor.detach().permute(order).contiguous().permute(order).requires_grad_(tensor.requires_grad)


def captured(function: Callable[..., Any], arguments: Sequence[Any]) -> Capture:
    """The graphs of one compiled call; then the call again under `fullgraph`, whose refusal is the reason."""
    seen: list[torch.fx.GraphModule] = []
    run = torch._dynamo.lookup_backend(BACKEND)

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        seen.append(module)
        return run(module, inputs)

    torch._dynamo.reset()
    torch.compile(function, backend=backend)(*arguments)
    graphs = list(seen)
    torch._dynamo.reset()
    reason = ""
    try:
        torch.compile(function, backend=backend, fullgraph=True)(*arguments)
    except torch._dynamo.exc.TorchDynamoException as error:
        reason = line(error)
    torch._dynamo.reset()
    text = "\n\n".join(_readable(module) for module in graphs)
    nodes = [node for module in graphs for node in module.graph.nodes if node.op.startswith("call")]
    return Capture(max(len(graphs), 1), text, tuple(str(node.target) for node in nodes), reason)


def _readable(module: torch.fx.GraphModule) -> str:
    """The graph as Python, without the comments that name files of this machine."""
    kept = [
        row for row in module.print_readable(print_output=False).splitlines() if not row.strip().startswith("# File")
    ]
    return "\n".join(row for row in kept if row.strip())


def recompiled(function: Callable[..., Any], calls: Sequence[Sequence[Any]]) -> str:
    """Why the compiler had to compile again over calls that differ in their first dimension, or "" when it did not."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=BACKEND, fullgraph=True)
    try:
        for value in calls[0]:
            if isinstance(value, torch.Tensor) and value.dim() > 1:
                torch._dynamo.maybe_mark_dynamic(value, 0)
        compiled(*calls[0])
        with torch._dynamo.config.patch(error_on_recompile=True):
            for arguments in calls[1:]:
                compiled(*arguments)
    except torch._dynamo.exc.TorchDynamoException as error:
        return line(error)
    finally:
        torch._dynamo.reset()
    return ""


def per_call(
    contenders: Mapping[str, Callable[[], Any]],
    *,
    calls: int = 200,
    rounds: int = ROUNDS,
    seed: int = 0,
    settle: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds per call of each contender, one number a round; the contenders take turns in random order.

    `settle` waits for the device before and after a round, outside of it the first time and inside the second. One thread:
    a call takes microseconds, and on a busy machine waking the others takes milliseconds.
    """
    order = random.Random(seed)
    found: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for run in contenders.values():
            run()
        for _ in range(rounds):
            order.shuffle(names)
            for name in names:
                run = contenders[name]
                settle()
                start = clock()
                for _ in range(calls):
                    run()
                settle()
                found[name].append((clock() - start) / calls)
    finally:
        torch.set_num_threads(threads)
    return found


def overhead(times: Mapping[str, Sequence[float]], direct: str) -> dict[str, float]:
    """Microseconds per call that each contender takes over `direct`: the median of the differences round by round."""
    base = times[direct]
    return {
        name: 1e6 * statistics.median(a - b for a, b in zip(seconds, base, strict=True))
        for name, seconds in times.items()
        if name != direct
    }


def first_use(call: Callable[[], Any], settle: Callable[[], None] = lambda: None) -> float:
    """Milliseconds of one call, to its end on the device."""
    settle()
    start = time.perf_counter()
    call()
    settle()
    return 1e3 * (time.perf_counter() - start)


def settling(device: torch.device) -> Callable[[], None]:
    """Waits for the device; nothing on a CPU."""
    return (lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else (lambda: None)


def line(error: object) -> str:
    """An error as one line of at most 300 characters."""
    return " ".join(str(error).split())[:300] or type(error).__name__
