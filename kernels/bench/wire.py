"""Messages between the coordinator and a worker: frames of JSON over two pipes, small, numbered and bounded in time.

A frame is four bytes of length and a JSON object. Every request carries a number that nobody can guess and its answer
repeats it, so that whatever user code writes to the pipe is seen: it comes unasked, or with another number.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import struct
import time
from collections.abc import Callable
from typing import Any

from assay.baselines.errors import AssayError

MAX_FRAME = 8 << 20
GLANCE_SECONDS = 2.0
_HEADER = struct.Struct(">I")


class WireError(AssayError):
    """The other side broke the protocol, ended, or gave no answer in time. The message is a phrase without subject."""


class SilenceError(WireError):
    """No answer in time."""


class EndedError(WireError):
    """The other side closed the pipe: it ended."""


class Pipe:
    """One end: reads frames from one descriptor and writes them to another."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = reading
        self.writing = writing

    def send(self, message: dict[str, Any]) -> None:
        """Write one frame. Raises `WireError` when it is too long, `EndedError` when nobody reads."""
        # What no UTF-8 can write, as in the words of an exception, becomes a question mark.
        data = json.dumps(message, allow_nan=True, ensure_ascii=False).encode(errors="replace")
        if len(data) > MAX_FRAME:
            raise WireError(f"sent a message of {len(data):,} bytes, over {MAX_FRAME:,}")
        view = memoryview(_HEADER.pack(len(data)) + data)
        try:
            while view:
                view = view[os.write(self.writing, view) :]
        except (BrokenPipeError, OSError):
            raise EndedError("ended") from None

    def receive(self, seconds: float | None, glance: Callable[[], None] | None = None) -> dict[str, Any]:
        """Read one frame within `seconds` (None: wait). Raises `SilenceError`, `EndedError` or `WireError`.

        `glance` is called every few seconds of silence, and ends the waiting by what it raises.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while glance is not None and not select.select([self.reading], [], [], _left(deadline, GLANCE_SECONDS))[0]:
            if _left(deadline) == 0:
                raise SilenceError("gave no answer in time")
            glance()
        (length,) = _HEADER.unpack(self._exactly(_HEADER.size, deadline))
        if length > MAX_FRAME:
            raise WireError(f"sent a message of {length:,} bytes, over {MAX_FRAME:,}")
        try:
            message = json.loads(self._exactly(length, deadline))
        except ValueError:
            raise WireError("sent something else than a message") from None
        if not isinstance(message, dict):
            raise WireError("sent something else than a message")
        return message

    def unread(self) -> bool:
        """Whether something waits to be read although nothing was asked."""
        return bool(select.select([self.reading], [], [], 0)[0])

    def close(self) -> None:
        """Close both descriptors; once is enough."""
        for descriptor in {self.reading, self.writing}:
            try:
                os.close(descriptor)
            except OSError:
                continue

    def _exactly(self, count: int, deadline: float | None) -> bytes:
        data = b""
        while len(data) < count:
            if not select.select([self.reading], [], [], _left(deadline))[0]:
                raise SilenceError("gave no answer in time")
            part = os.read(self.reading, count - len(data))
            if not part:
                raise EndedError("ended")
            data += part
        return data


def _left(deadline: float | None, most: float | None = None) -> float | None:
    """Seconds until the deadline, at least 0 and at most `most`; None is for ever."""
    limits = [] if most is None else [most]
    limits += [] if deadline is None else [max(0.0, deadline - time.monotonic())]
    return min(limits, default=None)


def new_number() -> str:
    """A number for a request that user code in the worker cannot guess."""
    return secrets.token_hex(16)


def number(message: dict[str, Any], key: str, *, least: float = 0.0) -> float:
    """A finite number of at least `least` from an answer. Raises `WireError` for anything else."""
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < float("inf"):
        raise WireError(f"answered {key} {str(value)[:40]!r}, which is no such number")
    return float(value)
