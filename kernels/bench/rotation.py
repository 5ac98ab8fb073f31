"""How many input sets a block rotates through: beyond the cache, within memory, long enough for the clock."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.baselines.errors import InputError

MOST_LAUNCHES = 512
CACHES = 2
"""Input sets cover this many times the last-level cache."""


def launches_for(block: float, seconds: float, rotation: int, set_bytes: int, memory: int) -> int:
    """Launches of a block: long enough for the clock, over enough sets that none is still in the cache, within memory.

    Raises `InputError` when memory does not hold two sets.
    """
    room = memory // set_bytes
    if room < 2:
        raise InputError(
            f"one set of inputs and outputs takes {set_bytes:,} bytes, and two do not fit in the {memory >> 20:,} MiB of "
            f"--memory-mb: give at least {math.ceil(2 * set_bytes / (1 << 20)):,}."
        )
    wanted = max(2, math.ceil(block / max(seconds, 1e-7)), math.ceil(rotation / set_bytes))
    return min(wanted, room, MOST_LAUNCHES)


def cache_bytes(versions: Mapping[str, Any]) -> int:
    """Bytes of the last-level cache: the GPU's L2 as its driver says, else what the system says of the CPU, else 32 MiB."""
    told = versions.get("cache")
    if isinstance(told, int) and told > 0:
        return told
    sizes = []
    for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = entry.read_text().strip()
        if text.endswith("K") and text[:-1].isdecimal():
            sizes.append(int(text[:-1]) << 10)
    return max(sizes, default=32 << 20)
