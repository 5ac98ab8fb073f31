"""The trace shows every instruction on its unit, and VTCM as it is."""

from __future__ import annotations

import json
from itertools import pairwise

from tests.unit.npu.programs import linear

from assay.npu_backend.simulator import SPEC, Unit, simulate
from assay.npu_backend.trace import trace


def test_every_instruction_is_on_its_unit() -> None:
    made = linear(16, 32, 24, row_tile=5, column_tile=7)
    cost = simulate(made, SPEC)
    document = json.loads(trace(made, cost))
    events = document["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert set(names.values()) == {unit.value for unit in Unit}
    shown = [e for e in events if e["ph"] == "X"]
    assert [e["args"]["place"] for e in shown] == list(range(len(made.instructions)))
    for e in shown:
        assert names[e["tid"]] == cost.events[e["args"]["place"]].unit
    for row in names:
        mine = [e for e in shown if e["tid"] == row]
        assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in pairwise(mine))
    assert max(e["ts"] + e["dur"] for e in shown) == cost.cycles == document["otherData"]["cycles"]
    assert max(e["args"]["live"] for e in events if e["ph"] == "C") == cost.vtcm_peak
