"""What this machine can do, measured by the coordinator, where no user code runs: the roofline that times are held to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

SLACK = {"cuda": 1.25, "cpu": 4.0}
"""How much faster than the measured ceiling a kernel may claim to be. A copy reaches about 0.88 of a GPU's peak; on a CPU
a read alone is twice as fast as a copy, and neighbours may have slowed the copy down."""
_REPEATS = 7
_LARGEST = 512 << 20


@dataclass(frozen=True)
class Roofline:
    """Floor of a case's time from its declared bytes and operations."""

    bandwidth: float
    """Bytes/s of a copy (read and written) over the same footprint."""
    operations: float | None
    """FLOP/s of a matrix product in the case's dtype; None where torch has none."""

    def floor(self, moved: float, flops: float) -> float:
        """Seconds below which no kernel can be, by the measured ceilings."""
        return max(moved / self.bandwidth, flops / self.operations if self.operations else 0.0)


class Ceilings:
    """The best that was measured for each footprint and dtype: whatever else ran can only have made it less."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._bandwidth: dict[int, float] = {}
        self._operations: dict[str, float | None] = {}

    def roofline(self, set_bytes: int, launches: int, dtype: str, *, again: bool = False) -> Roofline:
        """Ceilings for a case that moves `launches` sets of `set_bytes` in turn; measured `again` although they are known."""
        # On a GPU the sets lie beyond the cache, or are so small that their launch takes longer than their bytes.
        half = _LARGEST if self._device.type == "cuda" else max(4096, min(set_bytes * launches // 2, _LARGEST))
        if again or half not in self._bandwidth:
            self._bandwidth[half] = max(self._copy(half), self._bandwidth.get(half, 0.0))
        if again or dtype not in self._operations:
            made, known = self._product(dtype), self._operations.get(dtype)
            self._operations[dtype] = max((found for found in (made, known) if found is not None), default=None)
        return Roofline(self._bandwidth[half], self._operations[dtype])

    def _copy(self, size: int) -> float:
        source, target = (torch.ones(size, dtype=torch.uint8, device=self._device) for _ in range(2))
        return 2 * size / self._fastest(lambda: target.copy_(source))

    def _product(self, dtype: str) -> float | None:
        n = 8192 if self._device.type == "cuda" else 512
        kind: Any = getattr(torch, dtype, None)
        if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
            return None
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")  # a kernel may use TF32 too, if its tolerance allows
        try:
            a, b = (torch.ones(n, n, device=self._device).to(kind) for _ in range(2))
            return 2 * n**3 / self._fastest(lambda: torch.mm(a, b))
        except (RuntimeError, NotImplementedError):
            return None
        finally:
            torch.set_float32_matmul_precision(before)

    def _fastest(self, run: Callable[[], object]) -> float:
        times = []
        run()
        for _ in range(_REPEATS):
            self._settle()
            started = time.perf_counter()
            run()
            self._settle()
            times.append(time.perf_counter() - started)
        return max(min(times), 1e-9)

    def _settle(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
