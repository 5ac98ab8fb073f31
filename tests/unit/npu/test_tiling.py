"""Tiles: whatever VTCM there is, the program validates under it and gives what the layers give whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.npu_backend import isa
from assay.npu_backend.interpreter import execute
from assay.npu_backend.layers import LayerGraph, run_layers
from assay.npu_backend.tensor import Role, Shape
from assay.npu_backend.tiling import DoesNotFitError, Tiling, choose, footprint, groups, tile, traffic
from assay.npu_backend.validation import validate, vtcm_peak

sizes = st.integers(1, 24)


def graph_of(
    kind: type[isa.Instruction], shapes: dict[str, Shape], dtype: str = "float32", **fields: Any
) -> LayerGraph:
    """One layer over inputs that are named like its operands."""
    graph = LayerGraph("one")
    names = {field: graph.declare(field, shape, dtype, Role.INPUT) for field, shape in shapes.items()}
    out = graph.add(kind, "out", "out", **names, **fields)
    graph.mark_outputs([out])
    return graph


def same(graph: LayerGraph, capacity: int) -> None:
    """The tiled program validates under `capacity` and gives what the layers give; or no tile fits."""
    try:
        program = tile(graph, capacity=capacity)
    except DoesNotFitError:
        return
    validate(program, capacity=capacity)
    random = torch.Generator().manual_seed(1)
    inputs = {
        t.name: torch.randn(t.shape, generator=random)
        if t.dtype == "float32"
        else torch.randint(-100, 100, t.shape, generator=random, dtype=torch.int8)
        for t in graph.tensors.values()
        if t.role == Role.INPUT
    }
    got = execute(program, {t.name: inputs[t.name] for t in program.of_role(Role.INPUT)}, capacity=capacity)
    want = run_layers(graph, inputs)
    for name, value in got.items():
        tolerance = 0.0 if not value.is_floating_point() else 1e-4
        torch.testing.assert_close(value, want[name], rtol=tolerance, atol=tolerance)


@settings(deadline=None, max_examples=40)
@given(m=sizes, k=sizes, n=sizes, batch=st.integers(1, 3), turned=st.booleans(), capacity=st.integers(64, 6000))
def test_products(m: int, k: int, n: int, batch: int, turned: bool, capacity: int) -> None:
    for dtype in ("float32", "int8"):
        b = (n, k) if turned else (k, n)
        same(graph_of(isa.MatMul, {"a": (batch, m, k), "b": b}, dtype, transpose_b=turned), capacity)


@settings(deadline=None, max_examples=40)
@given(
    size=st.integers(3, 12),
    channels=st.integers(1, 3),
    outputs=st.integers(1, 3),
    groups=st.integers(1, 3),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 3),
    dilation=st.integers(1, 2),
    capacity=st.integers(200, 4000),
)
def test_convolutions(
    size: int,
    channels: int,
    outputs: int,
    groups: int,
    kernel: int,
    stride: int,
    padding: int,
    dilation: int,
    capacity: int,
) -> None:
    if size + 2 * padding < dilation * (kernel - 1) + 1:
        return
    shapes = {"x": (2, channels * groups, size, size + 1), "weight": (outputs * groups, channels, kernel, kernel)}
    fields = {"stride": (stride, 1), "padding": (padding, padding, 1, 0), "dilation": (dilation, 1), "groups": groups}
    for dtype in ("float32", "int8"):
        same(graph_of(isa.Conv2d, shapes, dtype, **fields), capacity)


@settings(deadline=None, max_examples=40)
@given(shape=st.lists(st.integers(1, 9), min_size=1, max_size=4), capacity=st.integers(32, 3000), data=st.data())
def test_moves_and_vector_layers(shape: list[int], capacity: int, data: st.DataObject) -> None:
    full = tuple(shape)
    axis = data.draw(st.integers(0, len(shape) - 1))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    one = tuple(1 if data.draw(st.booleans()) else size for size in full)
    same(graph_of(isa.Softmax, {"x": full}, axis=axis), capacity)
    same(graph_of(isa.LayerNorm, {"x": full, "weight": full[axis:]}, axis=axis, epsilon=1e-3), capacity)
    same(graph_of(isa.ElementwiseAdd, {"a": full, "b": one}), capacity)
    same(graph_of(isa.ElementwiseMul, {"a": full[axis:], "b": full}), capacity)
    same(graph_of(isa.Broadcast, {"x": one}, shape=full), capacity)
    same(graph_of(isa.Relu, {"x": full}, "int8"), capacity)
    turned = tuple(full[place] for place in order)
    same(graph_of(isa.Reshape, {"x": full}, shape=turned, function="permute", order=order), capacity)
    same(graph_of(isa.Reshape, {"x": full}, shape=turned), capacity)
    ranges = tuple(sorted(data.draw(st.tuples(st.integers(0, n - 1), st.integers(1, n)))) for n in full)
    if all(a < b for a, b in ranges):
        same(graph_of(isa.LoadTile, {"source": full}, ranges=tuple((a, b) for a, b in ranges)), capacity)


def test_the_footprint_is_what_the_validator_counts() -> None:
    graph = graph_of(isa.MatMul, {"a": (64, 48), "b": (48, 80)})
    (group,) = groups(graph)
    whole = Tiling((64, 80))
    assert footprint(graph, group, whole) == 4 * (64 * 48 + 48 * 80 + 64 * 80) == vtcm_peak(tile(graph))
    assert traffic(graph, group, whole) == 4 * (64 * 48 + 48 * 80)
    # Cut along the columns only: the left side stays in VTCM, each weight tile is loaded once.
    assert traffic(graph, group, Tiling((64, 40))) == 4 * (64 * 48 + 48 * 80)
    # Cut along both: the columns are the outer loop, so the left side comes twice.
    assert traffic(graph, group, Tiling((32, 40))) == 4 * (2 * 64 * 48 + 48 * 80)


def test_tiles_leave_half_of_vtcm_for_the_next_ones() -> None:
    graph = graph_of(isa.MatMul, {"a": (64, 48), "b": (48, 80)})
    (group,) = groups(graph)
    capacity = 40_000
    assert footprint(graph, group, choose(graph, group, capacity)) <= capacity // 2
    assert vtcm_peak(tile(graph, capacity=capacity)) <= capacity // 2


def test_a_long_sum_is_cut_and_accumulated() -> None:
    graph = graph_of(isa.MatMul, {"a": (2, 4000), "b": (4000, 2)})
    program = tile(graph, capacity=8000)
    products = [i for i in program.instructions if isinstance(i, isa.MatMul)]
    assert len(products) > 1
    assert [i.accumulate is not None for i in products] == [False] + [True] * (len(products) - 1)
    same(graph, 8000)


def test_borders_do_not_make_a_tile_look_smaller_than_the_others() -> None:
    # With rows of one, the boxes at the top read two rows and those in the middle three.
    graph = graph_of(isa.Conv2d, {"x": (2, 2, 6, 7), "weight": (1, 2, 3, 3)}, padding=(2, 2, 1, 0))
    for capacity in range(150, 700, 10):
        same(graph, capacity)


def test_a_softmax_longer_than_vtcm_does_not_fit() -> None:
    graph = graph_of(isa.Softmax, {"x": (2, 4000)}, axis=1)
    with pytest.raises(DoesNotFitError) as caught:
        tile(graph, capacity=8000)
    assert (caught.value.out, caught.value.length) == ("out", 1)
