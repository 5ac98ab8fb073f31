"""The instruction set of the mock NPU: 16 instructions over tensors in DRAM and tiles in VTCM.

Instructions are plain data. An instruction names its operands; the program's table of tensors gives their shapes, dtypes
and places. `result` of an instruction says what its output must be, and raises for operands that do not fit: the
validator and the lowering both ask it, so the rule is written once.

Attributes refine an instruction without adding an opcode: `function` names the exact function of an activation or an
elementwise instruction, `axis` the axis along which it works, `center` whether a norm subtracts the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar

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


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """What all instructions have: an output, and whether they ride on the instruction before them.

    A fused instruction works on the tile that its producer is just writing, in place, and costs no cycles of its own.
    """

    OPCODE: ClassVar[str] = ""
    OPERANDS: ClassVar[tuple[str, ...]] = ()
    """Fields that name tensors that are read."""

    out: str
    fused: bool = False

    def reads(self) -> tuple[str, ...]:
        """Names of the operands, in the order of the fields; optional ones that are absent are left out."""
        names: list[str] = []
        for field in self.OPERANDS:
            value = getattr(self, field)
            names += value if isinstance(value, tuple) else [] if value is None else [value]
        return tuple(names)

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        """Shape and dtype of the output. Raises `InputError` for operands that do not fit the instruction."""
        raise InputError(f"{type(self).__name__} is no instruction.")

    def attributes(self) -> dict[str, Any]:
        """Everything but operands and output."""
        hidden = {"out", "fused", *self.OPERANDS}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in hidden}


@dataclass(frozen=True, kw_only=True)
class LoadTile(Instruction):
    """Copies the box `ranges` of a DRAM tensor into a tile."""

    OPCODE = "LOAD_TILE"
    OPERANDS = ("source",)
    source: str
    ranges: tuple[Range, ...]

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        source = tensors[self.source]
        check_ranges(self, self.ranges, source)
        return tuple(stop - start for start, stop in self.ranges), source.dtype


@dataclass(frozen=True, kw_only=True)
class StoreTile(Instruction):
    """Copies a tile into the box `ranges` of a DRAM tensor."""

    OPCODE = "STORE_TILE"
    OPERANDS = ("source",)
    source: str
    ranges: tuple[Range, ...]

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        source, out = tensors[self.source], tensors[self.out]
        check_ranges(self, self.ranges, out)
        box = tuple(stop - start for start, stop in self.ranges)
        if box != source.shape:
            raise _wrong(self, f"the tile has shape {source.shape}, the box {box}")
        return out.shape, source.dtype


@dataclass(frozen=True, kw_only=True)
class MatMul(Instruction):
    """a (..., M, K) times b (..., K, N), or its transpose (N, K), plus `bias` (N) plus `accumulate` (..., M, N).

    Leading dimensions broadcast. Quantized operands give int32, floating ones keep their dtype.
    """

    OPCODE = "MATMUL"
    OPERANDS = ("a", "b", "bias", "accumulate")
    a: str
    b: str
    bias: str | None = None
    accumulate: str | None = None
    transpose_b: bool = False

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        a, b = tensors[self.a], tensors[self.b]
        if len(a.shape) < 2 or len(b.shape) < 2:
            raise _wrong(self, f"operands of shapes {a.shape} and {b.shape} are no matrices")
        k, n = (b.shape[-1], b.shape[-2]) if self.transpose_b else (b.shape[-2], b.shape[-1])
        if a.shape[-1] != k:
            raise _wrong(self, f"{a.shape} has {a.shape[-1]} columns, the other side {k} rows")
        shape = (*broadcast(self, a.shape[:-2], b.shape[:-2]), a.shape[-2], n)
        dtype = _product(self, a, b)
        _same(self, tensors, self.bias, (n,), dtype)
        _same(self, tensors, self.accumulate, shape, dtype)
        return shape, dtype


@dataclass(frozen=True, kw_only=True)
class Conv2d(Instruction):
    """x (N, C, H, W) with weight (O, C / groups, R, S); `padding` is (top, bottom, left, right) of zeros."""

    OPCODE = "CONV2D"
    OPERANDS = ("x", "weight", "bias", "accumulate")
    x: str
    weight: str
    bias: str | None = None
    accumulate: str | None = None
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        x, weight = tensors[self.x], tensors[self.weight]
        if len(x.shape) != 4 or len(weight.shape) != 4:
            raise _wrong(self, f"operands of shapes {x.shape} and {weight.shape} are not four-dimensional")
        if self.groups < 1 or x.shape[1] != weight.shape[1] * self.groups or weight.shape[0] % self.groups:
            raise _wrong(self, f"{self.groups} groups do not divide {x.shape[1]} and {weight.shape[0]} channels so")
        if min(self.stride) < 1 or min(self.dilation) < 1 or min(self.padding) < 0:
            raise _wrong(self, "stride and dilation start at 1, padding at 0")
        top, bottom, left, right = self.padding
        rows = _span(x.shape[2] + top + bottom, weight.shape[2], self.stride[0], self.dilation[0])
        columns = _span(x.shape[3] + left + right, weight.shape[3], self.stride[1], self.dilation[1])
        if rows < 1 or columns < 1:
            raise _wrong(self, f"a kernel of {weight.shape[2:]} does not fit into {x.shape[2:]}")
        shape, dtype = (x.shape[0], weight.shape[0], rows, columns), _product(self, x, weight)
        _same(self, tensors, self.bias, (weight.shape[0],), dtype)
        _same(self, tensors, self.accumulate, shape, dtype)
        return shape, dtype


@dataclass(frozen=True, kw_only=True)
class DepthwiseConv2d(Conv2d):
    """A convolution with one input channel in each group: `groups` equals the channels of x."""

    OPCODE = "DEPTHWISE_CONV2D"

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        if self.groups != tensors[self.x].shape[1]:
            raise _wrong(self, f"{self.groups} groups over {tensors[self.x].shape[1]} channels is not depthwise")
        return super().result(tensors)


@dataclass(frozen=True, kw_only=True)
class Quantize(Instruction):
    """round(x / scale) + zero_point, half to even, held to the range of `dtype`; along `axis` when one is given."""

    OPCODE = "QUANTIZE"
    OPERANDS = ("x",)
    x: str
    dtype: str
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        x = tensors[self.x]
        if x.dtype not in FLOATS or self.dtype not in QUANTIZED:
            raise _wrong(self, f"{x.dtype} to {self.dtype} is no quantization")
        _check_scales(self, x.shape, self.scale, self.zero_point, self.axis)
        return x.shape, self.dtype


@dataclass(frozen=True, kw_only=True)
class Dequantize(Instruction):
    """(x - zero_point) * scale, in `dtype`; along `axis` when one is given."""

    OPCODE = "DEQUANTIZE"
    OPERANDS = ("x",)
    x: str
    dtype: str
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        x = tensors[self.x]
        if x.dtype not in QUANTIZED | {"int32"} or self.dtype not in FLOATS:
            raise _wrong(self, f"{x.dtype} to {self.dtype} is no dequantization")
        _check_scales(self, x.shape, self.scale, self.zero_point, self.axis)
        return x.shape, self.dtype


@dataclass(frozen=True, kw_only=True)
class Unary(Instruction):
    """One operand, one result of the same shape and dtype."""

    OPERANDS = ("x",)
    FUNCTIONS: ClassVar[tuple[str, ...]] = ()
    x: str
    function: str

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        x = tensors[self.x]
        if self.function not in self.FUNCTIONS:
            raise _wrong(self, f"there is no function {self.function!r}; choose from {', '.join(self.FUNCTIONS)}")
        return x.shape, x.dtype


@dataclass(frozen=True, kw_only=True)
class Relu(Unary):
    """Piecewise linear activations."""

    OPCODE = "RELU"
    FUNCTIONS = ("relu", "relu6", "hardsigmoid", "hardswish", "abs", "negate")
    function: str = "relu"


@dataclass(frozen=True, kw_only=True)
class Gelu(Unary):
    """Smooth activations, by table in the vector unit. `erf` and `tanh` are the two forms of GELU."""

    OPCODE = "GELU"
    FUNCTIONS = (
        "erf",
        "tanh",
        "silu",
        "sigmoid",
        "hyperbolic-tangent",
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "sin",
        "cos",
    )
    function: str = "erf"

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        if tensors[self.x].dtype not in FLOATS:
            raise _wrong(self, f"{tensors[self.x].dtype} is not floating")
        return super().result(tensors)


@dataclass(frozen=True, kw_only=True)
class Softmax(Instruction):
    """exp(x - max) / sum along `axis`."""

    OPCODE = "SOFTMAX"
    OPERANDS = ("x",)
    x: str
    axis: int

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        x = tensors[self.x]
        _check_axis(self, self.axis, x)
        if x.dtype not in FLOATS:
            raise _wrong(self, f"{x.dtype} is not floating")
        return x.shape, x.dtype


@dataclass(frozen=True, kw_only=True)
class LayerNorm(Instruction):
    """(x - mean) / sqrt(variance + epsilon) over the dimensions from `axis` on; without `center`, x / sqrt(mean square)."""

    OPCODE = "LAYERNORM"
    OPERANDS = ("x", "weight", "bias")
    x: str
    weight: str | None = None
    bias: str | None = None
    axis: int
    epsilon: float
    center: bool = True

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        x = tensors[self.x]
        _check_axis(self, self.axis, x)
        if x.dtype not in FLOATS or not 0 <= self.epsilon < math.inf:
            raise _wrong(self, f"{x.dtype} with epsilon {self.epsilon} cannot be normalised")
        _same(self, tensors, self.weight, x.shape[self.axis :], x.dtype)
        _same(self, tensors, self.bias, x.shape[self.axis :], x.dtype)
        return x.shape, x.dtype


@dataclass(frozen=True, kw_only=True)
class Binary(Instruction):
    """Two operands of one dtype whose shapes broadcast."""

    OPERANDS = ("a", "b")
    FUNCTIONS: ClassVar[tuple[str, ...]] = ()
    a: str
    b: str
    function: str

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        a, b = tensors[self.a], tensors[self.b]
        if self.function not in self.FUNCTIONS:
            raise _wrong(self, f"there is no function {self.function!r}; choose from {', '.join(self.FUNCTIONS)}")
        if a.dtype != b.dtype:
            raise _wrong(self, f"{a.dtype} and {b.dtype} do not mix")
        return broadcast(self, a.shape, b.shape), a.dtype


@dataclass(frozen=True, kw_only=True)
class ElementwiseAdd(Binary):
    """Sums and what the adder gives besides."""

    OPCODE = "ELEMENTWISE_ADD"
    FUNCTIONS = ("add", "subtract", "maximum", "minimum")
    function: str = "add"


@dataclass(frozen=True, kw_only=True)
class ElementwiseMul(Binary):
    """Products and quotients."""

    OPCODE = "ELEMENTWISE_MUL"
    FUNCTIONS = ("multiply", "divide")
    function: str = "multiply"


@dataclass(frozen=True, kw_only=True)
class Broadcast(Instruction):
    """Repeats dimensions of size 1, and leading ones, to `shape`."""

    OPCODE = "BROADCAST"
    OPERANDS = ("x",)
    x: str
    shape: Shape

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        x = tensors[self.x]
        if broadcast(self, x.shape, self.shape) != self.shape:
            raise _wrong(self, f"{x.shape} does not broadcast to {self.shape}")
        return self.shape, x.dtype


@dataclass(frozen=True, kw_only=True)
class Concat(Instruction):
    """Operands one after the other along `axis`."""

    OPCODE = "CONCAT"
    OPERANDS = ("xs",)
    xs: tuple[str, ...]
    axis: int

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        parts = [tensors[name] for name in self.xs]
        if not parts:
            raise _wrong(self, "there is nothing to join")
        first = parts[0]
        _check_axis(self, self.axis, first)
        for part in parts[1:]:
            sizes = (first.shape[: self.axis], first.shape[self.axis + 1 :])
            if (part.shape[: self.axis], part.shape[self.axis + 1 :]) != sizes or part.dtype != first.dtype:
                raise _wrong(self, f"{part.shape} {part.dtype} does not join {first.shape} {first.dtype}")
        length = sum(part.shape[self.axis] for part in parts)
        return (*first.shape[: self.axis], length, *first.shape[self.axis + 1 :]), first.dtype


@dataclass(frozen=True, kw_only=True)
class Reshape(Instruction):
    """Another shape for the same elements; `function` `permute` reorders the dimensions by `order` instead."""

    OPCODE = "RESHAPE"
    OPERANDS = ("x",)
    x: str
    shape: Shape
    function: str = "reshape"
    order: tuple[int, ...] = ()

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        x = tensors[self.x]
        if self.function == "permute":
            if sorted(self.order) != list(range(len(x.shape))):
                raise _wrong(self, f"{self.order} is no order of {len(x.shape)} dimensions")
            if self.shape != tuple(x.shape[place] for place in self.order):
                raise _wrong(self, f"{x.shape} in the order {self.order} is not {self.shape}")
        elif self.function != "reshape":
            raise _wrong(self, f"there is no function {self.function!r}; choose from reshape, permute")
        elif math.prod(self.shape) != x.elements:
            raise _wrong(self, f"{x.shape} has {x.elements} elements, {self.shape} has {math.prod(self.shape)}")
        return self.shape, x.dtype


INSTRUCTIONS: dict[str, type[Instruction]] = {
    kind.OPCODE: kind
    for kind in (
        LoadTile,
        StoreTile,
        MatMul,
        Conv2d,
        DepthwiseConv2d,
        Quantize,
        Dequantize,
        Relu,
        Gelu,
        Softmax,
        LayerNorm,
        ElementwiseAdd,
        ElementwiseMul,
        Broadcast,
        Concat,
        Reshape,
    )
}
"""Opcode -> instruction: the 16 of the specification."""


def broadcast(instruction: Instruction, a: Shape, b: Shape) -> Shape:
    """The common shape of two. Raises `InputError` when there is none."""
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    aligned = (1,) * (len(long) - len(short)) + short
    for x, y in zip(long, aligned, strict=True):
        if x != y and 1 not in (x, y):
            raise _wrong(instruction, f"{a} and {b} do not broadcast")
    return tuple(y if x == 1 else x for x, y in zip(long, aligned, strict=True))


def check_ranges(instruction: Instruction, ranges: tuple[Range, ...], tensor: Tensor) -> None:
    """Raises `InputError` when the box is not inside the tensor, or is empty."""
    if len(ranges) != len(tensor.shape):
        raise _wrong(instruction, f"{len(ranges)} ranges for {tensor.name}, which has {len(tensor.shape)} dimensions")
    for (start, stop), size in zip(ranges, tensor.shape, strict=True):
        if not 0 <= start < stop <= size:
            raise _wrong(instruction, f"the range {start}:{stop} is not inside {tensor.name}, which has {size} there")


def _wrong(instruction: Instruction, why: str) -> InputError:
    return InputError(f"{instruction.OPCODE} {instruction.out}: {why}.")


def _span(size: int, kernel: int, stride: int, dilation: int) -> int:
    return (size - dilation * (kernel - 1) - 1) // stride + 1


def _product(instruction: Instruction, a: Tensor, b: Tensor) -> str:
    if a.dtype in QUANTIZED and b.dtype in QUANTIZED:
        return "int32"
    if a.dtype in FLOATS and a.dtype == b.dtype:
        return a.dtype
    raise _wrong(instruction, f"{a.dtype} and {b.dtype} do not multiply")


def _same(instruction: Instruction, tensors: Tensors, name: str | None, shape: Shape, dtype: str) -> None:
    if name is None:
        return
    found = tensors[name]
    if found.shape != shape or found.dtype != dtype:
        raise _wrong(instruction, f"{name} is {found.shape} {found.dtype}, not {shape} {dtype}")


def _check_axis(instruction: Instruction, axis: int, tensor: Tensor) -> None:
    if not 0 <= axis < len(tensor.shape):
        raise _wrong(instruction, f"axis {axis} is none of {len(tensor.shape)}")


def _check_scales(
    instruction: Instruction, shape: Shape, scale: tuple[float, ...], zero_point: tuple[int, ...], axis: int | None
) -> None:
    if axis is not None and not 0 <= axis < len(shape):
        raise _wrong(instruction, f"axis {axis} is none of {len(shape)}")
    wanted = 1 if axis is None else shape[axis]
    if len(scale) != wanted or len(zero_point) != wanted:
        raise _wrong(instruction, f"{len(scale)} scales and {len(zero_point)} zero points where {wanted} are due")
    if not all(0 < value < math.inf for value in scale):
        raise _wrong(instruction, "a scale is not a positive number")
