"""What an argument's text must look like: each reader returns the value in its one spelling, or raises `BadLine`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date

from assay.bot.slash.line import BadLine

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@*?-]{0,199}")


def name(text: str) -> str:
    """A task, metric, tag or run: letters, digits and `_ . : / @ * ? -`, so that it is inert wherever it travels."""
    if not _NAME.fullmatch(text) or ".." in text:
        raise BadLine(f"{text[:40]!r} is no name: letters, digits and _ . : / @ * - only")
    return text


def names(text: str) -> str:
    """Names separated by commas."""
    return ",".join(name(part.strip()) for part in text.split(","))


def whole(low: int, high: int) -> Callable[[str], str]:
    """A whole number in a range, with or without thousands separators."""

    def read(text: str) -> str:
        digits = text.replace(",", "").replace("_", "")
        digits = digits.lstrip("0") or digits[:1]
        if not digits.isascii() or not digits.isdigit() or len(digits) > 12 or not low <= int(digits) <= high:
            raise BadLine(f"{text[:20]!r} is no whole number from {low:,} to {high:,}")
        return digits

    return read


def points(text: str) -> str:
    """Points of accuracy, or per cent of perplexity."""
    if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,4})?", text) is None or float(text) > 100:
        raise BadLine(f"{text[:20]!r} is no number of points such as 2.5")
    return text


def drop(text: str) -> str:
    """Points of a drop: more than none, for nothing would be covered by a drop of 0."""
    if float(points(text)) == 0:
        raise BadLine(f"{text[:20]!r} covers no drop at all; give points such as 2.5, or leave it out")
    return text


def milliseconds(text: str) -> str:
    """Milliseconds from 0.001 to 1,000,000, with or without thousands separators: `250`, `1,200`, `0.25`."""
    digits = text.replace(",", "").replace("_", "")
    if re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,3})?", digits) is None or not 0.001 <= float(digits) <= 1_000_000:
        raise BadLine(f"{text[:20]!r} is no number of milliseconds such as 250, from 0.001 to 1,000,000")
    return digits


def commit(text: str) -> str:
    """A commit by 7 to 40 hexadecimal digits."""
    if re.fullmatch(r"[0-9a-fA-F]{7,40}", text) is None:
        raise BadLine(f"{text[:40]!r} is no commit: give 7 to 40 hexadecimal digits of the head")
    return text.lower()


def day(text: str) -> str:
    """A day as YYYY-MM-DD."""
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            return date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    raise BadLine(f"{text[:20]!r} is no day such as 2027-01-31")


def sentence(text: str) -> str:
    """A reason: one line of 3 to 500 characters, shown escaped wherever it appears."""
    kept = " ".join(text.split())
    if not 3 <= len(kept) <= 500:
        raise BadLine("a reason has 3 to 500 characters")
    return kept
