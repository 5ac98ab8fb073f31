"""Executes programs from their instructions alone: the meaning of the instruction set, tile by tile.

Floating tiles compute in float32 and round to their
dtype when they are written, as a vector unit with wide accumulators does. Integer products accumulate exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from assay.baselines.errors import InputError
from assay.npu_backend import isa
from assay.npu_backend.codegen import Program
from assay.npu_backend.isa import Instruction
from assay.npu_backend.tensor import Range, Role, Tensor
from assay.npu_backend.validation import VTCM_BYTES, validate

LIMITS = {"bool": (0, 1), "int4": (-8, 7), "int8": (-128, 127), "uint8": (0, 255), "int16": (-32_768, 32_767)}
_CONTAINER = {"int4": torch.int8}


def execute(
    program: Program, arguments: Mapping[str, torch.Tensor], *, capacity: int = VTCM_BYTES
) -> dict[str, torch.Tensor]:
    """Outputs by name. `arguments`: every input and weight by name, with the declared shape and dtype.

    Raises `InputError` for a program that does not validate and for arguments that do not fit it.
    """
    validate(program, capacity=capacity)
    memory: dict[str, torch.Tensor] = {}
    for tensor in program.tensors.values():
        if tensor.role in (Role.INPUT, Role.WEIGHT):
            memory[tensor.name] = _argument(tensor, arguments)
        elif tensor.role in (Role.OUTPUT, Role.INTERMEDIATE, Role.RESIDENT):
            memory[tensor.name] = torch.empty(tensor.shape, dtype=storage(tensor.dtype))
    for instruction in program.instructions:
        step(program, instruction, memory)
    return {tensor.name: memory[tensor.name] for tensor in program.of_role(Role.OUTPUT)}


def storage(dtype: str) -> torch.dtype:
    """The torch dtype that holds an element."""
    found = _CONTAINER.get(dtype) or getattr(torch, dtype)
    assert isinstance(found, torch.dtype)
    return found


def step(program: Program, instruction: Instruction, memory: dict[str, torch.Tensor]) -> None:
    """One instruction over the memory."""
    if isinstance(instruction, isa.LoadTile):
        memory[instruction.out] = memory[instruction.source][_slices(instruction.ranges)].clone()
    elif isinstance(instruction, isa.StoreTile):
        memory[instruction.out][_slices(instruction.ranges)] = memory[instruction.source]
    else:
        value = _COMPUTE[type(instruction)](instruction, [memory[name] for name in instruction.reads()], memory)
        memory[instruction.out] = value.to(storage(program.tensors[instruction.out].dtype))


def _argument(tensor: Tensor, arguments: Mapping[str, torch.Tensor]) -> torch.Tensor:
    value = arguments.get(tensor.name)
    if value is None:
        raise InputError(f"the program needs a value for {tensor.role.value} {tensor.name}.")
    if tuple(value.shape) != tensor.shape or value.dtype != storage(tensor.dtype):
        raise InputError(f"{tensor.name} is {tuple(value.shape)} {value.dtype}, not {tensor.shape} {tensor.dtype}.")
    return value.detach()


def _slices(ranges: tuple[Range, ...]) -> tuple[slice, ...]:
    return tuple(slice(start, stop) for start, stop in ranges)


def _wide(value: torch.Tensor) -> torch.Tensor:
    """Floating values as float32; integers exactly as float64 would hold them, in int64."""
    return value.float() if value.is_floating_point() else value.long()


def _matmul(i: Any, _: list[torch.Tensor], memory: Mapping[str, torch.Tensor]) -> torch.Tensor:
    a, b = _wide(memory[i.a]), _wide(memory[i.b])
    product = a @ (b.transpose(-1, -2) if i.transpose_b else b)
    return _plus(product, i, memory)


def _plus(product: torch.Tensor, i: Any, memory: Mapping[str, torch.Tensor]) -> torch.Tensor:
    if i.bias is not None:
        bias = _wide(memory[i.bias])
        product = product + (bias if isinstance(i, isa.MatMul) else bias.view(1, -1, 1, 1))
    return product if i.accumulate is None else product + _wide(memory[i.accumulate])


def _conv(i: Any, _: list[torch.Tensor], memory: Mapping[str, torch.Tensor]) -> torch.Tensor:
    x, weight = memory[i.x], memory[i.weight]
    top, bottom, left, right = i.padding
    whole = not x.is_floating_point()
    # Sums of at most 2^53 / 2^16 products of 8 bits are exact in float64, which torch can convolve on a CPU.
    wide = (x.double(), weight.double()) if whole else (x.float(), weight.float())
    padded = functional.pad(wide[0], (left, right, top, bottom))
    product = functional.conv2d(padded, wide[1], None, i.stride, 0, i.dilation, i.groups)
    return _plus(product.long() if whole else product, i, memory)


def _quantize(i: Any, values: list[torch.Tensor], _: Mapping[str, torch.Tensor]) -> torch.Tensor:
    # Times the reciprocal, as PyTorch's own kernels and references do: a quotient would round ties another way.
    scale, zero = _scales(i, values[0], reciprocal=True)
    low, high = LIMITS[i.dtype]
    return (torch.round(values[0].float() * scale) + zero).clamp(low, high)


def _dequantize(i: Any, values: list[torch.Tensor], _: Mapping[str, torch.Tensor]) -> torch.Tensor:
    scale, zero = _scales(i, values[0])
    return (values[0].float() - zero) * scale


def _scales(i: Any, x: torch.Tensor, *, reciprocal: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    scales = [1.0 / value for value in i.scale] if reciprocal else i.scale
    scale, zero = torch.tensor(scales, dtype=torch.float32), torch.tensor(i.zero_point, dtype=torch.float32)
    if i.axis is None:
        return scale[0], zero[0]
    shape = [1] * x.dim()
    shape[i.axis] = -1
    return scale.view(shape), zero.view(shape)


_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "relu6": functional.relu6,
    "hardsigmoid": functional.hardsigmoid,
    "hardswish": functional.hardswish,
    "abs": torch.abs,
    "negate": torch.neg,
    "sign": torch.sign,
    "floor": torch.floor,
    "ceiling": torch.ceil,
    "round": torch.round,
    "truncate": torch.trunc,
    "erf": functional.gelu,
    "tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "hyperbolic-tangent": torch.tanh,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "sin": torch.sin,
    "cos": torch.cos,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "exp2": torch.exp2,
    "log2": torch.log2,
    "error-function": torch.erf,
}
_BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "equal": torch.eq,
    "greater": torch.gt,
    "greater-equal": torch.ge,
    "multiply": torch.mul,
    "divide": torch.div,
    "keep": lambda a, b: torch.where(b != 0, a, 0),
}


def _unary(i: Any, values: list[torch.Tensor], _: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return _ACTIVATIONS[i.function](_wide(values[0]))


def _binary(i: Any, values: list[torch.Tensor], _: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return _BINARY[i.function](_wide(values[0]), _wide(values[1]))


def _softmax(i: Any, values: list[torch.Tensor], _: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return torch.softmax(_wide(values[0]), i.axis)


def _norm(i: Any, _: list[torch.Tensor], memory: Mapping[str, torch.Tensor]) -> torch.Tensor:
    x = _wide(memory[i.x])
    over = tuple(range(i.axis, x.dim()))
    if i.center:
        # In float64: the last bit of a mean, times 1 / sqrt(epsilon), is no longer small.
        x = (x.double() - x.double().mean(over, keepdim=True)).to(x.dtype)
    y = x * torch.rsqrt(x.pow(2).mean(over, keepdim=True) + i.epsilon)
    if i.weight is not None:
        y = y * _wide(memory[i.weight])
    return y if i.bias is None else y + _wide(memory[i.bias])


def _broadcast(i: Any, values: list[torch.Tensor], _: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return values[0].expand(i.shape).clone()


def _concat(i: Any, values: list[torch.Tensor], _: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat(values, i.axis)


def _reshape(i: Any, values: list[torch.Tensor], _: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return values[0].permute(i.order).clone() if i.function == "permute" else values[0].reshape(i.shape)


Compute = Callable[[Any, list[torch.Tensor], Mapping[str, torch.Tensor]], torch.Tensor]
_COMPUTE: dict[type[Instruction], Compute] = {
    isa.MatMul: _matmul,
    isa.Conv2d: _conv,
    isa.DepthwiseConv2d: _conv,
    isa.Quantize: _quantize,
    isa.Dequantize: _dequantize,
    isa.Relu: _unary,
    isa.Gelu: _unary,
    isa.Softmax: _softmax,
    isa.LayerNorm: _norm,
    isa.ElementwiseAdd: _binary,
    isa.ElementwiseMul: _binary,
    isa.Broadcast: _broadcast,
    isa.Concat: _concat,
    isa.Reshape: _reshape,
}
