"""The page and the pictures of compiled models: both sides, what moved between them, and an axis that can be read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from assay.npu_backend.codegen import Program
from assay.npu_backend.compilation import HostOp, Layer, Model
from assay.npu_backend.isa import LoadTile, Relu, StoreTile
from assay.npu_backend.machine import SPEC
from assay.npu_backend.page import changed_layers, page
from assay.npu_backend.pictures import occupancy, round_step, short, timeline
from assay.npu_backend.report import summary
from assay.npu_backend.simulator import preset, simulate
from assay.npu_backend.tensor import Role, Tensor

HTP = preset("htp_v75")


def program(rows: int) -> Program:
    """One activation over (rows, 64)."""
    names = {"x": Role.INPUT, "x0": Role.TILE, "y0": Role.TILE, "y": Role.OUTPUT}
    tensors = {name: Tensor(name, (rows, 64), "float32", role) for name, role in names.items()}
    box = ((0, rows), (0, 64))
    return Program(
        "net",
        tensors,
        (
            LoadTile(out="x0", source="x", ranges=box),
            Relu(out="y0", x="x0"),
            StoreTile(out="y", source="y0", ranges=box),
        ),
    )


def model(*rows: int, host: Sequence[str] = (), layers: Sequence[tuple[str, int]] = (("relu", 10),)) -> Model:
    programs = tuple(program(count) for count in rows)
    return Model(
        "net",
        "float32",
        "",
        False,
        {},
        programs=programs,
        costs=tuple(simulate(made) for made in programs),
        layers=tuple(Layer("", name, "net.py:1: x", cycles=cycles) for name, cycles in layers),
        host=tuple(HostOp(op, "no rule", "", "net.py:2: y", 0) for op in host),
        inputs="8x64",
    )


def cells(text: str, first: str) -> list[str]:
    """The cells of the first row that begins with `first`."""
    row = next(r for r in re.findall(r"<tr>(.*?)</tr>", text) if f">{first}</td>" in r)
    return [re.sub("<.*?>", "", cell) for cell in re.findall(r"<td.*?</td>", row)]


def test_both_sides_and_what_moved() -> None:
    head = model(16, host=["aten.sort.default"], layers=[("relu", 30), ("add", 5)])
    base = model(8, layers=[("relu", 20), ("mul", 7)])
    text = page([head], SPEC, [base])
    assert cells(text, "cycles") == ["cycles", f"{base.cycles:,}", f"{head.cycles:,}", "+100.00%"]
    assert cells(text, "DRAM read")[1:] == ["2 KiB (2,048 B)", "4 KiB (4,096 B)", "+100.00%"]
    assert cells(text, "aten.sort.default")[:3] == ["aten.sort.default", "0", "1"]
    assert "<h3>Layers whose cycles changed</h3>" in text
    assert changed_layers(head.layers, base.layers) == [("relu", 20, 30), ("mul", 7, None), ("add", None, 5)]
    found = summary([head], SPEC, [base])
    assert found["base"][0]["cycles"] == base.cycles
    assert summary([head], SPEC)["base"] is None


def test_one_side_alone() -> None:
    head = model(8)
    assert cells(page([head], SPEC), "cycles") == ["cycles", f"{head.cycles:,}"]
    assert "The base does not have it." in page([head], SPEC, [])
    assert "The base does not compile it." in page([head], SPEC, [replace(model(8), failed="no")])
    failed = replace(head, failed="<b>no</b>")
    assert "It does not compile, though it does on the base: &lt;b&gt;no&lt;/b&gt;" in page([failed], SPEC, [head])
    assert "The head does not have other, which the base has." in page([head], SPEC, [replace(head, name="other")])


def test_a_column_that_says_nothing_is_left_out_and_headings_lie_over_their_cells() -> None:
    text = page([model(8, host=["aten.sort.default"])], SPEC)
    assert "<th>module</th>" not in text
    for table in re.findall(r"<table>.*?</table>", text):
        rows = [
            ["number" in cell for cell in re.findall(r"<t[hd].*?>", row)] for row in re.findall("<tr>.*?</tr>", table)
        ]
        assert all(row == rows[0] for row in rows)


@pytest.mark.parametrize("draw", [timeline, occupancy])
def test_time_has_an_axis_and_programs_have_borders(draw: object) -> None:
    assert callable(draw)
    several = model(8, 64, 8)
    shown = draw(several, HTP)
    for label in ("program 2", ">cycles<", ">ms<", ">0<"):
        assert label in shown
    assert "program" not in draw(model(8), HTP)
    assert ">ms<" not in draw(several, SPEC)  # it has no clock
    inside = [float(x) for x in re.findall(r'<text x="([\d.]+)"', shown)]
    width = float(re.findall(r'width="(\d+)"', shown)[0])
    assert max(inside) < width


@pytest.mark.parametrize(
    ("whole", "step"), [(0, 1), (5, 1), (7, 2), (12, 2), (13, 2), (14, 5), (35, 10), (999, 200), (2_359_296, 500_000)]
)
def test_steps_are_round(whole: int, step: int) -> None:
    assert round_step(whole, 6) == step


@pytest.mark.parametrize(
    ("count", "step", "shown"),
    [
        (0, 10**6, "0"),
        (1_500_000, 500_000, "1.5 M"),
        (30_000, 10_000, "30 k"),
        (60, 20, "60"),
        (2 * 10**9, 10**9, "2 G"),
    ],
)
def test_ticks_are_short(count: int, step: int, shown: str) -> None:
    assert short(count, step) == shown


def test_of_no_products_there_is_no_share() -> None:
    found = summary([model(8)], SPEC)
    assert (found["models"][0]["macs"], found["models"][0]["npu_share"]) == (0, None)
    assert cells(page([model(8)], SPEC), "share of all multiply-accumulates")[1] == "there are none"
