"""Foreign text: whatever it holds, a comment, a terminal and a label show it and do nothing with it."""

from __future__ import annotations

import html
import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from assay.bot import text

GITHUB = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable("table").enable("strikethrough")
nasty = st.text(
    alphabet=st.one_of(
        st.sampled_from(list("`*_~|<>[](){}#@&$!\\:\"'+-=.\n\r\t \x00\x1b\x85\u200b\u202e\u2028/")),
        st.characters(),
    ),
    max_size=120,
)


@settings(max_examples=300, deadline=None)
@given(nasty)
def test_plain_text_is_only_text(foreign: str) -> None:
    shown = text.plain(foreign)
    rendered = GITHUB.render(f"| a | b |\n|---|---|\n| {shown} | end |\n")
    assert set(re.findall(r"</?([a-z]+)", rendered)) <= {"table", "thead", "tbody", "tr", "th", "td"}
    assert rendered.count("<td>") == 2
    alone = GITHUB.render(shown)
    assert set(re.findall(r"</?([a-z0-9]+)", alone)) <= {"p"}
    assert "\n" not in shown
    assert not re.search(r"[@#](?!\u2060)\S", html.unescape(shown).replace("&", ""))


@settings(max_examples=200, deadline=None)
@given(nasty, st.integers(4, 60))
def test_plain_text_is_short_and_visible(foreign: str, limit: int) -> None:
    seen = text.unmarked(text.plain(foreign, limit))
    assert len(seen) <= limit
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in seen)


@settings(max_examples=200, deadline=None)
@given(nasty)
def test_code_stays_inside_its_span(foreign: str) -> None:
    kept = text.code(foreign)
    assert "`" not in kept
    assert "\n" not in kept
    if kept.strip():
        assert GITHUB.render(f"`{kept}`").count("<code>") == 1


@settings(max_examples=200, deadline=None)
@given(nasty)
def test_labels_cannot_leave_their_quotes(foreign: str) -> None:
    assert not re.search(r"[\"\[\]{}<>&;%`\n]", text.label(foreign))


@settings(max_examples=300, deadline=None)
@given(nasty)
def test_a_terminal_and_a_runner_obey_nothing(foreign: str) -> None:
    line = text.shown(foreign)
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in line)
    assert not re.search(r"(^|\s)::", line)
    assert "##[" not in line


@pytest.mark.parametrize(
    ("foreign", "shown"),
    [
        ("::error::pwn", ":\u2060:error::pwn"),
        ("x ::add-mask::y", "x :\u2060:add-mask::y"),
        ("pkg::case", "pkg::case"),
        ("##[group]x", "#\u2060#[group]x"),
        ("\x1b[31mred\x07", "\ufffd[31mred\ufffd"),
        ("a\nb\tc", "a b c"),
        ("y" * 50, "y" * 9 + "…"),
    ],
)
def test_shown(foreign: str, shown: str) -> None:
    assert text.shown(foreign, 10 if foreign.startswith("y") else 400) == shown


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.00004, "&lt; 0.0001"), (0.0001, "0.0001"), (0.0056, "0.006"), (0.013, "0.013"), (0.13, "0.13"), (1.0, "1.00")],
)
def test_p_values(value: float, said: str) -> None:
    assert html.unescape(text.p_value(value)).replace("\u00a0", " ") == html.unescape(said)


@pytest.mark.parametrize(
    ("count", "said"), [(99, "99"), (100, "100"), (101, "110"), (926, "930"), (1971, "2,000"), (15_453, "16,000")]
)
def test_needed_examples_are_rounded_up(count: int, said: str) -> None:
    assert text.about(count) == said


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 B"), (999.4, "999 B"), (999.6, "1 KB"), (494e6, "494 MB"), (1e15, "1,000 TB")]
)
def test_sizes(number: float, said: str) -> None:
    assert text.size(number).replace("1e+03", "1,000") == said


def test_signs() -> None:
    assert [text.points(v) for v in (-0.025, 0.004, 0.0, -0.0, -0.0004, 0.0005)] == [
        "−2.5",
        "+0.4",
        "0.0",
        "0.0",
        "0.0",
        "+0.1",
    ]
    assert text.of_points(0.005) == "0.5 points"
    assert text.of_points(0.01) == "1 point"
    assert text.plural(1, "example") == "1 example"
    assert [text.age(d) for d in (-1, 0.01, 0.05, 1.3)] == [
        "under an hour old",
        "under an hour old",
        "1 hour old",
        "1 day old",
    ]
