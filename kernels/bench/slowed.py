"""Which blocks are left out because the device was slowed down: from what its clocks say, and from nothing else. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from assay.baselines.stats.speed import FEWEST_BLOCKS

LOW_CLOCK = "low clock"


class Seen(NamedTuple):
    """What the clocks said of one arm's turn in a block. It carries no time, so that no rule on it can depend on one."""

    block: int
    round: int
    mhz: float | None
    slowed: tuple[str, ...]
    """The driver's reasons; empty when it gave none."""


def usual_clock(seen: Sequence[Seen]) -> float | None:
    """The median clock of a whole run in MHz; None where nothing tells."""
    known = [one.mhz for one in seen if one.mhz is not None]
    return statistics.median(known) if known else None


def left_out(seen: Sequence[Seen], usual: float | None, drop: float) -> dict[int, str]:
    """Block -> why it is left out, for every arm: in one arm's turn the driver slowed the device down, or its clock was
    more than the proportion `drop` below the `usual` one."""
    found: dict[int, str] = {}
    for one in seen:
        if one.slowed:
            found[one.block] = one.slowed[0]
        elif usual is not None and one.mhz is not None and one.mhz < (1 - drop) * usual:
            found.setdefault(one.block, LOW_CLOCK)
    return found


def words(reasons: Collection[str], blocks: int) -> str:
    """`7 of 60 blocks left out: power cap, low clock`, the most frequent reason first."""
    listed = ", ".join(reason for reason, _ in Counter(reasons).most_common())
    return f"{len(reasons)} of {blocks} blocks left out: {listed}"


def void(seen: Sequence[Seen], lost: Mapping[int, str], most: float) -> str:
    """Why too little is left of a case, or "": more than the proportion `most` of its blocks are lost, or all of a round,
    or so many that no interval can be given."""
    if not lost:
        return ""
    blocks = {one.block: one.round for one in seen}
    told = words(lost.values(), len(blocks))
    if len(lost) > most * len(blocks):
        return f"{told}; at most {100 * most:g}% may be"
    empty = set(blocks.values()) - {turn for block, turn in blocks.items() if block not in lost}
    if empty:
        return f"{told}; nothing is left of round {min(empty) + 1}"
    if len(blocks) - len(lost) < FEWEST_BLOCKS:
        return f"{told}; an interval needs {FEWEST_BLOCKS}"
    return ""
