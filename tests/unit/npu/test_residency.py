"""What stays in VTCM: no traffic for it, never more than there is, and the same results."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.npu.programs import program, whole

from assay.baselines.errors import InputError
from assay.npu_backend import isa
from assay.npu_backend.codegen import Program, dump_program, parse_program, print_program
from assay.npu_backend.fusion import fuse
from assay.npu_backend.interpreter import execute
from assay.npu_backend.layers import LayerGraph, run_layers
from assay.npu_backend.simulator import SPEC, simulate
from assay.npu_backend.tensor import Role, Shape, Tensor
from assay.npu_backend.tiling import DoesNotFitError, tile
from assay.npu_backend.validation import validate, vtcm_peak


def chain(width: int = 16, layers: int = 4) -> LayerGraph:
    """Products one after the other, too wide for a rider."""
    graph = LayerGraph("chain")
    x = graph.declare("x", (8, width), "float32", Role.INPUT)
    for number in range(layers):
        w = graph.declare(f"w{number}", (width, width), "float32", Role.WEIGHT)
        x = graph.add(isa.MatMul, f"h{number}", "", a=x, b=w)
    graph.mark_outputs([x])
    return graph


def values(graph: LayerGraph) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(3)
    made = {}
    for t in graph.tensors.values():
        if t.role in (Role.INPUT, Role.WEIGHT):
            made[t.name] = torch.randn(t.shape, generator=random) / max(1, t.shape[-1] if t.shape else 1) ** 0.5
    return made


def check(graph: LayerGraph, capacity: int) -> Program | None:
    """The program of a graph, after it gave what the layers give; None when a layer does not fit."""
    try:
        made = tile(graph, capacity=capacity)
    except DoesNotFitError:
        return None
    validate(made, capacity=capacity)
    assert parse_program(dump_program(made)) == made
    given_ = values(graph)
    got = execute(made, {n: v for n, v in given_.items() if n in made.tensors}, capacity=capacity)
    want = run_layers(graph, given_)
    for name, value in got.items():
        torch.testing.assert_close(value, want[name], rtol=1e-4, atol=1e-4)
    return made


def moved(made: Program) -> tuple[int, int]:
    cost = simulate(made, SPEC)
    return cost.read_bytes, cost.written_bytes


def test_results_between_layers_cost_no_traffic_when_they_fit() -> None:
    graph = chain()
    made = check(graph, 1 << 20)
    assert made is not None
    assert moved(made) == (4 * (8 * 16 + 4 * 16 * 16), 4 * 8 * 16)
    assert [i.OPCODE for i in made.instructions].count("STORE_TILE") == 1
    assert simulate(made).spilled == ()


def test_what_does_not_fit_is_spilled_and_named() -> None:
    # A result has 2,048 bytes: two of them, which each product needs, do not fit.
    graph = chain(width=64)
    made, roomy = check(graph, 4000), check(graph, 1 << 20)
    assert made is not None
    assert roomy is not None
    tight = simulate(made, dataclasses.replace(SPEC, vtcm_bytes=4000))
    assert tight.vtcm_peak <= 4000
    assert tight.spilled
    assert set(tight.spilled) <= {"h0", "h1", "h2"}
    # Each spilled result is stored and loaded at least once more.
    assert tight.read_bytes + tight.written_bytes >= sum(moved(roomy)) + 2 * 2048 * len(tight.spilled)


def test_a_result_in_pieces_stays_and_is_read_in_other_pieces() -> None:
    # The weights do not fit whole, so products are cut along columns; the next product reads all columns of some rows.
    graph = chain(width=64, layers=3)
    made = check(graph, 16_000)
    assert made is not None
    assert [t.name for t in made.of_role(Role.RESIDENT)]
    assert made.of_role(Role.INTERMEDIATE) == []
    assert moved(made) == (4 * (8 * 64 + 3 * 64 * 64), 4 * 8 * 64)
    listing = print_program(made)
    assert "(in place)" in listing


def test_parts_are_read_where_they_lie() -> None:
    graph = LayerGraph("parts")
    x = graph.declare("x", (6, 8), "float32", Role.INPUT)
    a = graph.add(isa.Gelu, "a", "", x=x, function="exp")
    top = graph.add(isa.LoadTile, "top", "", source=a, ranges=((1, 4), (0, 8)))
    left = graph.add(isa.LoadTile, "left", "", source=top, ranges=((1, 3), (2, 6)))
    b = graph.add(isa.Softmax, "b", "", x=left, axis=0)
    c = graph.add(isa.Softmax, "c", "", x=top, axis=1)
    graph.mark_outputs([b, c, a])
    made = check(graph, 1 << 16)
    assert made is not None
    # In: x. Out: the three outputs. Parts move nothing.
    assert moved(made) == (4 * 48, 4 * (48 + 8 + 24))
    check(graph, 150)


Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["matmul", "conv", "relu", "add", "softmax", "norm", "slice", "concat", "permute", "reshape"]),
        st.integers(0, 100),
        st.integers(0, 100),
    ),
    min_size=2,
    max_size=9,
)


def random_graph(start: Shape, made: list[Step], outputs: int) -> LayerGraph:
    graph = LayerGraph("random")
    names = [graph.declare("x", start, "float32", Role.INPUT)]
    shape = graph.tensors
    for kind, which, how in made:
        x = names[which % len(names)]
        sizes = shape[x].shape
        if kind == "matmul":
            w = graph.declare("w", (sizes[-1], 1 + how % 7), "float32", Role.WEIGHT)
            names.append(graph.add(isa.MatMul, "m", "", a=x, b=w))
        elif kind == "conv":
            kernel = 1 + how % 3
            if min(sizes[2:]) + 2 < kernel:
                continue
            w = graph.declare("w", (1 + how % 4, sizes[1], kernel, kernel), "float32", Role.WEIGHT)
            fields = {"stride": (1 + how % 2, 1), "padding": (1, 1, 1, 1)}
            names.append(graph.add(isa.Conv2d, "c", "", x=x, weight=w, **fields))
        elif kind == "relu":
            names.append(graph.add(isa.Relu, "r", "", x=x))
        elif kind == "add":
            same = [n for n in names if shape[n].shape == sizes]
            names.append(graph.add(isa.ElementwiseAdd, "s", "", a=x, b=same[how % len(same)]))
        elif kind == "softmax":
            names.append(graph.add(isa.Softmax, "p", "", x=x, axis=how % 4))
        elif kind == "norm":
            names.append(graph.add(isa.LayerNorm, "n", "", x=x, axis=1 + how % 3, epsilon=1e-3))
        elif kind == "slice":
            ranges = tuple((how % n // 2, n - (how + 1) % n // 2) for n in sizes)
            names.append(graph.add(isa.LoadTile, "v", "", source=x, ranges=ranges))
        elif kind == "concat":
            axis = how % 4
            same = [n for n in names if shape[n].shape[:axis] == sizes[:axis]
                    and shape[n].shape[axis + 1 :] == sizes[axis + 1 :]]  # fmt: skip
            names.append(graph.add(isa.Concat, "k", "", xs=(x, same[which % len(same)]), axis=axis))
        elif kind == "permute":
            order = ((0, 2, 3, 1), (0, 1, 3, 2), (3, 2, 1, 0))[how % 3]
            turned = tuple(sizes[a] for a in order)
            names.append(graph.add(isa.Reshape, "t", "", x=x, shape=turned, function="permute", order=order))
        else:
            flat = (sizes[0], sizes[1] * sizes[2], 1, sizes[3])
            names.append(graph.add(isa.Reshape, "f", "", x=x, shape=flat))
    computed = [n for n in names if n != "x"]
    graph.mark_outputs([*computed[-1:], *computed[outputs % max(1, len(computed)) :: 5]])
    graph.prune()
    return graph


@settings(deadline=None, max_examples=80)
@given(
    start=st.tuples(st.integers(1, 2), st.integers(1, 5), st.integers(1, 8), st.integers(1, 8)),
    made=steps,
    outputs=st.integers(0, 9),
    capacity=st.integers(100, 6000),
)
def test_random_graphs_give_what_their_layers_give(start: Shape, made: list[Step], outputs: int, capacity: int) -> None:
    graph = random_graph(start, made, outputs)
    for prepared in (graph, fuse(graph)):
        tight, roomy = check(prepared, capacity), check(prepared, 1 << 22)
        assert roomy is not None
        # With room for all, each input and weight is loaded at most once for each layer, and outputs alone are stored.
        assert roomy.of_role(Role.INTERMEDIATE) == []
        assert moved(roomy)[1] == sum(t.bytes for t in roomy.of_role(Role.OUTPUT))
        if tight is not None:
            assert vtcm_peak(tight) <= capacity


def resident_program() -> tuple[list[Tensor], list[isa.Instruction]]:
    """relu(x) kept in two pieces and read whole."""
    x, y = Tensor("x", (4, 4), "float32", Role.INPUT), Tensor("y", (4, 4), "float32", Role.OUTPUT)
    kept = Tensor("kept", (4, 4), "float32", Role.RESIDENT)
    halves = [Tensor(n, (2, 4), "float32", Role.TILE) for n in ("x0", "x1", "r0", "r1")]
    all_, done = Tensor("all", (4, 4), "float32", Role.TILE), Tensor("done", (4, 4), "float32", Role.TILE)
    code: list[isa.Instruction] = []
    for i in range(2):
        box = ((2 * i, 2 * i + 2), (0, 4))
        code += [
            isa.LoadTile(out=f"x{i}", source="x", ranges=box),
            isa.Relu(out=f"r{i}", x=f"x{i}"),
            isa.StoreTile(out="kept", source=f"r{i}", ranges=box),
        ]
    code += [
        isa.LoadTile(out="all", source="kept", ranges=whole(kept)),
        isa.Gelu(out="done", x="all", function="exp"),
        isa.StoreTile(out="y", source="done", ranges=whole(y)),
    ]
    return [x, y, kept, *halves, all_, done], code


def test_a_resident_takes_its_bytes_once_and_moves_none() -> None:
    made = program(*resident_program())
    value = torch.randn(4, 4)
    (y,) = execute(made, {"x": value}).values()
    torch.testing.assert_close(y, torch.exp(torch.relu(value)))
    cost = simulate(made, SPEC)
    # The resident (64 bytes) is there from the first piece on; each x piece takes 32, the result 64.
    assert cost.vtcm_live == (32, 96, 64, 96, 96, 64, 64, 128, 64)
    assert (cost.read_bytes, cost.written_bytes, cost.vtcm_peak) == (64, 64, 128)
    assert [e.opcode for e in cost.events] == ["LOAD_TILE", "RELU"] * 2 + ["GELU", "STORE_TILE"]
    with pytest.raises(InputError, match="live tiles take 128"):
        validate(made, capacity=127)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c[:5] + c[6:], "has not been stored"),
        (
            lambda c: [*c[:5], isa.StoreTile(out="kept", source="r0", ranges=((2, 4), (0, 4))), *c[6:]],
            "it lies in kept",
        ),
        (lambda c: [*c[:3], c[5], *c[3:5], *c[6:]], "before it is written"),
        (lambda c: [*c[:6], c[2], *c[6:]], "a second time"),
        (lambda c: [*c[:6], isa.Relu(out="all", x="kept"), *c[7:]], "which is resident"),
        (lambda c: [*c[:6], isa.Relu(out="kept", x="r0"), *c[6:]], "write a tile and store it"),
    ],
)
def test_faults_of_residents_are_named(change, says: str) -> None:  # type: ignore[no-untyped-def]
    tensors, code = resident_program()
    with pytest.raises(InputError, match=says):
        validate(program(tensors, change(code)))


def test_a_tile_that_needs_more_than_its_box_is_not_kept_there() -> None:
    x, kept = Tensor("x", (4,), "float32", Role.INPUT), Tensor("kept", (4,), "int8", Role.RESIDENT)
    tiles = [Tensor("a", (4,), "float32", Role.TILE), Tensor("b", (4,), "float32", Role.TILE)]
    q, y = Tensor("q", (4,), "int8", Role.TILE), Tensor("y", (4,), "int8", Role.OUTPUT)
    code = [
        isa.LoadTile(out="a", source="x", ranges=((0, 4),)),
        isa.Relu(out="b", x="a"),
        isa.Quantize(out="q", x="b", dtype="int8", scale=(1.0,), zero_point=(0,), fused=True),
        isa.StoreTile(out="kept", source="q", ranges=((0, 4),)),
        isa.StoreTile(out="y", source="q", ranges=((0, 4),)),
    ]
    with pytest.raises(InputError, match="was computed in 16 bytes"):
        validate(program([x, kept, *tiles, q, y], code))


def test_copies_change_no_storage() -> None:
    tensors, code = resident_program()
    tensors[0] = dataclasses.replace(tensors[0], storage="float16")
    with pytest.raises(InputError, match="keep the storage"):
        validate(program(tensors, code))
