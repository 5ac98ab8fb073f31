"""Checkouts that are measured: folders, or revisions of the head's repository written out beside it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from assay.baselines.errors import InputError
from assay.baselines.usercode import is_text

UNCOMMITTED = "uncommitted_files"
"""Attribute of evidence: how many files lay in the checkout otherwise than in the commit that it is recorded under."""
_NAMED = 3
_SHA = re.compile(r"[0-9a-f]{40}")


def relative_file(file: Path, head: Path) -> Path:
    """The declarations' place inside the head's checkout. Raises `InputError` when they lie outside of it."""
    place = file if file.is_absolute() or file.is_file() else head / file
    if not place.is_file():
        raise InputError(f"there is no file {file}: give the file of the declarations.")
    if not is_text(str(file)):
        raise InputError(f"the name of {str(file)!r} is no UTF-8: rename the file.")
    try:
        return place.resolve().relative_to(head.resolve())
    except ValueError:
        raise InputError(
            f"{file} does not lie in the head's checkout {head}: both checkouts need it at one place."
        ) from None


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def base_folder(base: str, head: Path, scratch: Path, told: Callable[[str], None] = _tell) -> tuple[Path, str | None]:
    """(folder, commit) of the base: a folder as it is, or, written to `scratch`, the merge base of the head with a revision
    of its repository: what others did on main since then is no part of the change.

    A folder with changes that its commit does not have is told. Raises `InputError` when it is neither.
    """
    if Path(base).is_dir():
        commit = commit_of(Path(base))
        if commit is not None:
            tell_uncommitted("base", commit, uncommitted(Path(base)), told)
        return Path(base).resolve(), commit
    if base.startswith("-"):
        raise InputError(f"--base {base} is neither a folder nor a revision.")
    commit = _git(head, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}").decode().strip()
    if _SHA.fullmatch(commit) is None:
        raise InputError(
            f"--base {base} is neither a folder nor a revision of {head}: fetch it first (fetch-depth: 0), or give a folder."
        )
    commit = _git(head, "merge-base", commit, "HEAD").decode().strip() or commit
    top = Path(os.fsdecode(_git(head, "rev-parse", "--show-toplevel")).rstrip("\n"))
    folder = scratch / "base"
    folder.mkdir()
    _write_out(top, commit, folder, scratch / "index")
    return (folder / head.resolve().relative_to(top.resolve())).resolve(), commit


def _write_out(top: Path, commit: str, folder: Path, index: Path) -> None:
    """All files of a commit, as a checkout has them. Not by `git archive`, which leaves out what is `export-ignore`, nor by a
    worktree, which would be noted in the repository."""
    own = {"GIT_INDEX_FILE": str(index)}
    for arguments in (["read-tree", commit], ["checkout-index", "--all", "--quiet", f"--prefix={folder}/"]):
        done = _run(top, arguments, own)
        if done is None or done.returncode != 0:
            why = " ".join(done.stderr.decode(errors="replace").split())[:200] if done is not None else "git failed"
            raise InputError(
                f"the base {commit[:12]} cannot be written out ({why}): check it out, and give its folder."
            )


def head_commit(
    given: str | None, head: Path, file: Path | None = None, told: Callable[[str], None] = _tell
) -> str | None:
    """The commit that the head is: given, else ASSAY_HEAD_SHA, else what its repository says.

    Changes that the commit does not have are told; `file`, the declarations, counts though git ignores it.
    """
    found = given or os.environ.get("ASSAY_HEAD_SHA") or commit_of(head)
    if found is not None and _SHA.fullmatch(found) is None:
        raise InputError(f"--commit {found[:60]} is not a full commit: give its 40 hexadecimal digits.")
    if found is not None:
        tell_uncommitted("head", found, uncommitted(head, file), told)
    return found


def uncommitted(folder: Path, file: Path | None = None) -> list[str]:
    """Files that do not lie here as HEAD has them: tracked ones of the whole repository, Python files of the folder that are
    new, and `file` (relative to the folder) unless it is tracked. None where the folder is not the top of a repository."""
    if commit_of(folder) is None:
        return []
    changed = _git(folder, "diff", "--name-only", "--no-ext-diff", "-z", "HEAD")
    new = _git(folder, "ls-files", "--others", "--exclude-standard", "-z", "--", "*.py")
    own = _git(folder, "ls-files", "--others", "-z", "--", file.as_posix()) if file is not None else b""
    names = [name.decode(errors="replace") for name in (changed + new + own).split(b"\0") if name]
    # An environment inside the checkout is no part of it.
    return list(dict.fromkeys(name for name in names if "site-packages" not in Path(name).parts))


def top_of(folder: Path) -> Path:
    """The top of the repository that a folder lies in; the folder where it lies in none."""
    found = os.fsdecode(_git(folder, "rev-parse", "--show-toplevel")).rstrip("\n")
    return Path(found) if found else folder


def tell_uncommitted(side: str, commit: str, names: list[str], told: Callable[[str], None] = _tell) -> None:
    """Say that what is measured is not the commit that it is recorded under, where that is so."""
    if not names:
        return
    shown = ", ".join("".join(c if c.isprintable() else "\ufffd" for c in name[-80:]) for name in names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    are = "is" if len(names) == 1 else "are"
    told(f"note: the {side} is recorded as {commit[:12]}, but {shown}{more} {are} not as in that commit: commit first.")


def commit_of(folder: Path) -> str | None:
    """HEAD of the repository that a folder is the top of; None when it is none."""
    if _git(folder, "rev-parse", "--show-prefix").strip() and not (folder / ".git").exists():
        return None  # a folder inside some other repository
    found = _git(folder, "rev-parse", "HEAD").decode().strip()
    return found if _SHA.fullmatch(found) else None


def _git(folder: Path, *arguments: str) -> bytes:
    done = _run(folder, arguments)
    return done.stdout if done is not None and done.returncode == 0 else b""


def _run(
    folder: Path, arguments: Sequence[str], more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            timeout=120,
            check=False,
            env={**os.environ, **(more or {})},
        )
    except (OSError, subprocess.SubprocessError):
        return None
