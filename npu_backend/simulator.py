"""What a program costs: cycles on three units as timelines with dependencies, bytes moved, VTCM over time.

The machine has a DMA channel into VTCM (LOAD_TILE) and one out of it (STORE_TILE), a matrix unit (MATMUL, the
convolutions) and a vector unit (all else). Each unit runs its instructions in program order, one at a time. An instruction
starts when its unit is free, when what it reads is ready, and when VTCM has room for what it writes; without `overlap` it
waits for the instruction before it too, so that cycles add up. A fused instruction costs nothing: it works on the tile as
the matrix unit writes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from assay.baselines.errors import InputError
from assay.npu_backend import isa
from assay.npu_backend.codegen import Program
from assay.npu_backend.isa import Instruction
from assay.npu_backend.tensor import BITS, Role, Space, Tensor
from assay.npu_backend.validation import VTCM_BYTES, validate, vtcm_over_time


class Unit(StrEnum):
    """Where an instruction runs."""

    LOAD = "dma in"
    STORE = "dma out"
    MATRIX = "matrix"
    VECTOR = "vector"


@dataclass(frozen=True)
class Machine:
    """Rates of the units; a rate of 0 means that the work is not charged."""

    name: str
    vtcm_bytes: int
    macs_per_cycle: Mapping[str, float]
    """Multiply-accumulates by the dtype of the operands."""
    load_per_cycle: Callable[[Tensor, int], float]
    """(DRAM tensor, elements) -> cycles of a load."""
    store_per_cycle: Callable[[Tensor, int], float]
    """(DRAM tensor, elements) -> cycles of a store."""
    vector_per_cycle: float
    """Elements of the vector unit."""
    overlap: bool
    """Whether units run at the same time (double buffering)."""
    source: str
    """Where the rates come from."""
    hertz: float | None = None
    """Clock; None where cycles stand for no time."""
    fixed_seconds: float = 0.0
    """What every inference takes besides its cycles."""

    def milliseconds(self, cycles: int) -> float | None:
        """Estimated latency of an inference of so many cycles; None without a clock."""
        return None if self.hertz is None else 1e3 * (self.fixed_seconds + cycles / self.hertz)


def _weights_alone(tensor: Tensor, elements: int) -> float:
    return float(elements) if tensor.role == Role.WEIGHT and len(tensor.shape) > 1 else 0.0


SPEC = Machine(
    name="spec",
    vtcm_bytes=VTCM_BYTES,
    macs_per_cycle=dict.fromkeys(BITS, 1.0),
    load_per_cycle=_weights_alone,
    store_per_cycle=lambda tensor, elements: 0.0,
    vector_per_cycle=1.0,
    overlap=False,
    source=(
        "the specification's sample, 2,359,296 = (M + 1) K N with M = 8 and K = N = 512: one multiply-accumulate and one "
        "weight element loaded per cycle; activations, bias and stores are not charged, a fused RELU is free"
    ),
)
"""Reproduces the specification's example to the digit."""

PRESETS: dict[str, Machine] = {SPEC.name: SPEC}


@dataclass(frozen=True)
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
    validate(program, capacity=machine.vtcm_bytes)
    tensors = program.tensors
    live = vtcm_over_time(program)
    free = dict.fromkeys(Unit, 0)
    ready: dict[str, int] = {}
    released = _Room(program, machine.vtcm_bytes)
    events: list[Event] = []
    before = macs = moved = 0
    for place, instruction in enumerate(program.instructions):
        unit = unit_of(instruction)
        start = max([free[unit], *(ready.get(name, 0) for name in instruction.reads())])
        if not machine.overlap:
            start = max(start, before)
        start = max(start, released.room_for(place))
        stop = start + cycles_of(instruction, tensors, machine)
        free[unit] = before = stop
        ready[instruction.out] = max(stop, ready.get(instruction.out, 0))
        released.done(place, stop)
        macs += macs_of(instruction, tensors)
        if unit in (Unit.MATRIX, Unit.VECTOR) and not instruction.fused:
            moved += sum(tensors[name].bytes for name in (*instruction.reads(), instruction.out))
        events.append(Event(place, instruction.OPCODE, instruction.out, unit, start, stop))
    return Cost(
        machine=machine.name,
        cycles=max((event.stop for event in events), default=0),
        events=tuple(events),
        busy={unit: sum(event.cycles for event in events if event.unit == unit) for unit in Unit},
        read_bytes=_dma_bytes(program, isa.LoadTile),
        written_bytes=_dma_bytes(program, isa.StoreTile),
        vtcm_bytes=moved,
        vtcm_peak=max(live, default=0),
        vtcm_live=tuple(live),
        macs=macs,
    )


def preset(name: str) -> Machine:
    """A machine by name. Raises `InputError` for a name that is none."""
    if name not in PRESETS:
        raise InputError(f"there is no machine {name!r}: choose from {', '.join(PRESETS)}.")
    return PRESETS[name]


def unit_of(instruction: Instruction) -> Unit:
    """The unit that runs an instruction; a fused one rides on its producer's, where it costs nothing."""
    if isinstance(instruction, isa.LoadTile):
        return Unit.LOAD
    if isinstance(instruction, isa.StoreTile):
        return Unit.STORE
    return Unit.MATRIX if isinstance(instruction, isa.MatMul | isa.Conv2d) else Unit.VECTOR


def macs_of(instruction: Instruction, tensors: Mapping[str, Tensor]) -> int:
    """Multiply-accumulates: output elements times the length of each sum."""
    out = tensors[instruction.out].elements
    if isinstance(instruction, isa.MatMul):
        return out * tensors[instruction.a].shape[-1]
    if isinstance(instruction, isa.Conv2d):
        return out * math.prod(tensors[instruction.weight].shape[1:])
    return 0


def cycles_of(instruction: Instruction, tensors: Mapping[str, Tensor], machine: Machine) -> int:
    """Cycles of one instruction, rounded up."""
    if instruction.fused:
        return 0
    if isinstance(instruction, isa.LoadTile):
        return math.ceil(machine.load_per_cycle(tensors[instruction.source], tensors[instruction.out].elements))
    if isinstance(instruction, isa.StoreTile):
        return math.ceil(machine.store_per_cycle(tensors[instruction.out], tensors[instruction.source].elements))
    macs = macs_of(instruction, tensors)
    if macs:
        operand = tensors[instruction.reads()[0]].dtype
        return math.ceil(macs / machine.macs_per_cycle[operand])
    return math.ceil(tensors[instruction.out].elements / machine.vector_per_cycle) if machine.vector_per_cycle else 0


class _Room:
    """When VTCM has room: a tile's storage is free once the last instruction that touches it has stopped."""

    def __init__(self, program: Program, capacity: int) -> None:
        self._capacity = capacity
        self._tensors = program.tensors
        self._home: dict[str, str] = {}
        self._last: dict[str, int] = {}
        self._touched: list[list[str]] = []
        for place, instruction in enumerate(program.instructions):
            if instruction.fused:
                first = instruction.reads()[0]
                self._home[instruction.out] = self._home.get(first, first)
            owners = {
                self._home.get(name, name)
                for name in (*instruction.reads(), instruction.out)
                if program.tensors[name].space == Space.VTCM
            }
            self._touched.append(sorted(owners))
            self._last.update(dict.fromkeys(owners, place))
        self._held: dict[str, int] = {}
        self._freed: list[tuple[int, int]] = []  # (cycle from which the bytes are free, bytes)
        self._stops: dict[str, int] = {}

    def room_for(self, place: int) -> int:
        """First cycle at which the new tiles of an instruction fit."""
        new = [name for name in self._touched[place] if name not in self._held]
        wanted = sum(self._tensors[name].bytes for name in new)
        for name in new:
            self._held[name] = self._tensors[name].bytes
        taken = sum(self._held.values()) + sum(size for _, size in self._freed)
        start = 0
        # Storage that was given up is taken over in the order in which it became free.
        for cycle, size in sorted(self._freed):
            if not wanted or taken <= self._capacity:
                break
            start, taken = cycle, taken - size
            self._freed.remove((cycle, size))
        return start

    def done(self, place: int, stop: int) -> None:
        """An instruction has been placed: what it was the last to touch becomes free when it stops."""
        for name in self._touched[place]:
            self._stops[name] = max(stop, self._stops.get(name, 0))
            if self._last[name] == place:
                self._freed.append((self._stops[name], self._held.pop(name)))


def _dma_bytes(program: Program, kind: type[Instruction]) -> int:
    total = 0
    for instruction in program.instructions:
        if isinstance(instruction, kind):
            tile = instruction.out if kind is isa.LoadTile else instruction.reads()[0]
            total += program.tensors[tile].bytes
    return total
