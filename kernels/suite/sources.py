"""Which sources were measured: a page of results says when what it describes is no longer what is in the tree."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

_KERNELS = Path(__file__).resolve().parents[1]
_MEASURED = ("cuda/*.cu", "rowwise/*.py", "rowwise/tuned.json", "attention/*.py")


def digests(folder: Path = _KERNELS) -> dict[str, str]:
    """File of a kernel or of its choice of mapping, below `kernels/` -> sha256."""
    files = sorted(file for pattern in _MEASURED for file in folder.glob(pattern))
    return {file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def changed(measured: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Files that are not what they were, or are there only before or after."""
    return sorted(file for file in {*measured, *now} if measured.get(file) != now.get(file))
