"""One lease: base and head on the same device at the same time, contract first, then blocks in turns."""

from __future__ import annotations

import math
import random
import statistics
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from assay.baselines.errors import InputError
from assay.kernels.bench.arm import START_SECONDS, Arm, RefusedTimeError
from assay.kernels.bench.audit import Fault, check_clock, check_late, check_pair, check_roofline
from assay.kernels.bench.ceilings import Ceilings, Roofline
from assay.kernels.bench.clocks import Clocks
from assay.kernels.bench.order import BASE, CONTROL, HEAD, turns
from assay.kernels.bench.wire import number

Told = Callable[[str], None]
MOST_LAUNCHES = 512
CACHES = 2
"""Input sets cover this many times the last-level cache."""


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

    def label(self, kernel: str, case: str) -> str:
        return f"{kernel}.{case}" if self.several else case


def measure(plan: Plan, told: Told = lambda _: None) -> Lease:
    """Run the benchmark.

    Raises `InputError` for declarations that cannot be used, and `ServiceError` for a worker that ends or hangs. Times
    that cannot be trusted are in the lease, as faults of their case.
    """
    names = (BASE, CONTROL, HEAD) if plan.base is not None else (HEAD, CONTROL)
    arms: dict[str, Arm] = {}
    try:
        for name in names:
            root = plan.head if plan.base is None or name == HEAD else plan.base
            arms[name] = _started(name, root, plan)
        return _Session(plan, arms, told).run()
    finally:
        for arm in arms.values():
            arm.close()


def _started(name: str, root: Path, plan: Plan) -> Arm:
    environment = {"TRITON_INTERPRET": "1"} if plan.interpret else {}
    return Arm(name, root, plan.device, timeout=plan.timeout, environment=environment)


class _Session:
    def __init__(self, plan: Plan, arms: Mapping[str, Arm], told: Told) -> None:
        self._plan = plan
        self._arms = dict(arms)
        self._told = told
        self._chance = random.Random(plan.seed)
        self._clocks = Clocks(plan.device)

    def run(self) -> Lease:
        plan = self._plan
        checkouts = {name: self._load(arm) for name, arm in self._arms.items()}
        kernels = list(checkouts[HEAD].described)
        lease = Lease(
            id=uuid.uuid4().hex,
            plan=plan,
            checkouts=checkouts,
            timed={},
            timer="cuda-event" if plan.device.startswith("cuda") else "perf_counter_ns",
            several=len(kernels) > 1,
            clocks=self._clocks.available,
        )
        for kernel in kernels:
            shared = [n for n in self._arms if kernel in checkouts[n].described]
            if not self._contract(lease, kernel, shared) or plan.interpret:
                continue
            for case in checkouts[HEAD].described[kernel]["cases"]:
                label = lease.label(kernel, case)
                lease.timed[label] = timed = Timed(label)
                there = [n for n in shared if case in checkouts[n].described[kernel]["cases"]]
                # A case that the base does not have is timed against nothing.
                if not self._time(lease, kernel, case, there, timed):
                    return lease
        return lease

    def _load(self, arm: Arm) -> Checkout:
        self._told(f"{arm.name}: importing {self._plan.file}")
        versions = arm.ask("hello", seconds=START_SECONDS)
        found = arm.ask("load", file=str(arm.root / self._plan.file), root=str(arm.root), only=list(self._plan.kernels))
        return Checkout(
            {d["name"]: d for d in found["kernels"]},
            number(found, "import_seconds"),
            number(found, "setup_seconds"),
            versions,
        )

    def _contract(self, lease: Lease, kernel: str, shared: Sequence[str]) -> bool:
        """Whether the kernel may be timed: its contract passed on every arm."""
        passed = True
        for name in shared:
            checkout = lease.checkouts[name]
            self._told(f"{name}: {kernel}: contract")
            try:
                found = self._arms[name].ask("check", kernel=kernel)
            except RefusedTimeError as error:
                for case in checkout.described[kernel]["cases"]:
                    label = lease.label(kernel, case)
                    lease.timed.setdefault(label, Timed(label)).faults[name] = Fault(error.code, error.detail)
                passed = False
                continue
            checkout.contract[kernel] = found["results"]
            for case, seconds in found["first_seconds"].items():
                checkout.first_seconds[lease.label(kernel, case)] = float(seconds)
            checkout.norms |= {lease.label(kernel, case): float(norm) for case, norm in found["norms"].items()}
            checkout.source = str(found["source"])
            failed = checkout.failed(kernel)
            if failed:
                self._told(f"{name}: {kernel}: the contract failed on {', '.join(failed[:4])}")
            passed = passed and not failed
        return passed

    def _time(self, lease: Lease, kernel: str, case: str, names: Sequence[str], timed: Timed) -> bool:
        """Time a case on these arms; False when an arm broke the protocol, so that nothing more can be asked of it."""
        try:
            self._prepare(lease, kernel, case, names, timed)
            self._blocks(names, timed)
        except _Refused as refused:
            timed.faults[refused.arm] = refused.fault
            self._told(f"{timed.label}: {refused.arm} refused: {refused.fault.detail}")
            if refused.fault.code == "pipe":
                return False
        for name in names:
            self._arms[name].ask("release")
        if timed.roofline is not None and not timed.faults:
            model = lease.checkouts[HEAD].described[kernel]["cases"][case]
            self._audit(names, timed, float(model["bytes"]), float(model["flops"]))
        return True

    def _prepare(self, lease: Lease, kernel: str, case: str, names: Sequence[str], timed: Timed) -> None:
        plan = self._plan
        sizes = {name: self._ask(name, "size", kernel=kernel, case=case) for name in names}
        first = sizes[names[0]]
        timed.set_bytes = max(int(number(size, "bytes", least=1)) for size in sizes.values())
        cache = plan.cache if plan.cache is not None else cache_bytes(lease.checkouts[HEAD].versions)
        timed.launches = launches_for(
            plan.block_seconds, number(first, "seconds"), CACHES * cache, timed.set_bytes, plan.memory
        )
        for name in names:
            ready = self._ask(name, "prepare", kernel=kernel, case=case, launches=timed.launches)
            timed.eager[name] = number(ready, "eager_seconds")
            timed.graph = bool(ready["graph"])
            timed.backlog = max(timed.backlog, 1.3 * number(ready, "host_seconds"))
        described = lease.checkouts[HEAD].described[kernel]["cases"][case]
        timed.roofline = self._ceilings().roofline(timed.set_bytes, timed.launches, described["dtype"])

    def _ceilings(self) -> Ceilings:
        if not hasattr(self, "_measured"):
            self._measured = Ceilings(torch.device(self._plan.device))
        return self._measured

    def _blocks(self, names: Sequence[str], timed: Timed) -> None:
        plan = self._plan
        orders = turns(names, plan.blocks, self._chance.getrandbits(32))
        for block, order in enumerate(orders):
            seed = self._chance.getrandbits(48)
            for name in order:
                self._ask(name, "fill", seed=seed)
            for position, name in enumerate(order):
                clock = self._clocks.state()
                answer = self._ask(name, "time", backlog=timed.backlog)
                total = number(answer, "seconds")
                timed.late.setdefault(name, []).append(number(answer, "late"))
                wall = self._arms[name].wall
                seconds = total / timed.launches
                row = Row(timed.label, block, name, position, seconds, timed.launches, wall, clock.mhz, clock.throttled)
                fault = check_clock(row)
                if fault is not None:
                    raise _Refused(name, fault)
                timed.rows.append(row)
            # Which launch is checked, and whether any is, is drawn when the times are in.
            if block < 2 or block == plan.blocks - 1 or self._chance.random() < plan.verify_share:
                for name in order:
                    self._ask(name, "verify", launch=self._chance.randrange(timed.launches))
            if (block + 1) % 20 == 0 or block + 1 == plan.blocks:
                self._told(f"{timed.label}: block {block + 1} of {plan.blocks}")

    def _audit(self, names: Sequence[str], timed: Timed, moved: float, flops: float) -> None:
        assert timed.roofline is not None
        kind = self._plan.device.partition(":")[0]
        for name in names:
            seconds = timed.seconds(name)
            fault = check_late(timed.late[name], statistics.median(seconds) * timed.launches)
            fault = fault or check_roofline(seconds, timed.roofline.floor(moved, flops), kind)
            if fault is None and name == HEAD:
                fault = check_pair(timed.rows, HEAD, BASE if BASE in names else CONTROL)
            if fault is not None:
                timed.faults[name] = fault

    def _ask(self, name: str, verb: str, **arguments: Any) -> dict[str, Any]:
        try:
            return self._arms[name].ask(verb, **arguments)
        except RefusedTimeError as error:
            raise _Refused(name, Fault(error.code, error.detail)) from None


class _Refused(Exception):  # noqa: N818 it carries a fault and is none
    def __init__(self, arm: str, fault: Fault) -> None:
        super().__init__(fault.detail)
        self.arm = arm
        self.fault = fault


def launches_for(block: float, seconds: float, rotation: int, set_bytes: int, memory: int) -> int:
    """Launches of a block: long enough for the clock, over enough sets that none is still in the cache, within memory.

    Raises `InputError` when memory does not hold two sets.
    """
    room = memory // set_bytes
    if room < 2:
        raise InputError(
            f"one set of inputs and outputs takes {set_bytes:,} bytes, and two do not fit in --memory: raise it."
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
