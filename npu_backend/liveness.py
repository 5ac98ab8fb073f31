"""Storage in VTCM: which tiles share it, from which instruction to which it is taken.

A fused instruction works in place: its output takes over the storage of what it reads first. A tile that is loaded from
VTCM is a box of what it was loaded from, where it lies, and a tile that is stored into a resident tensor was written there.
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.npu_backend.codegen import Program
from assay.npu_backend.isa import Instruction, LoadTile, StoreTile
from assay.npu_backend.tensor import Space, Tensors


def in_place(instruction: Instruction, tensors: Tensors) -> bool:
    """Whether an instruction only names a place in VTCM: it moves and computes nothing."""
    if isinstance(instruction, LoadTile):
        return tensors[instruction.source].space == Space.VTCM
    return isinstance(instruction, StoreTile) and tensors[instruction.out].space == Space.VTCM


@dataclass(frozen=True)
class Liveness:
    """The storage of a program's tiles. Storage is named by the tensor that it belongs to."""

    owner: dict[str, str]
    """Tile or resident tensor -> its storage."""
    taken: list[tuple[str, ...]]
    """Instruction -> storage that it is the first to touch."""
    given: list[tuple[str, ...]]
    """Instruction -> storage that it is the last to touch."""
    live: list[int]
    """Bytes that are taken while each instruction runs."""


def liveness(program: Program) -> Liveness:
    """Storage over time; names that the program does not declare are an error of the caller."""
    tensors = program.tensors
    parent: dict[str, str] = {}

    def owner(name: str) -> str:
        root = name
        while root in parent:
            root = parent[root]
        while name != root:
            parent[name], name = root, parent[name]
        return root

    for instruction in program.instructions:
        if instruction.fused or (isinstance(instruction, LoadTile) and in_place(instruction, tensors)):
            parent[instruction.out] = owner(instruction.reads()[0])
        elif isinstance(instruction, StoreTile) and in_place(instruction, tensors):
            root = owner(instruction.source)
            if root != instruction.out:
                parent[root] = instruction.out
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for place, instruction in enumerate(program.instructions):
        for name in (*instruction.reads(), instruction.out):
            if tensors[name].space == Space.VTCM:
                root = owner(name)
                first.setdefault(root, place)
                last[root] = place
    taken: list[tuple[str, ...]] = [()] * len(program.instructions)
    given = list(taken)
    for root, place in first.items():
        taken[place] = (*taken[place], root)
        given[last[root]] = (*given[last[root]], root)
    live, now = [], 0
    for begin, end in zip(taken, given, strict=True):
        now += sum(tensors[root].bytes for root in begin)
        live.append(now)
        now -= sum(tensors[root].bytes for root in end)
    tiles = [name for name, tensor in tensors.items() if tensor.space == Space.VTCM]
    return Liveness({name: owner(name) for name in tiles}, taken, given, live)
