"""The instruction set of the mock NPU: 16 instructions over tensors in DRAM and tiles in VTCM.

Instructions are plain data. An instruction names its operands; the program's table of tensors gives their shapes, dtypes
and places. `result` of an instruction says what its output must be, and raises for operands that do not fit: the
validator and the lowering both ask it, so the rule is written once.

Attributes refine an instruction without adding an opcode: `function` names the exact function of an activation or an
elementwise instruction, `axis` the axis along which it works, `center` whether a norm subtracts the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

from assay.baselines.errors import InputError
from assay.npu_backend.fit import broadcast, check_axis, check_ranges, check_same, misfit, product_dtype, span
from assay.npu_backend.tensor import FLOATS, QUANTIZED, Range, Shape, Tensors


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
        return self._reads

    @cached_property
    def _reads(self) -> tuple[str, ...]:
        names: list[str] = []
        for field in self.OPERANDS:
            value = getattr(self, field)
            if isinstance(value, tuple):
                names += value
            elif value is not None:
                names.append(value)
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
    """Copies the box `ranges` of a DRAM tensor into a tile. Of a tile or resident in VTCM, it names the box where it lies."""

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
    """Copies a tile into the box `ranges` of a DRAM tensor. Into a resident in VTCM, it says where the tile was written."""

    OPCODE = "STORE_TILE"
    OPERANDS = ("source",)
    source: str
    ranges: tuple[Range, ...]

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        source, out = tensors[self.source], tensors[self.out]
        check_ranges(self, self.ranges, out)
        box = tuple(stop - start for start, stop in self.ranges)
        if box != source.shape:
            raise misfit(self, f"the tile has shape {source.shape}, the box {box}")
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
            raise misfit(self, f"operands of shapes {a.shape} and {b.shape} are no matrices")
        k, n = (b.shape[-1], b.shape[-2]) if self.transpose_b else (b.shape[-2], b.shape[-1])
        if a.shape[-1] != k:
            raise misfit(self, f"{a.shape} has {a.shape[-1]} columns, the other side {k} rows")
        shape = (*broadcast(self, a.shape[:-2], b.shape[:-2]), a.shape[-2], n)
        dtype = product_dtype(self, a, b)
        check_same(self, tensors, self.bias, (n,), dtype)
        check_same(self, tensors, self.accumulate, shape, dtype)
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
            raise misfit(self, f"operands of shapes {x.shape} and {weight.shape} are not four-dimensional")
        if self.groups < 1 or x.shape[1] != weight.shape[1] * self.groups or weight.shape[0] % self.groups:
            raise misfit(self, f"{self.groups} groups do not divide {x.shape[1]} and {weight.shape[0]} channels so")
        if min(self.stride) < 1 or min(self.dilation) < 1 or min(self.padding) < 0:
            raise misfit(self, "stride and dilation start at 1, padding at 0")
        top, bottom, left, right = self.padding
        rows = span(x.shape[2] + top + bottom, weight.shape[2], self.stride[0], self.dilation[0])
        columns = span(x.shape[3] + left + right, weight.shape[3], self.stride[1], self.dilation[1])
        if rows < 1 or columns < 1:
            raise misfit(self, f"a kernel of {weight.shape[2:]} does not fit into {x.shape[2:]}")
        shape, dtype = (x.shape[0], weight.shape[0], rows, columns), product_dtype(self, x, weight)
        check_same(self, tensors, self.bias, (weight.shape[0],), dtype)
        check_same(self, tensors, self.accumulate, shape, dtype)
        return shape, dtype


@dataclass(frozen=True, kw_only=True)
class DepthwiseConv2d(Conv2d):
    """A convolution with one input channel in each group: `groups` equals the channels of x."""

    OPCODE = "DEPTHWISE_CONV2D"

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        if self.groups != tensors[self.x].shape[1]:
            raise misfit(self, f"{self.groups} groups over {tensors[self.x].shape[1]} channels is not depthwise")
        return super().result(tensors)


@dataclass(frozen=True, kw_only=True)
class Scaled(Instruction):
    """Between floating and integer values, by scales and zero points: one of each, or one for each place along `axis`."""

    OPERANDS = ("x",)
    TAKES: ClassVar[frozenset[str]] = frozenset()
    GIVES: ClassVar[frozenset[str]] = frozenset()
    x: str
    dtype: str
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        x = tensors[self.x]
        if x.dtype not in self.TAKES or self.dtype not in self.GIVES:
            raise misfit(self, f"{self.OPCODE} does not make {self.dtype} of {x.dtype}")
        if self.axis is not None:
            check_axis(self, self.axis, x)
        wanted = 1 if self.axis is None else x.shape[self.axis]
        if len(self.scale) != wanted or len(self.zero_point) != wanted:
            raise misfit(
                self, f"{len(self.scale)} scales and {len(self.zero_point)} zero points where {wanted} are due"
            )
        if not all(0 < value < math.inf for value in self.scale):
            raise misfit(self, "a scale is not a positive number")
        return x.shape, self.dtype


@dataclass(frozen=True, kw_only=True)
class Quantize(Scaled):
    """round(x * (1 / scale)) + zero_point, half to even, held to the range of `dtype`; along `axis` when one is given.

    A `bool` is a byte that holds 0 or 1.
    """

    OPCODE = "QUANTIZE"
    TAKES = FLOATS
    GIVES = QUANTIZED | {"bool"}


@dataclass(frozen=True, kw_only=True)
class Dequantize(Scaled):
    """(x - zero_point) * scale, in `dtype`; along `axis` when one is given. From one floating dtype to another, too."""

    OPCODE = "DEQUANTIZE"
    TAKES = QUANTIZED | FLOATS | {"int32", "int64", "bool"}
    GIVES = FLOATS


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
            raise misfit(self, f"there is no function {self.function!r}; choose from {', '.join(self.FUNCTIONS)}")
        return x.shape, x.dtype


@dataclass(frozen=True, kw_only=True)
class Relu(Unary):
    """Piecewise linear activations and roundings; `round` goes half to even."""

    OPCODE = "RELU"
    FUNCTIONS = (
        "relu",
        "relu6",
        "hardsigmoid",
        "hardswish",
        "abs",
        "negate",
        "sign",
        "floor",
        "ceiling",
        "round",
        "truncate",
    )
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
        "log1p",
        "expm1",
        "exp2",
        "log2",
        "error-function",
    )
    function: str = "erf"

    def result(self, tensors: Tensors) -> tuple[Shape, str]:
        if tensors[self.x].dtype not in FLOATS:
            raise misfit(self, f"{tensors[self.x].dtype} is not floating")
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
        check_axis(self, self.axis, x)
        if x.dtype not in FLOATS:
            raise misfit(self, f"{x.dtype} is not floating")
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
        check_axis(self, self.axis, x)
        if x.dtype not in FLOATS or not 0 <= self.epsilon < math.inf:
            raise misfit(self, f"{x.dtype} with epsilon {self.epsilon} cannot be normalised")
        check_same(self, tensors, self.weight, x.shape[self.axis :], x.dtype)
        check_same(self, tensors, self.bias, x.shape[self.axis :], x.dtype)
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
            raise misfit(self, f"there is no function {self.function!r}; choose from {', '.join(self.FUNCTIONS)}")
        if a.dtype != b.dtype:
            raise misfit(self, f"{a.dtype} and {b.dtype} do not mix")
        return broadcast(self, a.shape, b.shape), a.dtype


@dataclass(frozen=True, kw_only=True)
class ElementwiseAdd(Binary):
    """Sums and what the adder gives besides; comparisons give 1 or 0."""

    OPCODE = "ELEMENTWISE_ADD"
    FUNCTIONS = ("add", "subtract", "maximum", "minimum", "equal", "greater", "greater-equal")
    function: str = "add"


@dataclass(frozen=True, kw_only=True)
class ElementwiseMul(Binary):
    """Products and quotients; `keep` gives a where b is not 0, and 0 elsewhere, whatever a is."""

    OPCODE = "ELEMENTWISE_MUL"
    FUNCTIONS = ("multiply", "divide", "keep")
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
            raise misfit(self, f"{x.shape} does not broadcast to {self.shape}")
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
            raise misfit(self, "there is nothing to join")
        first = parts[0]
        check_axis(self, self.axis, first)
        for part in parts[1:]:
            sizes = (first.shape[: self.axis], first.shape[self.axis + 1 :])
            if (part.shape[: self.axis], part.shape[self.axis + 1 :]) != sizes or part.dtype != first.dtype:
                raise misfit(self, f"{part.shape} {part.dtype} does not join {first.shape} {first.dtype}")
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
                raise misfit(self, f"{self.order} is no order of {len(x.shape)} dimensions")
            if self.shape != tuple(x.shape[place] for place in self.order):
                raise misfit(self, f"{x.shape} in the order {self.order} is not {self.shape}")
        elif self.function != "reshape":
            raise misfit(self, f"there is no function {self.function!r}; choose from reshape, permute")
        elif math.prod(self.shape) != x.elements:
            raise misfit(self, f"{x.shape} has {x.elements} elements, {self.shape} has {math.prod(self.shape)}")
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
