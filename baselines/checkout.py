"""Checkouts that are measured: folders, or revisions of the head's repository written out beside it."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from pathlib import Path

from assay.baselines.errors import InputError

_SHA = re.compile(r"[0-9a-f]{40}")


def relative_file(file: Path, head: Path) -> Path:
    """The declarations' place inside the head's checkout. Raises `InputError` when they lie outside of it."""
    place = file if file.is_absolute() or file.is_file() else head / file
    if not place.is_file():
        raise InputError(f"there is no file {file}: give the file of the declarations.")
    try:
        return place.resolve().relative_to(head.resolve())
    except ValueError:
        raise InputError(
            f"{file} does not lie in the head's checkout {head}: both checkouts need it at one place."
        ) from None


def base_folder(base: str, head: Path, scratch: Path) -> tuple[Path, str | None]:
    """(folder, commit) of the base: a folder as it is, or, written to `scratch`, the merge base of the head with a revision
    of its repository: what others did on main since then is no part of the change.

    Raises `InputError` when it is neither.
    """
    if Path(base).is_dir():
        return Path(base).resolve(), commit_of(Path(base))
    if base.startswith("-"):
        raise InputError(f"--base {base} is neither a folder nor a revision.")
    commit = _git(head, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}").decode().strip()
    if _SHA.fullmatch(commit) is None:
        raise InputError(
            f"--base {base} is neither a folder nor a revision of {head}: fetch it first (fetch-depth: 0), or give a folder."
        )
    commit = _git(head, "merge-base", commit, "HEAD").decode().strip() or commit
    # Within a repository, `git archive` alone writes the current folder's part; from the top it is the whole tree.
    top = _git(head, "rev-parse", "--show-toplevel").decode().strip()
    data = _git(Path(top), "archive", "--format=tar", commit)
    folder = scratch / "base"
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")
    return (folder / head.resolve().relative_to(Path(top).resolve())).resolve(), commit


def head_commit(given: str | None, head: Path) -> str | None:
    """The commit that the head is: given, else ASSAY_HEAD_SHA, else what its repository says."""
    found = given or os.environ.get("ASSAY_HEAD_SHA") or commit_of(head)
    if found is not None and _SHA.fullmatch(found) is None:
        raise InputError(f"--commit {found[:60]} is not a full commit: give its 40 hexadecimal digits.")
    return found


def commit_of(folder: Path) -> str | None:
    """HEAD of the repository that a folder is the top of; None when it is none."""
    if _git(folder, "rev-parse", "--show-prefix").strip() and not (folder / ".git").exists():
        return None  # a folder inside some other repository
    found = _git(folder, "rev-parse", "HEAD").decode().strip()
    return found if _SHA.fullmatch(found) else None


def _git(folder: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, timeout=120, check=False)
    except (OSError, subprocess.SubprocessError):
        return b""
    return done.stdout if done.returncode == 0 else b""
