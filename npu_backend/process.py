"""The hold on a worker process: it is started on one checkout, given a time limit, and ended with whatever it started."""

from __future__ import annotations

import json
import os
import re
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

from assay.baselines import usercode
from assay.baselines.errors import AssayError, InputError, ServiceError
from assay.baselines.leftovers import Mark

RESULT = "result.json"
NOTE = "note: "
"""Begins a line of progress that is no step, but something to know."""
MAX_ANSWER = 256 << 20
WORKER = "from assay.npu_backend.worker import main; main()"
"""What a process runs, with the path of its request and the descriptor for its progress."""
Told = Callable[[str], None]
SHOWN_LINES, SHOWN_CHARACTERS = 10, 200
"""How much is shown of what a failing worker has written."""
_LINE, _KEPT = 400, 16384
"""Most bytes of a line of progress, and of a log's end."""
_GLANCE = 0.5
"""Seconds between two looks at whether a silent process still lives."""
_LOGGED = re.compile(r"[DIWEC]\d{4} \d\d:\d\d:\d\d\.")
"""How a line of torch's own log begins."""


def run(
    requests: Sequence[Mapping[str, Any]], *, name: str, seconds: float, told: Told, program: str = WORKER
) -> list[dict[str, Any]]:
    """The answers to requests, each by a fresh process of its own, all at the same time.

    Every process has another seed of Python's hashes, so that a result that depends on the order of a set shows itself.
    `program` is Python code, the worker's own unless given. Progress of the first is told. Raises `InputError` with a worker's
    own line, and `ServiceError` when one ends or is not done within `seconds`; what it had written last is told before that.

    With ASSAY_DEBUG the first process writes to the standard error of this one. A model that failed has in `output` the last
    lines that were written while it was compiled.
    """
    # Of two that are compared none may find the plans of the other.
    alone = {"ASSAY_NPU_CACHE": ""} if len(requests) > 1 else {}
    workers: list[_Worker] = []
    try:
        for seed, request in enumerate(requests):
            workers.append(_Worker(request, seed, name, program, alone))
        deadline = time.monotonic() + seconds
        for worker in workers:
            worker.wait(deadline, seconds, told if worker is workers[0] else lambda _: None)
        return [worker.answer() for worker in workers]
    except AssayError:
        for line in next((lines for w in workers if (lines := w.last_lines())), ()):
            told(f"{name}:   {line}")
        raise
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
        self._doing = ""
        self._mark = Mark()
        self._progress, theirs = os.pipe()
        # The first may write to our standard error; the others repeat it.
        self._seen = seed == 0 and bool(os.environ.get("ASSAY_DEBUG"))
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 closed with the worker
        self._process = subprocess.Popen(
            # -P: nothing of the checkout is taken for a module of ours or of Python.
            # -u: what was printed is in the log, whatever becomes of the process.
            [sys.executable, "-P", "-u", "-c", program, str(asked), str(theirs)],
            cwd=request["root"],
            env={
                **os.environ,
                "PYTHONHASHSEED": str(seed),
                "PYTHONDONTWRITEBYTECODE": "1",
                # It would report each of its retries, where one line says that the hub cannot be reached.
                "HF_HUB_VERBOSITY": os.environ.get("HF_HUB_VERBOSITY") or "error",
                **more,
                **self._mark.environment(),
                # The worker starts in another folder than we did.
                "PYTHONPATH": os.pathsep.join(
                    str(Path(p).resolve()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p
                ),
            },
            stdin=subprocess.DEVNULL,
            stdout=2 if self._seen else self._log,
            stderr=2 if self._seen else self._log,
            pass_fds=(theirs,),
            start_new_session=True,
        )
        os.close(theirs)

    def wait(self, deadline: float, seconds: float, told: Told) -> None:
        """Until the process has ended, telling its progress."""
        rest = b""
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                doing = f" (it was {self._doing})" if self._doing else ""
                raise ServiceError(
                    f"compiling {self._name} took longer than {seconds:g} s{doing}: give a larger --timeout, or fewer models."
                )
            if os.fstat(self._log.fileno()).st_size > usercode.MAX_PRINTED:
                doing = f" ({self._doing})" if self._doing else ""
                raise InputError(
                    f"{self._name}: more than {usercode.MAX_PRINTED >> 20:,} MiB were printed{doing}: let the models print less."
                )
            if not select.select([self._progress], [], [], min(left, _GLANCE))[0]:
                if self._process.poll() is not None:
                    break  # what it started may hold the pipe
                continue
            data = os.read(self._progress, 65536)
            if not data:
                break
            *lines, rest = (rest[-_LINE:] + data).split(b"\n")
            for line in lines:
                words = visible(line[:_LINE].decode(errors="replace"))
                told(f"{self._name}: {words}")
                if not words.startswith(NOTE):
                    self._doing = words
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.1, deadline - time.monotonic()))

    def answer(self) -> dict[str, Any]:
        place = self._out / RESULT
        if self._process.poll() != 0 or not place.is_file() or place.stat().st_size > MAX_ANSWER:
            raise ServiceError(self._ended())
        try:
            found = json.loads(place.read_text())
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not ("error" in found or isinstance(found.get("models"), list)):
            raise ServiceError(f"the worker of {self._name} wrote no answer that can be read: compile again.")
        if "error" in found:
            raise InputError(f"{self._name}: {str(found['error'])[:1000]}")
        return {**found, "models": [self._with_output(entry) for entry in found["models"]]}

    def close(self) -> None:
        """End the process and whatever it started; once is enough."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._mark.end()
        with suppress(OSError):
            os.close(self._progress)
        self._log.close()

    def last_lines(self, start: int = 0, stop: int | None = None) -> list[str]:
        """The last lines that it has written, or that it wrote between two places of its log."""
        log = self._log.fileno()
        end = os.fstat(log).st_size
        stop = end if stop is None else min(max(stop, 0), end)
        begin = min(max(start, 0, stop - _KEPT), stop)
        # Not by `seek`: whatever still writes shares the place in the file.
        lines = os.pread(log, stop - begin, begin).decode(errors="replace").splitlines()
        shown = [visible(line.expandtabs(4).rstrip()[:SHOWN_CHARACTERS]) for line in lines if not _LOGGED.match(line)]
        return [line for line in shown if line.strip()][-SHOWN_LINES:]

    def _with_output(self, entry: Any) -> Any:
        """A model's answer with what was written while it failed."""
        log = entry.pop("log", None) if isinstance(entry, dict) else None
        if not isinstance(log, list) or len(log) != 2 or not all(isinstance(place, int) for place in log):
            return entry
        return {**entry, "output": self.last_lines(*log)}

    def _ended(self) -> str:
        code = self._process.poll()
        how = f"was ended by {_signal(-code)}" if code is not None and code < 0 else f"exited with {code}"
        when = self._doing if self._doing else "it compiled"
        if code == -signal.SIGKILL:
            why = "probably the memory was not enough: give fewer models (--model), smaller inputs, or --once (one process, not two)"
        elif self._seen:
            why = "what it wrote stands above"
        else:
            lines = self.last_lines()
            last = f"it last wrote: {lines[-1]}" if lines else "it wrote nothing"
            why = f"{last}; ASSAY_DEBUG=1 shows all of it"
        return f"the worker of {self._name} {how} while {when} ({why})."


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def visible(text: str) -> str:
    """Text that user code may have written, without what a terminal would obey: colours, cursor movements, line breaks."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
