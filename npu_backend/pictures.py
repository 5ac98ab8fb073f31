"""Pictures of a compiled model as SVG: its units over time, its VTCM over time, and the cycles of its layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape

from assay.npu_backend.compilation import Layer, Model
from assay.npu_backend.machine import Machine, Unit
from assay.npu_backend.simulator import Event

WIDTH = 960
_LEFT, _RIGHT = 70, 20
_FONT = 'font-family="system-ui, sans-serif" font-size="12"'
_INK, _FAINT = "#1f2328", "#6e7781"
# Okabe and Ito's colours, which people who see colours differently tell apart.
_COLOURS = {Unit.LOAD: "#0072b2", Unit.STORE: "#56b4e9", Unit.MATRIX: "#009e73", Unit.VECTOR: "#d55e00"}
_TICKS = 6


def timeline(model: Model, machine: Machine) -> str:
    """One row for each unit, the programs one after the other; instructions nearer than half a pixel are drawn as one."""
    height, top = 26, 34 + _headroom(model)
    parts = [_text(10, 18, f"{model.name}: units over {model.cycles:,} cycles", weight="bold")]
    for row, unit in enumerate(Unit):
        y = top + row * height
        parts.append(_text(_LEFT - 8, y + 15, unit.value, _FAINT, anchor="end"))
        parts.append(_box(_LEFT, y, WIDTH - _LEFT - _RIGHT, height - 6, "#f6f8fa"))
        for start, stop, events in _spans(model, unit):
            box = _box(start, y, max(stop - start, 0.5), height - 6, _COLOURS[unit])
            parts.append(_titled(box, _told(events)))
        share = model.utilisation[unit]
        parts.append(_text(WIDTH - _RIGHT + 4, y + 15, f"{share:.0%}", _FAINT))
    bottom = top + len(Unit) * height
    parts += [*_borders(model, top, bottom), *_axis(model, machine, bottom)]
    return _svg(WIDTH + 24, bottom + _below(machine), parts)


def occupancy(model: Model, machine: Machine) -> str:
    """Live bytes of VTCM over time, the most in each pixel, under the line of the capacity."""
    height, top, capacity = 150, 34 + _headroom(model), machine.vtcm_bytes
    scale = (height - 20) / max(capacity, model.vtcm_peak, 1)
    most = [0] * (WIDTH - _LEFT - _RIGHT)
    begin = 0
    for cost in model.costs:
        for event in cost.events:
            live = cost.vtcm_live[event.place]
            first, last = (_x(model, begin + at) - _LEFT for at in (event.start, event.stop))
            for x in range(min(int(first), len(most) - 1), min(int(last), len(most) - 1) + 1):
                most[x] = max(most[x], live)
        begin += cost.cycles
    bottom = top + height
    line = " ".join(f"{_LEFT + x},{bottom - live * scale:.1f}" for x, live in enumerate(most))
    title = f"VTCM: peak {model.vtcm_peak:,} of {capacity:,} bytes"
    ceiling = bottom - capacity * scale
    parts = [
        _text(10, 18, title, weight="bold"),
        f'<polygon points="{_LEFT},{bottom} {line} {WIDTH - _RIGHT},{bottom}" fill="#0969da" fill-opacity="0.35"/>',
        f'<path d="M{_LEFT} {ceiling:.1f}H{WIDTH - _RIGHT}" stroke="#cf222e" stroke-dasharray="4 3"/>',
        f'<path d="M{_LEFT} {bottom}H{WIDTH - _RIGHT}" stroke="{_FAINT}"/>',
        _text(_LEFT - 8, ceiling + 4, f"{capacity / (1 << 20):.3g} MiB", _FAINT, anchor="end"),
        _text(_LEFT - 8, bottom + 4, "0", _FAINT, anchor="end"),
        *_borders(model, top, bottom),
        *_axis(model, machine, bottom),
    ]
    return _svg(WIDTH + 24, bottom + _below(machine), parts)


def _headroom(model: Model) -> int:
    """Pixels for the numbers of programs."""
    return 14 if len(model.costs) > 1 else 0


def _below(machine: Machine) -> int:
    """Pixels for the axis: cycles, and milliseconds where the machine has a clock."""
    return 38 if machine.clock_hz else 24


def _borders(model: Model, top: float, bottom: float) -> list[str]:
    """A line where each program after the first begins, and the programs' numbers where there is room for them."""
    if len(model.costs) < 2:
        return []
    found, begin, free = [], 0, 0.0
    for number, cost in enumerate(model.costs, start=1):
        x = _x(model, begin)
        if number > 1:
            found.append(f'<path d="M{x:.1f} {top - 4}V{bottom:.1f}" stroke="{_INK}" stroke-width="0.7"/>')
        label = f"program {number}"
        if x >= free and x + 62 <= WIDTH:
            found.append(_text(x + 2, top - 6, label, _FAINT))
            free = x + 70
        begin += cost.cycles
    return found


def _axis(model: Model, machine: Machine, y: float) -> list[str]:
    """Ticks at round numbers of cycles, and what they are in milliseconds after the start of the first program."""
    found = [f'<path d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}" stroke="{_FAINT}"/>']
    step = round_step(model.cycles, _TICKS)
    rows: list[tuple[str, float, Callable[[int], str]]] = [("cycles", 16.0, lambda cycles: short(cycles, step))]
    if machine.clock_hz:
        clock = machine.clock_hz
        rows.append(("ms", 30.0, lambda cycles: f"{1e3 * cycles / clock:.3g}"))
    for cycles in range(0, model.cycles + 1, step):
        x = _x(model, cycles)
        found.append(f'<path d="M{x:.1f} {y:.1f}v4" stroke="{_FAINT}"/>')
        found += [_text(x, y + down, told(cycles), _FAINT, anchor="middle") for _, down, told in rows]
    found += [_text(10, y + down, name, _FAINT) for name, down, _ in rows]
    return found


def round_step(whole: int, most: int) -> int:
    """The least of 1, 2, 5, 10, 20, ... of which at most `most` fit into a whole number; 1 at least."""
    step, factors = 1, (2.0, 2.5, 2.0)
    place = 0
    while whole // step > most:
        step = int(step * factors[place % 3])
        place += 1
    return step


def short(count: int, step: int) -> str:
    """A multiple of `step` in the unit that its step has: 1,500,000 in steps of 500,000 is 1.5 M."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if step * 10 >= size and count:
            return f"{count / size:,.10g} {unit}"
    return f"{count:,}"


def bars(model: Model, most: int = 30) -> str:
    """The costliest layers with their cycles, coloured by the unit that works most for them."""
    shown = costliest(model.layers, most)
    height, top, left = 20, 34, 330
    longest = max((layer.cycles for layer in shown), default=1) or 1
    parts = [_text(10, 18, f"Cycles of the {len(shown)} costliest of {len(model.layers)} layers", weight="bold")]
    for row, layer in enumerate(shown):
        y = top + row * height
        width = (WIDTH - left - 110) * layer.cycles / longest
        parts.append(_text(left - 8, y + 14, layer.label[-52:], anchor="end"))
        parts.append(_titled(_box(left, y + 3, max(width, 1), height - 6, _COLOURS[layer.bottleneck]), layer.line))
        share = layer.cycles / model.cycles if model.cycles else 0.0
        parts.append(_text(left + width + 6, y + 14, f"{layer.cycles:,} ({share:.1%})", _FAINT))
    legend = top + len(shown) * height + 18
    for place, unit in enumerate(Unit):
        parts.append(_box(left + 110 * place, legend - 10, 10, 10, _COLOURS[unit]))
        parts.append(_text(left + 110 * place + 15, legend, unit.value, _FAINT))
    return _svg(WIDTH + 24, legend + 12, parts)


def costliest(layers: Iterable[Layer], most: int) -> list[Layer]:
    """Layers by their cycles, then by their traffic; ties keep the order of the program."""
    ranked = sorted(layers, key=lambda layer: (-layer.cycles, -layer.read_bytes - layer.written_bytes))
    return ranked[:most]


def _spans(model: Model, unit: Unit) -> Iterator[tuple[float, float, list[Event]]]:
    """(from, to, events) in pixels: events that touch on the screen come together."""
    begin, span = 0, list[tuple[float, float, list[Event]]]()
    for cost in model.costs:
        for event in cost.events:
            if event.unit != unit or not event.cycles:
                continue
            start, stop = _x(model, begin + event.start), _x(model, begin + event.stop)
            if span and start - span[0][1] < 0.5:
                span[0][2].append(event)
                span[0] = (span[0][0], max(stop, span[0][1]), span[0][2])
                continue
            yield from span
            span = [(start, stop, [event])]
        begin += cost.cycles
    yield from span


def _told(events: Sequence[Event]) -> str:
    first = events[0]
    if len(events) == 1:
        return f"{first.opcode} {first.out}: {first.cycles:,} cycles"
    return f"{len(events):,} instructions, from {first.opcode} {first.out}"


def _x(model: Model, cycle: int) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * cycle / max(model.cycles, 1)


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def _titled(shape: str, title: str) -> str:
    return f"<g><title>{escape(title)}</title>{shape}</g>"


def _text(x: float, y: float, text: str, colour: str = _INK, *, anchor: str = "start", weight: str = "normal") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="{colour}"'
    return f"<text {place} {_FONT}>{escape(text)}</text>"


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n' + "\n".join(parts) + "\n</svg>\n"
