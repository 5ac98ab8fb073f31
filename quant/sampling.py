"""Which examples are measured, in which order: the head of a seeded permutation of each task."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from assay.baselines.errors import InputError
from assay.quant.plan import Plan, TaskPlan

SEED = 1234
CHUNK = 256


@dataclass(frozen=True)
class Sampling:
    """How many examples, and whether the sample may stop early.

    A fixed sample is the first `examples` of each task's permutation (all when None). A growing one adds `chunk`
    examples at a time until its task is decided or `cap` is reached. `chunk` is also the unit of resuming.
    """

    seed: int = SEED
    examples: int | None = None
    grow: bool = False
    chunk: int = CHUNK
    cap: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("--examples", self.examples), ("--chunk", self.chunk), ("--cap", self.cap)):
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}: give a number of examples, at least 1.")
        if self.seed < 0:
            raise InputError(f"--seed is {self.seed}: give a number that is not negative.")
        if self.grow and self.examples is not None:
            raise InputError(
                "--examples fixes the sample and --grow lets it grow: use --cap to bound a growing sample."
            )

    @property
    def name(self) -> str:
        """`growing` or `fixed`, as `attributes.sampling` records it."""
        return "growing" if self.grow else "fixed"

    def target(self, task: TaskPlan) -> int:
        """The most examples of a task that will be measured."""
        limits = [limit for limit in (self.examples, self.cap) if limit is not None]
        return min([task.examples, *limits])


def permutation(seed: int, task: str, examples: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The order in which a task's examples are measured: a permutation of 0..examples-1.

    It depends on the seed, the task's name and the number of examples only, and is the same on every platform and
    NumPy version: the raw 64-bit words of PCG64 (a stable stream, unlike `Generator.permutation`) are sorted, ties
    (chance 2^-64 a pair) by index. PCG64 is seeded with the first 128 bits of SHA-256 of `seed` and the task's name.
    """
    digest = hashlib.sha256(f"{seed}\0{task}".encode()).digest()
    words = np.random.PCG64(int.from_bytes(digest[:16], "big")).random_raw(examples)
    order: np.ndarray[Any, np.dtype[np.int64]] = np.argsort(np.asarray(words, dtype=np.uint64), kind="stable").astype(
        np.int64
    )
    return order


def seeded(plan: Plan, sampling: Sampling) -> Plan:
    """The plan with the seed of its permutations in the protocol: samples of one seed are heads of the same order, so
    that a smaller one is compared with a larger one without a choice that anybody could have made."""
    return replace(plan, protocol={**plan.protocol, "sampling.seed": sampling.seed})
