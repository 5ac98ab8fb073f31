"""Costs against hand calculations that are written out here, from the layers' equations alone."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.npu.programs import linear, program, whole

from assay.baselines.errors import InputError
from assay.npu_backend import isa
from assay.npu_backend.codegen import Program
from assay.npu_backend.simulator import SPEC, Cost, Machine, Unit, preset, simulate
from assay.npu_backend.tensor import BITS, Role, Tensor

OVERLAPPED = Machine(
    name="test",
    vtcm_bytes=8 << 20,
    macs_per_cycle=dict.fromkeys(BITS, 64.0),
    load_per_cycle=lambda tensor, elements: elements / 8,
    store_per_cycle=lambda tensor, elements: elements / 8,
    vector_per_cycle=16.0,
    overlap=True,
    source="round numbers",
)
SERIAL = dataclasses.replace(OVERLAPPED, overlap=False)


def test_the_specifications_example_to_the_digit() -> None:
    cost = simulate(linear(8, 512, 512, row_tile=8, column_tile=512), SPEC)
    assert cost.cycles == 2_359_296 == 8 * 512 * 512 + 512 * 512
    assert round(cost.vtcm_peak / 2**20, 1) == 1.0
    assert cost.macs == 8 * 512 * 512
    # Weight, bias and input in, output out, of 4 bytes each.
    assert cost.read_bytes == 4 * (512 * 512 + 512 + 8 * 512)
    assert cost.written_bytes == 4 * 8 * 512


@settings(deadline=None, max_examples=30)
@given(
    m=st.integers(1, 40),
    k=st.integers(1, 40),
    n=st.integers(1, 40),
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
)
def test_the_specifications_formula_holds_for_every_tiling(m: int, k: int, n: int, rows: int, columns: int) -> None:
    # Each weight tile is loaded once, whatever the tiles are.
    assert simulate(linear(m, k, n, row_tile=rows, column_tile=columns), SPEC).cycles == (m + 1) * k * n


def test_a_serial_machine_adds_up_what_an_overlapped_one_hides() -> None:
    # Two row tiles of 32 x 64 against a 64 x 64 weight, 64 MACs, 8 elements of DMA and 16 of the vector unit a cycle.
    made = linear(64, 64, 64, row_tile=32, column_tile=64)
    load_w, load_b, load_x, product, store = 64 * 64 // 8, 64 // 8, 32 * 64 // 8, 32 * 64 * 64 // 64, 32 * 64 // 8
    serial = simulate(made, SERIAL)
    assert serial.cycles == load_w + load_b + 2 * (load_x + product + store)
    # Overlapped, the second tile is on its way while the first is multiplied: the channel in goes on at once, the matrix
    # unit waits only for its first tile, and the last store waits for the last product.
    first = load_w + load_b + load_x
    overlapped = simulate(made, OVERLAPPED)
    assert overlapped.cycles == first + 2 * product + store
    assert overlapped.busy == serial.busy
    assert overlapped.bottleneck == Unit.MATRIX
    assert overlapped.utilisation[Unit.MATRIX] == 2 * product / overlapped.cycles


def most_held(made: Program, cost: Cost) -> int:
    """Largest sum of tiles that are held at one cycle, each from the start of its write to the end of its last read."""
    held: dict[str, tuple[int, int]] = {}
    for event in cost.events:
        instruction = made.instructions[event.place]
        for name in instruction.reads():
            if made.tensors[name].role == Role.TILE:
                held[name] = (held[name][0], max(held[name][1], event.stop))
        if made.tensors[event.out].role == Role.TILE:
            held[event.out] = (event.start, event.stop)
    moments = {start for start, _ in held.values()}
    return max(sum(made.tensors[n].bytes for n, (a, b) in held.items() if a <= moment < b) for moment in moments)


def test_loads_wait_for_room() -> None:
    # Four independent copies through VTCM that holds two of them.
    size = 1024
    x, y = Tensor("x", (4, size), "int8", Role.INPUT), Tensor("y", (4, size), "int8", Role.OUTPUT)
    tiles = [Tensor(f"t{i}", (1, size), "int8", Role.TILE) for i in range(4)]
    rs = [Tensor(f"r{i}", (1, size), "int8", Role.TILE) for i in range(4)]
    code: list[isa.Instruction] = []
    for i in range(4):
        box = ((i, i + 1), (0, size))
        code += [
            isa.LoadTile(out=f"t{i}", source="x", ranges=box),
            isa.Relu(out=f"r{i}", x=f"t{i}"),
            isa.StoreTile(out="y", source=f"r{i}", ranges=box),
        ]
    made = program([x, y, *tiles, *rs], code)
    roomy = simulate(made, OVERLAPPED)
    tight = simulate(made, dataclasses.replace(OVERLAPPED, vtcm_bytes=2 * size))
    assert most_held(made, roomy) > 2 * size
    assert most_held(made, tight) <= 2 * size
    # A load and a result fill VTCM, so that nothing overlaps but a store and the next load, which wait for each other.
    assert tight.cycles > roomy.cycles
    with pytest.raises(InputError, match="smaller tiles"):
        simulate(made, dataclasses.replace(OVERLAPPED, vtcm_bytes=2 * size - 1))


@settings(deadline=None, max_examples=40)
@given(
    m=st.integers(1, 30),
    k=st.integers(1, 30),
    n=st.integers(1, 30),
    rows=st.integers(1, 30),
    columns=st.integers(1, 30),
)
def test_no_unit_runs_two_things_and_nothing_reads_what_is_not_ready(
    m: int, k: int, n: int, rows: int, columns: int
) -> None:
    made = linear(m, k, n, row_tile=rows, column_tile=columns)
    cost = simulate(made, OVERLAPPED)
    for unit in Unit:
        mine = [event for event in cost.events if event.unit == unit]
        assert all(a.stop <= b.start for a, b in pairwise(mine))
    stops = {event.out: event.stop for event in cost.events if event.opcode != "STORE_TILE"}
    for event in cost.events:
        for name in made.instructions[event.place].reads():
            assert event.start >= stops.get(name, 0)
    assert cost.cycles >= max(cost.busy.values())
    assert cost.cycles <= simulate(made, SERIAL).cycles


def test_convolution_and_depthwise_by_hand() -> None:
    # 3x3, 8 -> 16 channels on 10x10 without padding: 8x8 outputs, 9 * 8 products each.
    for depthwise in (False, True):
        channels, outputs, depth = 8, 8 if depthwise else 16, 1 if depthwise else 8
        x, w = (
            Tensor("x", (1, channels, 10, 10), "float16", Role.INPUT),
            Tensor("w", (outputs, depth, 3, 3), "float16", Role.WEIGHT),
        )
        y = Tensor("y", (1, outputs, 8, 8), "float16", Role.OUTPUT)
        tiles = [dataclasses.replace(t, name=f"{t.name}t", role=Role.TILE) for t in (x, w, y)]
        kind = isa.DepthwiseConv2d if depthwise else isa.Conv2d
        code = [
            isa.LoadTile(out="xt", source="x", ranges=whole(x)),
            isa.LoadTile(out="wt", source="w", ranges=whole(w)),
            kind(out="yt", x="xt", weight="wt", groups=channels if depthwise else 1),
            isa.StoreTile(out="y", source="yt", ranges=whole(y)),
        ]
        cost = simulate(program([x, w, y, *tiles], code), SERIAL)
        macs = outputs * 8 * 8 * 9 * depth
        assert cost.macs == macs
        moved = (800 + outputs * depth * 9 + outputs * 64) / 8
        assert cost.cycles == moved + macs / 64
        assert cost.read_bytes == 2 * (800 + outputs * depth * 9)


def test_a_machine_that_is_none() -> None:
    assert preset("spec") is SPEC
    with pytest.raises(InputError, match="no machine 'htp'"):
        preset("htp")
