"""The hold on a worker process: it is started on one checkout, given a time limit, and ended with whatever it started."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from assay.baselines.errors import InputError, ServiceError

RESULT = "result.json"
MAX_ANSWER = 256 << 20
WORKER = "from assay.npu_backend.worker import main; main()"
"""What a process runs, with the path of its request and the descriptor for its progress."""
Told = Callable[[str], None]


def run(
    requests: Sequence[Mapping[str, Any]], *, name: str, seconds: float, told: Told, program: str = WORKER
) -> list[dict[str, Any]]:
    """The answers to requests, each by a fresh process of its own, all at the same time.

    Every process has another seed of Python's hashes, so that a result that depends on the order of a set shows itself.
    `program` is Python code, the worker's own unless given. Progress of the first is told. Raises `InputError` with a worker's
    own line, and `ServiceError` when one ends or is not done within `seconds`.
    """
    # Of two that are compared none may find the plans of the other.
    alone = {"ASSAY_NPU_CACHE": ""} if len(requests) > 1 else {}
    workers = [_Worker(request, seed, name, program, alone) for seed, request in enumerate(requests)]
    try:
        deadline = time.monotonic() + seconds
        for worker in workers:
            worker.wait(deadline, seconds, told if worker is workers[0] else lambda _: None)
        return [worker.answer() for worker in workers]
    finally:
        for worker in workers:
            worker.close()


class _Worker:
    def __init__(self, request: Mapping[str, Any], seed: int, name: str, program: str, more: Mapping[str, str]) -> None:
        self._name = name
        self._out = Path(request["out"])
        self._out.mkdir(parents=True, exist_ok=True)
        asked = self._out / "request.json"
        asked.write_text(json.dumps(request))
        self._progress, theirs = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 closed with the worker
        self._process = subprocess.Popen(
            # -P: nothing of the checkout is taken for a module of ours or of Python.
            [sys.executable, "-P", "-c", program, str(asked), str(theirs)],
            cwd=request["root"],
            env={
                **os.environ,
                "PYTHONHASHSEED": str(seed),
                "PYTHONDONTWRITEBYTECODE": "1",
                **more,
                # The worker starts in another folder than we did.
                "PYTHONPATH": os.pathsep.join(
                    str(Path(p).resolve()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p
                ),
            },
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(theirs,),
            start_new_session=True,
        )
        os.close(theirs)

    def wait(self, deadline: float, seconds: float, told: Told) -> None:
        """Until the process has ended, telling its progress."""
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ServiceError(
                    f"compiling {self._name} took longer than {seconds:g} s: give a larger --timeout, or fewer models."
                )
            if not select.select([self._progress], [], [], left)[0]:
                continue
            lines = os.read(self._progress, 65536).decode(errors="replace")
            if not lines:
                break
            for line in lines.splitlines():
                told(f"{self._name}: {visible(line[:200])}")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.1, deadline - time.monotonic()))

    def answer(self) -> dict[str, Any]:
        place = self._out / RESULT
        if self._process.poll() != 0 or not place.is_file() or place.stat().st_size > MAX_ANSWER:
            raise ServiceError(self._ended())
        try:
            found = json.loads(place.read_text())
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ServiceError(f"the worker of {self._name} wrote no answer that can be read: compile again.")
        if "error" in found:
            raise InputError(f"{self._name}: {str(found['error'])[:1000]}")
        return found

    def close(self) -> None:
        """End the process and whatever it started; once is enough."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with suppress(OSError):
            os.close(self._progress)
        self._log.close()

    def _ended(self) -> str:
        code = self._process.poll()
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"exited with {code}"
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 4000))
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        last = f" (it last wrote: {' '.join(lines[-1].split())[:200]})" if lines else ""
        return f"the worker of {self._name} {how} while it compiled{last}."


def visible(text: str) -> str:
    """Text that user code may have written, without what a terminal would obey: colours, cursor movements, line breaks."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
