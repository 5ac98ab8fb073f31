"""Programs: every malformed one is refused in one line, JSON gives the same program back, execution is what torch says."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.npu.programs import linear, program, whole

from assay.baselines.errors import InputError
from assay.npu_backend import isa
from assay.npu_backend.codegen import Program, dump_program, parse_program, print_program
from assay.npu_backend.interpreter import execute
from assay.npu_backend.isa import INSTRUCTIONS
from assay.npu_backend.tensor import Role, Tensor
from assay.npu_backend.validation import validate, vtcm_over_time, vtcm_peak

SAMPLE = linear(8, 6, 10, row_tile=4, column_tile=5)
sizes = st.integers(1, 9)


def replaced(base: Program, place: int, **changes: object) -> Program:
    code = list(base.instructions)
    code[place] = dataclasses.replace(code[place], **changes)  # type: ignore[arg-type]
    return dataclasses.replace(base, instructions=tuple(code))


def test_the_sixteen_instructions_of_the_specification() -> None:
    assert list(INSTRUCTIONS) == [
        "LOAD_TILE", "STORE_TILE", "MATMUL", "CONV2D", "DEPTHWISE_CONV2D", "QUANTIZE", "DEQUANTIZE", "RELU", "GELU",
        "SOFTMAX", "LAYERNORM", "ELEMENTWISE_ADD", "ELEMENTWISE_MUL", "BROADCAST", "CONCAT", "RESHAPE",
    ]  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(
    rows=sizes,
    inner=sizes,
    columns=sizes,
    row_tile=sizes,
    column_tile=sizes,
    dtype=st.sampled_from(["float32", "float16"]),
)
def test_tiled_programs_validate_round_trip_and_compute(
    rows: int, inner: int, columns: int, row_tile: int, column_tile: int, dtype: str
) -> None:
    made = linear(rows, inner, columns, row_tile=row_tile, column_tile=column_tile, dtype=dtype)
    assert parse_program(dump_program(made)) == made
    kind = getattr(torch, dtype)
    x, w, b = torch.randn(rows, inner).to(kind), torch.randn(inner, columns).to(kind), torch.randn(columns).to(kind)
    (y,) = execute(made, {"x": x, "w": w, "b": b}).values()
    want = torch.relu(x.double() @ w.double() + b.double())
    torch.testing.assert_close(y.double(), want, atol=1e-5 if dtype == "float32" else 2e-2, rtol=2e-3)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_program_with_one_instruction_taken_out_is_refused(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(SAMPLE.instructions) - 1))
    code = list(SAMPLE.instructions)
    del code[place]
    with pytest.raises(InputError) as caught:
        validate(dataclasses.replace(SAMPLE, instructions=tuple(code)))
    assert "\n" not in str(caught.value)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_two_instructions_of_which_one_needs_the_other_do_not_change_places(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(SAMPLE.instructions) - 2))
    first, second = SAMPLE.instructions[place : place + 2]
    code = list(SAMPLE.instructions)
    code[place : place + 2] = [second, first]
    spoiled = dataclasses.replace(SAMPLE, instructions=tuple(code))
    if first.out in second.reads():
        with pytest.raises(InputError):
            validate(spoiled)
    else:
        validate(spoiled)


MATMUL, RELU, STORE, LOAD = 3, 4, 5, 0


@pytest.mark.parametrize(
    ("place", "changes", "says"),
    [
        (LOAD, {"source": "v"}, "does not declare"),
        (LOAD, {"ranges": ((0, 6), (0, 11))}, "is not inside w"),
        (LOAD, {"ranges": ((0, 6), (3, 3))}, "is not inside w"),
        (LOAD, {"ranges": ((0, 6),)}, "1 ranges for w"),
        (LOAD, {"source": "x0_0"}, "loads a part of the tile x0_0 before it is written"),
        (MATMUL, {"a": "x"}, "reads x, which is input"),
        (MATMUL, {"b": "b0"}, "no matrices"),
        (MATMUL, {"transpose_b": True}, "6 columns, the other side 5 rows"),
        (MATMUL, {"bias": "w0"}, "w0 is"),
        (MATMUL, {"out": "y"}, "writes y, which is output"),
        (MATMUL, {"out": "w0"}, "declared as"),
        (RELU, {"function": "gelu"}, "no function 'gelu'"),
        (RELU, {"out": "m0_0"}, "a second time"),
        (STORE, {"ranges": ((0, 4), (5, 10))}, "a second time"),
        (STORE, {"ranges": ((0, 3), (0, 5))}, "the box"),
        (STORE, {"out": "x"}, "which is input"),
        (STORE, {"source": "m4_0"}, "does not declare"),
    ],
)
def test_each_fault_is_named(place: int, changes: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        validate(replaced(SAMPLE, place, **changes))


def test_dtypes_do_not_mix() -> None:
    tensors = dict(SAMPLE.tensors)
    tensors["w"] = dataclasses.replace(tensors["w"], dtype="float16")
    with pytest.raises(InputError, match="declared as"):
        validate(dataclasses.replace(SAMPLE, tensors=tensors))


def test_vtcm_is_what_lives_and_no_more() -> None:
    made = linear(8, 6, 10, row_tile=8, column_tile=10)
    w, b, x, m = 240, 40, 192, 320
    # The activation works in place on the product's tile.
    assert vtcm_over_time(made) == [w, w + b, w + b + x, w + b + x + m, m, m]
    assert vtcm_peak(made) == w + b + x + m
    validate(made, capacity=w + b + x + m)
    with pytest.raises(InputError, match="smaller tiles"):
        validate(made, capacity=w + b + x + m - 1)


def test_what_is_stored_can_be_loaded_and_nothing_else() -> None:
    x, t = Tensor("x", (4, 4), "float32", Role.INPUT), Tensor("t", (4, 4), "float32", Role.INTERMEDIATE)
    y = Tensor("y", (4, 4), "float32", Role.OUTPUT)
    a, b = Tensor("a", (2, 4), "float32", Role.TILE), Tensor("b", (2, 4), "float32", Role.TILE)
    c, d = Tensor("c", (2, 4), "float32", Role.TILE), Tensor("d", (2, 4), "float32", Role.TILE)
    top, low = ((0, 2), (0, 4)), ((2, 4), (0, 4))
    code = [
        isa.LoadTile(out="a", source="x", ranges=top),
        isa.StoreTile(out="t", source="a", ranges=top),
        isa.LoadTile(out="b", source="t", ranges=top),
        isa.StoreTile(out="y", source="b", ranges=top),
        isa.LoadTile(out="c", source="x", ranges=low),
        isa.StoreTile(out="y", source="c", ranges=low),
    ]
    made = program([x, t, y, a, b, c], code)
    value = torch.randn(4, 4)
    assert torch.equal(execute(made, {"x": value})["y"], value)
    early = [*code[:4], isa.LoadTile(out="d", source="t", ranges=low), *code[4:]]
    with pytest.raises(InputError, match="has not been stored"):
        validate(program([x, t, y, a, b, c, d], early))


def test_a_fused_instruction_follows_its_producer() -> None:
    code = list(SAMPLE.instructions)
    code[4], code[5] = dataclasses.replace(code[4], fused=False), code[5]  # unfused is fine anywhere
    validate(dataclasses.replace(SAMPLE, instructions=tuple(code)))
    moved = [*SAMPLE.instructions[:4], SAMPLE.instructions[6], SAMPLE.instructions[4], SAMPLE.instructions[5]]
    with pytest.raises(InputError, match="does not follow"):
        validate(dataclasses.replace(SAMPLE, instructions=(*moved, *SAMPLE.instructions[7:])))


def test_what_a_fused_instruction_took_over_is_gone() -> None:
    x, y = Tensor("x", (2, 4), "float32", Role.INPUT), Tensor("y", (2, 4), "float32", Role.OUTPUT)
    tiles = [Tensor(name, (2, 4), "float32", Role.TILE) for name in ("a", "s", "r", "t")]
    code = [
        isa.LoadTile(out="a", source="x", ranges=whole(x)),
        isa.ElementwiseAdd(out="s", a="a", b="a"),
        isa.Relu(out="r", x="s", fused=True),
        isa.ElementwiseMul(out="t", a="r", b="s"),
        isa.StoreTile(out="y", source="t", ranges=whole(y)),
    ]
    with pytest.raises(InputError, match="works in place, but s is read again"):
        validate(program([x, y, *tiles], code))
    apart = [*code[:2], dataclasses.replace(code[2], fused=False), *code[3:]]
    value = torch.randn(2, 4)
    found = execute(program([x, y, *tiles], apart), {"x": value})["y"]
    torch.testing.assert_close(found, torch.relu(2 * value) * 2 * value)
    twice = [
        *code[:2],
        isa.ElementwiseMul(out="r", a="s", b="s", fused=True),
        isa.StoreTile(out="y", source="r", ranges=whole(y)),
    ]
    with pytest.raises(InputError, match="read again"):
        validate(program([x, y, *tiles[:3]], twice))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(version=2), "version 2"),
        (lambda d: d["instructions"][0].update(opcode="HALT"), "no instruction 'HALT'"),
        (lambda d: d["instructions"][0].pop("ranges"), "has the fields"),
        (lambda d: d["instructions"][0].update(more=1), "has the fields"),
        (lambda d: d["tensors"][0].update(dtype="float8"), "no dtype 'float8'"),
        (lambda d: d["tensors"][0].update(shape=[-1, 2]), "no count"),
        (lambda d: d["tensors"].append(d["tensors"][0]), "two tensors"),
        (lambda d: d.pop("tensors"), "damaged"),
        (lambda d: d.update(tensors=None), "damaged"),
    ],
)
def test_damaged_json_is_one_line(change, says: str) -> None:  # type: ignore[no-untyped-def]
    document = json.loads(dump_program(SAMPLE))
    change(document)
    with pytest.raises(InputError, match=says) as caught:
        parse_program(json.dumps(document))
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="no JSON"):
        parse_program("[" * 100_000)


def test_arguments_must_fit() -> None:
    with pytest.raises(InputError, match="needs a value for input x"):
        execute(SAMPLE, {})
    good = {"x": torch.zeros(8, 6), "w": torch.zeros(6, 10), "b": torch.zeros(10)}
    with pytest.raises(InputError, match="x is"):
        execute(SAMPLE, {**good, "x": torch.zeros(6, 8)})
    with pytest.raises(InputError, match="float64"):
        execute(SAMPLE, {**good, "x": torch.zeros(8, 6, dtype=torch.float64)})


def one(instruction: isa.Instruction, tensors: list[Tensor], values: dict[str, torch.Tensor]) -> torch.Tensor:
    """Runs one instruction between loads and a store."""
    found = {t.name: t for t in tensors}
    tiles = {t.name: dataclasses.replace(t, name=f"{t.name}.tile", role=Role.TILE) for t in tensors}
    loads = [isa.LoadTile(out=f"{t.name}.tile", source=t.name, ranges=whole(t)) for t in tensors]
    changes: dict[str, object] = {}
    for field in instruction.OPERANDS:
        value = getattr(instruction, field)
        changes[field] = (
            tuple(f"{v}.tile" for v in value)
            if isinstance(value, tuple)
            else None
            if value is None
            else f"{value}.tile"
        )
    inner = dataclasses.replace(instruction, **changes, out="y.tile")
    shape, dtype = inner.result({t.name: t for t in tiles.values()})
    y = Tensor("y", shape, dtype, Role.OUTPUT)
    made = program(
        [*found.values(), *tiles.values(), y, Tensor("y.tile", shape, dtype, Role.TILE)],
        [*loads, inner, isa.StoreTile(out="y", source="y.tile", ranges=whole(y))],
    )
    assert parse_program(dump_program(made)) == made
    return execute(made, values)["y"]


def test_integer_products_are_exact() -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randint(-128, 128, (5, 300), generator=generator, dtype=torch.int8)
    b = torch.randint(-128, 128, (300, 7), generator=generator, dtype=torch.int8)
    tensors = [Tensor("a", (5, 300), "int8", Role.INPUT), Tensor("b", (300, 7), "int8", Role.WEIGHT)]
    y = one(isa.MatMul(out="y", a="a", b="b"), tensors, {"a": a, "b": b})
    assert y.dtype == torch.int32
    assert torch.equal(y.long(), a.long() @ b.long())


@pytest.mark.parametrize("depthwise", [False, True])
def test_convolutions(depthwise: bool) -> None:
    x, w = torch.randn(2, 4, 9, 7), torch.randn(4 if depthwise else 6, 1 if depthwise else 2, 3, 2)
    kind, groups = (isa.DepthwiseConv2d, 4) if depthwise else (isa.Conv2d, 2)
    instruction = kind(out="y", x="x", weight="w", stride=(2, 1), padding=(1, 1, 0, 2), dilation=(1, 2), groups=groups)
    tensors = [Tensor("x", tuple(x.shape), "float32", Role.INPUT), Tensor("w", tuple(w.shape), "float32", Role.WEIGHT)]
    padded = torch.nn.functional.pad(x, (0, 2, 1, 1))
    want = torch.nn.functional.conv2d(padded, w, None, (2, 1), 0, (1, 2), groups)
    torch.testing.assert_close(one(instruction, tensors, {"x": x, "w": w}), want)
    if not depthwise:
        bad = isa.DepthwiseConv2d(out="y", x="x", weight="w", groups=2)
        with pytest.raises(InputError, match="not depthwise"):
            one(bad, tensors, {"x": x, "w": w})


def test_quantization_rounds_half_to_even_and_saturates() -> None:
    x = torch.tensor([[0.5, 1.5, 2.5, -0.5, 1000.0, -1000.0]])
    tensors = [Tensor("x", (1, 6), "float32", Role.INPUT)]
    y = one(isa.Quantize(out="y", x="x", dtype="int8", scale=(1.0,), zero_point=(3,)), tensors, {"x": x})
    assert y.tolist() == [[3, 5, 5, 3, 127, -128]]
    per_column = isa.Quantize(out="y", x="x", dtype="uint8", scale=tuple([0.5] * 6), zero_point=tuple(range(6)), axis=1)
    want = (torch.round(x / 0.5) + torch.arange(6)).clamp(0, 255).to(torch.uint8)
    assert torch.equal(one(per_column, tensors, {"x": x}), want)
    with pytest.raises(InputError, match="2 scales"):
        one(dataclasses.replace(per_column, scale=(1.0, 1.0)), tensors, {"x": x})
    with pytest.raises(InputError, match="not a positive number"):
        one(isa.Quantize(out="y", x="x", dtype="int8", scale=(float("nan"),), zero_point=(0,)), tensors, {"x": x})


@pytest.mark.parametrize("center", [True, False])
def test_norms(center: bool) -> None:
    x, w = torch.randn(3, 4, 8) + 2, torch.randn(4, 8)
    tensors = [Tensor("x", (3, 4, 8), "float32", Role.INPUT), Tensor("w", (4, 8), "float32", Role.WEIGHT)]
    y = one(isa.LayerNorm(out="y", x="x", weight="w", axis=1, epsilon=1e-5, center=center), tensors, {"x": x, "w": w})
    reference = torch.nn.functional.layer_norm if center else torch.nn.functional.rms_norm
    torch.testing.assert_close(y, reference(x, (4, 8), w, eps=1e-5))


def test_the_printed_form_is_the_specifications() -> None:
    made = dataclasses.replace(linear(8, 512, 512, row_tile=8, column_tile=512), symbols={8: "B"})
    text = print_program(made, cycles=2_359_296, peak=vtcm_peak(made), capacity=8 << 20)
    assert text.splitlines() == [
        "NPU_PROGRAM:",
        "  LOAD_TILE w[512,512] → VTCM w0",
        "  LOAD_TILE b[512] → VTCM b0",
        "  LOAD_TILE x[B,512] → VTCM x0_0",
        "  MATMUL VTCM x0_0[B,512] × VTCM w0[512,512] + b0 → VTCM m0_0[B,512]",
        "  RELU VTCM m0_0[B,512] → VTCM r0_0[B,512]  function=relu  (fused with MATMUL)",
        "  STORE_TILE r0_0 → DRAM y[B,512]",
        "Estimated cycles: 2,359,296",
        "VTCM peak: 1.0 MB / 8 MB capacity",
    ]
