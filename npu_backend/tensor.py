"""Operands of the instructions: dtypes, places, and tensors with their storage."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from assay.baselines.errors import InputError

BITS = {
    "float32": 32,
    "float16": 16,
    "bfloat16": 16,
    "int64": 64,
    "int32": 32,
    "int16": 16,
    "int8": 8,
    "uint8": 8,
    "int4": 4,
    "bool": 8,
}
"""Storage of an element by dtype."""
FLOATS = frozenset({"float32", "float16", "bfloat16"})
QUANTIZED = frozenset({"int4", "int8", "uint8", "int16"})

Shape = tuple[int, ...]
Range = tuple[int, int]


class Space(StrEnum):
    """Where a tensor lies."""

    DRAM = "dram"
    VTCM = "vtcm"


class Role(StrEnum):
    """What a tensor is to the program."""

    INPUT = "input"
    WEIGHT = "weight"
    OUTPUT = "output"
    INTERMEDIATE = "intermediate"
    TILE = "tile"


@dataclass(frozen=True)
class Tensor:
    """An operand. Tiles lie in VTCM and are written by one instruction; the others lie in DRAM."""

    name: str
    shape: Shape
    dtype: str
    role: Role

    def __post_init__(self) -> None:
        if self.dtype not in BITS:
            raise InputError(f"tensor {self.name}: there is no dtype {self.dtype!r}; choose from {', '.join(BITS)}.")
        if any(not isinstance(size, int) or size < 0 for size in self.shape):
            raise InputError(f"tensor {self.name}: the shape {self.shape} has a size that is no count.")

    @property
    def space(self) -> Space:
        """VTCM for tiles, DRAM for all others."""
        return Space.VTCM if self.role == Role.TILE else Space.DRAM

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Storage, rounded up to whole bytes."""
        return -(-self.elements * BITS[self.dtype] // 8)


Tensors = Mapping[str, Tensor]
