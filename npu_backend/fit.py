"""Whether operands fit an instruction: the checks that several instructions share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.baselines.errors import InputError
from assay.npu_backend.tensor import FLOATS, QUANTIZED, Range, Shape, Tensor, Tensors

if TYPE_CHECKING:
    from assay.npu_backend.isa import Instruction


def broadcast(instruction: Instruction, a: Shape, b: Shape) -> Shape:
    """The common shape of two. Raises `InputError` when there is none."""
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    aligned = (1,) * (len(long) - len(short)) + short
    for x, y in zip(long, aligned, strict=True):
        if x != y and 1 not in (x, y):
            raise misfit(instruction, f"{a} and {b} do not broadcast")
    return tuple(y if x == 1 else x for x, y in zip(long, aligned, strict=True))


def check_ranges(instruction: Instruction, ranges: tuple[Range, ...], tensor: Tensor) -> None:
    """Raises `InputError` when the box is not inside the tensor, or is empty."""
    if len(ranges) != len(tensor.shape):
        raise misfit(instruction, f"{len(ranges)} ranges for {tensor.name}, which has {len(tensor.shape)} dimensions")
    for (start, stop), size in zip(ranges, tensor.shape, strict=True):
        if not 0 <= start < stop <= size:
            raise misfit(instruction, f"the range {start}:{stop} is not inside {tensor.name}, which has {size} there")


def misfit(instruction: Instruction, why: str) -> InputError:
    """The error for operands that do not fit, in one line."""
    return InputError(f"{instruction.OPCODE} {instruction.out}: {why}.")


def span(size: int, kernel: int, stride: int, dilation: int) -> int:
    """Outputs of a convolution along one dimension of `size` elements, padding included."""
    return (size - dilation * (kernel - 1) - 1) // stride + 1


def product_dtype(instruction: Instruction, a: Tensor, b: Tensor) -> str:
    """Dtype of a sum of products: int32 for quantized operands, else the operands' own."""
    if a.dtype in QUANTIZED and b.dtype in QUANTIZED:
        return "int32"
    if a.dtype in FLOATS and a.dtype == b.dtype:
        return a.dtype
    raise misfit(instruction, f"{a.dtype} and {b.dtype} do not multiply")


def check_same(instruction: Instruction, tensors: Tensors, name: str | None, shape: Shape, dtype: str) -> None:
    """Raises unless the optional operand has this shape and dtype."""
    if name is None:
        return
    found = tensors[name]
    if found.shape != shape or found.dtype != dtype:
        raise misfit(instruction, f"{name} is {found.shape} {found.dtype}, not {shape} {dtype}")


def check_axis(instruction: Instruction, axis: int, tensor: Tensor) -> None:
    """Raises unless the axis is one of the tensor\'s, counted from 0."""
    if not 0 <= axis < len(tensor.shape):
        raise misfit(instruction, f"axis {axis} is none of {len(tensor.shape)}")
