"""Processes that code of the user has started: also ones that left the group and the session of the process that ran it."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

VARIABLE = "ASSAY_STARTED_BY"
"""Environment variable that children inherit: what carries a mark was started below the process that got it."""
_SWEEPS = 5


class Mark:
    """A mark for one process, by which its descendants are found (Linux; elsewhere none is)."""

    def __init__(self) -> None:
        self._word = f"{VARIABLE}={uuid4().hex}".encode()
        self._seen: dict[int, int] = {}

    def environment(self) -> Mapping[str, str]:
        """What the process must be started with."""
        name, _, value = self._word.decode().partition("=")
        return {name: value}

    def look(self, group: int) -> None:
        """Take hold of the descendants outside of a process group; inside of it one signal reaches all."""
        for pid in self._marked():
            if pid in self._seen:
                continue
            with suppress(OSError):
                # A descriptor stays with this process, where its number may soon be another's.
                held = os.pidfd_open(pid)
                if os.getpgid(pid) == group:
                    os.close(held)
                else:
                    self._seen[pid] = held

    def signal(self, number: int) -> None:
        """To each descendant that `look` has taken hold of and that still lives."""
        for held in self._seen.values():
            with suppress(OSError):
                signal.pidfd_send_signal(held, number)

    def end(self) -> None:
        """Kill what is left, also what was started meanwhile; once the process itself has ended."""
        for _ in range(_SWEEPS):
            self.look(0)
            self.signal(signal.SIGKILL)
            left = bool(self._seen)
            for held in self._seen.values():
                os.close(held)
            self._seen.clear()
            if not left:
                return

    def _marked(self) -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self._word in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found
