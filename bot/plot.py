"""The Pareto plot, as Mermaid for the comment and as SVG for a closer look."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.baselines.pareto import Axis, Point, Value, dominates, frontier
from assay.bot.templates import template
from assay.bot.text import label, number, size

Scale = Callable[[float], float]

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 78, 24, 44, 64


def mermaid(points: Sequence[Point], axes: tuple[Axis, Axis]) -> str:
    """A quadrant chart: accuracy upwards, less cost to the right. Empty when there is nothing to compare."""
    if len(points) < 2:
        return ""
    words = {"latency": ("slower", "faster"), "memory": ("more memory", "less memory"), "size": ("larger", "smaller")}
    less, more = words.get(axes[1].name, ("worse", "better"))
    across = _places([-p.values[1].value for p in points])
    up = _places([p.values[0].value for p in points])
    rows = [f'  "{label(p.name)}": [{x:.2f}, {y:.2f}]' for p, x, y in zip(points, across, up, strict=True)]
    head = [
        "quadrantChart",
        f'  x-axis "{less}" --> "{more}"',
        '  y-axis "less accurate" --> "more accurate"',
    ]
    return "\n".join([*head, *rows])


def sentence(points: Sequence[Point], axes: tuple[Axis, Axis], name: str) -> str:
    """Where the named point stands: on the frontier, or dominated by whom. Plain text, names as given."""
    here = next((p for p in points if p.name == name), None)
    if here is None or len(points) < 2:
        return ""
    over = [p for p in points if p is not here and dominates(p, here, axes)]
    under = [p.name for p in points if p is not here and dominates(here, p, axes)]
    name = name[:1].upper() + name[1:]
    if over:
        return f"{name} is dominated by {_listed([f'{p.name} ({_better(p, here, axes)})' for p in over])}."
    if under:
        return f"{name} is on the frontier and dominates {_listed(under)}."
    return f"{name} is on the frontier: within the intervals nothing here is as good on every axis and better on one."


def _better(a: Point, b: Point, axes: tuple[Axis, Axis]) -> str:
    """In which way `a` beats `b`: clearly so, or as good within the interval."""
    words = []
    for axis, x, y in zip(axes, a.values, b.values, strict=True):
        clear = x.low > y.high if axis.higher_is_better else x.high < y.low
        better, equal = {
            "accuracy": ("more accurate", "as accurate"),
            "latency": ("faster", "as fast"),
            "size": ("smaller", "as small"),
            "memory": ("lighter on memory", "as light on memory"),
        }.get(axis.name, ("better", "as good"))
        words.append((clear, better if clear else f"{equal} within the interval"))
    return " and ".join(word for _, word in sorted(words, reverse=True))


@dataclass(frozen=True)
class _Mark:
    x: float
    y: float
    left: float
    right: float
    low: float
    high: float
    text: str
    detail: str
    on_frontier: bool
    text_x: float
    text_y: float
    anchor: str


def svg(points: Sequence[Point], axes: tuple[Axis, Axis], title: str) -> str:
    """The same points with their 95% intervals as a stand-alone SVG picture (deterministic, no scripts, no fonts)."""
    accuracy, cost = axes
    x_range = _range([v for p in points for v in (p.values[1].low, p.values[1].high)])
    y_range = _range([v for p in points for v in (p.values[0].low, p.values[0].high)])

    def across(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (_drawable(value) - x_range[0]) / (x_range[1] - x_range[0])

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (_drawable(value) - y_range[0]) / (y_range[1] - y_range[0])

    best = frontier(points, axes)
    marks: list[_Mark] = []
    for point, on in sorted(zip(points, best, strict=True), key=lambda pair: pair[0].values[1].value):
        marks.append(_mark(point, on, across, up, cost, marks))
    steps = [(m.x, m.y) for m in marks if m.on_frontier]
    return template("pareto.svg.j2").render(
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=WIDTH - RIGHT,
        top=TOP,
        bottom=HEIGHT - BOTTOM,
        title=title,
        x_name=f"{cost.name}{f' ({cost.unit})' if cost.unit and cost.unit != 'bytes' else ''}, less is better",
        y_name=f"{accuracy.name}, more is better",
        x_ticks=[(across(t), _tick(t, cost)) for t in _ticks(*x_range)],
        y_ticks=[(up(t), _tick(t, accuracy)) for t in _ticks(*y_range)],
        marks=marks,
        line=" ".join(f"{x:.1f},{y:.1f}" for x, y in steps) if len(steps) > 1 else "",
    )


def _mark(point: Point, on: bool, across: Scale, up: Scale, cost: Axis, earlier: Sequence[_Mark]) -> _Mark:
    y, x = point.values
    px, py = across(x.value), up(y.value)
    right_side = px < WIDTH - 220
    text_x, text_y = px + (11 if right_side else -11), py - 23
    while any(abs(m.text_y - text_y) < 28 and abs(m.text_x - text_x) < 190 for m in earlier):
        text_y += 30
    return _Mark(
        x=px,
        y=py,
        left=across(x.low),
        right=across(x.high),
        low=up(y.low),
        high=up(y.high),
        text=label(point.name, 32),
        detail=f"{y.value:.3f}{f' ({y.low:.3f} to {y.high:.3f})' if y.low < y.high else ''}, {_shown(x, cost)}",
        on_frontier=on,
        text_x=text_x,
        text_y=min(text_y, HEIGHT - BOTTOM - 6),
        anchor="start" if right_side else "end",
    )


def _shown(value: Value, axis: Axis) -> str:
    if axis.unit == "bytes":
        return size(value.value)
    spread = f" ({number(value.low)} to {number(value.high)})" if value.low < value.high else ""
    return f"{number(value.value)} {axis.unit}{spread}"


def _tick(value: float, axis: Axis) -> str:
    return size(value) if axis.unit == "bytes" else f"{value:g}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _places(values: Sequence[float]) -> list[float]:
    """Values spread over 0.12 to 0.88, so that no point lies on the frame; equal values share the middle."""
    low, high = _extent(values)
    if high - low <= 1e-12 * max(abs(high), abs(low), 1e-300):
        return [0.5] * len(values)
    return [0.12 + 0.76 * (_drawable(v) - low) / (high - low) for v in values]


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = _extent(values)
    largest = max(abs(low), abs(high))
    pad = 0.14 * (high - low)
    if pad <= 1e-9 * largest:  # one value, or as good as one
        pad = 0.05 * largest if largest > 1e-290 else 1.0
    return low - pad, high + pad


def _extent(values: Sequence[float]) -> tuple[float, float]:
    return _drawable(min(values)), _drawable(max(values))


def _drawable(value: float) -> float:
    """Kept where differences neither overflow nor vanish; nobody measured such a latency, but somebody may write it."""
    return 0.0 if abs(value) < 1e-280 else min(max(value, -1e280), 1e280)


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers inside the range."""
    rough = (high - low) / 5
    step = 10.0 ** math.floor(math.log10(rough))
    step *= next(m for m in (1, 2, 2.5, 5, 10) if m * step >= rough)
    first = math.ceil(low / step)
    digits = max(12, 2 - math.floor(math.log10(step)))
    return [round(i * step, digits) for i in range(first, int(high / step) + 1)]
