"""Writes a program: the loads, computation and stores of every box of every group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from assay.npu_backend import isa
from assay.npu_backend.boxes import boxes, cut, depth_of, loop_order, span_box
from assay.npu_backend.isa import Instruction
from assay.npu_backend.layers import LayerGraph
from assay.npu_backend.residency import Residency
from assay.npu_backend.search import Group, Tiling, pieces
from assay.npu_backend.tensor import Box, Range, Role, Shape, Tensor, whole

_Kept = dict[tuple[int, int], tuple[str, Box, str]]
"""(layer of the group, operand) -> tensor, box and tile that were loaded last."""


class Emitter:
    """Instructions and the tensors that they declare in VTCM, group after group."""

    def __init__(self, graph: LayerGraph, residency: Residency) -> None:
        self._graph = graph
        self._residency = residency
        self.tiles: dict[str, Tensor] = {}
        self.code: list[Instruction] = []
        self._numbers: dict[str, int] = {}
        self._places: dict[str, str] = {}
        """Kept tensor -> the tile or resident that holds it."""

    def group(self, group: Group, tiling: Tiling) -> None:
        """All boxes of a group."""
        kept = group[-1].out in self._residency.kept
        parts = pieces(self._graph, group, tiling)
        if kept and parts > 1:
            self._reserve(group[-1].out)
        if tiling.block:
            self._reshape(group[0], tiling.block)
            return
        held: _Kept = {}
        for out in self._boxes(group[0], tiling):
            if isinstance(group[0], isa.LoadTile):
                done = self._load(group[0].source, boxes(self._graph, group[0], out)[0])
            else:
                done = self._compute(group, out, tiling, held)
            self._store(done, group[-1].out, out)

    def _compute(self, group: Group, out: Box, tiling: Tiling, held: _Kept) -> str:
        graph = self._graph
        riding = []
        for place, layer in enumerate(group[1:], 1):
            found = list(zip(layer.reads(), boxes(graph, layer, out), strict=True))[1:]
            riding.append([self._held(held, (place, slot), name, box) for slot, (name, box) in enumerate(found)])
        head, total = group[0], None
        depth, _ = depth_of(graph, head)
        parts: list[Range | None] = [None]
        if tiling.depth:
            parts = [(start, min(depth, start + tiling.depth)) for start in range(0, depth, tiling.depth)]
        for number, part in enumerate(parts):
            final = number == len(parts) - 1
            layer = head if final or not isinstance(head, isa.MatMul | isa.Conv2d) else replace(head, bias=None)
            needed = boxes(graph, layer, out, part)
            names = [
                self._held(held, (0, slot), name, box)
                for slot, (name, box) in enumerate(zip(layer.reads(), needed, strict=True))
            ]
            layer = _reading(cut(layer, graph, out), names)
            if total is not None:
                layer = replace(layer, accumulate=total)  # type: ignore[call-arg]
            total = self._write(layer, head.out, out)
        assert total is not None
        for layer, others in zip(group[1:], riding, strict=True):
            total = self._write(_reading(layer, [total, *others]), layer.out, out)
        return total

    def _boxes(self, head: Instruction, tiling: Tiling) -> Iterator[Box]:
        shape = self._graph.tensors[head.out].shape
        order = loop_order(head, len(shape), rows_first=tiling.rows_first)
        cuts = [
            [
                (start, min(shape[axis], start + tiling.sizes[axis]))
                for start in range(0, shape[axis], tiling.sizes[axis])
            ]
            for axis in order
        ]
        for found in itertools.product(*cuts):
            yield tuple(found[order.index(axis)] for axis in range(len(shape)))

    def _held(self, held: _Kept, slot: tuple[int, int], name: str, box: Box) -> str:
        """A tile of an operand: one that an operand of this box or of the box before has, when it is the same."""
        root, box = self._residency.locate(name, box)
        for known, where, loaded in held.values():
            if (known, where) == (root, box):
                return loaded
        held[slot] = (root, box, self._load(root, box))
        return held[slot][2]

    def _tile(self, base: str, shape: Shape) -> str:
        number = self._numbers[base] = self._numbers.get(base, -1) + 1
        name = f"{base}.{number}"
        self.tiles[name] = replace(self._graph.tensors[base], name=name, shape=shape, role=Role.TILE)
        return name

    def _reserve(self, tensor: str) -> None:
        """Storage in VTCM for a tensor that is kept and written box by box."""
        name = f"{tensor}.vtcm"
        self.tiles[name] = replace(self._graph.tensors[tensor], name=name, role=Role.RESIDENT)
        self._places[tensor] = name

    def _load(self, source: str, box: Box) -> str:
        source, box = self._residency.locate(source, box)
        place = self._places.get(source, source)
        if place in self.tiles and self.tiles[place].role == Role.TILE and box == whole(self.tiles[place]):
            return place
        name = self._tile(source, tuple(stop - start for start, stop in box))
        self.code.append(isa.LoadTile(out=name, source=place, ranges=box))
        return name

    def _store(self, tile: str, out: str, box: Box) -> None:
        tensor = self._graph.tensors[out]
        kept = out in self._residency.kept
        if tensor.role == Role.OUTPUT or not kept:
            self.code.append(isa.StoreTile(out=out, source=tile, ranges=box))
        if kept and out in self._places:
            self.code.append(isa.StoreTile(out=self._places[out], source=tile, ranges=box))
        elif kept:
            self._places[out] = tile

    def _write(self, layer: Instruction, base: str, out: Box) -> str:
        shape = tuple(stop - start for start, stop in out)
        name = self._tile(base, shape)
        changes: dict[str, object] = {"out": name}
        if isinstance(layer, isa.Broadcast | isa.Reshape):
            changes["shape"] = shape
        self.code.append(replace(layer, **changes))  # type: ignore[arg-type]
        return name

    def _reshape(self, layer: Instruction, block: int) -> None:
        """Blocks of elements that are boxes on both sides."""
        assert isinstance(layer, isa.Reshape)
        before, after = self._graph.tensors[layer.x], self._graph.tensors[layer.out]
        for start in range(0, before.elements, block):
            source, out = span_box(before.shape, start, block), span_box(after.shape, start, block)
            loaded = self._load(layer.x, source)
            done = self._write(replace(layer, x=loaded), layer.out, out)
            self._store(done, layer.out, out)


def _reading(layer: Instruction, names: list[str]) -> Instruction:
    """A layer over tiles: `names` in the order of `reads`."""
    changes: dict[str, object] = {}
    remaining = iter(names)
    for field in layer.OPERANDS:
        value = getattr(layer, field)
        if isinstance(value, tuple):
            changes[field] = tuple(next(remaining) for _ in value)
        elif value is not None:
            changes[field] = next(remaining)
    return replace(layer, **changes)  # type: ignore[arg-type]
