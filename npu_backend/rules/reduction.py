"""Sums, means, extremes, variances and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import fx

from assay.npu_backend.isa import ElementwiseAdd, ElementwiseMul, Gelu, MatMul, Softmax
from assay.npu_backend.lowering import Call, Result, UnsupportedError, dtype_of, rule
from assay.npu_backend.rules.shape import box
from assay.npu_backend.tensor import FLOATS, Shape


def reduced(call: Call, x: str, axes: Sequence[int] | None, weight: float | None, shape: Shape) -> str:
    """Product with a column of `weight` (None: one over the number of elements): (rows, K) times (K, 1), as `shape`."""
    call.floating(x)
    flat = rows(call, x, axes)
    k = call.shape(flat)[1]
    column = call.graph.constant(1 / k if weight is None else weight, (k, 1), call.dtype(x))
    return call.reshape(call.emit(MatMul, a=flat, b=column), shape)


def rows(call: Call, x: str, axes: Sequence[int] | None) -> str:
    """(rows, K), where K counts the elements along the axes; no axes are all axes."""
    sizes = call.shape(x)
    # PyTorch lets a tensor without dimensions be reduced along "axis 0".
    gone = sorted({axis % len(sizes) for axis in axes}) if axes and sizes else list(range(len(sizes)))
    kept = [axis for axis in range(len(sizes)) if axis not in gone]
    k = math.prod(sizes[axis] for axis in gone)
    return call.reshape(call.permute(x, [*kept, *gone]), (math.prod(sizes[axis] for axis in kept), k))


def _sum(call: Call, axes: Sequence[int] | None, weight: float | None) -> str:
    """A sum in float32 at least, as PyTorch's, in the dtype of the result."""
    dtype = dtype_of(call.value)
    if dtype not in FLOATS:
        raise UnsupportedError(f"{dtype} is not floating")
    x = call.cast(call.args[0], "float32")
    return call.cast(reduced(call, x, axes, weight, tuple(call.value.shape)), dtype)


@rule("mean.dim", "mean.default", gives=["RESHAPE", "MATMUL", "DEQUANTIZE"], limits="integers")
def mean(call: Call) -> Result:
    """A product with constants 1/K, in float32"""
    return _sum(call, call.args[1] if str(call.node.target) == "aten.mean.dim" else None, None)


@rule("sum.dim_IntList", "sum.default", gives=["RESHAPE", "MATMUL", "DEQUANTIZE"], limits="results that are integers")
def total(call: Call) -> Result:
    """A product with ones, in float32"""
    return _sum(call, call.args[1] if str(call.node.target) == "aten.sum.dim_IntList" else None, 1.0)


@rule(
    "amax.default",
    "amin.default",
    "max.default",
    "min.default",
    gives=["LOAD_TILE", "RESHAPE", "ELEMENTWISE_ADD"],
    limits="bool",
)
def extreme(call: Call) -> Result:
    """The larger half of the elements, again and again"""
    axes = call.args[1] if len(call.args) > 1 else None
    function = "maximum" if "max" in str(call.node.target) else "minimum"
    return call.reshape(halved(call, rows(call, call.args[0], axes), function), call.value.shape)


@rule("prod.dim_int", "prod.default", gives=["LOAD_TILE", "RESHAPE", "ELEMENTWISE_MUL"], limits="changes of dtype")
def product(call: Call) -> Result:
    """Halves of the elements times each other"""
    axes = [call.args[1]] if str(call.node.target) == "aten.prod.dim_int" else None
    return call.reshape(halved(call, rows(call, call.args[0], axes), "multiply"), call.value.shape)


def halved(call: Call, x: str, function: str) -> str:
    """(rows, K) as (rows, 1): halves are combined until one column is left."""
    if call.dtype(x) == "bool":
        raise UnsupportedError("bool")
    odd: list[str] = []
    while (k := call.shape(x)[1]) > 1:
        half = k // 2
        if k % 2:
            odd.append(box(call, x, 1, k - 1, k))
        x = _combined(call, box(call, x, 1, 0, half), box(call, x, 1, half, 2 * half), function)
    for rest in odd:
        x = _combined(call, x, rest, function)
    return x


def _combined(call: Call, a: str, b: str, function: str) -> str:
    return call.emit(ElementwiseMul if function == "multiply" else ElementwiseAdd, a=a, b=b, function=function)


def moments(call: Call, x: str, axes: Sequence[int] | None, correction: float) -> tuple[str, str, str]:
    """Mean and variance with their dimensions kept, and x without its mean."""
    sizes = call.shape(x)
    gone = {axis % len(sizes) for axis in axes} if axes and sizes else set(range(len(sizes)))
    kept = tuple(1 if axis in gone else size for axis, size in enumerate(sizes))
    count = math.prod(sizes[axis] for axis in gone)
    if count <= correction:
        raise UnsupportedError("a variance of too few elements")
    middle = reduced(call, x, axes, None, kept)
    centred = call.emit(ElementwiseAdd, a=x, b=middle, function="subtract")
    square = call.emit(ElementwiseMul, a=centred, b=centred)
    return middle, reduced(call, square, axes, 1 / (count - correction), kept), centred


@rule("var.correction", gives=["MATMUL", "ELEMENTWISE_ADD", "ELEMENTWISE_MUL", "RESHAPE"], limits="integers")
def variance(call: Call) -> Result:
    """The mean square of what is left without the mean"""
    found = moments(call, call.cast(call.args[0], "float32"), call.args[1], _correction(call.args[2]))[1]
    return call.cast(call.reshape(found, call.value.shape), dtype_of(call.value))


@rule("var_mean.correction", gives=["MATMUL", "ELEMENTWISE_ADD", "ELEMENTWISE_MUL", "RESHAPE"], limits="integers")
def variance_and_mean(call: Call) -> Result:
    """Both at once"""
    middle, found, _ = moments(call, call.cast(call.args[0], "float32"), call.args[1], _correction(call.args[2]))
    return tuple(
        call.cast(call.reshape(part, value.shape), dtype_of(value))
        for part, value in zip((found, middle), call.value, strict=True)
    )


def _correction(value: float | None) -> float:
    return 1 if value is None else value


@rule("_softmax.default", gives=["SOFTMAX"], limits="integers, half to float")
def softmax(call: Call) -> Result:
    """Any axis"""
    x, axis, widened = call.args
    if widened or not call.shape(x):
        raise UnsupportedError("half to float, or no dimension")
    return call.emit(Softmax, x=x, axis=axis % len(call.shape(x)))


_SCORES = frozenset({"aten.bmm.default", "aten.mm.default", "aten.addmm.default"})
_VIEWS = frozenset({"aten.view.default", "aten.expand.default", "aten._unsafe_view.default"})


@rule(
    "_safe_softmax.default",
    gives=["SOFTMAX", "ELEMENTWISE_ADD", "ELEMENTWISE_MUL", "RELU", "GELU", "MATMUL"],
    limits="masked scores in 16 bits, masked along another axis than the last",
)
def attention_softmax(call: Call) -> Result:
    """SOFTMAX of scores; after a mask, rows in which all is masked (-inf) give zeros instead of NaN"""
    x, axis, dtype = call.args
    shape = call.shape(x)
    if dtype is not None and call.dtype(x) != dtype_of(call.value):
        raise UnsupportedError("a change of dtype")
    axis %= len(shape)
    if not _masked(call):
        return call.emit(Softmax, x=x, axis=axis)
    if axis != len(shape) - 1 or len(shape) < 2 or call.dtype(x) != "float32":
        raise UnsupportedError("masked scores in 16 bits or along another axis than the last")

    # present = 1 for each finite score and 0 for -inf: 1e-30 x + 1e9 is at least 6e8 for every finite x.
    present = call.emit(ElementwiseMul, a=x, b=call.number(1e-30, "float32"))
    present = call.emit(ElementwiseAdd, a=present, b=call.number(1e9, "float32"))
    for bound, function in ((0.0, "maximum"), (1.0, "minimum")):
        present = call.emit(ElementwiseAdd, a=present, b=call.number(bound, "float32"), function=function)
    ones = call.graph.constant(1.0, (shape[-1], 1), "float32")
    counted = call.emit(MatMul, a=present, b=ones)
    alive = call.emit(ElementwiseAdd, a=counted, b=call.number(1.0, "float32"), function="minimum")
    # log(1 - alive) is -inf for a row that lives, whose scores stay, and 0 for a dead one, whose scores become finite.
    dead = call.emit(ElementwiseAdd, a=call.number(1.0, "float32"), b=alive, function="subtract")
    floor = call.emit(Gelu, x=dead, function="log")
    scores = call.emit(ElementwiseAdd, a=x, b=floor, function="maximum")
    return call.emit(ElementwiseMul, a=call.emit(Softmax, x=scores, axis=axis), b=alive)


def _scales(node: fx.Node) -> bool:
    """Whether a node multiplies by a number."""
    return str(node.target) in ("aten.mul.Tensor", "aten.mul.Scalar") and isinstance(node.args[1], int | float)


def _masked(call: Call) -> bool:
    """Whether the scores may hold -inf: unless they are a product, scaled or not."""
    source = call.node.args[0]
    while isinstance(source, fx.Node) and (str(source.target) in _VIEWS or _scales(source)):
        source = source.args[0]
    return not isinstance(source, fx.Node) or str(source.target) not in _SCORES


@rule(
    "_log_softmax.default", gives=["LOAD_TILE", "RESHAPE", "ELEMENTWISE_ADD", "GELU", "MATMUL"], limits="half to float"
)
def log_softmax(call: Call) -> Result:
    """x - max - log(sum(exp(x - max)))"""
    x, axis, widened = call.args
    sizes = call.shape(x)
    if widened or not sizes:
        raise UnsupportedError("half to float, or no dimension")
    axis %= len(sizes)
    kept = tuple(1 if place == axis else size for place, size in enumerate(sizes))
    x = call.cast(x, "float32")
    largest = call.reshape(halved(call, rows(call, x, [axis]), "maximum"), kept)
    below = call.emit(ElementwiseAdd, a=x, b=largest, function="subtract")
    summed = reduced(call, call.emit(Gelu, x=below, function="exp"), [axis], 1.0, kept)
    found = call.emit(ElementwiseAdd, a=below, b=call.emit(Gelu, x=summed, function="log"), function="subtract")
    return call.cast(found, dtype_of(call.value))
