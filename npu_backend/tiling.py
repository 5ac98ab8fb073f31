"""From layers to a program: every group of fused layers becomes loads, computation and stores of tiles that fit VTCM.

`search` cuts a group, `residency` decides what stays in VTCM between groups, `emission` writes the instructions.
"""

from __future__ import annotations

from assay.npu_backend.boxes import DoesNotFitError
from assay.npu_backend.codegen import Program
from assay.npu_backend.emission import Emitter
from assay.npu_backend.layers import LayerGraph
from assay.npu_backend.residency import reside
from assay.npu_backend.search import Tiling, choose, footprint, groups, traffic
from assay.npu_backend.validation import VTCM_BYTES

__all__ = ["DoesNotFitError", "Tiling", "choose", "footprint", "groups", "tile", "traffic"]


def tile(graph: LayerGraph, *, capacity: int = VTCM_BYTES) -> Program:
    """The program of a graph. Raises `DoesNotFitError`.

    Results that stay in VTCM have no place in DRAM: the intermediate tensors of the program are those that were spilled.
    """
    made = reside(graph, capacity)
    emitter = Emitter(graph, made)
    for group, tiling in zip(made.groups, made.tilings, strict=True):
        emitter.group(group, tiling)
    named = {name for layer in emitter.code for name in (*layer.reads(), layer.out)}
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name in named}
    return Program(graph.name, {**tensors, **emitter.tiles}, tuple(emitter.code))
