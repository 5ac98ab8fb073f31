"""Content digests of files and folders, so that a subject is named by what it holds and not by where it lies."""

from __future__ import annotations

import hashlib
from pathlib import Path

from assay.baselines.errors import InputError

_BLOCK = 1 << 20


def digest_file(path: Path) -> str:
    """SHA-256 of a file's content in hex."""
    hasher = hashlib.sha256()
    try:
        with Path(path).open("rb") as stream:
            while block := stream.read(_BLOCK):
                hasher.update(block)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
    return hasher.hexdigest()


def digest_path(path: Path) -> str:
    """`sha256:` and the digest of a file, or of a folder as the sorted list of its files' relative names and contents.

    Hidden files (`.git`, caches) do not count. Raises `InputError` when there is nothing to digest.
    """
    path = Path(path)
    if path.is_file():
        return f"sha256:{digest_file(path)}"
    if not path.is_dir():
        raise InputError(f"{path} does not exist: give a file or a folder.")
    files = sorted(p for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path)))
    if not files:
        raise InputError(f"{path} has no files in it: give the folder of a checkpoint.")
    hasher = hashlib.sha256()
    for file in files:
        hasher.update(f"{file.relative_to(path).as_posix()}\0{digest_file(file)}\n".encode())
    return f"sha256:{hasher.hexdigest()}"


def _hidden(relative: Path) -> bool:
    return any(part.startswith(".") for part in relative.parts)
