"""What a program costs: cycles on four units as timelines with dependencies, bytes moved, VTCM over time.

The machine has a DMA channel into VTCM (LOAD_TILE) and one out of it (STORE_TILE), a matrix unit (MATMUL, the
convolutions) and a vector unit (all else). Each unit runs its instructions in program order, one at a time. An instruction
starts when its unit is free, when what it reads is ready, and when VTCM has room for what it writes; without `overlap` it
waits for the instruction before it too, so that cycles add up. A load or a store that only names a place in VTCM is no
work: it has no unit and no event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.baselines.errors import InputError
from assay.npu_backend import isa
from assay.npu_backend.codegen import Program
from assay.npu_backend.htp import htp_v75, load_rates
from assay.npu_backend.machine import SPEC, Machine, Unit, cycles_of, macs_of, unit_of
from assay.npu_backend.tensor import Role
from assay.npu_backend.timeline import Timeline
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

PRESETS: dict[str, Machine] = {machine.name: machine for machine in (SPEC, htp_v75(load_rates()))}


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
    tensors, code = program.tensors, program.instructions
    timeline = Timeline(program, found)
    order = {unit: number for number, unit in enumerate(Unit)}
    units = [machine.unit_of(instruction) for instruction in code]
    durations = [
        0 if skipped else cycles_of(instruction, tensors, machine)
        for instruction, skipped in zip(code, timeline.in_place, strict=True)
    ]
    starts, stops = timeline.run(
        [order[unit] for unit in units], durations, 0, capacity=machine.vtcm_bytes, overlap=machine.overlap
    )
    events: list[Event] = []
    busy = dict.fromkeys(Unit, 0)
    macs = moved = read = written = 0
    for place, instruction in enumerate(code):
        if timeline.in_place[place]:
            continue
        busy[units[place]] += durations[place]
        macs += macs_of(instruction, tensors)
        if isinstance(instruction, isa.LoadTile):
            read += tensors[instruction.out].bytes
        elif isinstance(instruction, isa.StoreTile):
            written += tensors[instruction.source].bytes
        elif not instruction.fused:
            moved += sum(tensors[name].bytes for name in (*instruction.reads(), instruction.out))
        events.append(Event(place, instruction.OPCODE, instruction.out, units[place], starts[place], stops[place]))
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
