"""Estimated against published latencies as an SVG, both on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

_SIZE, _MARGIN = 420, 50
_LOW, _HIGH = 0.2, 12.0
"""Milliseconds at the ends of both axes."""
_COLOURS = {"float": "#0b62a4", "w8a16": "#c2570c", "w8a8": "#2f7d32"}


def scatter(rows: Sequence[Mapping[str, Any]]) -> str:
    """One mark for each row (`model`, `precision`, `published_ms`, `held_out_ms`); lines at 0 and 25% of error."""
    middle, edge = _SIZE / 2, _SIZE - _MARGIN
    shapes = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {_SIZE}" font-family="sans-serif" font-size="11">',
        f'<rect width="{_SIZE}" height="{_SIZE}" fill="white"/>',
        *(_line(factor, dash) for factor, dash in ((1.0, ""), (1.25, "4 3"), (0.75, "4 3"))),
    ]
    for tick in (0.25, 0.5, 1, 2, 4, 8):
        shapes += [
            _text(_at(tick), edge + 16, f"{tick:g}"),
            _text(_MARGIN - 14, _SIZE - _at(tick) + 4, f"{tick:g}"),
        ]
    shapes += [
        _mark(_at(r["published_ms"]), _SIZE - _at(r["held_out_ms"]), r["precision"], f"{r['model']} {r['precision']}")
        for r in rows
    ]
    for number, name in enumerate(_COLOURS):
        shapes += [
            _mark(_MARGIN + 14, _MARGIN + 6 + 16 * number, name, name),
            _text(_MARGIN + 42, _MARGIN + 10 + 16 * number, name),
        ]
    turned = f' transform="rotate(-90 14 {middle})"'
    shapes += [
        _text(middle, _SIZE - 12, "published, ms"),
        _text(14, middle, "estimated by a fit without the model, ms", turned),
        "</svg>",
    ]
    return "\n".join(shapes) + "\n"


def _at(milliseconds: float) -> float:
    part = math.log(milliseconds / _LOW) / math.log(_HIGH / _LOW)
    return _MARGIN + (_SIZE - 2 * _MARGIN) * part


def _line(factor: float, dash: str) -> str:
    first, last = max(_LOW, _LOW / factor), min(_HIGH, _HIGH / factor)
    path = f"M{_at(first):.1f} {_SIZE - _at(first * factor):.1f}L{_at(last):.1f} {_SIZE - _at(last * factor):.1f}"
    return f'<path d="{path}" stroke="#888" stroke-dasharray="{dash}" fill="none"/>'


def _mark(x: float, y: float, precision: str, title: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{_COLOURS[precision]}"><title>{title}</title></circle>'


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle"{more}>{text}</text>'
