"""Operators that move elements without computing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from assay.npu_backend.isa import Concat, ElementwiseAdd, LoadTile, Quantize
from assay.npu_backend.lowering import Call, Result, UnsupportedError, dtype_of, rule
from assay.npu_backend.tensor import FLOATS


@rule(
    "view.default", "_unsafe_view.default", "unsqueeze.default", "squeeze.default",
    "squeeze.dim", "squeeze.dims", gives=["RESHAPE"],
)  # fmt: skip
def reshape(call: Call) -> Result:
    """The sizes are PyTorch's own"""
    return call.reshape(call.args[0], call.value.shape)


@rule("as_strided.default", gives=["RESHAPE"], limits="offsets, strides that leave out, repeat or reorder elements")
def as_strided(call: Call) -> Result:
    """The same elements in the same order, which is how pooling to one pixel ends"""
    x, size, stride, offset = call.args[:4]
    source = call.given(0)
    if offset is None:  # any other counts from where the storage begins, which is not known here
        wanted = [(n, step) for n, step in zip(size, stride, strict=True) if n != 1]
        if wanted == [(n, step) for n, step in zip(source.shape, source.stride(), strict=True) if n != 1]:
            return call.reshape(x, size)
        contiguous = all(step == math.prod(n for n, _ in wanted[place + 1 :]) for place, (_, step) in enumerate(wanted))
        if source.is_contiguous() and contiguous and math.prod(size) == source.numel():
            return call.reshape(x, size)
    raise UnsupportedError("an offset, or strides that leave out, repeat or reorder elements")


@rule("permute.default", gives=["RESHAPE"])
def permute(call: Call) -> Result:
    """Any order"""
    return call.permute(call.args[0], call.args[1])


@rule("t.default", "transpose.int", gives=["RESHAPE"])
def transpose(call: Call) -> Result:
    """Two dimensions change places"""
    rank = len(call.shape(call.args[0]))
    order = list(range(rank))
    if rank > 1:
        first, second = (0, 1) if len(call.args) == 1 else (call.args[1] % rank, call.args[2] % rank)
        order[first], order[second] = order[second], order[first]
    return call.permute(call.args[0], order)


@rule("expand.default", gives=["BROADCAST"])
def expand(call: Call) -> Result:
    """Sizes of 1 repeat"""
    return call.broadcast(call.args[0], tuple(call.value.shape))


@rule("copy.default", gives=["BROADCAST", "DEQUANTIZE"], limits="changes of dtype to integers")
def copy(call: Call) -> Result:
    """The second operand in the shape and dtype of the first"""
    return call.broadcast(call.cast(call.args[1], dtype_of(call.value)), tuple(call.value.shape))


@rule("repeat.default", gives=["RESHAPE", "BROADCAST"])
def repeat(call: Call) -> Result:
    """Sizes of 1 beside the dimensions repeat"""
    x, times = call.args
    sizes = (*([1] * (len(times) - len(call.shape(x)))), *call.shape(x))
    opened = call.reshape(x, [part for size in sizes for part in (1, size)])
    wide = call.broadcast(opened, tuple(part for pair in zip(times, sizes, strict=True) for part in pair))
    return call.reshape(wide, call.value.shape)


@rule("full_like.default", gives=[])
def filled(call: Call) -> Result:
    """No instruction: a constant"""
    dtype = dtype_of(call.value)
    value = call.args[1]
    if not isinstance(value, bool | int | float) or (dtype not in FLOATS and not float(value).is_integer()):
        raise UnsupportedError(f"{value!r} with {dtype}")
    return call.graph.constant(float(value) if dtype in FLOATS else int(value), tuple(call.value.shape), dtype)


@rule("cat.default", gives=["CONCAT"], limits="parts of several dtypes")
def concatenate(call: Call) -> Result:
    """Any axis"""
    parts, axis = call.args[:2]
    # PyTorch lets (0,) stand among parts of any shape.
    parts = [part for part in parts if call.shape(part) != (0,)]
    return call.emit(Concat, xs=tuple(parts), axis=axis % len(call.value.shape))


@rule("clone.default", "alias.default", "detach.default", "lift_fresh_copy.default", gives=[])
def identity(call: Call) -> Result:
    """No instruction: the same tensor"""
    return str(call.args[0])


@rule(
    "_to_copy.default", gives=["DEQUANTIZE", "QUANTIZE", "ELEMENTWISE_ADD"], limits="to integers, from and to float64"
)
def to_dtype(call: Call) -> Result:
    """To a floating dtype, and to truth values"""
    x, dtype = call.args[0], dtype_of(call.value)
    if dtype == "bool" and call.dtype(x) != "bool":
        x = call.cast(x, "float32") if call.dtype(x) not in FLOATS else x
        zero, one = call.number(0.0, call.dtype(x)), call.number(1.0, call.dtype(x))
        none = call.emit(ElementwiseAdd, a=x, b=zero, function="equal")
        some = call.emit(ElementwiseAdd, a=one, b=none, function="subtract")
        return call.emit(Quantize, x=some, dtype="bool", scale=(1.0,), zero_point=(0,))
    return call.cast(x, dtype)


def box(call: Call, x: str, axis: int, start: int, stop: int) -> str:
    """The range start:stop along an axis."""
    sizes = call.shape(x)
    ranges = tuple((start, stop) if place == axis else (0, size) for place, size in enumerate(sizes))
    return x if (start, stop) == (0, sizes[axis]) else call.emit(LoadTile, source=x, ranges=ranges)


def joined(call: Call, parts: Sequence[str], axis: int) -> str:
    """Parts one after the other, or the only one."""
    return parts[0] if len(parts) == 1 else call.emit(Concat, xs=tuple(parts), axis=axis)


def padded(call: Call, x: str, axis: int, before: int, behind: int, value: float) -> str:
    """A constant before and behind along an axis; negative counts cut."""
    size = call.shape(x)[axis]
    parts = [box(call, x, axis, max(0, -before), size - max(0, -behind))]
    for place, count in ((0, before), (len(parts) + 1, behind)):
        if count > 0:
            shape = list(call.shape(x))
            shape[axis] = count
            dtype = call.dtype(x)
            parts.insert(place, call.graph.constant(value if dtype in FLOATS else int(value), tuple(shape), dtype))
    return joined(call, parts, axis)


@rule("constant_pad_nd.default", gives=["CONCAT", "LOAD_TILE"])
def pad(call: Call) -> Result:
    """Constants on both sides, axis by axis from the last"""
    x, widths, value = call.args
    rank = len(call.shape(x))
    for place in range(len(widths) // 2):
        x = padded(call, x, rank - 1 - place, widths[2 * place], widths[2 * place + 1], value)
    return str(x)


@rule("slice.Tensor", gives=["LOAD_TILE", "CONCAT", "RESHAPE"])
def part(call: Call) -> Result:
    """A range along one axis; every k-th element as the first of each k"""
    x, axis, start, stop, step = call.args
    sizes = call.shape(x)
    axis %= len(sizes)
    start, stop, _ = slice(start, stop).indices(sizes[axis])
    if step == 1:
        return box(call, x, axis, start, stop)
    count = -(-(stop - start) // step)
    # Elements behind the last one are read along with it; where the tensor ends, zeros stand for them.
    reach = min(sizes[axis], start + count * step)
    x = padded(call, box(call, x, axis, start, reach), axis, 0, start + count * step - reach, 0)
    opened = call.reshape(x, (*sizes[:axis], count, step, *sizes[axis + 1 :]))
    return call.reshape(box(call, opened, axis + 1, 0, 1), call.value.shape)


@rule("select.int", gives=["LOAD_TILE", "RESHAPE"])
def select(call: Call) -> Result:
    """A range of one, without its dimension"""
    x, axis, index = call.args
    sizes = call.shape(x)
    axis, index = axis % len(sizes), index % sizes[axis % len(sizes)]
    return call.reshape(box(call, x, axis, index, index + 1), call.value.shape)


@rule("slice_scatter.default", gives=["LOAD_TILE", "CONCAT"], limits="steps other than 1")
def put_slice(call: Call) -> Result:
    """What is before, the part, what is behind"""
    x, part, axis, start, stop, step = call.args
    if step != 1:
        raise UnsupportedError("a step other than 1")
    axis %= len(call.shape(x))
    start, stop, _ = slice(start, stop).indices(call.shape(x)[axis])
    return _replaced(call, x, part, axis, start, stop)


@rule("select_scatter.default", gives=["LOAD_TILE", "CONCAT", "RESHAPE"])
def put_one(call: Call) -> Result:
    """What is before, the part with its dimension, what is behind"""
    x, part, axis, index = call.args
    sizes = call.shape(x)
    axis, index = axis % len(sizes), index % sizes[axis % len(sizes)]
    opened = call.reshape(part, (*sizes[:axis], 1, *sizes[axis + 1 :]))
    return _replaced(call, x, opened, axis, index, index + 1)


def _replaced(call: Call, x: str, part: str, axis: int, start: int, stop: int) -> str:
    size = call.shape(x)[axis]
    parts = [box(call, x, axis, 0, start)] if start else []
    parts.append(part)
    parts += [box(call, x, axis, stop, size)] if stop < size else []
    return joined(call, parts, axis)


@rule("roll.default", gives=["LOAD_TILE", "CONCAT", "RESHAPE"])
def roll(call: Call) -> Result:
    """The last elements, then the others, axis by axis"""
    x, shifts, axes = call.args
    sizes = call.shape(x)
    if not axes:
        x, axes = call.reshape(x, (call.graph.tensors[x].elements,)), [0]
    for shift, axis in zip(shifts, axes, strict=True):
        axis %= len(call.shape(x))
        size = call.shape(x)[axis]
        if shift % size:
            cut = size - shift % size
            x = joined(call, [box(call, x, axis, cut, size), box(call, x, axis, 0, cut)], axis)
    return call.reshape(x, sizes)


@rule("split.Tensor", "split_with_sizes.default", "unbind.int", gives=["LOAD_TILE", "RESHAPE"])
def split(call: Call) -> Result:
    """Ranges along one axis; only those that are read"""
    x = call.args[0]
    unbind = "unbind" in str(call.node.target)
    axis = (call.args[1] if unbind else call.args[2]) % len(call.shape(x))
    start, found = 0, []
    for place, value in enumerate(call.value):
        stop = start + (1 if unbind else value.shape[axis])
        wanted = place in call.used
        found.append(call.reshape(box(call, x, axis, start, stop), value.shape) if wanted else None)
        start = stop
    return tuple(found)
