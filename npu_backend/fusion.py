"""Rewrites of layers that keep their results: operands folded into an instruction, layers that ride on another.

Each pass is a function over a graph that it changes in place, with a name that switches it off. A layer rides on the one
before it (`fused`) when it works in place on the tile that was just computed: same shape, no other reader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from itertools import pairwise

from assay.baselines.errors import InputError
from assay.npu_backend import isa
from assay.npu_backend.isa import Instruction
from assay.npu_backend.layers import LayerGraph
from assay.npu_backend.quantized import fold_quantized
from assay.npu_backend.rewriting import (
    ACTIVATIONS,
    ELEMENTWISE,
    PRODUCTS,
    per_channel,
    prepared,
    rename,
    replace_pair,
    ride,
    sole,
    try_ride,
)
from assay.npu_backend.tensor import Role, Shape


@dataclass(frozen=True)
class Pass:
    """One rewrite."""

    name: str
    what: str
    """What becomes of what, for the documentation."""
    apply: Callable[[LayerGraph], None]


def fuse(graph: LayerGraph, *, without: Collection[str] = ()) -> LayerGraph:
    """A copy of a graph after all passes but those named. Raises `InputError` for a name that is no pass."""
    unknown = sorted(set(without) - {made.name for made in PASSES})
    if unknown:
        raise InputError(f"there is no fusion pass {unknown[0]!r}: choose from {', '.join(p.name for p in PASSES)}.")
    fused = graph.copy()
    for made in PASSES:
        if made.name not in without:
            made.apply(fused)
    fused.prune()
    return fused


def unfuse(graph: LayerGraph, out: str, length: int) -> None:
    """Lets the layers of a group stand alone: those `length` from the one that writes `out` on."""
    place = next(index for index, layer in enumerate(graph.layers) if layer.out == out)
    for index in range(place, place + length):
        graph.layers[index] = replace(graph.layers[index], fused=False)


def fold_transpose(graph: LayerGraph) -> None:
    """A product whose right side was transposed before reads it as it lies."""
    for place, layer in enumerate(graph.layers):
        if not isinstance(layer, isa.MatMul) or layer.transpose_b:
            continue
        turned = graph.producer(layer.b)
        rank = len(graph.tensors[layer.b].shape)
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        if isinstance(turned, isa.Reshape) and turned.function == "permute" and turned.order == swapped:
            graph.layers[place] = replace(layer, b=turned.x, transpose_b=True)
    graph.prune()


def fold_reshape(graph: LayerGraph) -> None:
    """A permutation or reshape of a permutation or reshape of the same kind becomes one; one that changes nothing goes."""
    for layer in list(graph.layers):
        if not isinstance(layer, isa.Reshape):
            continue
        place = next(index for index, other in enumerate(graph.layers) if other.out == layer.out)
        layer = graph.layers[place]  # an earlier turn may have renamed what it reads
        assert isinstance(layer, isa.Reshape)
        before = graph.producer(layer.x)
        if isinstance(before, isa.Reshape) and before.function == layer.function:
            order = tuple(before.order[axis] for axis in layer.order)
            graph.layers[place] = layer = replace(layer, x=before.x, order=order)
        if graph.tensors[layer.x].shape == layer.shape and layer.order == tuple(range(len(layer.order))):
            _drop(graph, layer)
    graph.prune()


def _drop(graph: LayerGraph, layer: isa.Reshape) -> None:
    """Takes out a layer that changes nothing, where what it reads can go by one name with what it writes."""
    if graph.tensors[layer.out].role == Role.INTERMEDIATE:
        rename(graph, layer.out, layer.x)
        return
    source = graph.producer(layer.x)
    if source is not None and graph.tensors[layer.x].role == Role.INTERMEDIATE:
        graph.layers = [other for other in graph.layers if other is not layer]
        graph.layers = [replace(other, out=layer.out) if other is source else other for other in graph.layers]
        graph.origin[layer.out] = graph.origin[source.out]
        rename(graph, layer.x, layer.out)


def fold_batch(graph: LayerGraph) -> None:
    """A batched product between changes of shape that only regroup the batch: a product over the dimensions behind it.

    PyTorch's `bmm` has one dimension of batch, so that attention's heads are merged before each product and parted after it,
    and nothing could ride on the product.
    """
    for layer in list(graph.layers):
        head = _regrouped(graph, layer)
        if head is None or len(graph.tensors[head.b].shape) < 3:
            continue
        if all(_view(graph, name) for name in (head.a, head.b)):
            assert isinstance(layer, isa.Reshape)
            groups = layer.shape[:-2]
            a, b = (
                _reshaped(graph, head, name, (*groups, *graph.tensors[name].shape[-2:])) for name in (head.a, head.b)
            )
            replace_pair(graph, head, layer, replace(head, out=layer.out, a=a, b=b))
    graph.prune()


def fold_rows(graph: LayerGraph) -> None:
    """A product with a matrix whose rows were merged before it and are parted after it: a product with leading dimensions."""
    for layer in list(graph.layers):
        head = _regrouped(graph, layer)
        if head is None or len(graph.tensors[head.b].shape) != 2 or not _view(graph, head.a):
            continue
        assert isinstance(layer, isa.Reshape)
        a = _reshaped(graph, head, head.a, (*layer.shape[:-1], graph.tensors[head.a].shape[-1]))
        replace_pair(graph, head, layer, replace(head, out=layer.out, a=a))
    graph.prune()


def _regrouped(graph: LayerGraph, layer: Instruction) -> isa.MatMul | None:
    """The product whose rows or batch a layer regroups, and which nobody else reads."""
    if not isinstance(layer, isa.Reshape) or layer.function != "reshape":
        return None
    head = sole(graph, layer.x, (isa.MatMul,))
    if not isinstance(head, isa.MatMul):
        return None
    # Rows may be parted where the right side is one matrix; where it is a batch, they stay.
    kept = 1 if len(graph.tensors[head.b].shape) == 2 else 2
    before = graph.tensors[head.out].shape
    if len(layer.shape) < len(before) or layer.shape[-kept:] != before[-kept:]:
        return None
    batched = kept == 2 and any(graph.tensors[name].shape[:-2] != before[:-2] for name in (head.a, head.b))
    return None if batched else head


def _view(graph: LayerGraph, name: str) -> bool:
    """Whether a tensor is another one in another shape, elements in the same order."""
    layer = graph.producer(name)
    return isinstance(layer, isa.Reshape) and layer.function == "reshape"


def _reshaped(graph: LayerGraph, head: Instruction, name: str, shape: Shape) -> str:
    """What a `_view` shows, in another shape, there when `head` runs."""
    view = graph.producer(name)
    assert isinstance(view, isa.Reshape)
    if graph.tensors[view.x].shape == shape:
        return view.x
    out = graph.add(isa.Reshape, name, graph.origin[name], x=view.x, shape=shape)
    graph.layers.insert(next(place for place, layer in enumerate(graph.layers) if layer is head), graph.layers.pop())
    return out


def prepare_weights(graph: LayerGraph) -> None:
    """Layers over weights alone move to the preamble: the host computes them when weights are loaded."""
    kept = []
    for layer in graph.layers:
        outside = graph.tensors[layer.out].role == Role.OUTPUT
        if not outside and layer.reads() and all(graph.is_weight(name) for name in layer.reads()):
            graph.tensors[layer.out] = replace(graph.tensors[layer.out], role=Role.WEIGHT)
            graph.preamble.append(replace(layer, fused=False))
        else:
            kept.append(layer)
    graph.layers = kept


def recompose_rms_norm(graph: LayerGraph) -> None:
    """x * rsqrt(mean(x * x) + epsilon), and times a weight: one LAYERNORM without `center`.

    Exported models write the mean square as a product with a column of 1/K, so that is what is looked for.
    """
    for layer in list(graph.layers):
        if not isinstance(layer, isa.ElementwiseMul) or layer.function != "multiply":
            continue
        for x, root in ((layer.a, layer.b), (layer.b, layer.a)):
            epsilon = _root_mean_square(graph, x, root)
            if epsilon is None:
                continue
            axis = len(graph.tensors[x].shape) - 1
            norm = isa.LayerNorm(out=layer.out, x=x, axis=axis, epsilon=epsilon, center=False)
            graph.layers = [norm if other is layer else other for other in graph.layers]
            break
    for layer in list(graph.layers):
        if not isinstance(layer, isa.ElementwiseMul) or layer.function != "multiply":
            continue
        for product, other in ((layer.a, layer.b), (layer.b, layer.a)):
            head = sole(graph, product, (isa.LayerNorm,))
            if not isinstance(head, isa.LayerNorm) or head.center or head.weight or not graph.is_weight(other):
                continue
            weight, out = graph.tensors[other], graph.tensors[head.out]
            if (weight.shape, weight.dtype) == (out.shape[head.axis :], out.dtype):
                replace_pair(graph, head, layer, replace(head, out=layer.out, weight=other))
                break
    graph.prune()


def _root_mean_square(graph: LayerGraph, x: str, root: str) -> float | None:
    """Epsilon of rsqrt(mean(x * x) + epsilon) over the last axis; None when `root` is something else."""
    table = graph.producer(root)
    widened = graph.producer(table.x) if isinstance(table, isa.Gelu) and table.function == "rsqrt" else None
    if not isinstance(widened, isa.ElementwiseAdd) or widened.function != "add":
        return None
    epsilon = graph.constants.get(widened.b)
    product = _through_reshapes(graph, widened.a)
    if epsilon is None or epsilon < 0 or not isinstance(product, isa.MatMul) or product.bias is not None:
        return None
    column, width = graph.tensors[product.b], graph.tensors[x].shape[-1:]
    # Rows keep their place through reshapes alone, and the last axis is the one that is summed.
    if (column.shape, graph.constants.get(product.b)) != ((*width, 1), 1 / max(1, *width)):
        return None
    square = _through_reshapes(graph, product.a)
    if not isinstance(square, isa.ElementwiseMul) or (square.a, square.b, square.function) != (x, x, "multiply"):
        return None
    return epsilon if graph.tensors[root].shape == (*graph.tensors[x].shape[:-1], 1) else None


def _through_reshapes(graph: LayerGraph, name: str) -> Instruction | None:
    """What computes a tensor, before changes of shape that keep the order of elements."""
    layer = graph.producer(name)
    while isinstance(layer, isa.Reshape) and layer.function == "reshape":
        layer = graph.producer(layer.x)
    return layer


def fold_bias(graph: LayerGraph) -> None:
    """A product plus a weight over its columns, a convolution plus a weight over its channels: one instruction."""
    for layer in list(graph.layers):
        if not isinstance(layer, isa.ElementwiseAdd) or layer.function != "add":
            continue
        for product, other in ((layer.a, layer.b), (layer.b, layer.a)):
            head = sole(graph, product, PRODUCTS)
            if head is None or getattr(head, "bias", None) is not None or not graph.is_weight(other):
                continue
            bias = per_channel(graph, head, other)
            if bias is not None and graph.tensors[layer.out].shape == graph.tensors[head.out].shape:
                replace_pair(graph, head, layer, replace(head, out=layer.out, bias=bias))  # type: ignore[call-arg]
                break


def fold_batch_norm(graph: LayerGraph) -> None:
    """A convolution times a weight over its channels, and plus one: the weights take the factor, the bias the rest."""
    for layer in list(graph.layers):
        if not isinstance(layer, isa.ElementwiseMul) or layer.function != "multiply":
            continue
        for product, other in ((layer.a, layer.b), (layer.b, layer.a)):
            head = sole(graph, product, (isa.Conv2d,))
            if not isinstance(head, isa.Conv2d) or not graph.is_weight(other) or not graph.is_weight(head.weight):
                continue
            scale = per_channel(graph, head, other)
            if scale is None or graph.tensors[layer.out].shape != graph.tensors[head.out].shape:
                continue
            if head.bias is not None and not graph.is_weight(head.bias):
                continue
            channels = graph.tensors[scale].shape[0]
            column = prepared(graph, isa.Reshape, f"{head.weight}_scale", x=scale, shape=(channels, 1, 1, 1))
            weight = prepared(graph, isa.ElementwiseMul, f"{head.weight}_folded", a=head.weight, b=column)
            bias = None if head.bias is None else prepared(
                graph, isa.ElementwiseMul, f"{head.bias}_folded", a=head.bias, b=scale
            )  # fmt: skip
            replace_pair(graph, head, layer, replace(head, out=layer.out, weight=weight, bias=bias))
            break
    _fold_second_bias(graph)


def _fold_second_bias(graph: LayerGraph) -> None:
    """A convolution plus a weight over its channels: its bias, or what the preamble adds to its bias."""
    for layer in list(graph.layers):
        if not isinstance(layer, isa.ElementwiseAdd) or layer.function != "add":
            continue
        head = sole(graph, layer.a, (isa.Conv2d,))
        if not isinstance(head, isa.Conv2d) or not graph.is_weight(layer.b):
            continue
        if head.bias is not None and not graph.is_weight(head.bias):
            continue
        bias = per_channel(graph, head, layer.b)
        if bias is not None and graph.tensors[layer.out].shape == graph.tensors[head.out].shape:
            if head.bias is not None:
                bias = prepared(graph, isa.ElementwiseAdd, f"{head.bias}_shifted", a=head.bias, b=bias)
            replace_pair(graph, head, layer, replace(head, out=layer.out, bias=bias))


def fuse_activation(graph: LayerGraph) -> None:
    """RELU and GELU ride on the product before them."""
    ride(graph, PRODUCTS, ACTIVATIONS)


def fuse_softmax(graph: LayerGraph) -> None:
    """Scale and mask ride on the product of the scores, the softmax on them."""
    for layer in list(graph.layers):
        if not isinstance(layer, isa.Softmax):
            continue
        chain: list[Instruction] = [layer]
        while len(chain) < 3:
            before = sole(graph, chain[0].reads()[0], (isa.ElementwiseMul, isa.ElementwiseAdd))
            if before is None:
                break
            chain.insert(0, before)
        head = sole(graph, chain[0].reads()[0], PRODUCTS)
        if head is not None:
            chain.insert(0, head)
        for first, second in pairwise(chain):
            try_ride(graph, first.out, second.out)


def fuse_norm(graph: LayerGraph) -> None:
    """A LAYERNORM rides on the sum before it, and a sum on the LAYERNORM before it."""
    ride(graph, (isa.ElementwiseAdd,), (isa.LayerNorm,))
    ride(graph, (isa.LayerNorm,), (isa.ElementwiseAdd,))


def fuse_dropout(graph: LayerGraph) -> None:
    """The mask of a dropout, and its factor, ride on the LAYERNORM before them."""
    # A mask is made a number where the program begins, so that it is there when the norm is computed.
    early = [
        layer
        for layer in graph.layers
        if isinstance(layer, isa.Dequantize) and not layer.fused and graph.producer(layer.x) is None
    ]
    graph.layers = [*early, *(layer for layer in graph.layers if all(layer is not one for one in early))]
    ride(graph, (isa.LayerNorm,), (isa.ElementwiseMul,))
    for layer in list(graph.layers):
        if layer.fused and isinstance(layer, isa.ElementwiseMul):
            for reader in graph.readers(layer.out):
                if isinstance(reader, isa.ElementwiseMul):
                    try_ride(graph, layer.out, reader.out)


def fuse_elementwise(graph: LayerGraph) -> None:
    """Chains of elementwise instructions ride on what computes their first operand."""
    ride(graph, (*PRODUCTS, *ELEMENTWISE, isa.LayerNorm, isa.Softmax), ELEMENTWISE)


PASSES: tuple[Pass, ...] = (
    Pass("reshape", "RESHAPE of RESHAPE of one kind → one RESHAPE, or none", fold_reshape),
    Pass("batch", "RESHAPE of batches, MATMUL, RESHAPE back → MATMUL over more leading dimensions", fold_batch),
    Pass("transpose", "MATMUL with a transposed right side → MATMUL that reads it transposed", fold_transpose),
    Pass(
        "quantize",
        "DEQUANTIZE, MATMUL or CONV2D → the same in integers, DEQUANTIZE; QUANTIZE of DEQUANTIZE → nothing",
        fold_quantized,
    ),
    Pass("weights", "instructions over weights alone → run once on the host", prepare_weights),
    Pass("rms-norm", "ELEMENTWISE_MUL by the RSQRT of a mean square, and by a weight → LAYERNORM", recompose_rms_norm),
    Pass("bias", "MATMUL or CONV2D, ELEMENTWISE_ADD of a weight → its bias", fold_bias),
    Pass("rows", "RESHAPE of rows, MATMUL by a matrix, RESHAPE back → MATMUL with leading dimensions", fold_rows),
    Pass("batch-norm", "CONV2D, ELEMENTWISE_MUL and _ADD of weights → CONV2D with folded weights", fold_batch_norm),
    Pass("activation", "MATMUL or CONV2D, then RELU or GELU → fused", fuse_activation),
    Pass("softmax", "MATMUL, scale, mask, SOFTMAX → fused", fuse_softmax),
    Pass("norm", "ELEMENTWISE_ADD, then LAYERNORM; LAYERNORM, then ELEMENTWISE_ADD → fused", fuse_norm),
    Pass("dropout", "LAYERNORM, ELEMENTWISE_MUL by a mask and a number → fused", fuse_dropout),
    Pass("elementwise", "chains of elementwise instructions → fused", fuse_elementwise),
)
"""In the order in which they run."""
