"""What every program must satisfy before anything executes or costs it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from assay.baselines.errors import InputError
from assay.npu_backend.codegen import Program
from assay.npu_backend.isa import Instruction, LoadTile, StoreTile
from assay.npu_backend.tensor import Range, Role, Space, Tensor

VTCM_BYTES = 8 << 20
"""VTCM of Hexagon V75 (ExecuTorch's qc_schema.py)."""

Box = tuple[Range, ...]


@dataclass
class _State:
    written: set[str] = field(default_factory=set)
    """Tiles that have been written."""
    last_read: dict[str, int] = field(default_factory=dict)
    """Tensor -> index of the last instruction that reads it."""
    stored: dict[str, list[Box]] = field(default_factory=dict)
    """DRAM tensor -> boxes that have been stored."""


def validate(program: Program, *, capacity: int = VTCM_BYTES) -> None:
    """Raises `InputError` for the first fault, naming the instruction and what is wrong.

    Faults: an unknown, undefined or twice defined tensor; operands of wrong shape, dtype or place (computation reads and
    writes tiles alone); a range outside its tensor; a load of what has not been stored; stores that overlap; a
    fused instruction that does not follow its producer; an output that is not stored whole; more live tiles than
    `capacity` bytes.
    """
    state = _State()
    for place, instruction in enumerate(program.instructions):
        state.last_read.update(dict.fromkeys(instruction.reads(), place))
    for place, instruction in enumerate(program.instructions):
        _check(program, place, instruction, state)
    for tensor in program.tensors.values():
        if tensor.role == Role.OUTPUT and _volume(state.stored.get(tensor.name, [])) != tensor.elements:
            raise InputError(
                f"output {tensor.name} is not stored whole: add the STORE_TILE instructions that are missing."
            )
        if tensor.role == Role.TILE and tensor.name not in state.written:
            raise InputError(f"tile {tensor.name} is declared and never written: remove it.")
    peak = vtcm_peak(program)
    if peak > capacity:
        raise InputError(f"live tiles take {peak:,} bytes of VTCM, which has {capacity:,}: choose smaller tiles.")


def vtcm_peak(program: Program) -> int:
    """Largest sum of live tiles in bytes.

    A tile lives from the instruction that writes it to the last one that reads it. A fused instruction works in place:
    its output takes over the storage of what it reads first.
    """
    return max(vtcm_over_time(program), default=0)


def vtcm_over_time(program: Program) -> list[int]:
    """Live bytes of VTCM while each instruction runs."""
    home: dict[str, str] = {}
    last: dict[str, int] = {}
    for place, instruction in enumerate(program.instructions):
        tensors = [*instruction.reads(), instruction.out]
        if instruction.fused:
            home[instruction.out] = home.get(instruction.reads()[0], instruction.reads()[0])
        for name in tensors:
            if program.tensors[name].space == Space.VTCM:
                last[home.get(name, name)] = place
    live: dict[str, int] = {}
    found = []
    for place, instruction in enumerate(program.instructions):
        for name in (*instruction.reads(), instruction.out):
            owner = home.get(name, name)
            if program.tensors[owner].space == Space.VTCM:
                live[owner] = program.tensors[owner].bytes
        found.append(sum(live.values()))
        live = {name: size for name, size in live.items() if last[name] > place}
    return found


def _check(program: Program, place: int, instruction: Instruction, state: _State) -> None:
    where = f"instruction {place} ({instruction.OPCODE})"
    for name in (*instruction.reads(), instruction.out):
        if name not in program.tensors:
            raise InputError(f"{where} names the tensor {name!r}, which the program does not declare.")
    tensors = program.tensors
    out = tensors[instruction.out]
    for name in instruction.reads():
        _check_read(where, instruction, tensors[name], state)
    if isinstance(instruction, StoreTile):
        if out.role not in (Role.OUTPUT, Role.INTERMEDIATE):
            raise InputError(f"{where} stores into {out.name}, which is {out.role.value}: store into an output.")
    elif out.role != Role.TILE:
        raise InputError(f"{where} writes {out.name} in DRAM: write a tile and store it.")
    shape, dtype = instruction.result(tensors)
    if (shape, dtype) != (out.shape, out.dtype):
        raise InputError(f"{where} gives {shape} {dtype}, but {out.name} is declared as {out.shape} {out.dtype}.")
    if isinstance(instruction, StoreTile):
        _store(where, out, instruction.ranges, state)
        return
    if out.name in state.written:
        raise InputError(f"{where} writes {out.name} a second time: every tile is written once.")
    state.written.add(out.name)
    if instruction.fused:
        _check_fused(where, program, place, instruction, state)


def _check_read(where: str, instruction: Instruction, tensor: Tensor, state: _State) -> None:
    if isinstance(instruction, LoadTile):
        if tensor.space != Space.DRAM:
            raise InputError(f"{where} loads {tensor.name}, which is a tile already.")
        if tensor.role in (Role.OUTPUT, Role.INTERMEDIATE):
            boxes = state.stored.get(tensor.name, [])
            covered = sum(_overlap(box, instruction.ranges) for box in boxes)
            if covered != _volume([instruction.ranges]):
                raise InputError(f"{where} loads a part of {tensor.name} that has not been stored.")
        return
    if tensor.space != Space.VTCM:
        raise InputError(f"{where} reads {tensor.name} in DRAM: load a tile of it first.")
    if tensor.name not in state.written:
        raise InputError(f"{where} reads the tile {tensor.name} before it is written.")


def _check_fused(where: str, program: Program, place: int, instruction: Instruction, state: _State) -> None:
    first = instruction.reads()[0] if instruction.reads() else None
    before = program.instructions[place - 1] if place else None
    if before is None or before.out != first or isinstance(before, LoadTile):
        raise InputError(f"{where} is fused, but does not follow the computation of what it reads first.")
    kept = program.tensors[before.out]
    if program.tensors[instruction.out].bytes > kept.bytes:
        raise InputError(
            f"{where} is fused, but its output does not fit into the {kept.bytes} bytes that it takes over."
        )
    if state.last_read[before.out] != place or instruction.reads().count(before.out) > 1:
        raise InputError(f"{where} is fused and works in place, but {before.out} is read again.")


def _store(where: str, out: Tensor, box: Box, state: _State) -> None:
    boxes = state.stored.setdefault(out.name, [])
    if any(_overlap(box, other) for other in boxes):
        raise InputError(f"{where} stores a part of {out.name} a second time.")
    boxes.append(box)


def _volume(boxes: list[Box]) -> int:
    return sum(math.prod(stop - start for start, stop in box) for box in boxes)


def _overlap(a: Box, b: Box) -> int:
    """Elements that two boxes share."""
    return math.prod(max(0, min(p[1], q[1]) - max(p[0], q[0])) for p, q in zip(a, b, strict=True))
