"""SM clock and throttle state of a GPU, by NVML: read around each block, and unknown where there is none."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Protocol

SM_CLOCK = 1
SLOWED = {
    0x4: "power cap",
    0x8: "hw slowdown",
    0x20: "thermal",
    0x40: "hw thermal",
    0x80: "power brake",
}
"""Bits of NVML's clocksEventReasons that slow a device down. That it is idle, that somebody set its clocks, and that they
follow another device or the display are none."""


class ClockState(NamedTuple):
    """What NVML says; None where nothing tells."""

    mhz: float | None
    throttled: bool | None
    reasons: tuple[str, ...] = ()
    """Why it is throttled: words of `SLOWED`."""


UNKNOWN = ClockState(None, None)


class ClockReader(Protocol):
    """What tells the clock."""

    @property
    def available(self) -> bool: ...

    def state(self) -> ClockState:
        """The clock now."""
        ...


def reasons_of(bits: int) -> tuple[str, ...]:
    """NVML's clocksEventReasons in words, without those that slow nothing down."""
    return tuple(word for bit, word in SLOWED.items() if bits & bit)


def during(before: ClockState, after: ClockState) -> ClockState:
    """The worse of two states: that of what ran between them."""
    clocks = [state.mhz for state in (before, after) if state.mhz is not None]
    told = [state.throttled for state in (before, after) if state.throttled is not None]
    reasons = tuple(dict.fromkeys(before.reasons + after.reasons))
    return ClockState(min(clocks, default=None), any(told) if told else None, reasons)


class Clocks:
    """NVML of one device through the driver's own library, which needs no package."""

    def __init__(self, device: str) -> None:
        self._nvml: Any = None
        self._handle = ctypes.c_void_p()
        if not device.startswith("cuda"):
            return
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        if nvml.nvmlInit_v2() == 0 and self._open(nvml, device):
            self._nvml = nvml

    @property
    def available(self) -> bool:
        return self._nvml is not None

    def state(self) -> ClockState:
        """The clock now."""
        if self._nvml is None:
            return UNKNOWN
        clock, reasons = ctypes.c_uint(), ctypes.c_ulonglong()
        known = self._nvml.nvmlDeviceGetClockInfo(self._handle, SM_CLOCK, ctypes.byref(clock)) == 0
        told = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle, ctypes.byref(reasons)) == 0
        found = reasons_of(reasons.value) if told else ()
        return ClockState(float(clock.value) if known else None, bool(found) if told else None, found)

    def _open(self, nvml: Any, device: str) -> bool:
        """By UUID, since CUDA_VISIBLE_DEVICES renumbers the devices for torch and not for NVML."""
        import torch

        number = int(device.partition(":")[2] or 0)
        unique = getattr(torch.cuda.get_device_properties(number), "uuid", None)
        if unique is not None:
            name = f"GPU-{unique}".encode()
            if nvml.nvmlDeviceGetHandleByUUID(name, ctypes.byref(self._handle)) == 0:
                return True
        return bool(nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(self._handle)) == 0)
