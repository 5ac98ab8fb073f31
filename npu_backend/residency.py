"""Which results stay in VTCM from the layer that computes them to the last one that reads them.

Register allocation over live ranges (Poletto and Sarkar, "Linear scan register allocation", TOPLAS 21(5), 1999), with bytes
for registers and DRAM bytes for spill costs. Candidates are tried in the order of the DRAM bytes that each one saves for a
byte of VTCM and a group of its life; one is kept when every group in its life still finds a tiling in what is left of VTCM
and when their price falls as a whole, because what is kept may leave so little room that weights are loaded twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from assay.npu_backend import isa
from assay.npu_backend.boxes import DoesNotFitError
from assay.npu_backend.layers import LayerGraph
from assay.npu_backend.search import Group, Tiling, choose, footprint, groups, pieces, price
from assay.npu_backend.tensor import Box, Role


@dataclass
class Residency:
    """What stays, and the tiling of each group beside it."""

    groups: list[Group]
    tilings: list[Tiling]
    kept: set[str] = field(default_factory=set)
    """Tensors that stay in VTCM whole."""
    views: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """A part of another tensor -> that tensor, and where the part starts. Readers read there: a part that is no output of
    the program is not computed at all."""

    def locate(self, name: str, box: Box) -> tuple[str, Box]:
        """The tensor that holds a box, and the box in it."""
        if name not in self.views:
            return name, box
        root, offsets = self.views[name]
        return root, tuple((start + by, stop + by) for (start, stop), by in zip(box, offsets, strict=True))


@dataclass(frozen=True)
class _Candidate:
    name: str
    size: int
    """Bytes of VTCM."""
    first: int
    last: int
    """Groups between which it lives."""
    readers: frozenset[int]
    names: frozenset[str]
    """It and its parts."""
    saved: int


def reside(graph: LayerGraph, capacity: int) -> Residency:
    """What stays in VTCM of `capacity` bytes. Raises `DoesNotFitError` for a group that has no tiling even alone."""
    views = _views(graph)
    parts = {name for name in views if graph.tensors[name].role == Role.INTERMEDIATE}
    found = [group for group in groups(graph) if group[0].out not in parts]
    made = Residency(found, [choose(graph, group, capacity) for group in found], views=views)
    free: set[str] = set()
    used = [0] * len(found)
    prices = [price(graph, group, tiling, capacity, ()) for group, tiling in zip(found, made.tilings, strict=True)]
    feet = [footprint(graph, group, tiling) for group, tiling in zip(found, made.tilings, strict=True)]
    candidates = _candidates(graph, found, views, capacity)
    for one in sorted(candidates, key=lambda c: (-c.saved / (c.size * (c.last - c.first + 1)), c.first)):
        life = range(one.first, one.last + 1)
        if any(used[place] + one.size > capacity for place in life):
            continue
        touched = {one.first, *one.readers}
        # A group that neither writes nor reads it keeps its tiling when that still fits.
        touched |= {place for place in life if feet[place] > capacity - used[place] - one.size}
        with_it = free | one.names
        try:
            changed = {
                place: choose(graph, found[place], capacity, room=capacity - used[place] - one.size, resident=with_it)
                for place in sorted(touched)
            }
        except DoesNotFitError:
            continue
        costs = {place: price(graph, found[place], tiling, capacity, with_it) for place, tiling in changed.items()}
        stored = 0 if graph.tensors[one.name].role == Role.OUTPUT else graph.tensors[one.name].bytes
        if sum(costs.values()) >= sum(prices[place] for place in touched) + stored:
            continue
        if not _in_place(graph, found[one.first], changed[one.first]):
            continue
        free = with_it
        made.kept.add(one.name)
        for place in life:
            used[place] += one.size
        for place, tiling in changed.items():
            made.tilings[place] = tiling
            prices[place] = costs[place]
            feet[place] = footprint(graph, found[place], tiling, free)
    return made


def _views(graph: LayerGraph) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Results that are a box of another tensor."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for layer in graph.layers:
        if isinstance(layer, isa.LoadTile):
            root, offsets = found.get(layer.source, (layer.source, (0,) * len(layer.ranges)))
            starts = tuple(start for start, _ in layer.ranges)
            found[layer.out] = (root, tuple(a + b for a, b in zip(offsets, starts, strict=True)))
    return found


def _candidates(
    graph: LayerGraph, found: list[Group], views: dict[str, tuple[str, tuple[int, ...]]], capacity: int
) -> list[_Candidate]:
    names: dict[str, set[str]] = {}
    for part, (root, _) in views.items():
        names.setdefault(root, {root}).add(part)
    readers: dict[str, set[int]] = {}
    for place, group in enumerate(found):
        for layer in group:
            for name in layer.reads():
                readers.setdefault(views.get(name, (name,))[0], set()).add(place)
    candidates = []
    for place, group in enumerate(found):
        name = group[-1].out
        outside = readers.get(name, set()) - {place}
        # A rider that changes the dtype works in the storage of the first tile, which is then what stays.
        size = max(graph.tensors[layer.out].bytes for layer in group)
        if not outside or size > capacity:
            continue
        moved = graph.tensors[name].bytes
        saved = moved * (len(outside) + (graph.tensors[name].role != Role.OUTPUT))
        candidates.append(
            _Candidate(name, size, place, max(outside), frozenset(outside), frozenset(names.get(name, {name})), saved)
        )
    return candidates


def _in_place(graph: LayerGraph, group: Group, tiling: Tiling) -> bool:
    """Whether the boxes of a group can be written where they stay: in one piece, or none larger than the last layer's."""
    last = graph.tensors[group[-1].out]
    wider = any(graph.tensors[layer.out].bytes > last.bytes for layer in group)
    return pieces(graph, group, tiling) == 1 or not wider
