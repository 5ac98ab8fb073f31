"""Which results stay in VTCM from the layer that computes them to the last one that reads them.

Register allocation over live ranges (Poletto and Sarkar, "Linear scan register allocation", TOPLAS 21(5), 1999), with bytes
for registers and DRAM bytes for spill costs. Candidates are tried in the order of the DRAM bytes that each one saves for a
byte of VTCM and a group of its life; one is kept when every group in its life still finds a tiling in what is left of VTCM
and when their price falls as a whole, because what is kept may leave so little room that weights are loaded twice.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
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


class _Chooser:
    """Tilings and their prices, each found once for groups that are alike."""

    def __init__(self, graph: LayerGraph, found: list[Group], capacity: int) -> None:
        self._graph, self._groups, self._capacity = graph, found, capacity
        self._kinds = [_kind(graph, group) for group in found]
        self._names = [
            tuple(dict.fromkeys(n for layer in group for n in (*layer.reads(), layer.out))) for group in found
        ]
        self._known: dict[Hashable, tuple[Tiling, int, int] | None] = {}

    def find(self, place: int, room: int, resident: Collection[str]) -> tuple[Tiling, int, int] | None:
        """The tiling of a group in `room` bytes, its price and its footprint; None when none fits."""
        stays = tuple(name in resident for name in self._names[place])
        key = (self._kinds[place], stays, room)
        if key not in self._known:
            graph, group = self._graph, self._groups[place]
            try:
                tiling = choose(graph, group, self._capacity, room=room, resident=resident)
            except DoesNotFitError:
                self._known[key] = None
            else:
                cost = price(graph, group, tiling, self._capacity, resident)
                self._known[key] = (tiling, cost, footprint(graph, group, tiling, resident))
        return self._known[key]


def _kind(graph: LayerGraph, group: Group) -> Hashable:
    """What tilings of a group depend on: its instructions and their operands, without their names."""
    numbers: dict[str, int] = {}
    layers = []
    for layer in group:
        names = (*layer.reads(), layer.out)
        tensors = [graph.tensors[name] for name in names]
        layers.append(
            (
                layer.OPCODE,
                tuple(value for _, value in sorted(layer.attributes().items())),
                tuple(field for field in layer.OPERANDS if getattr(layer, field) is not None),
                tuple(numbers.setdefault(name, len(numbers)) for name in names),
                tuple((tensor.shape, tensor.stored) for tensor in tensors),
            )
        )
    return tuple(layers)


def reside(graph: LayerGraph, capacity: int) -> Residency:
    """What stays in VTCM of `capacity` bytes. Raises `DoesNotFitError` for a group that has no tiling even alone."""
    views = _views(graph)
    parts = {name for name in views if graph.tensors[name].role == Role.INTERMEDIATE}
    found = [group for group in groups(graph) if group[0].out not in parts]
    chooser = _Chooser(graph, found, capacity)
    alone = []
    for place, group in enumerate(found):
        choice = chooser.find(place, capacity, ())
        if choice is None:
            raise DoesNotFitError(group[0].out, len(group))
        alone.append(choice)
    made = Residency(found, [tiling for tiling, _, _ in alone], views=views)
    prices, feet = [cost for _, cost, _ in alone], [foot for _, _, foot in alone]
    free: set[str] = set()
    used = [0] * len(found)
    candidates = _candidates(graph, found, views, capacity)
    for one in sorted(candidates, key=lambda c: (-c.saved / (c.size * (c.last - c.first + 1)), c.first)):
        life = range(one.first, one.last + 1)
        if max(used[one.first : one.last + 1]) + one.size > capacity:
            continue
        touched = {one.first, *one.readers}
        # A group that neither writes nor reads it keeps its tiling when that still fits.
        touched |= {place for place in life if feet[place] > capacity - used[place] - one.size}
        free |= one.names
        changed = {place: chooser.find(place, capacity - used[place] - one.size, free) for place in sorted(touched)}
        stored = 0 if graph.tensors[one.name].role == Role.OUTPUT else graph.tensors[one.name].bytes
        before = sum(prices[place] for place in touched) + stored
        fitting = {place: choice for place, choice in changed.items() if choice is not None}
        if (
            len(fitting) < len(changed)
            or sum(cost for _, cost, _ in fitting.values()) >= before
            or not _in_place(graph, found[one.first], fitting[one.first][0])
        ):
            free -= one.names
            continue
        made.kept.add(one.name)
        for place in life:
            used[place] += one.size
        for place, (tiling, cost, foot) in fitting.items():
            made.tilings[place], prices[place], feet[place] = tiling, cost, foot
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
