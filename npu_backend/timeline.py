"""When instructions run: dependencies and VTCM storage of a program, apart from how long each instruction takes.

What an instruction waits for is the same on every machine, so it is found once; `run` then places instructions of given
durations in one pass.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TypeVar

from assay.npu_backend.codegen import Program
from assay.npu_backend.liveness import Liveness, in_place
from assay.npu_backend.tensor import Space

Time = TypeVar("Time", int, float)


class Timeline:
    """What the instructions of a program wait for."""

    def __init__(self, program: Program, found: Liveness) -> None:
        tensors = program.tensors
        numbers = {name: number for number, name in enumerate(dict.fromkeys(found.owner.values()))}
        self.in_place = [in_place(instruction, tensors) for instruction in program.instructions]
        """Instructions that only name a place in VTCM: they run on no unit and take no time."""
        self._storages = len(numbers)
        self._needs: list[tuple[int, ...]] = []
        """Instruction -> those that wrote what it reads."""
        self._touched: list[tuple[int, ...]] = []
        """Instruction -> numbers of the storage that it reads and writes."""
        writer: dict[str, int] = {}
        for place, instruction in enumerate(program.instructions):
            names = [*instruction.reads(), instruction.out]
            # A store waits for the one before it into the same tensor, so that the last one stands for all.
            waits = names if self.in_place[place] else names[:-1]
            self._needs.append(tuple({writer[name] for name in waits if name in writer}))
            writer[instruction.out] = place
            owners = {found.owner[name] for name in names if tensors[name].space == Space.VTCM}
            self._touched.append(tuple(numbers[owner] for owner in owners))
        self._taken = [sum(tensors[name].bytes for name in names) for names in found.taken]
        self._given = [tuple((numbers[name], tensors[name].bytes) for name in names) for names in found.given]

    def run(
        self, units: Sequence[int], durations: Sequence[Time], zero: Time, *, capacity: int, overlap: bool
    ) -> tuple[list[Time], list[Time]]:
        """Starts and stops of instructions on `units` (numbers from 0), each of which runs in program order.

        An instruction starts when its unit is free, when what it reads is ready and when VTCM of `capacity` bytes has room
        for what it writes; without `overlap` it waits for the one before it as well. `zero` is the time at the start.
        """
        free = [zero] * (1 + max(units, default=0))
        stored = [zero] * self._storages
        """Storage -> when the last instruction that touched it stops."""
        starts: list[Time] = []
        stops: list[Time] = []
        freed: list[tuple[Time, int]] = []
        """When storage that was given up is free, and its bytes: a heap, since it is taken over in that order."""
        left, before = capacity, zero
        for place, duration in enumerate(durations):
            start = zero
            for need in self._needs[place]:
                if stops[need] > start:
                    start = stops[need]
            left -= self._taken[place]
            while left < 0 and freed:
                moment, size = heapq.heappop(freed)
                left += size
                if moment > start:
                    start = moment
            if self.in_place[place]:
                stop = start
            else:
                unit = units[place]
                start = max(start, free[unit]) if overlap else max(start, free[unit], before)
                free[unit] = before = stop = start + duration
            starts.append(start)
            stops.append(stop)
            for storage in self._touched[place]:
                if stop > stored[storage]:
                    stored[storage] = stop
            for storage, size in self._given[place]:
                heapq.heappush(freed, (stored[storage], size))
        return starts, stops
