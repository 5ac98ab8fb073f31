"""Pictures of the report as SVG: the shape sweep as a heat map, and the roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_FONT = 'font-family="system-ui, sans-serif" font-size="12"'
_INK, _FAINT = "#1f2328", "#8c959f"
_COLOURS = ("#0969da", "#bc4c00", "#8250df", "#1a7f37", "#cf222e", "#57606a")


def heat_map(title: str, columns: Sequence[str], rows: Sequence[str], cells: Mapping[tuple[str, str], float]) -> str:
    """Shares (1 is the ceiling) by row and column; a cell that was not measured stays white and says so."""
    left, top, width, height = 150, 62, 74, 30
    parts = [
        _text(10, 22, title, weight="bold"),
        _text(10, 42, "Share of copy bandwidth; 1.00 is a copy of the same bytes", _FAINT),
    ]
    for x, column in enumerate(columns):
        parts.append(_text(left + x * width + width / 2, top + 12, column, anchor="middle"))
    for y, row in enumerate(rows):
        line = top + 20 + y * height
        parts.append(_text(left - 8, line + 20, row, anchor="end"))
        for x, column in enumerate(columns):
            value = cells.get((row, column))
            place = f'x="{left + x * width}" y="{line}" width="{width - 2}" height="{height - 2}" rx="3"'
            if value is None:
                parts.append(f'<rect {place} fill="white" stroke="#d0d7de"/>')
                parts.append(_text(left + x * width + width / 2 - 1, line + 18, "–", _FAINT, anchor="middle"))
                continue
            parts.append(f'<rect {place} fill="{shade(value)}"/>')
            ink = "white" if value > 0.8 else _INK
            parts.append(_text(left + x * width + width / 2 - 1, line + 19, f"{value:.2f}", ink, anchor="middle"))
    return _svg(left + len(columns) * width + 12, top + 30 + len(rows) * height, parts)


def shade(share: float) -> str:
    """A colour from pale (half the ceiling or less) to deep blue (the ceiling)."""
    depth = min(1.0, max(0.0, (share - 0.5) / 0.5))
    low, high = (221, 244, 255), (9, 63, 130)
    return "#" + "".join(f"{round(a + depth * (b - a)):02x}" for a, b in zip(low, high, strict=True))


@dataclass(frozen=True)
class Dot:
    """One measured case in the roofline."""

    series: str
    label: str
    intensity: float
    """FLOP per byte."""
    rate: float
    """FLOP/s."""


def roofline(title: str, bandwidth: float, operations: float, dots: Sequence[Dot]) -> str:
    """Attained FLOP/s over intensity, on logarithmic axes, under the two measured ceilings (bytes/s and FLOP/s)."""
    width, height, left, top, bottom = 760, 430, 74, 56, 50
    lows = [dot.intensity for dot in dots] or [1.0]
    x0, x1 = math.log10(min(lows) / 2), math.log10(max([*lows, operations / bandwidth]) * 4)
    y1 = math.log10(operations * 1.6)
    y0 = math.log10(min([dot.rate for dot in dots] or [operations / 1e3]) / 2)

    def place(intensity: float, rate: float) -> tuple[float, float]:
        x = left + (math.log10(intensity) - x0) / (x1 - x0) * (width - left - 20)
        return x, top + (y1 - math.log10(rate)) / (y1 - y0) * (height - top - bottom)

    ridge = operations / bandwidth
    start, bend, end = place(10**x0, 10**x0 * bandwidth), place(ridge, operations), place(10**x1, operations)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (start, bend, end))
    parts = [
        _text(10, 22, title, weight="bold"),
        _text(
            10,
            42,
            f"Ceilings measured in the same run: {bandwidth / 1e12:.2f} TB/s, {operations / 1e12:.0f} TFLOP/s",
            _FAINT,
        ),
        f'<polyline points="{path}" fill="none" stroke="{_INK}" stroke-width="1.5"/>',
        _text(width / 2, height - 10, "Intensity, FLOP per byte (model)", anchor="middle"),
    ]
    for power in range(math.ceil(x0), math.floor(x1) + 1):
        x, _ = place(10**power, 10**y0)
        parts.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{height - bottom}" stroke="#eaeef2"/>')
        parts.append(_text(x, height - bottom + 16, f"{10**power:g}", _FAINT, anchor="middle"))
    for power in range(math.ceil(y0), math.floor(y1) + 1):
        _, y = place(10**x0, 10**power)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{width - 20}" y2="{y:.1f}" stroke="#eaeef2"/>')
        parts.append(_text(left - 6, y + 4, f"{10 ** (power - 12):g}", _FAINT, anchor="end"))
    parts.append(_text(left + 6, top + 12, "TFLOP/s", _FAINT))
    series = list(dict.fromkeys(dot.series for dot in dots))
    for number, name in enumerate(series):
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(f'<circle cx="{width - 170}" cy="{height - bottom - 18 - 18 * number}" r="4" fill="{colour}"/>')
        parts.append(_text(width - 160, height - bottom - 14 - 18 * number, name))
    for dot in dots:
        x, y = place(dot.intensity, dot.rate)
        colour = _COLOURS[series.index(dot.series) % len(_COLOURS)]
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}" fill-opacity="0.75">'
            f"<title>{escape(dot.label)}</title></circle>"
        )
    return _svg(width, height, parts)


def _text(x: float, y: float, text: str, fill: str = _INK, *, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" text-anchor="{anchor}" font-weight="{weight}" {_FONT}>'
        f"{escape(text)}</text>"
    )


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}"><rect width="100%" height="100%" fill="white"/>' + "".join(parts) + "</svg>\n"
    )
