"""Failures to order: which requests go wrong, and how."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Literal

Kind = Literal["status", "primary", "secondary", "hang", "reset", "lost", "truncated", "half-upload"]


@dataclass
class Fault:
    """The next `times` matching requests fail, after `skip` matching ones went well.

    `status` answers with that status, `primary` and `secondary` are GitHub's two rate limits, `hang` never answers,
    `reset` breaks the connection before anything happens, `lost` after the state changed, `truncated` in the middle of
    the reply's body, `half-upload` leaves an asset that is not `uploaded` and answers 502.
    """

    kind: Kind
    method: str = ".*"
    path: str = ".*"
    times: int = 1
    skip: int = 0
    status: int = 502
    retry_after: int | None = None
    reset_in: int = 30
    seconds: float = 30.0
    seen: int = 0

    def matches(self, method: str, path: str) -> bool:
        return re.fullmatch(self.method, method) is not None and re.search(self.path, path) is not None


class Faults:
    """The faults still to come, and the switch that cuts a client off as if its machine had died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: list[Fault] = []
        self._until_death: int | None = None

    def add(self, kind: Kind, **how: object) -> Fault:
        """Order a fault; see `Fault` for the options."""
        fault = Fault(kind, **how)  # type: ignore[arg-type]
        with self._lock:
            self._pending.append(fault)
        return fault

    def die_after(self, requests: int) -> None:
        """Let this many requests happen, lose the last one's reply, and refuse every later one until `clear`."""
        with self._lock:
            self._until_death = requests

    def clear(self) -> None:
        with self._lock:
            self._pending.clear()
            self._until_death = None

    @property
    def dead(self) -> bool:
        """True when `die_after` has struck."""
        return self._until_death is not None and self._until_death <= 0

    def strike(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets."""
        with self._lock:
            if self._until_death is not None:
                self._until_death -= 1
                if self._until_death < 0:
                    return Fault("reset")
                if self._until_death == 0:
                    return Fault("lost")
            for fault in self._pending:
                if fault.matches(method, path):
                    fault.seen += 1
                    if fault.seen <= fault.skip:
                        continue
                    if fault.seen >= fault.skip + fault.times:
                        self._pending.remove(fault)
                    return fault
        return None
