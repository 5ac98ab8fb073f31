"""The folder that `assay compile --out` writes: programs, listings, traces, pictures, one page, and the evidence.

DIR/summary.json                 every number, for machines
DIR/report.html                  every model on one page, with its pictures
DIR/MODEL/program.json           the program, or program-1.json, program-2.json ... where there are several
DIR/MODEL/listing.txt            the programs as people read them, and what runs on the host
DIR/MODEL/trace.json             the timeline for Perfetto, numbered as programs are
DIR/MODEL/timeline.svg, vtcm.svg, layers.svg
DIR/evidence, DIR/evidence.base  records for `assay gate` and the comment
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.baselines.errors import InputError, cannot_write
from assay.baselines.record import Record, check_writable, write_record
from assay.npu_backend.codegen import dump_program, print_program
from assay.npu_backend.compilation import Model, milliseconds
from assay.npu_backend.machine import Machine
from assay.npu_backend.page import page
from assay.npu_backend.pictures import bars, occupancy, timeline
from assay.npu_backend.trace import trace

SUMMARY = "summary.json"
SUMMARY_VERSION = 1
EVIDENCE, BESIDE = "evidence", "evidence.base"


def check_folder(out: Path) -> None:
    """Raises `InputError` for a folder that is not empty and was not written by `assay compile`: nothing of it is replaced."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise InputError(f"--out {out} is no folder: give a new one.")
    if out.is_dir() and any(out.iterdir()):
        try:
            ours = json.loads((out / SUMMARY).read_bytes())["written_by"] == "assay compile"
        except (OSError, ValueError, KeyError, TypeError):
            ours = False
        if not ours:
            raise InputError(f"--out {out} holds other things than a report of assay compile: give a new folder.")
    check_writable(out)


def write_report(
    out: Path,
    models: Sequence[Model],
    machine: Machine,
    head: Record,
    base: Record | None,
    before: Sequence[Model] | None = None,
) -> tuple[Record, Record | None]:
    """Write the folder so that a reader sees all of it or none of it; an older report is replaced whole.

    `before` are the base's models, whose record is `base`.

    Returns the records as they will be read. Raises as `check_folder` does, and `InputError` or `ServiceError` for a folder that
    cannot be written.
    """
    check_folder(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{out.name[:100]}.", dir=out.parent))
        try:
            for model in models:
                if not model.failed:
                    _write_model(staging / model.name, model, machine)
            (staging / SUMMARY).write_text(
                json.dumps(summary(models, machine, before), indent=1, allow_nan=False) + "\n"
            )
            (staging / "report.html").write_text(page(models, machine, before))
            kept = write_record(staging / EVIDENCE, head.evidence, head.rows)
            beside = write_record(staging / BESIDE, base.evidence, base.rows) if base is not None else None
            staging.chmod(0o755)
            if out.exists():
                shutil.rmtree(out)
            staging.rename(out)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise cannot_write(out, error) from None
    return kept, beside


def _write_model(folder: Path, model: Model, machine: Machine) -> None:
    folder.mkdir()
    for number, (program, cost) in enumerate(zip(model.programs, model.costs, strict=True), start=1):
        mark = f"-{number}" if len(model.programs) > 1 else ""
        (folder / f"program{mark}.json").write_text(dump_program(program))
        (folder / f"trace{mark}.json").write_text(_with_layers(trace(program, cost), model.owners[number - 1]))
    (folder / "listing.txt").write_text(listing(model, machine))
    (folder / "timeline.svg").write_text(timeline(model, machine))
    (folder / "vtcm.svg").write_text(occupancy(model, machine))
    (folder / "layers.svg").write_text(bars(model))


def _with_layers(text: str, owners: Sequence[str]) -> str:
    """A trace whose events say the layer that they belong to."""
    document = json.loads(text)
    for event in document["traceEvents"]:
        place = event.get("args", {}).get("place")
        if place is not None:
            event["args"]["layer"] = owners[place]
    return json.dumps(document) + "\n"


def listing(model: Model, machine: Machine) -> str:
    """The printed form of every program, then what runs on the host."""
    parts = [
        print_program(program, cycles=cost.cycles, peak=cost.vtcm_peak, capacity=machine.vtcm_bytes)
        for program, cost in zip(model.programs, model.costs, strict=True)
    ]
    if model.host:
        parts.append("On the host:\n" + "".join(f"  {h.op} ({h.why}) {h.line}".rstrip() + "\n" for h in model.host))
    return "\n".join(parts)


def summary(models: Sequence[Model], machine: Machine, base: Sequence[Model] | None = None) -> dict[str, Any]:
    """Every number of every model, for `summary.json` and `--json`; `base` is null where nothing was compared."""
    return {
        "written_by": "assay compile",
        "version": SUMMARY_VERSION,
        "machine": {"name": machine.name, "vtcm_bytes": machine.vtcm_bytes, "source": machine.source},
        "models": [_summary(model, machine) for model in models],
        "base": None if base is None else [_summary(model, machine) for model in base],
    }


def _summary(model: Model, machine: Machine) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": model.name,
        "dtype": model.dtype,
        "precision": model.precision,
        "training": model.training,
    }
    if model.failed:
        return {**found, "failed": model.failed}
    return {
        **found,
        "inputs": model.inputs,
        "cycles": model.cycles,
        "estimated_ms": milliseconds(machine, model.cycles),
        "dram_read_bytes": model.read_bytes,
        "dram_written_bytes": model.written_bytes,
        "vtcm_peak_bytes": model.vtcm_peak,
        "macs": model.macs,
        "npu_share": model.share if model.all_macs else None,
        "utilisation": {unit.value: share for unit, share in model.utilisation.items()},
        "bottleneck": model.bottleneck.value,
        "programs": len(model.programs),
        "deterministic": not model.unstable,
        "host": [{"op": h.op, "why": h.why, "module": h.path, "line": h.line, "macs": h.macs} for h in model.host],
        "warnings": [*([f"two compilations differ: {model.unstable}"] if model.unstable else []), *model.warnings],
        "layers": [
            {
                "layer": layer.label,
                "line": layer.line,
                "cycles": layer.cycles,
                "dram_read_bytes": layer.read_bytes,
                "dram_written_bytes": layer.written_bytes,
                "macs": layer.macs,
                "bottleneck": layer.bottleneck.value,
                "instructions": layer.instructions,
            }
            for layer in model.layers
        ],
    }
