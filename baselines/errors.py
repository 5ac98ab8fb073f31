"""The two ways in which assay stops without a verdict, each with its exit code."""

from __future__ import annotations

import errno
from pathlib import Path


class AssayError(Exception):
    """A failure that is reported as one line and an exit code, never as a traceback."""

    exit_code = 3


class InputError(AssayError):
    """What the user gave cannot be used: the message says what is wrong and how to mend it (exit code 2)."""

    exit_code = 2


class ServiceError(AssayError):
    """A tool or a service that assay needs failed; the same command may succeed later (exit code 3)."""

    exit_code = 3


def cannot_write(path: Path, error: OSError) -> AssayError:
    """What a failed write is: a service failure when the disk is full or broken, else a path that cannot be written."""
    why = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return ServiceError(f"cannot write {path}: {why}; free space and run this again.")
    return InputError(f"cannot write {path}: {why}; give a path that can be written.")
