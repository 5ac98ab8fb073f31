"""Precision policies: in what each tensor of a float graph is stored when the graph runs quantized or in 16 bits.

A policy changes storage alone, and so tiles, traffic and the rate of the matrix unit. The program still computes in the
graph's own dtype: accuracy under a policy is not a matter of this compiler.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from assay.baselines.errors import InputError
from assay.npu_backend.isa import LoadTile
from assay.npu_backend.layers import LayerGraph
from assay.npu_backend.tensor import FLOATS, Role, Tensor


@dataclass(frozen=True)
class Precision:
    """Dtypes of storage."""

    weights: str
    activations: str
    vectors: str
    """Weights of at most one dimension that is not 1: biases, scales and shifts, which stay wide."""


POLICIES: dict[str, Precision] = {
    "float16": Precision("float16", "float16", "float16"),
    "w8a8": Precision("int8", "int8", "int32"),
    "w8a16": Precision("int8", "int16", "int32"),
    "w4a8": Precision("int4", "int8", "int32"),
    "w4a16": Precision("int4", "int16", "int32"),
}


def with_precision(graph: LayerGraph, policy: str) -> LayerGraph:
    """A copy of a graph in which floating tensors are stored as a policy says; integers stay as they are.

    Raises `InputError` for a policy that is none.
    """
    if policy not in POLICIES:
        raise InputError(f"there is no precision {policy!r}: choose from {', '.join(POLICIES)}.")
    made = graph.copy()
    made.tensors = {name: _stored(tensor, POLICIES[policy]) for name, tensor in graph.tensors.items()}
    for place, layer in enumerate(made.layers):
        out = made.tensors[layer.out]
        if isinstance(layer, LoadTile):  # a part is stored as what it is a part of
            made.tensors[layer.out] = out = replace(out, storage=made.tensors[layer.source].storage)
        if layer.fused and out.element_bits > made.tensors[made.layers[place - 1].out].element_bits:
            made.layers[place] = replace(layer, fused=False)  # it no longer fits into the tile that it would take over
    return made


def _stored(tensor: Tensor, precision: Precision) -> Tensor:
    if tensor.dtype not in FLOATS:
        return tensor
    if tensor.role != Role.WEIGHT:
        return replace(tensor, storage=precision.activations)
    vector = sum(size > 1 for size in tensor.shape) <= 1
    return replace(tensor, storage=precision.vectors if vector else precision.weights)
