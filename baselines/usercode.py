"""What code of the user raised, on one line and with its place: it is quoted in messages of ours."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

FAILURES = (Exception, SystemExit)
"""What code of the user may end with that is no wish to stop us."""
MAX_PRINTED = 1 << 30
"""Most bytes that code of the user may print in one process: more is a loop, and would fill the disk."""
MOST = 300
_PACKAGES = ("site-packages", "dist-packages")


def one_line(error: BaseException, most: int = MOST) -> str:
    """An exception on one line, as it is quoted in a message, with `most` characters of what it says."""
    try:
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        message = message.partition("\n\nfrom user code:")[0]  # TorchDynamo's, which `line_of` says in short
    except Exception:  # a `__str__` that fails says nothing
        message = ""
    message = " ".join(message.split())[:most]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def raised(
    chain: Sequence[BaseException],
    root: Path,
    again: BaseException | None = None,
    *,
    ours: Path | None = None,
    most: int = MOST,
) -> str:
    """`raised ValueError: no such file (models.py:12)`: what user code did, and its innermost line inside the checkout.

    `chain` is the error that the user knows and after it those that say more of where it came from; `again` is what the
    same code raised another time, whose line counts where it is the same error. Frames in the folder `ours` say nothing.
    """
    error = chain[0]
    what = f"called sys.exit({one_code(error)})" if isinstance(error, SystemExit) else f"raised {one_line(error, most)}"
    same = [again] if again is not None and type(again) is type(error) else []
    return f"{what}{in_brackets(line_of([*same, *chain], root, ours))}"


def one_code(error: SystemExit) -> str:
    """The argument of `sys.exit`, short."""
    return repr(error.code)[:100] if isinstance(error.code, int | str) else ""


def in_brackets(text: str) -> str:
    """` (text)`; empty for no text."""
    return f" ({text})" if text else ""


def line_of(chain: Sequence[BaseException], root: Path, ours: Path | None = None) -> str:
    """`models.py:12`: the innermost frame of the first error that has one inside the checkout; empty when none has."""
    for error in chain:
        for name, line in reversed(list(_frames(error))):
            place = Path(name)
            if not place.is_absolute() or not place.is_file():
                continue
            place = place.resolve()
            foreign = (ours is not None and place.is_relative_to(ours)) or not {*_PACKAGES}.isdisjoint(place.parts)
            if place.is_relative_to(root) and not foreign:
                return f"{place.relative_to(root).as_posix()}:{line}"
    return ""


def _frames(error: BaseException) -> Iterator[tuple[str, int]]:
    """File and line of each frame, the outermost first; TorchDynamo keeps those of the code that it traces apart."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        yield frame.f_code.co_filename, line
    for traced in getattr(error, "real_stack", None) or ():
        yield str(traced.filename), int(traced.lineno or 0)
    if isinstance(error, SyntaxError) and error.filename:
        yield error.filename, error.lineno or 0


def is_text(value: str) -> bool:
    """Whether it can be written as UTF-8: half a surrogate pair, as of a file name in another encoding, cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
