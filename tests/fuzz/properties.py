"""What holds for every line that anyone writes, and for everything that `verify` hands to a workflow.

The fuzzer and the property tests call the same functions, which raise `AssertionError` when something does not hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic import ValidationError

from assay.bot.slash.entries import Dispatched, as_policy
from assay.bot.slash.line import BadLine, addressed, read_line
from assay.bot.slash.outputs import outputs_of
from assay.bot.slash.snapshot import AcceptedFacts
from assay.bot.slash.verbs import BY_NAME, carried, understand

HEAD = "4f2c9e1d0b7a" + "5" * 28
ENTRY = {
    "schema_version": 1,
    "id": "3f6c1d52-8f0e-4b5e-9a41-0c6d2f1b7a90",
    "pull": 7,
    "head_sha": HEAD,
    "by": "ada",
    "comment": 41,
    "estimate_minutes": 8.0,
    "created": "2026-11-30T09:00:00+00:00",
}
INERT = re.compile(r"[A-Za-z0-9_.:/@*?,-]*")
"""What an argument of a dispatched command consists of: nothing that any shell, template or log takes for more."""


def line_holds(body: str) -> None:
    """A comment is read, refused in one sentence, or not for us; what is dispatched of it is inert and is known again."""
    command, refusal = None, ""
    try:
        line = read_line(body, bare=frozenset(BY_NAME))
        command = understand(line) if line is not None else None
    except BadLine as error:
        refusal = str(error)
    assert "\n" not in refusal
    assert len(refusal) < 500
    assert command is not None or refusal or not addressed(body), "a comment that begins with /assay is answered"
    if command is None:
        return
    known = {a.name for a in command.verb.arguments}
    assert set(command.arguments) <= known
    assert all(a.name in command.arguments for a in command.verb.arguments if a.required)
    if command.verb.name == "accept":
        acceptance_holds(command.arguments)
    if command.verb.workflow:
        sent = {k: v for k, v in command.arguments.items() if v and k != "head"}
        assert all(INERT.fullmatch(value) for value in sent.values())
        assert carried(command.verb.name, sent), "what the parser gives is what verify takes"
        outputs_hold(command.verb.name, sent)


def acceptance_holds(arguments: Mapping[str, str]) -> None:
    """What is written down of an acceptance is read again, and the policy can hold it: else it would cover nothing."""
    facts = AcceptedFacts.model_validate_json(
        json.dumps(
            {
                "id": ENTRY["id"],
                "task": arguments["task"].partition("/")[0],
                "metric": arguments["task"].partition("/")[2],
                "reason": arguments["reason"],
                "by": "ada",
                "expires": arguments["expires"],
                "up_to": arguments.get("up-to", ""),
                "pull": 7,
                "created": ENTRY["created"],
            }
        )
    )
    [entry] = as_policy([facts])
    assert entry.expires.isoformat() == arguments["expires"]


def outputs_hold(verb: str, arguments: Mapping[str, object]) -> None:
    """An entry of the journal is refused, or the runner reads exactly its outputs out of what is written for it."""
    try:
        entry = Dispatched.model_validate_json(json.dumps({**ENTRY, "verb": verb, "arguments": arguments}))
    except ValidationError:
        return
    written = outputs_of(entry)
    wanted = {"sha": HEAD, "verb": verb, "arguments": json.dumps(entry.arguments, sort_keys=True), **entry.arguments}
    assert outputs_as_read(written) == list(wanted.items())[:3] + sorted(entry.arguments.items())
    assert all(INERT.fullmatch(value) for value in entry.arguments.values())


def outputs_as_read(text: str) -> list[tuple[str, str]]:
    """The outputs of a step, as the runner reads its file: `name=value`, or `name<<end` and lines up to `end`.

    Source: actions/runner, `FileCommandManager.cs`: the first of `=` and `<<` in a line decides, line ends are LF or CRLF.
    """
    found: list[tuple[str, str]] = []
    lines = re.split(r"\r?\n", text)
    while lines:
        line = lines.pop(0)
        if not line:
            continue
        equals, heredoc = line.find("="), line.find("<<")
        if equals >= 0 and (heredoc < 0 or equals < heredoc):
            found.append((line[:equals], line[equals + 1 :]))
            continue
        assert heredoc > 0, f"the runner refuses {line!r}"
        name, end = line[:heredoc], line[heredoc + 2 :]
        value = []
        while lines and lines[0] != end:
            value.append(lines.pop(0))
        assert lines, "the runner refuses a value without its end"
        lines.pop(0)
        found.append((name, "\n".join(value)))
    return found
