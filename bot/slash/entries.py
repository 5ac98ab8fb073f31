"""What the journal holds about commands: dispatched ones, accepted regressions, spent minutes. Read strictly."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import date

from pydantic import Field, ValidationError

from assay.baselines.errors import InputError
from assay.baselines.evidence import Strict
from assay.baselines.policy import Accepted
from assay.bot.slash.snapshot import AcceptedFacts

ACCEPTED = re.compile(r"^accepted/(\d{4}-\d{2}-\d{2})/([0-9a-f-]{36})\.json$")
COMMAND = re.compile(r"^commands/(\d+)/([0-9a-f]{12})/([0-9a-f-]{36})\.json$")
SPENT = re.compile(r"^spent/(\d{4}-\d{2})/(\d+)/([A-Za-z0-9_-]+)/([0-9a-f-]{36})\.(\d+\.\d)\.json$")
RUN = re.compile(r"\bassay ([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b")
MAX_ACCEPTED = 200


class Dispatched(Strict):
    """A command that was dispatched."""

    schema_version: int = 1
    id: str
    pull: int
    head_sha: str
    verb: str
    arguments: dict[str, str] = Field(default_factory=dict)
    by: str
    comment: int
    estimate_minutes: float
    created: str


def command_of(title: str) -> str:
    """UUID in the title of a run that a command dispatched; empty for any other run."""
    found = RUN.search(title)
    return found[1] if found else ""


def commands_at(paths: Iterable[str], pull: int, head_sha: str) -> dict[str, str]:
    """UUID -> journal path of the commands that were dispatched for a head."""
    found = {}
    for path in paths:
        match = COMMAND.match(path)
        if match and int(match[1]) == pull and head_sha.startswith(match[2]):
            found[match[3]] = path
    return found


def command_for(path: str, head_sha: str) -> str:
    """UUID of the command that a journal path holds, when it was for this head; else empty."""
    match = COMMAND.match(path)
    return match[3] if match and head_sha.startswith(match[2]) else ""


def path_of(paths: Iterable[str], identifier: str) -> str | None:
    """Journal path of a dispatched command."""
    return next((path for path in paths if (match := COMMAND.match(path)) and match[3] == identifier), None)


def spent(paths: Iterable[str], pull: int, user: str, month: str) -> tuple[float, float]:
    """GPU minutes spent for a pull request, and by a user's commands in a month (`2026-11`)."""
    name = "".join(c if c.isalnum() or c == "-" else "_" for c in user)
    for_pull = by_user = 0.0
    for path in paths:
        match = SPENT.match(path)
        if match is None:
            continue
        minutes = float(match[5])
        for_pull += minutes if int(match[2]) == pull else 0.0
        by_user += minutes if match[1] == month and match[3] == name else 0.0
    return for_pull, by_user


def accepted(paths: Iterable[str], read: Callable[[str], bytes | None], today: date) -> tuple[AcceptedFacts, ...]:
    """Accepted regressions that hold today, oldest expiry first; an entry that cannot be read is left out.

    The newest `MAX_ACCEPTED` by expiry are read, a request each.
    """
    names = sorted(path for path in paths if (match := ACCEPTED.match(path)) and match[1] >= today.isoformat())
    found = []
    for path in names[-MAX_ACCEPTED:]:
        data = read(path)
        try:
            entry = json.loads(data or b"")
            entry.pop("schema_version", None)
            facts = AcceptedFacts.model_validate(entry)
            as_policy([facts])  # what the policy cannot hold would refuse every report
        except (ValueError, AttributeError, TypeError, ValidationError):
            continue
        if facts.expires == path.split("/")[1]:
            found.append(facts)
    return tuple(found)


def as_policy(entries: Iterable[AcceptedFacts]) -> list[Accepted]:
    """Journal entries in the form of the policy's own."""
    return [
        Accepted.model_validate(
            {
                "task": e.task,
                "metric": e.metric or None,
                "reason": e.reason,
                "by": e.by,
                "expires": date.fromisoformat(e.expires),
                "up-to": float(e.up_to) if e.up_to else None,
            }
        )
        for e in entries
    ]


def dispatched(data: bytes | None, identifier: str) -> Dispatched:
    """A dispatched command. Raises `InputError` when the journal does not hold it."""
    try:
        entry = Dispatched.model_validate_json(data or b"")
    except ValidationError:
        raise InputError(
            f"the journal holds no command {identifier[:40]}: only commands that assay dispatched may run."
        ) from None
    if entry.id != identifier:
        raise InputError(f"the journal's entry of {identifier[:40]} names another command: it was changed by hand.")
    return entry
