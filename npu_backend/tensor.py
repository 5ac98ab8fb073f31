"""Operands of the instructions: dtypes, places, and tensors with their storage."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

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
    RESIDENT = "resident"
    """An intermediate that stays in VTCM: tiles are written into boxes of it, and read as boxes of it, in place."""
    TILE = "tile"


@dataclass(frozen=True)
class Tensor:
    """An operand. Tiles lie in VTCM and are written by one instruction; residents lie there too; the others in DRAM."""

    name: str
    shape: Shape
    dtype: str
    role: Role
    storage: str = ""
    """Dtype in which the elements are stored under a precision policy; empty: `dtype`, in which they are computed."""

    def __post_init__(self) -> None:
        if self.dtype not in BITS:
            raise InputError(f"tensor {self.name}: there is no dtype {self.dtype!r}; choose from {', '.join(BITS)}.")
        if any(not isinstance(size, int) or size < 0 for size in self.shape):
            raise InputError(f"tensor {self.name}: the shape {self.shape} has a size that is no count.")
        if self.storage and self.storage not in BITS:
            raise InputError(
                f"tensor {self.name}: there is no storage {self.storage!r}; choose from {', '.join(BITS)}."
            )

    # Programs have many tensors and ask for these often; the fields do not change.
    @cached_property
    def space(self) -> Space:
        """VTCM for tiles and residents, DRAM for all others."""
        return Space.VTCM if self.role in (Role.TILE, Role.RESIDENT) else Space.DRAM

    @property
    def element_bits(self) -> int:
        """Storage of one element."""
        return BITS[self.stored]

    @property
    def stored(self) -> str:
        """Dtype in which the elements are stored."""
        return self.storage or self.dtype

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @cached_property
    def bytes(self) -> int:
        """Storage, rounded up to whole bytes."""
        return -(-self.elements * self.element_bits // 8)


Tensors = Mapping[str, Tensor]
Box = tuple[Range, ...]
"""A range along each axis."""


def whole(tensor: Tensor) -> Box:
    """The box of all of a tensor."""
    return tuple((0, size) for size in tensor.shape)


def volume(box: Box) -> int:
    """Elements of a box."""
    return math.prod(stop - start for start, stop in box)


def box_bytes(box: Box, tensor: Tensor) -> int:
    """Storage of a box of a tensor."""
    return -(-volume(box) * tensor.element_bits // 8)
