"""The HTML page of `assay compile`, which needs nothing else: numbers, pictures, host operators and layers of every model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from html import escape

from assay.baselines.compare.npu import relative
from assay.baselines.sizes import binary_size
from assay.npu_backend.compilation import Layer, Model, milliseconds
from assay.npu_backend.machine import Machine
from assay.npu_backend.pictures import bars, costliest, occupancy, timeline

MOST_CHANGED = 30
_STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;color:#1f2328;max-width:1010px;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:2px 12px 2px 0;text-align:left;vertical-align:top}"
    "th{color:#6e7781;font-weight:normal}.number{text-align:right;font-variant-numeric:tabular-nums}"
    "svg{max-width:100%;height:auto}"
)
_NUMBERS = frozenset(
    {"base", "head", "change", "cycles", "DRAM read", "written", "MACs", "base, cycles", "head, cycles"}
)


def page(models: Sequence[Model], machine: Machine, base: Sequence[Model] | None = None) -> str:
    """The page of all models; with `base`, what each number was and how it changed."""
    parts = [f"<h1>assay compile: {escape(', '.join(m.name for m in models))}</h1>"]
    parts.append(f"<p>Machine <code>{escape(machine.name)}</code>: {escape(machine.source)}.</p>")
    before = {model.name: model for model in base or ()}
    for model in models:
        parts += [f"<h2>{escape(model.name)}</h2>", *_model(model, machine, before.get(model.name), base is not None)]
    gone = [name for name in before if name not in {model.name for model in models}]
    if gone:
        parts.append(f"<p>The head does not have {escape(', '.join(gone))}, which the base has.</p>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>assay compile</title>'
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _model(model: Model, machine: Machine, base: Model | None, compared: bool) -> list[str]:
    there = base if base is not None and not base.failed else None
    if model.failed:
        also = "" if base is None else ", nor does it on the base" if base.failed else ", though it does on the base"
        return [f"<p>It does not compile{also}: {escape(model.failed)}</p>"]
    parts = []
    if compared and there is None:
        parts.append(f"<p>{'The base does not compile it.' if base is not None else 'The base does not have it.'}</p>")
    if model.unstable:
        parts.append(f"<p>Void: two compilations differ ({escape(model.unstable)}).</p>")
    parts.append(_numbers(model, machine, there))
    parts += [f"<p>Note: {escape(warning)}.</p>" for warning in model.warnings]
    if there is not None:
        parts += _moved(model, there)
    parts += [timeline(model, machine), occupancy(model, machine), bars(model)]
    if model.host:
        rows = [(h.op, h.why, h.path, h.line) for h in model.host]
        parts.append(f"<h3>On the host</h3>{_table(('operator', 'why', 'module', 'line'), rows)}")
    layers = [
        (
            layer.label,
            f"{layer.cycles:,}",
            f"{layer.read_bytes:,}",
            f"{layer.written_bytes:,}",
            f"{layer.macs:,}",
            layer.bottleneck.value,
            layer.line,
        )
        for layer in costliest(model.layers, len(model.layers))
    ]
    head = ("layer", "cycles", "DRAM read", "written", "MACs", "bottleneck", "line")
    return [*parts, f"<h3>Layers</h3>{_table(head, layers)}"]


def _numbers(model: Model, machine: Machine, base: Model | None) -> str:
    """The counts of a model, beside the base's where there is one."""
    capacity = binary_size(machine.vtcm_bytes)
    counts: list[tuple[str, Callable[[Model], float], Callable[[float], str]]] = [
        ("cycles", lambda m: m.cycles, lambda v: f"{v:,}"),
        ("DRAM read", lambda m: m.read_bytes, lambda v: f"{binary_size(v)} ({v:,} B)"),
        ("DRAM written", lambda m: m.written_bytes, lambda v: f"{binary_size(v)} ({v:,} B)"),
        (f"VTCM peak, of {capacity}", lambda m: m.vtcm_peak, lambda v: f"{binary_size(v)} ({v:,} B)"),
        ("multiply-accumulates on the NPU", lambda m: m.macs, lambda v: f"{v:,}"),
        ("operators on the host", lambda m: len(m.host), lambda v: f"{v:,}"),
    ]
    if machine.clock_hz:
        counts.insert(
            1, ("estimated latency", lambda m: milliseconds(machine, m.cycles) or 0.0, lambda v: f"{v:.3f} ms")
        )
    rows = []
    for name, count, shown in counts:
        now = count(model)
        row = [name, shown(now)]
        if base is not None:
            row = [name, shown(count(base)), shown(now), _change(count(base), now)]
        rows.append(row)
    plain: list[tuple[str, Callable[[Model], str]]] = [
        ("share of all multiply-accumulates", lambda m: f"{m.share:.2%}" if m.all_macs else "there are none"),
        ("bottleneck", lambda m: m.bottleneck.value),
        ("programs", lambda m: f"{len(m.programs)}"),
        ("arguments", lambda m: f"{m.inputs} ({m.format})"),
    ]
    for name, told in plain:
        now_, then = told(model), told(base) if base is not None else ""
        rows.append([name, now_] if base is None else [name, then, now_, "" if then == now_ else "changed"])
    return _table(("", "head") if base is None else ("", "base", "head", "change"), rows)


def _moved(model: Model, base: Model) -> list[str]:
    """Operators that came to the host or left it, and the layers whose cycles changed most."""
    parts = []
    now, then = Counter(h.op for h in model.host), Counter(h.op for h in base.host)
    rows = [(op, f"{then[op]}", f"{now[op]}") for op in sorted(now | then) if now[op] != then[op]]
    if rows:
        parts.append(f"<h3>Operators that came to the host or left it</h3>{_table(('operator', 'base', 'head'), rows)}")
    changed = changed_layers(model.layers, base.layers)
    if changed:
        shown = [
            (
                name,
                "–" if before is None else f"{before:,}",
                "–" if after is None else f"{after:,}",
                "new" if before is None else "gone" if after is None else _change(before, after),
            )
            for name, before, after in changed[:MOST_CHANGED]
        ]
        title = "Layers whose cycles changed"
        if len(changed) > len(shown):
            title += f", the first {len(shown)} of {len(changed)}"
        parts.append(f"<h3>{title}</h3>{_table(('layer', 'base, cycles', 'head, cycles', 'change'), shown)}")
    return parts


def changed_layers(head: Sequence[Layer], base: Sequence[Layer]) -> list[tuple[str, int | None, int | None]]:
    """(label, cycles before, cycles after) of layers whose cycles differ, the largest difference first; None: not there."""
    now, then = _cycles(head), _cycles(base)
    found = [
        (name, then.get(name), now.get(name))
        for name in dict.fromkeys([*now, *then])
        if then.get(name) != now.get(name)
    ]
    return sorted(found, key=lambda entry: -abs((entry[2] or 0) - (entry[1] or 0)))


def _cycles(layers: Sequence[Layer]) -> dict[str, int]:
    found: dict[str, int] = {}
    for layer in layers:  # layers of one name count together
        found[layer.label] = found.get(layer.label, 0) + layer.cycles
    return found


def _change(before: float, after: float) -> str:
    return "as before" if before == after else f"{100 * relative(before, after):+.2f}%"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table without the columns in which no row says anything."""
    numeric = ' class="number"'
    kept = [i for i in range(len(head)) if any(row[i] for row in rows)]

    def line(cells: Sequence[str], tag: str) -> str:
        found = (f"<{tag}{numeric if head[i] in _NUMBERS else ''}>{escape(cells[i])}</{tag}>" for i in kept)
        return f"<tr>{''.join(found)}</tr>"

    return f"<table>{line(head, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"
