"""Operators that move elements without computing."""

from __future__ import annotations

from assay.npu_backend.isa import Broadcast, Concat, LoadTile
from assay.npu_backend.lowering import Call, Result, UnsupportedError, dtype_of, rule


@rule(
    "view.default", "_unsafe_view.default", "unsqueeze.default", "squeeze.default",
    "squeeze.dim", "squeeze.dims", gives=["RESHAPE"],
)  # fmt: skip
def reshape(call: Call) -> Result:
    """The sizes are PyTorch's own"""
    return call.reshape(call.args[0], call.value.shape)


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
    shape = tuple(call.value.shape)
    return str(call.args[0]) if call.shape(call.args[0]) == shape else call.emit(Broadcast, x=call.args[0], shape=shape)


@rule("cat.default", gives=["CONCAT"], limits="parts of several dtypes, empty parts")
def concatenate(call: Call) -> Result:
    """Any axis"""
    parts, axis = call.args[:2]
    return call.emit(Concat, xs=tuple(parts), axis=axis % len(call.value.shape))


@rule("clone.default", "alias.default", "detach.default", "lift_fresh_copy.default", gives=[])
def identity(call: Call) -> Result:
    """No instruction: the same tensor"""
    return str(call.args[0])


@rule("_to_copy.default", gives=[], limits="changes of dtype")
def same_dtype(call: Call) -> Result:
    """No instruction when the dtype stays"""
    if call.dtype(call.args[0]) != dtype_of(call.value):
        raise UnsupportedError("a change of dtype")
    return str(call.args[0])


def box(call: Call, x: str, axis: int, start: int, stop: int) -> str:
    """The range start:stop along an axis."""
    sizes = call.shape(x)
    ranges = tuple((start, stop) if place == axis else (0, size) for place, size in enumerate(sizes))
    return x if (start, stop) == (0, sizes[axis]) else call.emit(LoadTile, source=x, ranges=ranges)


@rule("slice.Tensor", gives=["LOAD_TILE"], limits="steps other than 1")
def part(call: Call) -> Result:
    """A range along one axis"""
    x, axis, start, stop, step = call.args
    sizes = call.shape(x)
    axis %= len(sizes)
    if step != 1:
        raise UnsupportedError("a step other than 1")
    start, stop, _ = slice(start, stop).indices(sizes[axis])
    return box(call, x, axis, start, stop)


@rule("select.int", gives=["LOAD_TILE", "RESHAPE"])
def select(call: Call) -> Result:
    """A range of one, without its dimension"""
    x, axis, index = call.args
    sizes = call.shape(x)
    axis, index = axis % len(sizes), index % sizes[axis % len(sizes)]
    return call.reshape(box(call, x, axis, index, index + 1), call.value.shape)


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
