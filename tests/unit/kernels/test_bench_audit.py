"""Times that cannot be true, the order of turns, the wire, and the fingerprint of what measures."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.baselines.errors import InputError
from assay.baselines.kernel import BUSY
from assay.kernels import contract
from assay.kernels.bench.audit import PAUSES, check_clock, check_late, check_pair, check_roofline, doubted
from assay.kernels.bench.ceilings import Ceilings, Roofline
from assay.kernels.bench.clocks import UNKNOWN, Clocks
from assay.kernels.bench.integrity import changed, fingerprint
from assay.kernels.bench.order import BASE, CONTROL, HEAD, turns
from assay.kernels.bench.rotation import cache_bytes, launches_for
from assay.kernels.bench.wire import MAX_FRAME, EndedError, Pipe, SilenceError, WireError, number


@dataclass
class Block:
    arm: str
    seconds: float
    launches: int
    wall: float


def test_a_block_takes_some_time_and_no_more_than_its_request() -> None:
    assert check_clock(Block("head", 1e-3, 4, 4.3e-3)) is None
    for seconds in (0.0, -1.0, 2e-3):
        fault = check_clock(Block("head", seconds, 4, 4.3e-3))
        assert fault is not None
        assert fault.code == "clock"


def pairs(share: float) -> list[Block]:
    """Base tells all of its 4 ms, head `share` of them; both requests cost 0.2 ms more."""
    return [
        Block(arm, share_ * 4e-3 / 10, 10, 4.2e-3 + 1e-5 * i)
        for i in range(9)
        for arm, share_ in ((BASE, 1.0), (HEAD, share))
    ]


def test_a_slowed_clock_leaves_time_untold() -> None:
    assert check_pair(pairs(1.0), HEAD, BASE) is None
    fault = check_pair(pairs(0.8), HEAD, BASE)
    assert fault is not None
    assert fault.code == "clock"
    assert "0.800 ms of each block are missing" in fault.detail


def test_a_processor_that_others_held_accuses_nobody_and_acquits_nobody() -> None:
    slow = pairs(0.8)
    busy = check_pair(slow, HEAD, BASE, {HEAD: [1e-3] * 9, BASE: [1e-5] * 9})
    assert busy is not None
    assert busy.code == BUSY
    assert "others held its processor" in busy.detail
    alike = {HEAD: [1e-3] * 9, BASE: [1e-3] * 9}
    for waited in (alike, {HEAD: [1e-4] * 9, BASE: [0.0] * 9}, {HEAD: [1e-3] * 9}, {HEAD: [1e-3] * 3, BASE: [0.0] * 9}):
        fault = check_pair(slow, HEAD, BASE, waited)
        assert fault is not None
        assert fault.code == "clock"


def test_a_really_faster_kernel_leaves_none() -> None:
    rows = [Block(arm, total / 10, 10, total + 2e-4) for _ in range(9) for arm, total in ((BASE, 4e-3), (HEAD, 1e-3))]
    assert check_pair(rows, HEAD, BASE) is None


def test_faster_than_the_roofline() -> None:
    floor = Roofline(bandwidth=1e12, operations=1e14).floor(moved=1e6, flops=1e9)
    assert floor == pytest.approx(1e-5)  # the operations bound it
    assert check_roofline([1e-5] * 3, floor, "cuda") is None
    fault = check_roofline([0.7e-5] * 3, floor, "cuda")
    assert fault is not None
    assert fault.code == "roofline"
    assert Roofline(1e12, None).floor(1e6, 1e9) == pytest.approx(1e-6)


def rooflines(*bandwidths: float) -> Callable[[], Roofline]:
    """Ceilings as they are measured one after the other; the best so far counts, and the last one stays."""
    best = [Roofline(max(bandwidths[: place + 1]), None) for place in range(len(bandwidths))]
    return lambda: best.pop(0) if len(best) > 1 else best[0]


def accused(measured: Callable[[], Roofline], seconds: float) -> tuple[bool, float, list[float]]:
    """Whether a launch of 1 MB in `seconds` is accused, the bandwidth that decided, and the pauses that were made."""
    pauses: list[float] = []
    fault, roofline = doubted(
        lambda r: check_roofline([seconds] * 3, r.floor(1e6, 0.0), "cuda"), measured(), measured, pauses.append
    )
    return fault is not None, roofline.bandwidth, pauses


def test_a_ceiling_that_was_measured_under_load_accuses_nobody() -> None:
    honest = 1e-6  # as fast as 1e12 B/s allow
    assert accused(rooflines(1e12), honest) == (False, 1e12, [])
    assert accused(rooflines(2e11, 2e11, 1e12), honest) == (False, 1e12, list(PAUSES[:2]))
    assert accused(rooflines(2e11, 1e11, 3e11, 9e11), honest) == (False, 9e11, list(PAUSES[:3]))


def test_a_cheat_stays_accused_however_often_the_ceiling_is_measured() -> None:
    assert accused(rooflines(1e12), 1e-7) == (True, 1e12, list(PAUSES))
    assert accused(rooflines(2e11, 1e12, 5e11), 1e-7) == (True, 1e12, list(PAUSES))
    assert sum(PAUSES) < 5


def test_the_best_measurement_of_a_ceiling_is_kept() -> None:
    class Planted(Ceilings):
        copies, products = [2e9, 1e9, 5e9, 3e9], [None, 4e9, 2e9, 8e9]

        def _copy(self, size: int) -> float:
            return self.copies.pop(0)

        def _product(self, dtype: str) -> float | None:
            return self.products.pop(0)

    ceilings = Planted(torch.device("cpu"))
    case = (1 << 20, 2, "float32")
    assert ceilings.roofline(*case) == Roofline(2e9, None)
    assert ceilings.roofline(*case) == Roofline(2e9, None)  # nothing is measured again unless it is asked for
    assert ceilings.roofline(*case, again=True) == Roofline(2e9, 4e9)
    assert ceilings.roofline(*case, again=True) == Roofline(5e9, 4e9)
    assert ceilings.roofline(*case, again=True) == Roofline(5e9, 8e9)


def test_work_on_another_stream() -> None:
    assert check_late([5e-6, 5e-6, 400e-6], block=1e-3) is None  # the device was busy once
    fault = check_late([400e-6, 5e-6, 380e-6], block=1e-3)
    assert fault is not None
    assert fault.code == "late-work"
    assert check_late([400e-6] * 3, block=10e-3) is None


def test_ceilings_are_measured() -> None:
    ceilings = Ceilings(torch.device("cpu"))
    found = ceilings.roofline(1 << 20, 2, "float32")
    assert found.bandwidth > 1e8
    assert found.operations is not None
    assert found.operations > 1e8
    assert ceilings.roofline(1 << 20, 2, "int8").operations is None
    assert ceilings.roofline(1 << 20, 2, "no_such_dtype").operations is None


def test_there_is_no_sm_clock_on_a_cpu() -> None:
    clocks = Clocks("cpu")
    assert not clocks.available
    assert clocks.state() == UNKNOWN


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 80), st.integers(0, 2**32))
def test_turns_mirror_each_other(blocks: int, seed: int) -> None:
    found = turns((BASE, CONTROL, HEAD), blocks, seed)
    assert len(found) == blocks
    assert found == turns((BASE, CONTROL, HEAD), blocks, seed)
    for first, second in zip(found[::2], found[1::2], strict=False):
        assert first == tuple(reversed(second))


def test_no_arm_is_always_first() -> None:
    first = Counter(order[0] for order in turns((BASE, HEAD), 200, 1))
    assert first[BASE] == first[HEAD] == 100


def test_launches_reach_beyond_the_cache_within_memory() -> None:
    assert launches_for(4e-3, 1e-3, rotation=0, set_bytes=1 << 20, memory=1 << 30) == 4
    assert launches_for(4e-3, 1.0, rotation=64 << 20, set_bytes=1 << 20, memory=1 << 30) == 64
    assert launches_for(4e-3, 1.0, rotation=64 << 20, set_bytes=1 << 20, memory=8 << 20) == 8
    assert launches_for(1.0, 1e-9, rotation=0, set_bytes=1, memory=1 << 30) == 512
    with pytest.raises(InputError, match="two do not fit in the 1 MiB of --memory-mb: give at least 2"):
        launches_for(4e-3, 1e-3, rotation=0, set_bytes=1 << 20, memory=1 << 20)


def test_the_gpu_says_how_large_its_cache_is() -> None:
    assert cache_bytes({"cache": 50 << 20}) == 50 << 20
    assert cache_bytes({"cache": 0}) >= 1 << 18


# -- the wire -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ends() -> tuple[Pipe, Pipe]:
    a, b = os.pipe(), os.pipe()
    return Pipe(a[0], b[1]), Pipe(b[0], a[1])


def test_a_message_arrives(ends: tuple[Pipe, Pipe]) -> None:
    here, there = ends
    here.send({"verb": "time", "inf": float("inf")})
    assert there.unread()
    assert there.receive(1)["verb"] == "time"
    assert not there.unread()


def test_silence_and_the_end_are_told_apart(ends: tuple[Pipe, Pipe]) -> None:
    here, there = ends
    with pytest.raises(SilenceError):
        here.receive(0.01)
    there.close()
    with pytest.raises(EndedError):
        here.receive(1)
    with pytest.raises(EndedError):
        here.send({})


@pytest.mark.parametrize(
    "data",
    [b"\xff\xff\xff\xff", b"\x00\x00\x00\x03abc", b"\x00\x00\x00\x02[]", b"\x00\x00\x00\x01\xff"],
    ids=["too long", "no JSON", "no object", "no text"],
)
def test_what_is_no_frame_is_refused(ends: tuple[Pipe, Pipe], data: bytes) -> None:
    here, there = ends
    os.write(there.writing, data)
    with pytest.raises(WireError):
        here.receive(1)


def test_a_message_has_a_limit(ends: tuple[Pipe, Pipe]) -> None:
    with pytest.raises(WireError, match=f"over {MAX_FRAME:,}"):
        ends[0].send({"x": "a" * MAX_FRAME})


@pytest.mark.parametrize("value", [None, True, "1", float("nan"), float("inf"), -1.0, [1]])
def test_numbers_of_answers_are_numbers(value: object) -> None:
    with pytest.raises(WireError):
        number({"seconds": value}, "seconds")


# -- the fingerprint ----------------------------------------------------------------------------------------------------


def test_what_measures_is_seen_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint()
    assert changed(before, fingerprint()) == []
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    monkeypatch.setattr(torch, "equal", lambda a, b: True)
    monkeypatch.setattr(contract, "compare", lambda *_: contract.Distance(0, 0, ""))
    monkeypatch.setattr(torch.Tensor, "clone", lambda self: self)
    assert {"assay.kernels.contract.compare", "time.perf_counter_ns", "torch.equal", "torch.Tensor.clone"} <= set(
        changed(before, fingerprint())
    )


def test_exchanged_code_is_seen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint()
    monkeypatch.setattr(contract.mutated, "__code__", (lambda inputs, before, allowed: "").__code__)
    assert changed(before, fingerprint()) == ["assay.kernels.contract.mutated()"]
