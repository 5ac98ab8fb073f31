"""The dispatch log: how often each operator took each path, and why not a faster one.

Counting happens inside the operators' implementations, which a compiler does not trace: the counts are as right under
`torch.compile` as without. Read them outside of the compiled function.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from assay.kernels.operators.eligibility import Choice, Machine, Path


class Taken(NamedTuple):
    """One line of the log."""

    operator: str
    path: Path
    reason: str


LAUNCHING = threading.Lock()
"""Held while a CUDA C++ kernel is launched: a launch packs its arguments into one buffer, and models call from threads."""

_lock = threading.Lock()
_counts: Counter[Taken] = Counter()
_off: frozenset[Path] = frozenset()


def counts() -> dict[Taken, int]:
    """Calls so far, by operator, path and reason."""
    with _lock:
        return dict(_counts)


def clear() -> None:
    """Start the log anew."""
    with _lock:
        _counts.clear()


def lines() -> list[str]:
    """The log for people: `softmax: 3 x framework (on cpu, not on a GPU)`."""
    return [
        f"{taken.operator}: {number} x {taken.path}" + (f" ({taken.reason})" if taken.reason else "")
        for taken, number in sorted(counts().items())
    ]


@contextmanager
def without(*paths: Path) -> Iterator[None]:
    """While active, these paths are switched off, in every thread: an ablation, or a way around a fault.

    `Path.CUDA` and `Path.TRITON` can be switched off; the framework remains.
    """
    global _off
    before = _off
    _off = before | frozenset(paths)
    try:
        yield
    finally:
        _off = before


def note(operator: str, choice: Choice) -> None:
    """Count a call. Called by the implementations alone."""
    taken = Taken(operator, choice.path, choice.reason)
    with _lock:
        _counts[taken] += 1


def machine(device: torch.device) -> Machine:
    """What a device can run now."""
    return _machine(device.type, device.index, _off)


@functools.cache
def _machine(kind: str, index: int | None, off: frozenset[Path]) -> Machine:
    capability = torch.cuda.get_device_capability(index) if kind == "cuda" else (0, 0)
    return Machine(
        device=kind,
        capability=capability,
        compiler=importlib.util.find_spec("cuda") is not None and importlib.util.find_spec("cuda.bindings") is not None,
        triton=importlib.util.find_spec("triton") is not None,
        interpreter=os.environ.get("TRITON_INTERPRET") == "1",
        off=off,
    )
