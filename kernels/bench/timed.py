"""What is planned before a lease, and what has been measured after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.kernels.bench.audit import Fault
from assay.kernels.bench.ceilings import Roofline


@dataclass(frozen=True)
class Plan:
    """What is measured, fixed before anything is timed."""

    file: Path
    """The declarations, relative to both checkouts."""
    head: Path
    base: Path | None
    device: str = "cpu"
    kernels: tuple[str, ...] = ()
    blocks: int = 60
    """Of each arm and case, over all rounds."""
    rounds: int = 1
    """Each round has fresh processes: what one process was unlucky with is not taken for a change."""
    margin: float = 0.02
    """Pre-registered: a change inside it is the same speed. A proportion."""
    seed: int = 0
    timeout: float = 300.0
    block_seconds: float = 0.004
    memory: int = 512 << 20
    """Bytes that the input sets of one case may take in each worker."""
    cache: int | None = None
    """Bytes of the last-level cache; measured when None."""
    verify_share: float = 0.25
    """Share of the blocks of which one launch is checked."""
    interpret: bool = False
    """Triton's interpreter: contracts are checked and nothing is timed."""


@dataclass(frozen=True)
class Row:
    """One block of one arm."""

    case: str
    block: int
    round: int
    arm: str
    position: int
    seconds: float
    launches: int
    wall: float
    clock_mhz: float | None
    throttled: bool | None


@dataclass
class Timed:
    """One case as it was timed."""

    label: str
    kernel: str
    case: str
    arms: list[str] = field(default_factory=list)
    alike: bool = True
    """Whether all arms drew the same inputs at first; where a change draws others, they are others in every block."""
    launches: int = 0
    set_bytes: int = 0
    rows: list[Row] = field(default_factory=list)
    eager: dict[str, float] = field(default_factory=dict)
    """Arm -> seconds per launch from Python."""
    graph: bool = False
    backlog: float = 0.0
    """Seconds for which the device waits while launches are queued: one value for all arms, so that it tells them not apart."""
    late: dict[str, list[float]] = field(default_factory=dict)
    """Arm -> seconds for which the device still worked after each block."""
    waited: dict[str, list[float]] = field(default_factory=dict)
    """Arm -> seconds of each block for which others held its processor, where the system tells."""
    roofline: Roofline | None = None
    faults: dict[str, Fault] = field(default_factory=dict)
    """Arm -> why its time is refused."""

    def seconds(self, arm: str) -> list[float]:
        """Times of an arm in the order of its blocks."""
        return [r.seconds for r in sorted(self.rows, key=lambda r: r.block) if r.arm == arm]


@dataclass
class Checkout:
    """What a worker said about its checkout."""

    described: dict[str, Any]
    """Kernel -> its description."""
    import_seconds: float
    setup_seconds: float
    versions: dict[str, Any]
    contract: dict[str, list[list[Any]]] = field(default_factory=dict)
    """Kernel -> rows of case, passed, relative error, largest error, reason."""
    first_seconds: dict[str, float] = field(default_factory=dict)
    norms: dict[str, float] = field(default_factory=dict)
    source: str = ""

    def failed(self, kernel: str) -> list[str]:
        """The contract cases that a kernel failed."""
        return [row[0] for row in self.contract.get(kernel, []) if not row[1]]


@dataclass
class Lease:
    """Everything that one run measured."""

    id: str
    plan: Plan
    checkouts: dict[str, Checkout]
    timed: dict[str, Timed]
    timer: str
    several: bool
    """Several kernels: cases are labelled `<kernel>.<case>`."""
    clocks: bool
    stands_still: bool = True
    """Whether every arm was seen to stand still while it was another's turn."""

    def label(self, kernel: str, case: str) -> str:
        return f"{kernel}.{case}" if self.several else case
