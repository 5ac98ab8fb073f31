"""Lines that people write, and lines that attackers write."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.slash.test_replies import seen

from assay.bot.slash.line import BadLine, Line, read_line, split
from assay.bot.slash.operations import Dispatch, Record, Reply
from assay.bot.slash.plan import plan
from assay.bot.slash.verbs import VERBS, understand


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("/assay evaluate arc_easy examples=1000", Line("evaluate", ("arc_easy",), (("examples", "1000"),))),
        ("/assay  EVALUATE\tarc_easy  --Grow", Line("evaluate", ("arc_easy",), (), ("grow",))),
        (
            '/assay accept x reason="a b=c --d" expires=1',
            Line("accept", ("x",), (("reason", "a b=c --d"), ("expires", "1"))),
        ),
        ("/assay accept x reason=“a b”", Line("accept", ("x",), (("reason", "a b"),))),
        ("/assay evaluate \"--grow\" 'a=b'", Line("evaluate", ("--grow", "a=b"))),
        ("/assay", Line("help")),
        ("/assay help\r\nmore", Line("help")),
        ("/assay evaluate up_to=3", Line("evaluate", (), (("up-to", "3"),))),
        ('/assay evaluate ""', Line("evaluate", ("",))),
    ],
)
def test_lines(text: str, line: Line) -> None:
    assert read_line(text) == line


@pytest.mark.parametrize("text", ['/assay x "open', "/assay " + "x" * 1001, "/assay evaluate a=1 a=2"])
def test_bad_lines(text: str) -> None:
    with pytest.raises(BadLine):
        read_line(text)


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    why = ""
    try:
        read_line(f"/assay {text}")
    except BadLine as error:
        why = str(error)
    assert "\n" not in why


@given(
    st.lists(
        st.text(
            alphabet=st.characters(exclude_characters="\"'“”„‘’", exclude_categories=["Cs", "Z", "Cc"]), min_size=1
        ),
        max_size=6,
    )
)
def test_quoted_words_survive(words: list[str]) -> None:
    assert [word for word, _ in split(" ".join(f'"{w}"' for w in words))] == words


@settings(max_examples=300)
@given(st.sampled_from([v.name for v in VERBS]), st.text(max_size=200))
def test_nothing_that_was_written_leaves_the_json_of_a_dispatch(verb: str, text: str) -> None:
    """Whatever is dispatched or recorded is a name, a number, a day, or one JSON text that reads back; replies are inert."""
    for operation in plan(seen(f"/assay {verb} {text}")):
        match operation:
            case Dispatch():
                inputs = dict(operation.inputs)
                arguments = json.loads(inputs["arguments"])
                assert all(isinstance(v, str) and "\n" not in v for v in arguments.values())
                assert inputs["arguments"].isascii()
                assert not set("$`;|<>\\\"'(){}&!\n") & set("".join(arguments.values()))
            case Record():
                assert json.loads(operation.data)
                assert ".." not in operation.path
            case Reply():
                assert operation.body.startswith("<!-- assay command=")
                assert "<img" not in operation.body
                assert "::set-env" not in operation.body.split("\n", 1)[0]
            case _:
                pass


def test_every_example_is_understood() -> None:
    for verb in VERBS:
        if verb.example:
            line = read_line(verb.example)
            assert line is not None
            assert understand(line).verb is verb
        assert verb.summary[0].islower()
        assert not verb.summary.endswith(".")
