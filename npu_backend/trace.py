"""A cost as a trace: the units as rows, VTCM as a counter, in the JSON that Perfetto and chrome://tracing open.

Format: "Trace Event Format" (Google), complete events `X` and counter events `C`. One cycle is shown as one microsecond,
because the format has no cycles.
"""

from __future__ import annotations

import json
from typing import Any

from assay.npu_backend.codegen import Program
from assay.npu_backend.simulator import Cost, Unit

_PROCESS = 1


def trace(program: Program, cost: Cost) -> str:
    """The trace of a simulated program as JSON text."""
    rows = {unit: number for number, unit in enumerate(Unit, start=1)}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": _PROCESS, "name": "process_name", "args": {"name": f"{program.name} on {cost.machine}"}}
    ]
    events += [
        {"ph": "M", "pid": _PROCESS, "tid": row, "name": "thread_name", "args": {"name": unit.value}}
        for unit, row in rows.items()
    ]
    for event in cost.events:
        instruction = program.instructions[event.place]
        events.append(
            {
                "ph": "X",
                "pid": _PROCESS,
                "tid": rows[event.unit],
                "name": event.opcode,
                "ts": event.start,
                "dur": event.cycles,
                "args": {"place": event.place, "out": event.out, "reads": list(instruction.reads())},
            }
        )
        events.append(
            {
                "ph": "C",
                "pid": _PROCESS,
                "name": "VTCM bytes",
                "ts": event.start,
                "args": {"live": cost.vtcm_live[event.place]},
            }
        )
    document = {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"cycles": cost.cycles, "macs": cost.macs, "bottleneck": cost.bottleneck.value},
    }
    return json.dumps(document) + "\n"
