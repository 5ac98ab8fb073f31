"""The coordinator's hold on one worker: starts it, asks it, bounds each answer by its own clock, and ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from assay.baselines import usercode
from assay.baselines.errors import InputError, ServiceError
from assay.baselines.leftovers import Mark
from assay.kernels.bench.audit import Fault
from assay.kernels.bench.wire import EndedError, Pipe, SilenceError, WireError, new_number

START_SECONDS = 120.0
GRACE_SECONDS = 2.0
STOP_SECONDS = 2.0
"""How long a worker may take to stand still: a busy machine takes a while to run it once more and stop it."""
_STARTS = frozenset({"load", "check", "prepare"})
"""Requests after which processes are looked for that user code has started in a session of their own."""
_START = "from assay.kernels.bench.worker import main; main()"


class RefusedTimeError(Exception):
    """The worker's time cannot be used, for this `fault`."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.fault = Fault(code, detail)


class Arm:
    """One worker process, on one checkout. A context manager, so that no process outlives its benchmark."""

    def __init__(self, name: str, root: Path, device: str, *, timeout: float, environment: Mapping[str, str]) -> None:
        self.name = name
        self.root = root
        self.wall = 0.0
        """Seconds that the last answer took, by the coordinator's clock."""
        self.waited: float | None = None
        """Seconds of that for which its main thread could have run and others held its processor; None where nothing tells."""
        self.stands_still = True
        """Whether it was seen to stand still between its turns; a sandbox that traces processes may ignore SIGSTOP."""
        self._stopped = False
        self._mark = Mark()
        self._timeout = timeout
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 closed with the worker
        here_reads, worker_writes = os.pipe()
        worker_reads, here_writes = os.pipe()
        self._pipe = Pipe(here_reads, here_writes)
        self._scratch = tempfile.TemporaryDirectory(prefix=f"assay-{name}-")
        self._process = subprocess.Popen(
            # -P: nothing of the checkout is taken for a module of ours or of Python.
            [sys.executable, "-P", "-c", _START, str(worker_reads), str(worker_writes), device],
            cwd=root,
            env={**os.environ, **_quiet(Path(self._scratch.name)), **environment, **self._mark.environment()},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(worker_reads, worker_writes),
            start_new_session=True,
        )
        os.close(worker_reads)
        os.close(worker_writes)

    def __enter__(self) -> Arm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, verb: str, *, seconds: float | None = None, **arguments: Any) -> dict[str, Any]:
        """The answer to one request. Between requests the worker and whatever it started stand still, so that nothing of it
        runs, and slows another arm, when it is not its turn.

        Raises `InputError` with the worker's own line, `RefusedTimeError` for what cannot be used, and `ServiceError`
        when the worker ended, hung or broke the protocol.
        """
        if self._pipe.unread():
            self._unasked(verb)
        number = new_number()
        self._resume()
        try:
            before = self._waiting()
            started = time.perf_counter()
            self._pipe.send({"verb": verb, "arguments": arguments, "number": number})
            answer = self._pipe.receive(seconds or self._timeout, self._glance)
            self.wall = time.perf_counter() - started
            after = self._waiting()
            self.waited = None if before is None or after is None else max(0.0, after - before)
            self._glance()
        except EndedError:
            raise ServiceError(self._ended(verb)) from None
        except SilenceError:
            self.close()
            raise ServiceError(
                f"the {self.name} worker gave no answer to `{verb}` within {seconds or self._timeout:g} s: the kernel"
                " hangs, or --timeout is too short."
            ) from None
        except WireError as error:
            raise RefusedTimeError("pipe", f"the worker {error}") from None
        if verb in _STARTS:
            self._mark.look(self._process.pid)
        self._stop()
        if answer.pop("number", None) != number:
            raise RefusedTimeError("pipe", "an answer came that repeats no request")
        if "refused" in answer:
            raise RefusedTimeError(str(answer["refused"])[:40], str(answer.get("detail", ""))[:300])
        if "error" in answer:
            raise InputError(f"{self.name}: {str(answer['error'])[:1000]}")
        return answer

    def close(self) -> None:
        """End the worker and whatever it started; once is enough."""
        if self._log.closed:
            return
        self._pipe.close()
        self._signal(signal.SIGCONT)
        if self._process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_SECONDS)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._mark.end()
        self._log.close()
        self._scratch.cleanup()

    def _stop(self) -> None:
        """Return when the worker stands still or has ended, or when it is known that it cannot be made to."""
        self._signal(signal.SIGSTOP)
        self._stopped = True
        deadline = time.perf_counter() + STOP_SECONDS
        while self.stands_still and not self._still():
            self.stands_still = time.perf_counter() < deadline
            time.sleep(0.0002)

    def _resume(self) -> None:
        """Let the worker run, after a look at whether it stood still until now."""
        if self._stopped:
            self.stands_still = self.stands_still and self._still()
        self._signal(signal.SIGCONT)
        self._stopped = False

    def _waiting(self) -> float | None:
        """Seconds that the main thread has waited for a processor so far (proc_pid_schedstat(5)); None where nothing tells."""
        try:
            return int(Path(f"/proc/{self._process.pid}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return None

    def _glance(self) -> None:
        """Raises `InputError` when user code has printed so much that it is a loop, and would fill the disk."""
        if os.fstat(self._log.fileno()).st_size > usercode.MAX_PRINTED:
            raise InputError(
                f"{self.name}: the kernel printed more than {usercode.MAX_PRINTED >> 20:,} MiB: let it print less."
            )

    def _still(self) -> bool:
        """Whether the worker is stopped, or has ended."""
        # WNOWAIT: how the process ended stays for `_ended` to read.
        return os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _signal(self, number: int) -> None:
        """To the worker's whole process group, while there is one, and to what it has started outside of it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        self._mark.signal(number)

    def _unasked(self, verb: str) -> None:
        """Tell a worker that ended from one that wrote."""
        try:
            self._pipe.receive(1.0)
        except EndedError:
            raise ServiceError(self._ended(verb)) from None
        except WireError:
            pass
        raise RefusedTimeError("pipe", "something was written to the result pipe although nothing was asked")

    def _ended(self, verb: str) -> str:
        try:
            code = self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return f"the {self.name} worker closed its pipe during `{verb}`: measure again."
        how = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 4000))
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        last = f" (it last wrote: {' '.join(lines[-1].split())[:200]})" if lines else ""
        return f"the {self.name} worker {how} during `{verb}`{last}."


def _quiet(scratch: Path) -> dict[str, str]:
    """Environment that keeps workers out of each other's way: waiting threads sleep, compiled code is not shared.

    Memory that was freed stays with the process: else glibc gives large outputs back and maps them anew at every launch,
    in some processes and not in others, and the page faults cost more than many kernels do.
    """
    return {
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
        "MALLOC_TOP_PAD_": str(64 << 20),
        "OMP_WAIT_POLICY": "PASSIVE",
        "KMP_BLOCKTIME": "0",
        "PYTHONHASHSEED": "0",
        # The worker starts in another folder than we did.
        "PYTHONPATH": os.pathsep.join(
            str(Path(p).resolve()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p
        ),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TORCH_EXTENSIONS_DIR": str(scratch / "extensions"),
    }
