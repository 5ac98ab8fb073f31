"""How passes change a graph: letting a layer ride on another, replacing layers, computing weights before the program runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assay.npu_backend import isa
from assay.npu_backend.isa import Instruction
from assay.npu_backend.layers import LayerGraph
from assay.npu_backend.tensor import BITS, Role

Kinds = tuple[type[Instruction], ...]
PRODUCTS: Kinds = (isa.MatMul, isa.Conv2d)
ACTIVATIONS: Kinds = (isa.Relu, isa.Gelu)
SCALED: Kinds = (isa.Quantize, isa.Dequantize)
ELEMENTWISE: Kinds = (*ACTIVATIONS, *SCALED, isa.ElementwiseAdd, isa.ElementwiseMul)
COMMUTES = frozenset({"add", "multiply", "maximum", "minimum", "equal"})
COMPARISONS = frozenset({"equal", "greater", "greater-equal"})


def ride(graph: LayerGraph, heads: Kinds, followers: Kinds) -> None:
    """Lets every follower ride on a head that computes one of its operands, where that is possible."""
    for layer in list(graph.layers):
        if not isinstance(layer, followers):
            continue
        for name in layer.reads():
            head = graph.producer(name)
            if head is not None and isinstance(head, heads) and try_ride(graph, head.out, layer.out):
                break


def try_ride(graph: LayerGraph, first: str, second: str) -> bool:
    """Lets the layer that writes `second` ride on the one that writes `first`; False when it cannot."""
    places = {layer.out: place for place, layer in enumerate(graph.layers)}
    layer, before = graph.layers[places[second]], graph.tensors[first]
    if layer.fused or before.role != Role.INTERMEDIATE or len(graph.readers(first)) != 1:
        return False
    reads = layer.reads()
    if reads.count(first) != 1 or graph.tensors[second].shape != before.shape:
        return False
    if BITS[graph.tensors[second].dtype] > BITS[before.dtype]:
        return False  # it does not fit into the tile that it would take over
    if reads[0] != first:
        if not isinstance(layer, isa.Binary) or layer.function not in COMMUTES:
            return False
        layer = replace(layer, a=layer.b, b=layer.a)
        reads = layer.reads()
    start = places[first]
    while graph.layers[start].fused:
        start -= 1
    if places[first] + 1 < len(graph.layers) and graph.layers[places[first] + 1].fused:
        return False  # something rides on it already
    if any(places.get(name, -1) >= start for name in reads[1:]):
        return False  # it is computed after the group begins
    own = [layer]
    following = places[second] + 1
    while following < len(graph.layers) and graph.layers[following].fused:
        own.append(graph.layers[following])
        following += 1
    for rider in own[1:]:
        if any(places.get(name, -1) >= start for name in rider.reads()[1:]):
            return False
    moved = graph.layers[places[second] : following]
    rest = [other for other in graph.layers if all(other is not one for one in moved)]
    at = next(index for index, other in enumerate(rest) if other.out == first) + 1
    graph.layers = [*rest[:at], replace(layer, fused=True), *own[1:], *rest[at:]]
    return True


def sole(graph: LayerGraph, name: str, kinds: Kinds) -> Instruction | None:
    """The layer of one of these kinds that writes an intermediate tensor with one reader."""
    if graph.tensors[name].role != Role.INTERMEDIATE:
        return None
    found = graph.readers(name)
    if len(found) != 1 or found[0].reads().count(name) != 1:
        return None
    layer = graph.producer(name)
    return layer if isinstance(layer, kinds) else None


def per_channel(graph: LayerGraph, head: Instruction, name: str) -> str | None:
    """A weight with one value for each column or channel of a product, as a vector; None when it is none."""
    weight, out = graph.tensors[name], graph.tensors[head.out]
    after = 0 if isinstance(head, isa.MatMul) else 2
    channels = out.shape[-1 - after]
    shape = weight.shape
    while shape and shape[0] == 1 and len(shape) > 1 + after:
        shape = shape[1:]
    if shape != (channels, *([1] * after)) or weight.dtype != out.dtype:
        return None
    return name if weight.shape == (channels,) else prepared(graph, isa.Reshape, name, x=name, shape=(channels,))


def prepared(graph: LayerGraph, kind: type[Instruction], name: str, **fields: object) -> str:
    """A weight that the preamble computes."""
    out = graph.add(kind, name, name, **fields)
    graph.preamble.append(graph.layers.pop())
    graph.tensors[out] = replace(graph.tensors[out], role=Role.WEIGHT)
    return out


def replace_pair(graph: LayerGraph, head: Instruction, layer: Instruction, made: Instruction) -> None:
    """Puts one layer where two were: in the place of the second, whose operands are all there. It is still the first one's node."""
    graph.origin[made.out] = graph.origin[head.out]
    kept: Sequence[Instruction] = [other for other in graph.layers if other is not head]
    graph.layers = [made if other is layer else other for other in kept]


def rename(graph: LayerGraph, old: str, new: str) -> None:
    """Lets readers of one tensor read another."""

    def changed(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(changed(item) for item in value)
        return new if value == old else value

    graph.layers = [
        replace(layer, **{field: changed(getattr(layer, field)) for field in layer.OPERANDS})  # type: ignore[arg-type]
        for layer in graph.layers
    ]
