"""The compiler by the digest of its sources, so that programs and plans of two compilers are told apart."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

_APART = {
    "cache.py",
    "catalogue.py",
    "cli.py",
    "compilation.py",
    "conformance.py",
    "conformance_models.py",
    "declaration.py",
    "evidence.py",
    "page.py",
    "pictures.py",
    "process.py",
    "report.py",
    "source.py",
    "tables.py",
    "terminal.py",
    "trace.py",
}
"""Modules that ask the compiler or show what it made: no program depends on them."""


@cache
def compiler_digest() -> str:
    """SHA-256, in hex, of every module that decides programs and their costs, and of the version of torch."""
    folder = Path(__file__).parent
    hasher = hashlib.sha256(f"torch {metadata.version('torch')}\n".encode())
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.suffix not in (".py", ".json") or inside.as_posix() in _APART or "pipeline" in inside.parts:
            continue
        hasher.update(f"{inside.as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return hasher.hexdigest()
