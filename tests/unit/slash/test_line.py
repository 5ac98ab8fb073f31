"""Lines that people write, and lines that attackers write."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.fuzz.properties import ENTRY, line_holds, outputs_as_read, outputs_hold
from tests.unit.slash.test_replies import seen

from assay.bot.slash.entries import Dispatched
from assay.bot.slash.line import BadLine, Line, read_line, split
from assay.bot.slash.operations import Dispatch, Record, Reply
from assay.bot.slash.outputs import outputs_of
from assay.bot.slash.plan import plan
from assay.bot.slash.verbs import BY_NAME, VERBS, members, understand


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
        ("/Assay\u00a0evaluate\u2003arc_easy", Line("evaluate", ("arc_easy",))),
        ("\u00a0/ASSAY\tstatus", Line("status")),
        ("\ufeff/assay\u200bstatus", Line("status")),
        ("/assay recommend latency=1,250", Line("recommend", (), (("latency", "1,250"),))),
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


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    why = ""
    try:
        read_line(f"/assay {text}")
    except BadLine as error:
        why = str(error)
    assert "\n" not in why


@settings(deadline=None)
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


@settings(max_examples=300, deadline=None)
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


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.text(max_size=200), st.builds("/assay {} {}".format, st.sampled_from(sorted(BY_NAME)), st.text(max_size=99))
    )
)
def test_properties_of_lines(body: str) -> None:
    line_holds(body)


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet="ab/*:.é", max_size=8),
    st.text(max_size=20),
    st.sampled_from(["", " up-to=3", " up-to=100", " up-to=0"]),
)
def test_an_acceptance_is_read_again(task: str, reason: str, limit: str) -> None:
    line_holds(f"/assay accept {task} reason='{reason}' expires=2027-01-31{limit}")


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(BY_NAME)),
    st.dictionaries(
        st.sampled_from(["tasks", "examples", "grow", "sha", "verb", "head"]),
        st.one_of(st.text(max_size=40), st.sampled_from(["a,b", "1000", "true", "a\nsha=b", "a<<b"])),
    ),
)
def test_properties_of_outputs(verb: str, arguments: dict[str, str]) -> None:
    outputs_hold(verb, arguments)


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("evaluate", {"sha": "4" * 40}),
        ("evaluate", {"tasks": "a\nsha=b"}),
        ("evaluate", {"tasks": "a\u2028b"}),
        ("evaluate", {"examples": "01000"}),
        ("evaluate", {"head": "4f2c9e1"}),
        ("evaluate", {"grow": "yes"}),
        ("status", {}),
        ("reboot", {}),
    ],
)
def test_an_entry_that_assay_did_not_write_is_refused(verb: str, arguments: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Dispatched.model_validate_json(json.dumps({**ENTRY, "verb": verb, "arguments": arguments}))


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "x"},
        {"head_sha": "main"},
        {"by": "ada\nsha=x"},
        {"created": "soon"},
        {"created": "2026-11-30T09:00:00"},
        {"pull": 0},
        {"more": 1},
    ],
)
def test_every_field_of_an_entry_has_its_form(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Dispatched.model_validate_json(json.dumps({**ENTRY, "verb": "evaluate", **changes}))


def test_outputs_are_written_as_the_runner_reads_them() -> None:
    entry = Dispatched.model_validate_json(
        json.dumps({**ENTRY, "verb": "evaluate", "arguments": {"tasks": "a,b", "grow": "true"}})
    )
    text = '{"grow": "true", "tasks": "a,b"}'
    expected = [("sha", entry.head_sha), ("verb", "evaluate"), ("arguments", text), ("grow", "true"), ("tasks", "a,b")]
    assert outputs_as_read(outputs_of(entry)) == expected


@pytest.mark.parametrize(
    ("name", "stands_for"),
    [
        ("mmlu", ["mmlu_anatomy", "mmlu_law"]),
        ("mmlu_law", ["mmlu_law"]),
        ("mm*", ["mmlu_anatomy", "mmlu_law"]),
        ("x", []),
    ],
)
def test_a_name_may_stand_for_a_group(name: str, stands_for: list[str]) -> None:
    assert members(name, ["mmlu_anatomy", "mmlu_law", "hellaswag"]) == stands_for


@pytest.mark.parametrize(
    ("text", "value"), [("250", "250"), ("1,250", "1250"), ("0.25", "0.25"), ("1_000_000", "1000000")]
)
def test_latencies(text: str, value: str) -> None:
    line = read_line(f"/assay recommend floor=60 latency={text}")
    assert line is not None
    assert understand(line).arguments["latency"] == value


@pytest.mark.parametrize("text", ["0", "1000001", "-1", "2.5.1", "1e3", "٣", ""])
def test_bad_latencies(text: str) -> None:
    line = read_line(f"/assay recommend floor=60 latency={text}")
    assert line is not None
    with pytest.raises(BadLine):
        understand(line)


def test_every_example_is_understood() -> None:
    for verb in VERBS:
        if verb.example:
            line = read_line(verb.example)
            assert line is not None
            assert understand(line).verb is verb
        assert verb.summary[0].islower()
        assert not verb.summary.endswith(".")
