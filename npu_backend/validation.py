"""What every program must satisfy before anything executes or costs it."""

from __future__ import annotations

from dataclasses import dataclass, field

from assay.baselines.errors import InputError
from assay.npu_backend.codegen import Program
from assay.npu_backend.coverage import Coverage
from assay.npu_backend.isa import Instruction, LoadTile, StoreTile
from assay.npu_backend.liveness import Liveness, in_place, liveness
from assay.npu_backend.tensor import Box, Role, Space, Tensor, Tensors, box_bytes

VTCM_BYTES = 8 << 20
"""VTCM of Hexagon V75 (ExecuTorch's qc_schema.py)."""

_STORED = (Role.OUTPUT, Role.INTERMEDIATE, Role.RESIDENT)
"""Tensors that the program itself writes, box by box."""


@dataclass
class _State:
    written: set[str] = field(default_factory=set)
    """Tiles that have been written."""
    last_read: dict[str, int] = field(default_factory=dict)
    """Tensor -> index of the last instruction that reads it."""
    stored: dict[str, Coverage] = field(default_factory=dict)
    """Tensor -> boxes that have been stored."""
    storage: dict[str, int] = field(default_factory=dict)
    """Tile -> bytes of the storage that it was written in."""
    placed: dict[str, str] = field(default_factory=dict)
    """Tile that lies in another tensor's storage -> that tensor."""


def validate(program: Program, *, capacity: int = VTCM_BYTES) -> Liveness:
    """Raises `InputError` for the first fault, naming the instruction and what is wrong; gives the storage over time.

    Faults: an unknown, undefined or twice defined tensor; operands of wrong shape, dtype or place (computation reads and
    writes tiles alone); a range outside its tensor; a load of what has not been stored; stores that overlap; a tile that
    is to lie in two places of VTCM; a fused instruction that does not follow its producer; an output or a resident that
    is not stored whole; more live bytes than `capacity`.
    """
    state = _State()
    for place, instruction in enumerate(program.instructions):
        state.last_read.update(dict.fromkeys(instruction.reads(), place))
    for place, instruction in enumerate(program.instructions):
        _check(program, place, instruction, state)
    for tensor in program.tensors.values():
        stored = state.stored.get(tensor.name)
        if tensor.role in (Role.OUTPUT, Role.RESIDENT) and (stored.elements if stored else 0) != tensor.elements:
            raise InputError(
                f"{tensor.role.value} {tensor.name} is not stored whole: add the STORE_TILE instructions that are missing."
            )
        if tensor.role == Role.TILE and tensor.name not in state.written:
            raise InputError(f"tile {tensor.name} is declared and never written: remove it.")
    found = liveness(program)
    peak = max(found.live, default=0)
    if peak > capacity:
        raise InputError(f"live tiles take {peak:,} bytes of VTCM, which has {capacity:,}: choose smaller tiles.")
    return found


def vtcm_peak(program: Program) -> int:
    """Largest sum of live tiles in bytes.

    A tile lives from the instruction that writes it to the last one that reads it, a resident tensor from the first tile
    in it to the last read of it. A fused instruction works in place: its output takes over the storage of what it reads
    first.
    """
    return max(vtcm_over_time(program), default=0)


def vtcm_over_time(program: Program) -> list[int]:
    """Live bytes of VTCM while each instruction runs."""
    return liveness(program).live


def _check(program: Program, place: int, instruction: Instruction, state: _State) -> None:
    where = f"instruction {place} ({instruction.OPCODE})"
    tensors = program.tensors
    for name in (*instruction.reads(), instruction.out):
        if name not in tensors:
            raise InputError(f"{where} names the tensor {name!r}, which the program does not declare.")
    out = tensors[instruction.out]
    for name in instruction.reads():
        _check_read(where, instruction, tensors[name], state)
    if isinstance(instruction, StoreTile):
        if out.role not in _STORED:
            raise InputError(f"{where} stores into {out.name}, which is {out.role.value}: store into an output.")
    elif out.role != Role.TILE:
        raise InputError(f"{where} writes {out.name}, which is {out.role.value}: write a tile and store it.")
    shape, dtype = instruction.result(tensors)
    if (shape, dtype) != (out.shape, out.dtype):
        raise InputError(f"{where} gives {shape} {dtype}, but {out.name} is declared as {out.shape} {out.dtype}.")
    if isinstance(instruction, LoadTile | StoreTile) and out.stored != tensors[instruction.source].stored:
        source = tensors[instruction.source]
        raise InputError(f"{where} copies {source.stored} into {out.name}, stored as {out.stored}: keep the storage.")
    if isinstance(instruction, StoreTile):
        _store(where, instruction, tensors, state)
        return
    if out.name in state.written:
        raise InputError(f"{where} writes {out.name} a second time: every tile is written once.")
    state.written.add(out.name)
    state.storage[out.name] = out.bytes
    if instruction.fused:
        _check_fused(where, program, place, instruction, state)
    elif isinstance(instruction, LoadTile) and in_place(instruction, tensors):
        state.placed[out.name] = instruction.source


def _check_read(where: str, instruction: Instruction, tensor: Tensor, state: _State) -> None:
    if isinstance(instruction, LoadTile):
        if tensor.role in _STORED:
            stored = state.stored.get(tensor.name)
            if stored is None or not (stored.elements == tensor.elements or stored.covers(instruction.ranges)):
                raise InputError(f"{where} loads a part of {tensor.name} that has not been stored.")
        elif tensor.role == Role.TILE and tensor.name not in state.written:
            raise InputError(f"{where} loads a part of the tile {tensor.name} before it is written.")
        return
    if tensor.role != Role.TILE:
        raise InputError(f"{where} reads {tensor.name}, which is {tensor.role.value}: load a tile of it first.")
    if tensor.name not in state.written:
        raise InputError(f"{where} reads the tile {tensor.name} before it is written.")


def _check_fused(where: str, program: Program, place: int, instruction: Instruction, state: _State) -> None:
    first = instruction.reads()[0] if instruction.reads() else None
    before = program.instructions[place - 1] if place else None
    if before is None or before.out != first or isinstance(before, LoadTile) or isinstance(instruction, LoadTile):
        raise InputError(f"{where} is fused, but does not follow the computation of what it reads first.")
    kept = program.tensors[before.out]
    if program.tensors[instruction.out].bytes > kept.bytes:
        raise InputError(
            f"{where} is fused, but its output does not fit into the {kept.bytes} bytes that it takes over."
        )
    if state.last_read[before.out] != place or instruction.reads().count(before.out) > 1:
        raise InputError(f"{where} is fused and works in place, but {before.out} is read again.")
    state.storage[instruction.out] = state.storage[before.out]


def _store(where: str, instruction: StoreTile, tensors: Tensors, state: _State) -> None:
    out, box = tensors[instruction.out], instruction.ranges
    if not state.stored.setdefault(out.name, Coverage()).add(box):
        raise InputError(f"{where} stores a part of {out.name} a second time.")
    if out.space == Space.VTCM:
        _place(where, instruction.source, out, box, state)


def _place(where: str, tile: str, out: Tensor, box: Box, state: _State) -> None:
    """A tile becomes a box of a resident: it must lie nowhere else and need no more room."""
    if tile in state.placed:
        raise InputError(f"{where} keeps {tile} in {out.name}, but it lies in {state.placed[tile]}: compute a copy.")
    if state.storage[tile] > box_bytes(box, out):
        raise InputError(
            f"{where} keeps {tile} in {out.name}, but it was computed in {state.storage[tile]} bytes: "
            f"the box has {box_bytes(box, out)}."
        )
    state.placed[tile] = out.name
