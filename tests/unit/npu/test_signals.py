"""`assay compile` that is told to end: no folder and no process is left, and the exit code says by what."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.npu.compiling import alive

WAITS = """
import os, time
from pathlib import Path
made = os.fork()
Path(FOLDER).joinpath(str(os.getpid())).write_text("")
time.sleep(600)
"""


def started(tmp_path: Path, before: Callable[[], object] = lambda: None) -> tuple[subprocess.Popen[str], list[int]]:
    """The command while its workers import a file that does not end, and the processes that the workers are."""
    checkout, scratch, seen = (tmp_path / name for name in ("checkout", "scratch", "seen"))
    for folder in (checkout, scratch, seen):
        folder.mkdir()
    (checkout / "models.py").write_text(WAITS.replace("FOLDER", repr(str(seen))))

    def prepare() -> None:
        # A shell's background job ignores the signal, and so would what it starts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        before()

    process = subprocess.Popen(
        [sys.executable, "-m", "assay.bot.cli", "compile", "models.py", "--base", checkout],
        cwd=checkout,
        env={**os.environ, "TMPDIR": str(scratch)},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
    )
    deadline = time.monotonic() + 60
    while len(list(seen.iterdir())) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    return process, [int(path.name) for path in seen.iterdir()]


def gone(processes: list[int]) -> bool:
    deadline = time.monotonic() + 20
    while any(map(alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(alive, processes))


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (signal.SIGTERM, 143, "assay: ended by SIGTERM."),
        (signal.SIGHUP, 129, "assay: ended by SIGHUP."),
        (signal.SIGINT, 130, "assay: interrupted."),
    ],
)
def test_a_signal_leaves_nothing_behind(number: int, code: int, words: str, tmp_path: Path) -> None:
    process, workers = started(tmp_path)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert err.splitlines()[-1] == words
    assert len(workers) == 4  # two processes, each with a child
    assert gone(workers)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_workers_end_when_the_command_is_killed(tmp_path: Path) -> None:
    process, workers = started(tmp_path)
    process.kill()
    process.communicate(timeout=30)
    assert len(workers) == 4
    assert gone(workers)


def test_what_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    process, _ = started(tmp_path, lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 143
