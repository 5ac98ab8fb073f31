"""Processes that left the group of the process that was started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.baselines.leftovers import Mark

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descendants are found in /proc")
STARTS = """
import subprocess, sys, time
made = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(made.pid, flush=True)
time.sleep(600)
"""


def state(pid: int) -> str:
    """Of a process, as ps prints it; empty when it is gone, or only waits to be forgotten."""
    try:
        found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
    return "" if found == "Z" else found


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_a_descendant_in_another_session_stands_still_and_ends() -> None:
    mark = Mark()
    process = subprocess.Popen(
        [sys.executable, "-c", STARTS],
        stdout=subprocess.PIPE,
        env={**os.environ, **mark.environment()},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        mark.look(process.pid)
        mark.signal(19)
        assert eventually(lambda: state(child) == "T")
        assert state(process.pid) in "SR"  # in the group itself, which has signals of its own
        mark.signal(18)
        assert eventually(lambda: state(child) == "S")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert state(child)
    mark.end()
    assert eventually(lambda: not state(child))


def test_another_s_processes_are_left_alone() -> None:
    with subprocess.Popen(["sleep", "600"], env={**os.environ, **Mark().environment()}) as other:
        Mark().end()
        assert state(other.pid)
        other.kill()
