"""Latency and memory of a model on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import bdtr

from assay.baselines.errors import InputError
from assay.baselines.evidence import Metric

REPETITIONS = 30
WARM_UP = 5
_TOKENS = 128


def measure_latency(
    call: Callable[[], object],
    *,
    repetitions: int = REPETITIONS,
    warm_up: int = WARM_UP,
    clock: Callable[[], float] = time.perf_counter,
) -> Metric:
    """Median milliseconds of `call`, with its 95% interval, after calls that do not count.

    `call` returns when its work is done (it synchronises the device itself).
    """
    for _ in range(warm_up):
        call()
    times = []
    for _ in range(repetitions):
        start = clock()
        call()
        times.append((clock() - start) * 1000)
    low, high = median_interval(times)
    return Metric(value=float(np.median(times)), unit="ms", direction="lower", n=repetitions, low=low, high=high)


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Distribution-free interval of the median from order statistics, at least `confidence` (Conover 1999, section 3.2).

    The r-th smallest and r-th largest values enclose the median with probability 1 - 2 P[Bin(n, 1/2) < r]; r is the
    largest that keeps the confidence. Raises `InputError` below 6 values, where no such interval has 95%.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    ranks = np.arange(1, n // 2 + 1)
    enough = ranks[2 * bdtr(ranks - 1, n, 0.5) <= 1 - confidence]
    if not len(enough):
        raise InputError(f"{n} repetitions are too few for an interval of the median: repeat at least 6 times.")
    rank = int(enough[-1])
    return float(ordered[rank - 1]), float(ordered[n - rank])


def measure_forward(model: Any, max_length: int, tokens: int = _TOKENS) -> Metric:
    """Milliseconds of one forward pass over one sequence of `tokens` tokens (at most `max_length`)."""
    import torch

    length = max(1, min(tokens, max_length))
    generator = torch.Generator().manual_seed(0)
    vocabulary = int(model.config.get_text_config().vocab_size)
    ids = torch.randint(0, vocabulary, (1, length), generator=generator).to(model.device)

    def forward() -> None:
        with torch.inference_mode():
            model(ids)
        synchronize(str(ids.device))

    return measure_latency(forward)


def synchronize(device: str) -> None:
    """Wait until the device has done its work; a CPU already has."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()


def peak_memory(device: str) -> dict[str, Metric]:
    """`memory`: the most bytes that torch held on a CUDA device in this process; empty elsewhere."""
    if not device.startswith("cuda"):
        return {}
    import torch

    return {"memory": Metric(value=float(torch.cuda.max_memory_allocated()), unit="bytes", direction="lower")}
