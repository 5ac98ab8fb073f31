"""The line that people write: parsed, and nothing else. No word of it ever reaches a shell."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_LINE = 1_000
PREFIX = "/assay"

_ZERO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff"
"""What copying from a page or a chat leaves between words, and nobody sees."""
_KEY = re.compile(r"^([A-Za-z][A-Za-z0-9_-]{0,40})=(.*)$", re.DOTALL)
_FLAG = re.compile(r"^--([A-Za-z][A-Za-z0-9-]{0,40})$")
_LONG = re.compile(r"^--(?=[A-Za-z][A-Za-z0-9_-]{0,40}=)")
"""`--key=value`, as shells have it: the same as `key=value`."""
_QUOTES = {'"': '"', "'": "'", "“": "”", "„": "“", "‘": "’"}
"""Opening quote -> closing quote: telephones write the curly ones."""


class BadLine(Exception):  # noqa: N818 - what it is
    """The line is meant for us and cannot be read; the message says why in one sentence."""


@dataclass(frozen=True)
class Line:
    """A line as it was written: a verb, its words, its `key=value` pairs and its `--flags`."""

    verb: str
    words: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    flags: tuple[str, ...] = ()


def read_line(body: str, *, bare: frozenset[str] = frozenset()) -> Line | None:
    """The command on the first line of a comment; None when the comment is not meant for us.

    `bare` are verbs that are also understood without `/assay` (`/evaluate`). Capitals and every kind of blank (tabs, the
    no-break spaces of telephones and pages) are as good as small letters and spaces. Only the first line counts: a command that
    is quoted or shown further down is not one. Raises `BadLine` for a line that is ours and cannot be read.
    """
    parts_of = _first(body).split(maxsplit=1)
    if not parts_of:
        return None
    start, rest = parts_of[0], "".join(parts_of[1:])
    if start.casefold() == PREFIX:
        text = rest
    elif start.startswith("/") and start[1:].casefold() in bare:
        text = f"{start[1:]} {rest}"
    else:
        return None
    if len(text) > MAX_LINE:
        raise BadLine(f"the line has {len(text):,} characters, and at most {MAX_LINE:,} are read")
    parts = split(text)
    if not parts:
        return Line("help")
    words: list[str] = []
    options: dict[str, str] = {}
    flags: list[str] = []
    for part, quoted in parts[1:]:
        flag, pair = _FLAG.match(part), _KEY.match(_LONG.sub("", part))
        if flag and not quoted:
            flags.append(flag[1].lower())
        elif pair and not quoted:
            key = pair[1].lower().replace("_", "-")
            if key in options:
                raise BadLine(f"{key}= is there twice")
            options[key] = pair[2]
        else:
            words.append(part)
    return Line(parts[0][0].lower(), tuple(words), tuple(options.items()), tuple(dict.fromkeys(flags)))


def addressed(body: str) -> bool:
    """Whether a comment begins with `/assay`, well or badly written: nobody else's bot is meant then."""
    return [word.casefold() for word in _first(body).split(maxsplit=1)[:1]] == [PREFIX]


def verb_of(body: str) -> str:
    """What stands where the verb of a command stands, also on a line that cannot be read; empty when nothing does."""
    found = _first(body).split(maxsplit=2)[:2]
    if found and found[0].casefold() != PREFIX:
        return found[0].removeprefix("/").casefold()
    return found[1].casefold() if len(found) > 1 else ""


def _first(body: str) -> str:
    """The first line, with what nobody sees between its words as plain spaces."""
    return body.split("\n", 1)[0].translate(dict.fromkeys(map(ord, _ZERO_WIDTH), " ")).strip()


def split(text: str) -> list[tuple[str, bool]]:
    """The words of a line, each with whether it began with a quote. Quotes group, also after `key=`; nothing is expanded.

    Raises `BadLine` for a quote that is not closed.
    """
    parts: list[tuple[str, bool]] = []
    current, inside, began, quoted = "", "", False, False
    for character in text:
        if inside:
            if character == inside:
                inside = ""
            else:
                current += character
        elif character in _QUOTES and (not current or current.endswith("=")):
            quoted = quoted or not current
            inside, began = _QUOTES[character], True
        elif character.isspace():
            if began or current:
                parts.append((current, quoted))
            current, began, quoted = "", False, False
        else:
            current += character
            began = True
    if inside:
        raise BadLine(f"a quote is not closed: add {inside} at its end")
    if began or current:
        parts.append((current, quoted))
    return parts
