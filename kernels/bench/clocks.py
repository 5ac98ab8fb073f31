"""SM clock and throttle state of a GPU, by NVML: read before each block, and unknown where there is none."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

SM_CLOCK = 1
SLOWED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""NVML clocksEventReasons: software power cap, hardware slowdown, software thermal, hardware thermal, power brake."""


class ClockState(NamedTuple):
    """What NVML says; None where nothing tells."""

    mhz: float | None
    throttled: bool | None


UNKNOWN = ClockState(None, None)


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
        return ClockState(float(clock.value) if known else None, bool(reasons.value & SLOWED) if told else None)

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
