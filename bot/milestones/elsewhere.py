"""How the script of a report names the author's files, so that it runs on another machine too."""

from __future__ import annotations

import shlex
from pathlib import Path


def start_of(proposal: Path) -> Path:
    """The folder that the script is run in: the working folder, or that of a proposal which lies outside of it."""
    return Path.cwd() if not proposal.is_absolute() or _inside(proposal, Path.cwd()) else proposal.parent


def named(path: Path, start: Path) -> str:
    """A file that goes with the report (the proposal, the report itself) as seen from `start`: one that lies outside of it is
    expected there, under its own name."""
    return _seen(path, start) or path.name


def word(path: Path, start: Path, variable: str) -> str:
    """A folder of raw data as one word for `sh`, seen from `start`. Where another person keeps one that lies outside of it is
    not known: that is a variable, without which the script stops and names it."""
    seen = _seen(path, start)
    return shlex.quote(seen) if seen else f'"${{{variable}:?is not set: give your copy of the raw data}}"'


def place_of(place: str, start: Path) -> str:
    """Where raw data lies, for a reader on another machine: a URL, a path seen from `start`, or a folder's name alone."""
    if not place or place.startswith(("https://", "http://")):
        return place
    return _seen(Path(place), start) or f"…/{Path(place).name}"


def _seen(path: Path, start: Path) -> str:
    """The path relative to `start`; what was given as relative to it stays as it is. Empty when it lies outside."""
    if not path.is_absolute() and start == Path.cwd():
        return str(path)
    return _inside(path, start)


def _inside(path: Path, folder: Path) -> str:
    """The path of something below a folder from there, also where a link leads in or out; empty for anything else."""
    for one, other in ((path.absolute(), folder.absolute()), (path.resolve(), folder.resolve())):
        if one.is_relative_to(other):
            return str(one.relative_to(other))
    return ""
