"""One case, ready to be timed: input sets that rotate beyond the cache, refilled before each block, checked after it."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from assay.baselines.errors import InputError
from assay.kernels.bench.stopwatch import LEAST_BACKLOG, Burst, Stopwatch
from assay.kernels.contract import bits_of, compare, digest_of, draw, expectation, mutated, outputs_of, overwrite
from assay.kernels.declaration import Declaration

_DIGESTED = 1 << 20
"""Bytes of each input that the digest of a block's inputs reads."""
FIRST_SEED = 11
"""Of the draw by which the inputs of two checkouts are compared, and of the first call."""


class RefusedError(Exception):
    """What the kernel did makes its time worthless. `code` is one of `assay.baselines.kernel.REFUSALS`."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class PreparedCase:
    """A kernel on `launches` input sets of one case.

    Each launch of a block has a set of its own. `fill` draws new values into the same memory, `time` runs the block,
    `verify` checks one launch of it, which the coordinator chooses only then.
    """

    def __init__(
        self,
        declaration: Declaration,
        case: str,
        launches: int,
        device: torch.device,
        watch: Stopwatch,
    ) -> None:
        self.declaration = declaration
        self.case = case
        self.device = device
        self.watch = watch
        self._parameters = declaration.parameters(case)
        self._seed = FIRST_SEED
        self._sets = [self._draw(i) for i in range(launches)]
        self._graph: Any = None
        self._chance = random.SystemRandom()
        self._outputs: list[Any] = []
        self._kept: dict[int, list[torch.Tensor]] = {}

    @property
    def launches(self) -> int:
        return len(self._sets)

    def fill(self, seed: int) -> str:
        """New values in every set, from a seed that is drawn for this block. Returns a digest of their form."""
        self._seed = seed
        self._kept = {}
        self._sets = [overwrite(held, self._draw(i)) for i, held in enumerate(self._sets)]
        if self._graph is None:
            self._outputs = []
        else:
            self._poison()
        self.watch.settle()
        return ",".join(dict.fromkeys(digest_of(values, 0) for values in self._sets))[:200]

    def time(self, backlog: float = 0.0) -> Burst:
        """Run one block; a device is kept waiting for `backlog` seconds while the launches are queued."""
        if self._graph is not None:
            burst = self.watch.burst([self._graph.replay], LEAST_BACKLOG, self._keep)
        else:
            self._outputs = []  # their memory is there for this block
            burst = self.watch.burst(self._calls(), max(backlog, LEAST_BACKLOG), self._keep)
        return burst

    def _keep(self, outputs: list[Any]) -> None:
        """Copies of the last launch's output and of one that is drawn only now, which nobody knew while the clock ran. At once:
        what is written after it has stopped was not timed."""
        if self._graph is None:
            self._outputs = outputs
        drawn = {self._chance.randrange(self.launches), self.launches - 1}
        self._kept = {launch: [t.detach().clone() for t in self._tensors(launch)] for launch in drawn}

    def verify(self, launch: int) -> str:
        """Check one launch of the block just timed, and that outputs are still what they were when the clock had stopped.

        Returns a digest of the launch's inputs. Raises `RefusedError`: `wrong-output`, `input-mutated` or `late-work`.
        """
        # Both before anything of the user's runs again, as `inputs` and `reference` do.
        now = {other: [bits_of(t) for t in self._tensors(other)] for other in self._kept}
        outputs = [t.detach().clone() for t in self._tensors(launch)]
        for other, kept in self._kept.items():
            if not all(torch.equal(bits_of(a), b) for a, b in zip(kept, now[other], strict=True)):
                raise RefusedError("late-work", "the output changed after its time had been taken")
        unforeseen = min(self._kept, default=launch)
        self._check(unforeseen, self._kept.get(unforeseen, outputs))
        return digest_of(self._check(launch, outputs), _DIGESTED)

    def _check(self, launch: int, outputs: list[torch.Tensor]) -> dict[str, Any]:
        """Against the reference, on inputs that are drawn again; returns them."""
        original = self._draw(launch)
        expected = expectation(self.declaration, original)
        distance = compare(outputs, expected, self.declaration.tolerance(self.case))
        if distance.reason:
            raise RefusedError("wrong-output", f"launch {launch + 1} of {self.launches}: {distance.reason}")
        before = {name: bits_of(value) for name, value in original.items() if isinstance(value, torch.Tensor)}
        reason = mutated(self._sets[launch], before, self.declaration.mutates)
        if reason:
            raise RefusedError("input-mutated", reason)
        return original

    def capture(self) -> bool:
        """Record the block as a CUDA graph, where the kernel allows it; returns whether it did."""
        if self.device.type != "cuda" or not self.declaration.graph_safe:
            return False
        cuda: Any = torch.cuda  # partly without types
        side = cuda.Stream(self.device)
        side.wait_stream(cuda.current_stream(self.device))
        with cuda.stream(side):
            for call in self._calls()[:2]:
                call()
        cuda.current_stream(self.device).wait_stream(side)
        self.watch.settle()
        graph = cuda.CUDAGraph()
        try:
            with cuda.graph(graph):
                self._outputs = [call() for call in self._calls()]
        except Exception as error:
            raise InputError(
                f"{self.declaration.name} cannot be captured in a CUDA graph ({' '.join(str(error).split())[:120]}): "
                "declare graph_safe=False."
            ) from error
        self._graph = graph
        return True

    def eager(self) -> Burst:
        """One block launched from Python with no queue before it; on a CPU the same as `time`."""
        return self.watch.burst(self._calls(), 0.0)

    def _calls(self) -> list[Callable[[], Any]]:
        return [partial(self.declaration.kernel, **values) for values in self._sets]

    def _draw(self, launch: int) -> dict[str, Any]:
        # Neighbouring seeds of some generators are related; a hash of the pair is not.
        seed = random.Random(f"{self._seed}/{launch}").getrandbits(48)
        return draw(self.declaration, self._parameters, seed, self.device)

    def _tensors(self, launch: int) -> list[torch.Tensor]:
        try:
            return outputs_of(self.declaration, self._outputs[launch], self._sets[launch])
        except InputError as error:
            raise RefusedError("wrong-output", str(error)) from None

    def _poison(self) -> None:
        """NaN in every output of the graph, so that a replay that skips work is seen."""
        held = {v.data_ptr() for values in self._sets for v in values.values() if isinstance(v, torch.Tensor)}
        for output in self._outputs:
            for tensor in output if isinstance(output, tuple | list) else (output,):
                if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.data_ptr() not in held:
                    tensor.data.fill_(torch.nan)


def bytes_of_set(declaration: Declaration, case: str, device: torch.device) -> int:
    """Bytes of one set of inputs and outputs of a case, from one call."""
    values = draw(declaration, declaration.parameters(case), FIRST_SEED, device)
    outputs = outputs_of(declaration, declaration.kernel(**values), values)
    tensors = [v for v in values.values() if isinstance(v, torch.Tensor)] + outputs
    return sum(t.numel() * t.element_size() for t in tensors)
