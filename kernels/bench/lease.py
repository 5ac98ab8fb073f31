"""One lease: base and head on the same device at the same time, contract first, then blocks in turns."""

from __future__ import annotations

import random
import statistics
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from assay.kernels.bench.answers import checkout_of, contract_of
from assay.kernels.bench.arm import START_SECONDS, Arm, RefusedTimeError
from assay.kernels.bench.audit import Fault, check_clock, check_late, check_pair, check_roofline, doubted
from assay.kernels.bench.ceilings import Ceilings
from assay.kernels.bench.clocks import Clocks
from assay.kernels.bench.order import BASE, CONTROL, HEAD, turns
from assay.kernels.bench.rotation import CACHES, cache_bytes, launches_for
from assay.kernels.bench.timed import Checkout, Lease, Plan, Row, Timed
from assay.kernels.bench.wire import WireError, number

Told = Callable[[str], None]
BACKLOG = 1.3
"""How much longer than the launches take to queue a device waits for them."""


def measure(plan: Plan, told: Told = lambda _: None) -> Lease:
    """Run the benchmark.

    Raises `InputError` for declarations that cannot be used, and `ServiceError` for a worker that ends or hangs. Times
    that cannot be trusted are in the lease, as faults of their case.
    """
    session = _Session(plan, told)
    lease: Lease | None = None
    for turn in range(plan.rounds):
        with ExitStack() as stack:
            arms = _started(plan, stack)
            lease = session.begin(arms) if lease is None else session.again(arms, lease)
            sound = session.time(lease, turn)
        if not sound:
            break
    assert lease is not None
    session.audit(lease)
    return lease


def _started(plan: Plan, stack: ExitStack) -> dict[str, Arm]:
    environment = {"TRITON_INTERPRET": "1"} if plan.interpret else {}
    arms = {}
    for name in (BASE, CONTROL, HEAD) if plan.base is not None else (HEAD, CONTROL):
        root = plan.head if plan.base is None or name == HEAD else plan.base
        arm = Arm(name, root, plan.device, timeout=plan.timeout, environment=environment)
        arms[name] = stack.enter_context(arm)
    return arms


class _Session:
    """The coordinator: what it knows stays the same over the rounds, its arms do not."""

    def __init__(self, plan: Plan, told: Told) -> None:
        self._plan = plan
        self._told = told
        self._arms: Mapping[str, Arm] = {}
        self._chance = random.Random(plan.seed)
        self._clocks = Clocks(plan.device)
        self._ceilings = Ceilings(torch.device(plan.device))

    def begin(self, arms: Mapping[str, Arm]) -> Lease:
        """The first round: import, and check every contract."""
        plan = self._plan
        self._arms = arms
        checkouts = {name: self._load(arm) for name, arm in arms.items()}
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
            shared = [n for n in arms if kernel in checkouts[n].described]
            if not self._contract(lease, kernel, shared) or plan.interpret:
                continue
            for case in checkouts[HEAD].described[kernel]["cases"]:
                label = lease.label(kernel, case)
                # A case that the base does not have is timed against nothing.
                there = [n for n in shared if case in checkouts[n].described[kernel]["cases"]]
                drawn = {checkouts[n].described[kernel]["cases"][case]["inputs"] for n in there}
                lease.timed[label] = Timed(label, kernel, case, there, alike=len(drawn) == 1)
        return lease

    def again(self, arms: Mapping[str, Arm], lease: Lease) -> Lease:
        """A later round: fresh processes on the same checkouts, whose contracts have passed."""
        self._arms = arms
        for arm in arms.values():
            self._load(arm)
        return lease

    def time(self, lease: Lease, turn: int) -> bool:
        """Time the cases that are sound; False when an arm broke the protocol, so that nothing more can be asked."""
        for timed in lease.timed.values():
            if timed.faults or not timed.arms:
                continue
            self._look(lease)
            try:
                self._prepare(lease, timed, first=turn == 0)
                self._blocks(timed, turn)
            except _Refused as refused:
                timed.faults[refused.arm] = refused.fault
                self._told(f"{timed.label}: {refused.arm} refused: {refused.fault.detail}")
                if refused.fault.code == "pipe":
                    return False
            for name in timed.arms:
                self._arms[name].ask("release")
        self._look(lease)
        return True

    def _look(self, lease: Lease) -> None:
        """Whether the arms stand still out of their turn; that they do not is said once."""
        if lease.stands_still and not all(arm.stands_still for arm in self._arms.values()):
            lease.stands_still = False
            self._told("this system does not stop processes (SIGSTOP): an arm may run while another is timed")

    def audit(self, lease: Lease) -> None:
        """Whether the times of the whole lease can be true."""
        for timed in lease.timed.values():
            if timed.roofline is None or timed.faults:
                continue
            model = lease.checkouts[HEAD].described[timed.kernel]["cases"][timed.case]
            for name in timed.arms:
                seconds = timed.seconds(name)
                fault = check_late(timed.late[name], statistics.median(seconds) * timed.launches)
                fault = fault or self._check_roofline(timed, model, seconds)
                if fault is None and name == HEAD:
                    fault = check_pair(timed.rows, HEAD, BASE if BASE in timed.arms else CONTROL, timed.waited)
                if fault is not None:
                    timed.faults[name] = fault

    def _check_roofline(self, timed: Timed, model: Mapping[str, Any], seconds: Sequence[float]) -> Fault | None:
        moved, flops = float(model["bytes"]), float(model["flops"])
        kind = self._plan.device.partition(":")[0]
        assert timed.roofline is not None
        fault, timed.roofline = doubted(
            lambda roofline: check_roofline(seconds, roofline.floor(moved, flops), kind),
            timed.roofline,
            lambda: self._ceilings.roofline(timed.set_bytes, timed.launches, model["dtype"], again=True),
            time.sleep,
        )
        return fault

    def _load(self, arm: Arm) -> Checkout:
        self._told(f"{arm.name}: importing {self._plan.file}")
        versions = arm.ask("hello", seconds=START_SECONDS)
        found = arm.ask(
            "load",
            file=str(arm.root / self._plan.file),
            root=str(arm.root),
            only=list(self._plan.kernels),
            optional=self._plan.base is not None and arm.name != HEAD,
        )
        return checkout_of(arm.name, versions, found)

    def _contract(self, lease: Lease, kernel: str, shared: Sequence[str]) -> bool:
        """Whether the kernel may be timed: its contract passed on every arm."""
        passed = True
        for name in shared:
            checkout = lease.checkouts[name]
            self._told(f"{name}: {kernel}: contract")
            try:
                found = contract_of(name, self._arms[name].ask("check", kernel=kernel))
            except RefusedTimeError as error:
                for case in checkout.described[kernel]["cases"]:
                    label = lease.label(kernel, case)
                    lease.timed.setdefault(label, Timed(label, kernel, case)).faults[name] = error.fault
                passed = False
                continue
            checkout.contract[kernel] = found.results
            checkout.first_seconds |= {lease.label(kernel, case): s for case, s in found.first_seconds.items()}
            checkout.norms |= {lease.label(kernel, case): norm for case, norm in found.norms.items()}
            checkout.source = found.source
            failed = checkout.failed(kernel)
            if failed:
                self._told(f"{name}: {kernel}: the contract failed on {', '.join(failed[:4])}")
            passed = passed and not failed
        return passed

    def _prepare(self, lease: Lease, timed: Timed, *, first: bool) -> None:
        plan = self._plan
        which = {"kernel": timed.kernel, "case": timed.case}
        if first:
            sizes = {name: self._ask(name, "size", **which) for name in timed.arms}
            timed.set_bytes = max(int(_number(name, size, "bytes", least=1)) for name, size in sizes.items())
            cache = plan.cache if plan.cache is not None else cache_bytes(lease.checkouts[HEAD].versions)
            seconds = _number(timed.arms[0], sizes[timed.arms[0]], "seconds")
            timed.launches = launches_for(plan.block_seconds, seconds, CACHES * cache, timed.set_bytes, plan.memory)
        for name in timed.arms:
            ready = self._ask(name, "prepare", launches=timed.launches, **which)
            timed.eager[name] = _number(name, ready, "eager_seconds")
            timed.graph = ready.get("graph") is True
            timed.backlog = max(timed.backlog, BACKLOG * _number(name, ready, "host_seconds"))
        dtype = lease.checkouts[HEAD].described[timed.kernel]["cases"][timed.case]["dtype"]
        timed.roofline = self._ceilings.roofline(timed.set_bytes, timed.launches, dtype)

    def _blocks(self, timed: Timed, turn: int) -> None:
        plan = self._plan
        blocks = range(*(plan.blocks * t // plan.rounds for t in (turn, turn + 1)))
        orders = turns(timed.arms, len(blocks), self._chance.getrandbits(32))
        for block, order in zip(blocks, orders, strict=True):
            seed = self._chance.getrandbits(48)
            forms = {name: self._ask(name, "fill", seed=seed).get("form") for name in order}
            _alike(timed, forms)
            for position, name in enumerate(order):
                timed.rows.append(self._block(timed, block, turn, position, name))
            # Which launch is checked, and whether any is, is drawn when the times are in.
            if block - blocks[0] < 2 or block == blocks[-1] or self._chance.random() < plan.verify_share:
                launch = self._chance.randrange(timed.launches)
                _alike(timed, {name: self._ask(name, "verify", launch=launch).get("inputs") for name in order})
            if (block + 1) % 20 == 0 or block == blocks[-1]:
                self._told(f"{timed.label}: block {block + 1} of {plan.blocks}")

    def _block(self, timed: Timed, block: int, turn: int, position: int, name: str) -> Row:
        clock = self._clocks.state()
        answer = self._ask(name, "time", backlog=timed.backlog)
        timed.late.setdefault(name, []).append(_number(name, answer, "late"))
        waited = self._arms[name].waited
        if waited is not None:
            timed.waited.setdefault(name, []).append(waited)
        row = Row(
            case=timed.label,
            block=block,
            round=turn,
            arm=name,
            position=position,
            seconds=_number(name, answer, "seconds") / timed.launches,
            launches=timed.launches,
            wall=self._arms[name].wall,
            clock_mhz=clock.mhz,
            throttled=clock.throttled,
        )
        fault = check_clock(row)
        if fault is not None:
            raise _Refused(name, fault)
        return row

    def _ask(self, name: str, verb: str, **arguments: Any) -> dict[str, Any]:
        try:
            return self._arms[name].ask(verb, **arguments)
        except RefusedTimeError as error:
            raise _Refused(name, error.fault) from None


class _Refused(Exception):  # noqa: N818 it carries a fault and is none
    def __init__(self, arm: str, fault: Fault) -> None:
        super().__init__(fault.detail)
        self.arm = arm
        self.fault = fault


def _alike(timed: Timed, digests: Mapping[str, Any]) -> None:
    """Raises `_Refused` for arms that drew other inputs from one seed, although what they drew at first was the same."""
    for name in (HEAD, CONTROL):
        if timed.alike and BASE in digests and digests.get(name, digests[BASE]) != digests[BASE]:
            raise _Refused(name, Fault("other-inputs", "its inputs are not the base's in every block"))


def _number(arm: str, answer: dict[str, Any], key: str, *, least: float = 0.0) -> float:
    """A number of an arm's answer. Raises `_Refused` for what is none, such as a time that is NaN."""
    try:
        return number(answer, key, least=least)
    except WireError as error:
        raise _Refused(arm, Fault("clock", f"the worker {error}")) from None
