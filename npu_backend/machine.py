"""Machines: what one instruction costs on each unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from assay.npu_backend import isa
from assay.npu_backend.isa import Instruction
from assay.npu_backend.tensor import BITS, Role, Tensor, Tensors
from assay.npu_backend.validation import VTCM_BYTES


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
    clock_hz: float = 0.0
    """Cycles in a second; 0 for a machine that has no time."""
    fixed_cycles: int = 0
    """Cycles of an inference that no instruction takes."""

    def milliseconds(self, cycles: int) -> float | None:
        """Estimated latency of an inference of so many cycles; None for a machine without a clock."""
        return 1e3 * (cycles + self.fixed_cycles) / self.clock_hz if self.clock_hz else None

    def unit_of(self, instruction: Instruction) -> Unit:
        """The unit that runs an instruction; a fused one rides on its producer's, where it costs nothing."""
        return unit_of(instruction)

    def cycles(self, instruction: Instruction, tensors: Tensors) -> float:
        """Cycles of one instruction that is not in place."""
        if instruction.fused:
            return 0.0
        if isinstance(instruction, isa.LoadTile):
            return self.load_per_cycle(tensors[instruction.source], tensors[instruction.out].elements)
        if isinstance(instruction, isa.StoreTile):
            return self.store_per_cycle(tensors[instruction.out], tensors[instruction.source].elements)
        macs = macs_of(instruction, tensors)
        if macs:
            return macs / self.macs_per_cycle[tensors[instruction.reads()[0]].dtype]
        return tensors[instruction.out].elements / self.vector_per_cycle if self.vector_per_cycle else 0.0


def unit_of(instruction: Instruction) -> Unit:
    """The unit that runs an instruction."""
    if isinstance(instruction, isa.LoadTile):
        return Unit.LOAD
    if isinstance(instruction, isa.StoreTile):
        return Unit.STORE
    return Unit.MATRIX if isinstance(instruction, isa.MatMul | isa.Conv2d) else Unit.VECTOR


def macs_of(instruction: Instruction, tensors: Tensors) -> int:
    """Multiply-accumulates: output elements times the length of each sum."""
    if isinstance(instruction, isa.MatMul):
        return tensors[instruction.out].elements * tensors[instruction.a].shape[-1]
    if isinstance(instruction, isa.Conv2d):
        return tensors[instruction.out].elements * math.prod(tensors[instruction.weight].shape[1:])
    return 0


def cycles_of(instruction: Instruction, tensors: Tensors, machine: Machine) -> int:
    """Cycles of one instruction, rounded up."""
    return math.ceil(machine.cycles(instruction, tensors))


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
