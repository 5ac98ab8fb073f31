"""Times of several contenders on the same inputs: single launches, interleaved in random order, one lease.

The order is drawn anew for every round, so that drift of clocks and temperature falls on all contenders alike; times
of one round are pairs. The launches of a batch of rounds are enqueued behind a spinning kernel, so that the GPU never
waits for Python between the two events of a launch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Call = Callable[[], Any]
_SPIN_CYCLES = 20_000_000
_BATCH = 10
_RESAMPLES = 1_000
_BLOCK = 5


@dataclass(frozen=True)
class Ratio:
    """Median of the paired ratio b/a over rounds, with its 95% interval by block bootstrap."""

    value: float
    low: float
    high: float


def interleaved(contenders: Mapping[str, Sequence[Call]], rounds: int, seed: int) -> dict[str, list[float]]:
    """Seconds of each round, by contender. A contender's calls are on different inputs, taken in turn.

    Runs on the current CUDA device. Each contender is called three times before, so that nothing is built or tuned inside.
    """
    order = random.Random(seed)
    names = list(contenders)
    spin: Any = torch.cuda._sleep
    event: Any = torch.cuda.Event
    for calls in contenders.values():
        for number in range(3):
            calls[number % len(calls)]()
    torch.cuda.synchronize()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for first in range(0, rounds, _BATCH):
        spin(_SPIN_CYCLES)
        events: list[tuple[str, Any, Any]] = []
        for turn in range(first, min(first + _BATCH, rounds)):
            for name in order.sample(names, len(names)):
                start, end = event(enable_timing=True), event(enable_timing=True)
                calls = contenders[name]
                start.record()
                calls[turn % len(calls)]()
                end.record()
                events.append((name, start, end))
        torch.cuda.synchronize()
        for name, start, end in events:
            seconds[name].append(start.elapsed_time(end) / 1e3)
    return seconds


def ratio(numerator: Sequence[float], denominator: Sequence[float], seed: int = 0) -> Ratio:
    """How many times `denominator` fits into `numerator`: median of the paired log-ratio, exponentiated.

    The interval is the percentile interval of a moving-block bootstrap (Kuensch 1989) with blocks of 5 rounds, so that
    what lasts for several rounds is not taken for independent evidence.
    """
    pairs = np.log(np.asarray(numerator)) - np.log(np.asarray(denominator))
    count = len(pairs)
    generator = np.random.default_rng(seed)
    block = min(_BLOCK, count)
    starts = generator.integers(0, count - block + 1, size=(_RESAMPLES, -(-count // block)))
    index = (starts[:, :, None] + np.arange(block)).reshape(_RESAMPLES, -1)[:, :count]
    medians = np.median(pairs[index], axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return Ratio(float(np.exp(np.median(pairs))), float(np.exp(low)), float(np.exp(high)))


def median(seconds: Sequence[float]) -> float:
    """The middle time."""
    return float(np.median(seconds))
