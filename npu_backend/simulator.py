"""What a program costs: cycles on four units as timelines with dependencies, bytes moved, VTCM over time.

The machine has a DMA channel into VTCM (LOAD_TILE) and one out of it (STORE_TILE), a matrix unit (MATMUL, the
convolutions) and a vector unit (all else). Each unit runs its instructions in program order, one at a time. An instruction
starts when its unit is free, when what it reads is ready, and when VTCM has room for what it writes; without `overlap` it
waits for the instruction before it too, so that cycles add up. A load or a store that only names a place in VTCM is no
work: it has no unit and no event.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from assay.baselines.errors import InputError
from assay.npu_backend import isa
from assay.npu_backend.codegen import Program
from assay.npu_backend.liveness import Liveness, in_place
from assay.npu_backend.machine import SPEC, Machine, Unit, cycles_of, macs_of, unit_of
from assay.npu_backend.tensor import Role, Space
from assay.npu_backend.validation import validate

__all__ = [
    "PRESETS",
    "SPEC",
    "Cost",
    "Event",
    "Machine",
    "Unit",
    "cycles_of",
    "macs_of",
    "preset",
    "simulate",
    "unit_of",
]

PRESETS: dict[str, Machine] = {SPEC.name: SPEC}


@dataclass(frozen=True, slots=True)
class Event:
    """One instruction on its unit."""

    place: int
    """Index in the program."""
    opcode: str
    out: str
    unit: Unit
    start: int
    stop: int
    """Cycles; `stop` is exclusive."""

    @property
    def cycles(self) -> int:
        """How long it runs."""
        return self.stop - self.start


@dataclass(frozen=True)
class Cost:
    """What a program costs on a machine."""

    machine: str
    cycles: int
    events: tuple[Event, ...]
    """In the order of the program; instructions that only name a place in VTCM have none."""
    busy: Mapping[Unit, int]
    """Cycles in which a unit works."""
    read_bytes: int
    """DRAM bytes loaded."""
    written_bytes: int
    """DRAM bytes stored."""
    vtcm_bytes: int
    """Bytes of tiles that computation reads and writes."""
    vtcm_peak: int
    vtcm_live: tuple[int, ...]
    """Live bytes while each instruction runs."""
    macs: int
    spilled: tuple[str, ...] = ()
    """Intermediate tensors that go through DRAM, because they do not fit VTCM beside what else lives."""

    @property
    def utilisation(self) -> dict[Unit, float]:
        """Share of all cycles in which a unit works."""
        return {unit: self.busy[unit] / self.cycles if self.cycles else 0.0 for unit in Unit}

    @property
    def bottleneck(self) -> Unit:
        """The unit that works most."""
        return max(Unit, key=lambda unit: self.busy[unit])


def simulate(program: Program, machine: Machine = SPEC) -> Cost:
    """Cost of a program. Raises `InputError` for one that does not validate under the machine's VTCM."""
    found = validate(program, capacity=machine.vtcm_bytes)
    tensors = program.tensors
    free, busy = dict.fromkeys(Unit, 0), dict.fromkeys(Unit, 0)
    ready: dict[str, int] = {}
    room = _Room(program, found, machine.vtcm_bytes)
    events: list[Event] = []
    before = macs = moved = read = written = 0
    for place, instruction in enumerate(program.instructions):
        operands, out = instruction.reads(), instruction.out
        start = max([ready.get(name, 0) for name in operands], default=0)
        start = max(start, room.room_for(place))
        if in_place(instruction, tensors):
            stop = start
        else:
            unit = machine.unit_of(instruction)
            start = max(start, free[unit], 0 if machine.overlap else before)
            cycles = cycles_of(instruction, tensors, machine)
            free[unit] = before = stop = start + cycles
            busy[unit] += cycles
            macs += macs_of(instruction, tensors)
            if isinstance(instruction, isa.LoadTile):
                read += tensors[out].bytes
            elif isinstance(instruction, isa.StoreTile):
                written += tensors[instruction.source].bytes
            elif not instruction.fused:
                moved += sum(tensors[name].bytes for name in (*operands, out))
            events.append(Event(place, instruction.OPCODE, out, unit, start, stop))
        ready[out] = max(stop, ready.get(out, 0))
        room.done(place, stop)
    return Cost(
        machine=machine.name,
        cycles=max((event.stop for event in events), default=0),
        events=tuple(events),
        busy=busy,
        read_bytes=read,
        written_bytes=written,
        vtcm_bytes=moved,
        vtcm_peak=max(found.live, default=0),
        vtcm_live=tuple(found.live),
        macs=macs,
        spilled=tuple(tensor.name for tensor in program.of_role(Role.INTERMEDIATE)),
    )


def preset(name: str) -> Machine:
    """A machine by name. Raises `InputError` for a name that is none."""
    if name not in PRESETS:
        raise InputError(f"there is no machine {name!r}: choose from {', '.join(PRESETS)}.")
    return PRESETS[name]


class _Room:
    """When VTCM has room: storage is free once the last instruction that touches it has stopped."""

    def __init__(self, program: Program, found: Liveness, capacity: int) -> None:
        self._tensors = program.tensors
        self._found = found
        self._left = capacity
        """Bytes that nobody has held yet or that were taken back."""
        self._freed: list[tuple[int, int]] = []
        """(cycle from which bytes are free, bytes), a heap."""
        self._stops: dict[str, int] = {}
        self._touched = [
            tuple({found.owner[n] for n in (*i.reads(), i.out) if program.tensors[n].space == Space.VTCM})
            for i in program.instructions
        ]

    def room_for(self, place: int) -> int:
        """First cycle at which the new storage of an instruction fits."""
        start = 0
        for name in self._found.taken[place]:
            self._left -= self._tensors[name].bytes
        # Storage that was given up is taken over in the order in which it became free.
        while self._left < 0 and self._freed:
            cycle, size = heapq.heappop(self._freed)
            start, self._left = max(start, cycle), self._left + size
        return start

    def done(self, place: int, stop: int) -> None:
        """An instruction has been placed: what it was the last to touch becomes free when it stops."""
        stops = self._stops
        for name in self._touched[place]:
            stops[name] = max(stop, stops.get(name, 0))
        for name in self._found.given[place]:
            heapq.heappush(self._freed, (stops[name], self._tensors[name].bytes))
