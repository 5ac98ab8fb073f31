"""Bytes in words, in binary units: memories and tiles are powers of two."""

from __future__ import annotations


def binary_size(count: float) -> str:
    """Bytes in the binary unit that keeps the number short: 1,536 is `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 999.5:  # what rounds to 1000 is shown in the next unit
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:,.0f} GiB" if abs(count) >= 100 else f"{count:.3g} GiB"
