"""The Jinja templates of comments and pictures.

Values are plain text until a filter says how to show them: `plain` for foreign text in Markdown; SVG and HTML escape
everything by themselves. A name that is not given is an error, not an empty string.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from assay.bot import text


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=lambda name: name is not None and not name.endswith(".md.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        plain=text.plain,
        code=text.code,
        points=text.points,
        p_value=text.p_value,
        count=text.count,
        about=text.about,
        plural=text.plural,
        size=text.size,
        age=text.age,
    )
    return environment


def template(name: str) -> Template:
    """A template of this folder."""
    return _environment().get_template(name)
