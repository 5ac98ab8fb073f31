"""Clocks of a worker, taken hold of before the user's module is imported."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch

Call = Callable[[], Any]
Keep = Callable[[list[Any]], None]
CYCLES_PER_SECOND = 2e9
"""About how fast a GPU counts the cycles of its waiting kernel."""
LEAST_BACKLOG = 100e-6
MOST_BACKLOG = 50e-3


def _nothing(_: list[Any]) -> None:
    return None


class Burst(NamedTuple):
    """What one burst of calls came to."""

    seconds: float
    """Of all calls together."""
    outputs: list[Any]
    late: float
    """Seconds for which the device still worked when the timed stream had finished."""
    host: float
    """Seconds that the calls took to return."""


class Stopwatch(Protocol):
    """Times a burst of calls, each with inputs of its own."""

    name: str

    def burst(self, calls: Sequence[Call], backlog: float = 0.0, keep: Keep = _nothing) -> Burst:
        """Run the calls. `backlog` is for how many seconds a device is kept waiting while they are queued behind it; `keep` is
        called with the outputs when the clock has stopped, before anything else can run."""
        ...

    def settle(self) -> None:
        """Wait until the device has nothing left to do."""
        ...


class HostStopwatch:
    """perf_counter_ns around the calls."""

    name = "perf_counter_ns"

    def __init__(self) -> None:
        self._clock = time.perf_counter_ns
        self._off, self._on = gc.disable, gc.enable

    def burst(self, calls: Sequence[Call], backlog: float = 0.0, keep: Keep = _nothing) -> Burst:
        clock = self._clock
        outputs: list[Any] = [None] * len(calls)
        self._off()  # a collection in one arm's block would be taken for a slow kernel
        try:
            start = clock()
            for i, call in enumerate(calls):
                outputs[i] = call()
            stop = clock()
            keep(outputs)
        finally:
            self._on()
        seconds = (stop - start) / 1e9
        return Burst(seconds, outputs, 0.0, seconds)

    def settle(self) -> None:
        return None


class DeviceStopwatch:
    """CUDA events on the current stream, and a look at whether other streams still work when they say that it is over."""

    name = "cuda-event"

    def __init__(self, device: torch.device) -> None:
        cuda: Any = torch.cuda  # partly without types
        self._device = device
        self._clock = time.perf_counter
        self._record, self._elapsed = cuda.Event.record, cuda.Event.elapsed_time
        self._wait, self._settle = cuda.Event.synchronize, cuda.synchronize
        self._sleep = cuda._sleep
        self._off, self._on = gc.disable, gc.enable
        self._start, self._stop = (cuda.Event(enable_timing=True) for _ in range(2))

    def burst(self, calls: Sequence[Call], backlog: float = LEAST_BACKLOG, keep: Keep = _nothing) -> Burst:
        outputs: list[Any] = [None] * len(calls)
        self._off()
        try:
            self._settle(self._device)
            if backlog > 0:
                self._sleep(int(min(max(backlog, LEAST_BACKLOG), MOST_BACKLOG) * CYCLES_PER_SECOND))
            began = self._clock()
            self._record(self._start)
            for i, call in enumerate(calls):
                outputs[i] = call()
            self._record(self._stop)
            host = self._clock() - began
            self._wait(self._stop)
            stopped = self._clock()
            self._settle(self._device)
            late = self._clock() - stopped
            keep(outputs)
        finally:
            self._on()
        return Burst(float(self._elapsed(self._start, self._stop)) / 1e3, outputs, late, host)

    def settle(self) -> None:
        self._settle(self._device)


def stopwatch(device: torch.device) -> HostStopwatch | DeviceStopwatch:
    """The clock of a device."""
    return DeviceStopwatch(device) if device.type == "cuda" else HostStopwatch()
