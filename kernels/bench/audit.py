"""Whether times can be true: against the coordinator's clock, against the other arm, against the roofline. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from assay.baselines.kernel import BUSY
from assay.kernels.bench.ceilings import SLACK, Roofline

UNTOLD_SECONDS = 300e-6
"""By how much one arm's untold time (the coordinator's less the worker's) may exceed the other's at least."""
UNTOLD_SHARE = 0.05
LATE_SECONDS = 100e-6
LATE_SHARE = 0.05
"""Waiting for the whole device after the timed stream costs some microseconds, and now and then more."""
PAUSES = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between measurements of ceilings that accuse: the load of others comes and goes."""


@dataclass(frozen=True)
class Fault:
    """Why an arm's time is refused: a code of `assay.baselines.kernel.REFUSALS`, and the details for the log."""

    code: str
    detail: str


class Block(Protocol):
    """What these checks read of a row."""

    @property
    def arm(self) -> str: ...
    @property
    def seconds(self) -> float: ...
    @property
    def launches(self) -> int: ...
    @property
    def wall(self) -> float: ...


def check_clock(block: Block) -> Fault | None:
    """A block cannot take no time, nor longer than the request that ran it."""
    total = block.seconds * block.launches
    if total <= 0:
        return Fault("clock", "a block took no time")
    if total > block.wall * 1.001 + 20e-6:
        return Fault("clock", f"a block of {1e3 * total:.3f} ms was answered within {1e3 * block.wall:.3f} ms")
    return None


def check_pair(
    rows: Sequence[Block], arm: str, other: str, waited: Mapping[str, Sequence[float]] | None = None
) -> Fault | None:
    """An arm whose clock was slowed down leaves more time untold than the other does, in the median of its blocks.

    `waited`: arm -> seconds of each of its blocks for which it could have run and others held its processor, by the kernel's
    count. What that explains accuses nobody; but it cannot be told from a slowed clock either, so there is no verdict.
    """
    told = {name: [r for r in rows if r.arm == name] for name in (arm, other)}
    if not told[arm] or not told[other]:
        return None
    mine, theirs = ([r.wall - r.seconds * r.launches for r in told[name]] for name in (arm, other))
    block = statistics.median(r.seconds * r.launches for r in told[other])
    most = max(UNTOLD_SECONDS, UNTOLD_SHARE * block)
    excess = statistics.median(mine) - statistics.median(theirs)
    if excess <= most:
        return None
    missing = f"{1e3 * excess:.3f} ms of each block are missing in its times, where blocks take {1e3 * block:.3f} ms"
    waits = {name: list((waited or {}).get(name, [])) for name in (arm, other)}
    if all(len(waits[name]) == len(told[name]) for name in waits):
        # On both sides: a load that disturbs them alike explains nothing.
        alone = {
            name: [r.wall - r.seconds * r.launches - w for r, w in zip(told[name], waits[name], strict=True)]
            for name in told
        }
        if statistics.median(alone[arm]) - statistics.median(alone[other]) <= most:
            held = 1e3 * statistics.median(waits[arm])
            return Fault(BUSY, f"{missing}, and for {held:.3f} ms others held its processor")
    return Fault("clock", missing)


def check_roofline(seconds: Sequence[float], floor: float, kind: str) -> Fault | None:
    """The median launch cannot be faster than the measured ceilings allow, with the slack of this kind of device."""
    middle = statistics.median(seconds)
    if middle * SLACK[kind] < floor:
        return Fault("roofline", f"{1e6 * middle:.3g} us a launch where the ceilings allow {1e6 * floor:.3g} us")
    return None


def doubted(
    check: Callable[[Roofline], Fault | None],
    roofline: Roofline,
    again: Callable[[], Roofline],
    pause: Callable[[float], None],
) -> tuple[Fault | None, Roofline]:
    """What `check` finds, and under which ceilings.

    A ceiling that was measured while something else ran is too low, and would accuse a kernel that is honest: before an
    accusation stands, the ceilings are measured `again`, after longer and longer pauses, until one acquits or `PAUSES` are over.
    """
    fault = check(roofline)
    for seconds in PAUSES:
        if fault is None:
            break
        pause(seconds)
        roofline = again()
        fault = check(roofline)
    return fault, roofline


def check_late(late: Sequence[float], block: float) -> Fault | None:
    """In the median of its blocks, nothing may go on after the timed stream has finished."""
    middle = statistics.median(late)
    if middle > max(LATE_SECONDS, LATE_SHARE * block):
        return Fault("late-work", f"work went on for {1e6 * middle:.0f} us after the timed stream had finished")
    return None
