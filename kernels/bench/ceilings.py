"""What this machine can do, measured by the coordinator, where no user code runs: the roofline that times are held to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

SLACK = {"cuda": 1.25, "cpu": 4.0}
"""How much faster than the measured ceiling a kernel may claim to be. A copy reaches about 0.88 of a GPU's peak; on a CPU
a read alone is twice as fast as a copy, and neighbours may have slowed the copy down."""
_REPEATS = 7
_LARGEST = 512 << 20
_PIECE = 256 << 10
"""Bytes that one thread of a CPU copies between two looks at the clock. On a busy machine every copy of some milliseconds
is interrupted, and threads that wait for each other wait longest: the best of them is a hundredth of what a kernel of some
microseconds reaches between two interruptions. What is measured to hold such kernels to is as short as they are."""
_EDGES = (128, 256)
"""Of the matrices that one thread multiplies, likewise."""


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


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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
        best = 2 * size / self._fastest([partial(target.copy_, source)])
        if self._device.type == "cuda" or size <= _PIECE:
            return best
        parts = [slice(start, start + _PIECE) for start in range(0, size - _PIECE + 1, _PIECE)]
        with _one_thread():
            return max(best, 2 * _PIECE / self._fastest([partial(target[p].copy_, source[p]) for p in parts]))

    def _product(self, dtype: str) -> float | None:
        n = 8192 if self._device.type == "cuda" else 512
        kind: Any = getattr(torch, dtype, None)
        if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
            return None
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")  # a kernel may use TF32 too, if its tolerance allows
        try:
            best = self._multiplied(n, kind)
            if self._device.type == "cuda":
                return best
            with _one_thread():
                return max(best, *(self._multiplied(edge, kind) for edge in _EDGES))
        except (RuntimeError, NotImplementedError):
            return None
        finally:
            torch.set_float32_matmul_precision(before)

    def _multiplied(self, n: int, kind: torch.dtype) -> float:
        a, b = (torch.ones(n, n, device=self._device).to(kind) for _ in range(2))
        return 2 * n**3 / self._fastest([partial(torch.mm, a, b)])

    def _fastest(self, runs: Sequence[Callable[[], object]]) -> float:
        """Seconds of the fastest of some runs that do as much as each other, all of them several times."""
        times = []
        runs[0]()
        for run in [*runs] * _REPEATS:
            self._settle()
            started = time.perf_counter()
            run()
            self._settle()
            times.append(time.perf_counter() - started)
        return max(min(times), 1e-9)

    def _settle(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
