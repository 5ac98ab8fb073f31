"""One arm: a process that imports one checkout's declarations and does what the coordinator asks, one request at a time.

    python -P -m assay.kernels.bench.worker READ WRITE DEVICE

READ and WRITE are descriptors of two pipes. The clock and the functions that judge are taken hold of before the user's
module is imported; whether they are still the same is part of every timed answer.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from assay.baselines.errors import InputError
from assay.baselines.usercode import FAILURES
from assay.kernels import contract
from assay.kernels.bench.integrity import changed, fingerprint
from assay.kernels.bench.prepared import FIRST_SEED, PreparedCase, RefusedError, bytes_of_set
from assay.kernels.bench.stopwatch import stopwatch
from assay.kernels.bench.wire import EndedError, Pipe, WireError
from assay.kernels.declaration import Declaration, load, raised

Answer = dict[str, Any]
_PR_SET_PDEATHSIG = 1
"""prctl(2)."""
SOURCES = (".cu", ".cuh", ".h", ".hpp", ".cpp")
"""Suffixes of sources that count into the subject's digest when they lie beside an imported module."""
_MOST = 1e24
"""Bytes or operations of a launch: no machine does more."""
_DIGESTED = 16 << 20
"""Bytes of each input that its digest reads."""


class Worker:
    """The state of the process: declarations, and the case that is ready."""

    def __init__(self, device: torch.device) -> None:
        self._clock = time.perf_counter
        self._changed, self._fingerprint = changed, fingerprint
        self._before = fingerprint()
        self._device = device
        self._watch = stopwatch(device)
        self._declarations: dict[str, Declaration] = {}
        self._root = Path.cwd()
        self._ready: PreparedCase | None = None

    def hello(self) -> Answer:
        """What this process runs on."""
        name = ""
        cache = 0
        if self._device.type == "cuda":
            properties = torch.cuda.get_device_properties(self._device)
            name, cache = properties.name, int(properties.L2_cache_size)
        return {"torch": torch.__version__, "device": name, "cache": cache}

    def load(self, file: str, root: str, only: list[str], optional: bool = False) -> Answer:
        """Import the declarations and describe them. `optional`: what `only` names may be missing, as a new kernel is on
        the base."""
        self._root = Path(root).resolve()
        started = self._clock()
        found = load(Path(file), root=self._root)
        seconds = self._clock() - started
        unknown = [name for name in only if name not in found]
        if unknown and not optional:
            raise InputError(f"{Path(file).name} declares no {unknown[0][:64]}: it has {', '.join(list(found)[:8])}.")
        self._declarations = {name: found[name] for name in only or found if name in found}
        started = self._clock()
        for declaration in self._declarations.values():
            if declaration.setup is not None:
                try:
                    declaration.setup()
                except FAILURES as error:
                    raise InputError(f"{declaration.name}: `setup` {raised(error)}") from error
        return {
            "kernels": [self._describe(d) for d in self._declarations.values()],
            "import_seconds": seconds,
            "setup_seconds": self._clock() - started,
        }

    def check(self, kernel: str) -> Answer:
        """The contract of a kernel; before it the first call of each timed case, which pays for compilation."""
        declaration = self._declarations[kernel]
        norms = {case: self._norm(declaration, case) for case in declaration.cases}
        first: dict[str, float] = {}
        failed = ""
        for case, parameters in declaration.cases.items():
            values = contract.draw(declaration, parameters, FIRST_SEED, self._device)
            started = self._clock()
            try:
                declaration.kernel(**values)
                self._watch.settle()
            except FAILURES as error:  # the contract says what went wrong, if it still can
                failed = failed or f"the kernel {raised(error)}"
                if self._device.type == "cuda":
                    break
                continue
            first[case] = self._clock() - started
        try:
            results = contract.check(declaration, self._device)
        except InputError:
            if not failed:
                raise
            names = [*declaration.cases, *declaration.contract_cases]
            results = [contract.CaseResult(case, False, 0.0, 0.0, failed) for case in names]
        return {
            "results": [[r.case, r.passed, r.relative_error, r.largest_error, r.reason[:500]] for r in results],
            "first_seconds": first,
            "norms": norms,
            "source": self._source_digest(),
            **self._integrity(),
        }

    def size(self, kernel: str, case: str) -> Answer:
        """Bytes of one input set, and about how long one launch takes."""
        declaration = self._declarations[kernel]
        size = bytes_of_set(declaration, case, self._device)
        if not size:
            raise InputError(f"{kernel}, case {case}, has no elements to be timed: move it to `contract_cases`.")
        trial = PreparedCase(declaration, case, 3, self._device, self._watch)
        seconds = min(trial.time().seconds for _ in range(3)) / trial.launches
        return {"bytes": size, "seconds": seconds}

    def prepare(self, kernel: str, case: str, launches: int) -> Answer:
        """Draw the input sets of a case, warm it up, and record it as a graph where that is possible."""
        self._ready = PreparedCase(self._declarations[kernel], case, launches, self._device, self._watch)
        for _ in range(2):
            self._ready.time()
        eager = sorted((self._ready.eager() for _ in range(5)), key=lambda burst: burst.seconds)[2]
        graph = self._ready.capture()
        if graph:
            self._ready.fill(FIRST_SEED)
            self._ready.time()
        return {"eager_seconds": eager.seconds / launches, "host_seconds": eager.host, "graph": graph}

    def fill(self, seed: int) -> Answer:
        """New inputs for the next block."""
        return {"form": self._case().fill(seed)}

    def time(self, backlog: float = 0.0) -> Answer:
        """Run one block."""
        burst = self._case().time(backlog)
        return {"seconds": burst.seconds, "late": burst.late}

    def verify(self, launch: int) -> Answer:
        """Check one launch of the block that was just timed, and that nobody exchanged what measures."""
        digest = self._case().verify(launch)
        return {"inputs": digest, **self._integrity()}

    def release(self) -> Answer:
        """Forget the case and its memory."""
        self._ready = None
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        return {}

    def _case(self) -> PreparedCase:
        if self._ready is None:
            raise InputError("no case is ready")
        return self._ready

    def _integrity(self) -> Answer:
        patched = self._changed(self._before, self._fingerprint())
        if patched:
            raise RefusedError("patched", f"{patched[0]} was exchanged")
        return {}

    def _describe(self, d: Declaration) -> Answer:
        try:
            models = {case: [float(d.bytes(p)), float(d.flops(p))] for case, p in d.cases.items()}
        except FAILURES as error:
            raise InputError(f"{d.name}: `bytes` or `flops` {raised(error)}") from error
        for case, counts in models.items():
            if not all(0 <= count <= _MOST for count in counts):
                raise InputError(
                    f"{d.name}, case {case}: `bytes` and `flops` give {counts[0]:g} and {counts[1]:g}: "
                    f"return numbers of 0 to {_MOST:g}."
                )
        return {
            "name": d.name,
            "configuration": dict(d.configuration),
            "graph_safe": d.graph_safe,
            "contract_cases": list(d.contract_cases),
            "cases": {
                case: {
                    "parameters": json.dumps(dict(p), sort_keys=True, default=str)[:2000],
                    "dtype": str(p["dtype"]),
                    "tolerance": str(d.tolerance(case)),
                    "bytes": models[case][0],
                    "flops": models[case][1],
                    "inputs": self._inputs_digest(d, case),
                }
                for case, p in d.cases.items()
            },
        }

    def _inputs_digest(self, d: Declaration, case: str) -> str:
        first, again = (
            contract.digest_of(contract.draw(d, d.parameters(case), FIRST_SEED, self._device), _DIGESTED)
            for _ in range(2)
        )
        if first != again:
            raise InputError(
                f"{d.name}, case {case}: `inputs` gives other values for the same seed: draw all of them from the generator "
                "that it is given, as in torch.randn(..., generator=generator, device=device)."
            )
        return first

    def _norm(self, d: Declaration, case: str) -> float:
        """Norm of the reference's result on the first draw, by which the references of two checkouts are compared."""
        results = contract.expectation(d, contract.draw(d, d.parameters(case), FIRST_SEED, self._device))
        return min(sum(_norm_of(r.double().nan_to_num(0, 0, 0)) for r in results), sys.float_info.max)

    def _source_digest(self) -> str:
        """Of every module of the checkout that is imported by now, and of the CUDA and C++ sources beside them."""
        files = set()
        for module in list(sys.modules.values()):
            place = getattr(module, "__file__", None)
            if isinstance(place, str) and Path(place).resolve().is_relative_to(self._root):
                files.add(Path(place).resolve())
        files |= {f for folder in {f.parent for f in files} for f in folder.iterdir() if f.suffix in SOURCES}
        # An environment inside the checkout is no part of it.
        kept = sorted(f for f in files if "site-packages" not in f.parts and f.is_file())
        hasher = hashlib.sha256()
        for file in kept:
            data = file.read_bytes()
            hasher.update(f"{file.relative_to(self._root).as_posix()}\0{hashlib.sha256(data).hexdigest()}\n".encode())
        return f"sha256:{hasher.hexdigest()}"


def _norm_of(values: torch.Tensor) -> float:
    """Of large values the squares would overflow."""
    largest = float(values.abs().max()) if values.numel() else 0.0
    return largest * float((values / largest).norm()) if largest else 0.0


VERBS = ("hello", "load", "check", "size", "prepare", "fill", "time", "verify", "release")


def serve(pipe: Pipe, worker: Worker) -> None:
    """Answer requests until the coordinator leaves."""
    answers: dict[str, Callable[..., Answer]] = {verb: getattr(worker, verb) for verb in VERBS}
    while True:
        try:
            request = pipe.receive(None)
        except EndedError:
            return
        try:
            answer = answers[request["verb"]](**request["arguments"])
        except RefusedError as error:
            answer = {"refused": error.code, "detail": str(error)[:300]}
        except InputError as error:
            answer = {"error": str(error)[:1000]}
        except FAILURES as error:
            answer = {"error": f"the kernel {raised(error)}"}
        try:
            pipe.send({**answer, "number": request["number"]})
        except EndedError:
            return
        except WireError as error:
            told = (
                f"the declarations are too large to be described ({error}): declare fewer cases, or shorter parameters"
            )
            pipe.send({"error": told, "number": request["number"]})


def end_with_parent() -> None:
    """On Linux the process is killed when the one that started it dies: standing still, it would not see its pipe close."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Run the process."""
    end_with_parent()
    reading, writing, device = int(sys.argv[1]), int(sys.argv[2]), torch.device(sys.argv[3])
    serve(Pipe(reading, writing), Worker(device))


if __name__ == "__main__":
    main()
