"""The comparison with other compilers: the recorded page is what its record says, and our side is what the simulator says now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.npu_peers import ours, page
from benchmarks.peers.layers import LAYERS
from benchmarks.peers.qnn import read

RECORD = Path(__file__).parents[3] / "docs" / "results" / "npu"
ROWS = json.loads((RECORD / "peers.json").read_text(encoding="utf-8"))["rows"]


def test_the_page_is_written_from_the_record() -> None:
    assert (RECORD / "peers.md").read_text(encoding="utf-8") == page(ROWS)


@pytest.mark.parametrize(("layer", "row"), list(zip(LAYERS, ROWS, strict=True)), ids=[layer.name for layer in LAYERS])
def test_the_record_is_of_this_simulator(layer: object, row: dict[str, object]) -> None:
    assert row["layer"] == layer.name  # type: ignore[attr-defined]
    assert row["assay"] == ours(layer)  # type: ignore[arg-type]


@pytest.mark.parametrize("row", ROWS, ids=[row["layer"] for row in ROWS])
def test_dram_bytes_are_within_five_percent_of_the_vendors_compiler(row: dict[str, dict[str, int]]) -> None:
    for name in ("dram_read", "dram_written"):
        assert row["assay"][name] == pytest.approx(row["qnn"][name], rel=0.05)


SCHEMATIC = """
bandwidth_information = [
{"opid" : 0x0000403d00000002 , "dram_read": 4096 , "dram_write": 0 , "vtcm_read": 0 , "vtcm_write": 4096, "is_dma": 1},
{"opid" : 0x0000408f00000003 , "dram_read": 0 , "dram_write": 512 , "vtcm_read": 32768 , "vtcm_write": 0, "is_dma": 1},
]
other_table = {
    99: (0xff000, 0x1000),
}
tcm_block_info = {
    27: (0x51000, 0x1000),
    28: (0x30800, 0x800),
}
"""


def test_a_schematic_is_summed_up() -> None:
    assert read(SCHEMATIC) == {
        "dram_read": 4096, "dram_written": 512, "vtcm_moved": 4096 + 32768, "vtcm_peak": 0x52000, "operations": 2,
    }  # fmt: skip
