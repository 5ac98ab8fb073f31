"""A prepared case sees what a kernel does between its contract and its times: each test plants one cheat."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from assay.baselines.errors import InputError
from assay.kernels.bench.prepared import PreparedCase, RefusedError, bytes_of_set
from assay.kernels.bench.stopwatch import HostStopwatch
from assay.kernels.contract import check
from assay.kernels.declaration import Declaration, Tolerance

CPU = torch.device("cpu")
LAUNCHES = 6


def inputs(case: Any, generator: torch.Generator, device: torch.device) -> dict[str, Any]:
    return {"x": torch.randn(case["n"], generator=generator, device=device)}


def declared(kernel: Callable[..., Any], **others: Any) -> Declaration:
    return Declaration(
        **{
            "name": "double",
            "kernel": kernel,
            "inputs": inputs,
            "reference": lambda x: 2 * x,
            "tolerances": {"float32": Tolerance(1e-6, 1e-6)},
            "cases": {"n": {"n": 4096, "dtype": "float32"}},
            "bytes": lambda case: 8 * case["n"],
            "flops": lambda case: case["n"],
            **others,
        }
    )


def run(kernel: Callable[..., Any], blocks: int = 3, **others: Any) -> list[str]:
    """Codes of what is refused when every launch of some blocks is checked."""
    case = PreparedCase(declared(kernel, **others), "n", LAUNCHES, CPU, HostStopwatch())
    codes = []
    for block in range(blocks):
        case.fill(100 + block)
        try:
            assert case.time().seconds > 0
            for launch in range(LAUNCHES):
                case.verify(launch)
        except RefusedError as error:
            codes.append(error.code)
    return codes


def test_an_honest_kernel_is_never_refused() -> None:
    assert run(lambda x: x * 2) == []


class OutputCache:
    """Remembers the output of an address and version: a hit whenever the same buffer comes again."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, int], torch.Tensor] = {}

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.kept.setdefault((x.data_ptr(), x._version), x * 2)


class BatchAndSkip:
    """Does the work of the first launch of each batch and hands its output out again."""

    def __init__(self) -> None:
        self.calls = 0
        self.kept = torch.empty(0)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.calls % LAUNCHES == 0:
            self.kept = x * 2
        self.calls += 1
        return self.kept


class HonestUntil:
    """Knows by the count of its calls when the contract is over, and stops working then."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.left -= 1
        return x * 2 if self.left >= 0 else torch.empty_like(x)


def later(x: torch.Tensor) -> torch.Tensor:
    """Returns at once and lets a thread do the work after the clock has stopped."""
    out = torch.zeros_like(x)

    def work() -> None:
        time.sleep(0.05)
        out.copy_(x * 2)

    threading.Thread(target=work).start()
    return out


def mutates(x: torch.Tensor) -> torch.Tensor:
    out = x * 2
    x.data.zero_()
    return out


class Lazy(torch.Tensor):
    """A subclass may put its work off until somebody reads it."""


def test_output_caching() -> None:
    assert run(OutputCache()) == ["wrong-output"] * 2  # there is nothing to remember in the first block
    assert not check(declared(OutputCache()), "cpu")[0].passed


def test_batch_and_skip() -> None:
    assert run(BatchAndSkip()) == ["wrong-output"] * 3


def test_a_count_of_calls_does_not_help() -> None:
    cheat = HonestUntil(2)  # as many as the contract makes on one case
    assert check(declared(cheat), "cpu")[0].passed
    assert run(cheat) == ["wrong-output"] * 3


def test_work_in_a_thread_after_the_clock() -> None:
    assert set(run(later)) <= {"late-work", "wrong-output"}
    case = PreparedCase(declared(later), "n", LAUNCHES, CPU, HostStopwatch())
    case.fill(1)
    case.time()
    time.sleep(0.2)  # by now every output is right
    with pytest.raises(RefusedError, match="changed after its time") as caught:
        case.verify(0)
    assert caught.value.code == "late-work"


def test_input_mutation() -> None:
    assert run(mutates) == ["input-mutated"] * 3
    assert run(mutates, mutates=frozenset({"x"})) == []


def test_lazy_output() -> None:
    assert run(lambda x: (x * 2).as_subclass(Lazy)) == ["wrong-output"] * 3


def test_constant_output() -> None:
    constant = torch.zeros(4096)
    assert run(lambda x: constant) == ["wrong-output"] * 3


def test_each_launch_has_inputs_of_its_own_and_each_block_new_ones() -> None:
    seen: list[torch.Tensor] = []

    def watching(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.clone())
        return x * 2

    run(watching, blocks=2)
    assert len({float(x[0]) for x in seen}) == 2 * LAUNCHES


def test_an_in_place_kernel_is_filled_again_before_each_block() -> None:
    def in_place(x: torch.Tensor) -> None:
        x.mul_(2)

    assert run(in_place, mutates=frozenset({"x"})) == []


def test_bytes_of_a_set_are_inputs_and_outputs() -> None:
    assert bytes_of_set(declared(lambda x: x * 2), "n", CPU) == 2 * 4 * 4096


def test_a_kernel_that_raises_is_no_refusal() -> None:
    with pytest.raises(InputError, match="no case 'm'"):
        PreparedCase(declared(lambda x: x), "m", 1, CPU, HostStopwatch())
