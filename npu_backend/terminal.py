"""What `assay compile` says on a terminal: the numbers of each model, its costliest layers, and what runs on the host."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.baselines.compare.npu import relative
from assay.baselines.sizes import binary_size
from assay.npu_backend.compilation import Model, milliseconds
from assay.npu_backend.machine import Machine
from assay.npu_backend.pictures import costliest
from assay.npu_backend.process import visible
from assay.npu_backend.report import BESIDE, EVIDENCE

LAYERS = 10
HOST = 12


def print_models(models: Sequence[Model], base: Sequence[Model] | None, machine: Machine, out: Path | None) -> None:
    """Print every model; with `base`, how each number changed against the model of the same name."""
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = 160  # a log has no edge
    before = {model.name: model for model in base or ()}
    for model in models:
        _print(console, model, before.get(model.name), machine)
    missing = [name for name in before if name not in {model.name for model in models}]
    if missing:
        console.print(f"the head does not have {', '.join(missing)}, which the base has", style="yellow", markup=False)
    if out is not None:
        console.print(
            f"Written: {out} (report.html, and a folder of each model, whose traces ui.perfetto.dev opens)",
            markup=False,
        )
        if base is not None:
            sides = (f"--base {shlex.quote(str(out / BESIDE))}", f"--head {shlex.quote(str(out / EVIDENCE))}")
            console.print(f"The verdict: assay gate {' '.join(sides)}", markup=False, soft_wrap=True)


def _print(console: Console, model: Model, base: Model | None, machine: Machine) -> None:
    if model.failed:
        console.print(f"{model.name} does not compile: {visible(model.failed)}", style="red", markup=False)
        return
    there = base if base is not None and not base.failed else None
    mode = ", forward and backward" if model.training else ""
    console.print(
        f"{model.name} ({model.format}{mode}, {visible(model.inputs)}) on {machine.name}", style="bold", markup=False
    )
    latency = milliseconds(machine, model.cycles)
    time = f", about {latency:.3g} ms" if latency is not None else ""
    lines = [
        f"{model.cycles:,} cycles{time}{_change(there, model, 'cycles')}",
        f"DRAM {binary_size(model.read_bytes)} read{_change(there, model, 'read_bytes')}, "
        f"{binary_size(model.written_bytes)} written{_change(there, model, 'written_bytes')}",
        f"VTCM peak {binary_size(model.vtcm_peak)} of {binary_size(machine.vtcm_bytes)}{_change(there, model, 'vtcm_peak')}",
        f"busy: {', '.join(f'{u.value} {s:.0%}' for u, s in model.utilisation.items())}; "
        f"the bottleneck is {model.bottleneck.value}",
        f"{model.macs:,} multiply-accumulates on the NPU{f', {model.share:.2%} of all' if model.all_macs else ''}; "
        f"{len(model.programs)} program{'' if len(model.programs) == 1 else 's'}",
    ]
    for line in lines:
        console.print(f"  {line}", markup=False)
    if model.layers:
        console.print(_layers(model))
    if model.host:
        console.print(f"  on the host ({len(model.host)}):", markup=False)
    for entry in model.host[:HOST]:
        where = f"\n        {visible(entry.line[:140])}" if entry.line else ""
        console.print(
            f"    {visible(entry.op)}: {visible(entry.why)}{where}", markup=False, style="yellow", soft_wrap=True
        )
    if len(model.host) > HOST:
        console.print(f"    and {len(model.host) - HOST} more", style="yellow")
    if model.unstable:
        console.print(f"  void: two compilations differ ({model.unstable})", style="red", markup=False)
    for warning in model.warnings:
        console.print(f"  note: {visible(warning)}", style="yellow", markup=False)


def _layers(model: Model) -> Table:
    shown = costliest(model.layers, LAYERS)
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column(f"  the {len(shown)} costliest of {len(model.layers)} layers", no_wrap=True)
    for name in ("cycles", "share", "DRAM", "MACs"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bottleneck", no_wrap=True)
    for layer in shown:
        table.add_row(
            Text(f"  {visible(layer.label[-64:])}"),
            f"{layer.cycles:,}",
            f"{layer.cycles / model.cycles if model.cycles else 0:.1%}",
            binary_size(layer.read_bytes + layer.written_bytes),
            f"{layer.macs:,}",
            layer.bottleneck.value,
        )
    return table


def _change(base: Model | None, head: Model, count: str) -> str:
    if base is None:
        return ""
    before, after = int(getattr(base, count)), int(getattr(head, count))
    if before == after:
        return " (as before)"
    shown = f"{before:,}" if count == "cycles" else binary_size(before)
    return f" ({100 * relative(before, after):+.2f}% from {shown})"
