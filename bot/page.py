"""A comment as an HTML page that looks as it does on GitHub, for reading without GitHub."""

from __future__ import annotations

import re

from assay.bot.comment import read_marker
from assay.bot.templates import template

_MERMAID = re.compile(r"```mermaid\n.*?\n```\n", re.DOTALL)
_IMAGE = re.compile(r"^\[!\[.*$", re.MULTILINE)


def to_html(markdown: str, title: str, picture: str = "") -> str:
    """A stand-alone page. `picture` is an SVG document shown in place of the Mermaid chart, which needs GitHub."""
    from markdown_it import MarkdownIt

    body = markdown.split("\n", 1)[1] if read_marker(markdown) else markdown
    body = _IMAGE.sub("", body)
    body = _MERMAID.sub(lambda _: f"\n{_inline(picture)}\n\n" if picture else "", body)
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough").render(body)
    return template("page.html.j2").render(title=title, body=rendered)


def _inline(picture: str) -> str:
    """An SVG on one line: a blank line inside would end the HTML block."""
    return " ".join(picture.split("\n"))
