"""Numbers and foreign text as a comment shows them."""

from __future__ import annotations

import html
import re
import unicodedata

# Characters that Markdown, HTML or a table row would read as structure; as entities they are only themselves.
_STRUCTURE = {ord(c): f"&#{ord(c)};" for c in "&<>`*~[]|\\$"}
_OUTER_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")  # inside a word it is only itself
# GitHub links mentions, issue numbers and addresses in the finished page, entities or not; an invisible joiner stops it.
_JOINER = "\u2060"
_LINKS = re.compile(r"(?i)(@|#|://|www\.|\bgh-|mailto:|:(?=[a-z0-9+-]+:))")
_COMMANDS = re.compile(r"(?<!\S)::|##\[")
_LINE_START = re.compile(r"^([-+=]|\d+[.)])")


def plain(text: str, limit: int = 160) -> str:
    """Foreign text (task names, examples, answers) as inert Markdown on one line of at most `limit` characters.

    Nothing in it can start markup, a table cell, HTML, a mention, a reference or a link; control characters and
    direction overrides are shown as a replacement character.
    """
    visible = "".join("\ufffd" if _hidden(c) else c for c in " ".join(text[: 8 * limit + 64].split()))
    if len(visible) > limit:
        visible = visible[: limit - 1].rstrip() + "…"
    visible = _LINKS.sub(lambda m: m[0] + _JOINER, visible)
    visible = _LINE_START.sub(lambda m: _JOINER + m[0], visible)
    return _OUTER_UNDERSCORE.sub("&#95;", visible.translate(_STRUCTURE))


def shown(text: str, limit: int = 400) -> str:
    """Foreign text for a terminal or a log, on one line of at most `limit` characters.

    Control characters (colours, cursor movements, direction overrides) become a replacement character, and nothing in it
    is a command to the runner that collects the log (`::error::`, `##[group]`).
    """
    visible = "".join("\ufffd" if _hidden(c) else c for c in " ".join(text[: 8 * limit + 64].split()))
    if len(visible) > limit:
        visible = visible[: limit - 1].rstrip() + "…"
    return _COMMANDS.sub(lambda m: f"{m[0][0]}{_JOINER}{m[0][1:]}", visible)


def code(text: str, limit: int = 160) -> str:
    """Foreign text for inside a code span: nothing that ends the span, hides or breaks the line."""
    kept = "".join("\ufffd" if _hidden(c) else c for c in " ".join(text[: 8 * limit].replace("`", "'").split()))
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def label(text: str, limit: int = 40) -> str:
    """Foreign text as a Mermaid label: letters, digits and plain punctuation only."""
    kept = re.sub(r"[^\w .,:+/@-]", "·", unicodedata.normalize("NFKC", text))
    kept = " ".join(kept.split())
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def points(value: float, digits: int = 1) -> str:
    """A difference of proportions in points, always signed: −2.5, +0.4, 0.0."""
    return signed(100 * value, digits)


def signed(value: float, digits: int = 1) -> str:
    rounded = round(value, digits)
    if rounded == 0:
        return f"{0:.{digits}f}"
    return f"{'−' if rounded < 0 else '+'}{abs(rounded):.{digits}f}"


def interval(low: float, high: float, digits: int = 1) -> str:
    """A 95% interval of a difference, in points: (−4.5, −0.6)."""
    return f"({points(low, digits)}, {points(high, digits)})"


def p_value(p: float) -> str:
    """A p value to two significant digits, never as zero."""
    if p < 0.0001:
        return "&lt;&nbsp;0.0001"
    if p >= 0.1:
        return f"{p:.2f}"
    return f"{p:.{3 if p >= 0.001 else 4}f}"


def p_phrase(p: float) -> str:
    """`p = 0.006`, or `p < 0.0001` as Markdown."""
    shown = p_value(p)
    return f"p {shown}" if shown.startswith("&lt;") else f"p = {shown}"


def of_points(proportion: float) -> str:
    """A limit as people say it: 0.5 points, 1 point."""
    value = 100 * proportion
    return f"{value:g} point{'' if value == 1 else 's'}"


def unmarked(markdown: str) -> str:
    """Text that `plain` made inert, for a place that shows no Markdown (the title of a check)."""
    return html.unescape(markdown).replace(_JOINER, "").replace("**", "")


def count(n: int) -> str:
    return f"{n:,}"


def about(n: int) -> str:
    """A needed number of examples as people say it: two significant digits, rounded up."""
    if n < 100:
        return f"{n:,}"
    scale = 10 ** (len(str(n)) - 2)
    return f"{-(-n // scale) * scale:,}"


def plural(n: int, noun: str) -> str:
    """`1 example`, `2 examples`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def number(value: float) -> str:
    """A metric's value to three or four significant digits."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    if magnitude >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if magnitude >= 1 else f"{value:.3g}"


def size(byte_count: float) -> str:
    """Bytes in the unit that keeps the number short."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(byte_count) < 999.5:  # what rounds to 1000 is shown in the next unit
            return f"{byte_count:.3g} {unit}"
        byte_count /= 1000
    return f"{byte_count:,.3g} TB"


def age(days: float) -> str:
    """How old something is, in whole hours or days."""
    if days < 1:
        hours = int(24 * days)
        return "under an hour old" if hours < 1 else f"{hours} hour{'' if hours == 1 else 's'} old"
    return f"{int(days)} day{'' if int(days) == 1 else 's'} old"


def _hidden(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") and character != _JOINER
