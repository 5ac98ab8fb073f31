"""Clocks of a worker, taken hold of before the user's module is imported."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

Call = Callable[[], Any]
BACKLOG_CYCLES = 200_000
"""Cycles for which the GPU waits before an eager burst (about 0.1 ms), so that the launches queue up behind it."""
LATE_SECONDS = 100e-6
LATE_SHARE = 0.05


class SideWorkError(Exception):
    """Work of the kernel went on after the timed stream had finished."""


class Stopwatch(Protocol):
    """Times a burst of calls, each with inputs of its own."""

    name: str

    def burst(self, calls: Sequence[Call]) -> tuple[float, list[Any]]:
        """Seconds of all calls together, and what each returned."""
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

    def burst(self, calls: Sequence[Call]) -> tuple[float, list[Any]]:
        clock = self._clock
        outputs: list[Any] = [None] * len(calls)
        self._off()  # a collection in one arm's block would be taken for a slow kernel
        try:
            start = clock()
            for i, call in enumerate(calls):
                outputs[i] = call()
            stop = clock()
        finally:
            self._on()
        return (stop - start) / 1e9, outputs

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
        self._start, self._stop = (cuda.Event(enable_timing=True) for _ in range(2))

    def burst(self, calls: Sequence[Call], *, backlog: bool = True) -> tuple[float, list[Any]]:
        outputs: list[Any] = [None] * len(calls)
        self._settle(self._device)
        if backlog:
            self._sleep(BACKLOG_CYCLES)
        self._record(self._start)
        for i, call in enumerate(calls):
            outputs[i] = call()
        self._record(self._stop)
        self._wait(self._stop)
        stopped = self._clock()
        self._settle(self._device)
        late = self._clock() - stopped
        seconds = float(self._elapsed(self._start, self._stop)) / 1e3
        if late > max(LATE_SECONDS, LATE_SHARE * seconds):
            raise SideWorkError(f"work went on for {1e6 * late:.0f} us after the timed stream had finished")
        return seconds, outputs

    def settle(self) -> None:
        self._settle(self._device)


def stopwatch(device: torch.device) -> HostStopwatch | DeviceStopwatch:
    """The clock of a device."""
    return DeviceStopwatch(device) if device.type == "cuda" else HostStopwatch()
