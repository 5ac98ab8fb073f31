"""What the journal holds about commands: dispatched ones, accepted regressions, spent minutes. Read strictly."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints, ValidationError, model_validator

from assay.baselines.errors import InputError
from assay.baselines.evidence import CommitSha, Strict
from assay.baselines.policy import Accepted
from assay.bot.slash.snapshot import AcceptedFacts
from assay.bot.slash.verbs import carried

ACCEPTED = re.compile(r"^accepted/(\d{4}-\d{2}-\d{2})/([0-9a-f-]{36})\.json$")
COMMAND = re.compile(
    r"^commands/(\d+)/([0-9a-f]{12})/([0-9a-f-]{36})"
    r"(?:\.(?P<user>[A-Za-z0-9_-]+)\.(?P<minutes>\d+\.\d)\.(?P<moment>\d{8}T\d{4}Z))?\.json$"
)
SPENT = re.compile(r"^spent/(\d{4}-\d{2})/(\d+)/([A-Za-z0-9_-]+)/([0-9a-f-]{36})\.(\d+\.\d)\.json$")
IDENTIFIER = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
RUN = re.compile(rf"\bassay ({IDENTIFIER.pattern})\b")
WORKFLOW = re.compile(r"^\.github/workflows/assay-[a-z0-9-]+\.ya?ml$")
MAX_ACCEPTED = 200
MAY_START = timedelta(days=2)
"""A command older than this starts nothing more: GitHub itself drops a job that waited a day for a runner."""
MAY_RUN = timedelta(days=7)
"""After this nothing of a command runs any more (a job on a runner of one's own ends after five days), and what was
reserved for it is free again."""


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a moment has its zone")
    return text


Identifier = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
Moment = Annotated[str, StringConstraints(max_length=40), AfterValidator(_moment)]


class Dispatched(Strict):
    """A command that was dispatched. Whoever may write to the repository may write to the journal, so that every field is
    held against the form that assay gives it before a workflow gets to see it."""

    schema_version: int = 1
    id: Identifier
    pull: Annotated[int, Field(ge=1)]
    head_sha: CommitSha
    verb: Annotated[str, StringConstraints(pattern=r"^[a-z]{1,20}$")]
    arguments: dict[str, str] = Field(default_factory=dict)
    by: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_\[\]-]{1,100}$")]
    comment: Annotated[int, Field(ge=0)]
    estimate_minutes: Annotated[float, Field(ge=0, le=1e9)]
    created: Moment

    @model_validator(mode="after")
    def _carried(self) -> Dispatched:
        if not carried(self.verb, self.arguments):
            raise ValueError("no command that the verb takes")
        return self


def is_identifier(text: str) -> bool:
    """Whether a text is the UUID of a command."""
    return IDENTIFIER.fullmatch(text) is not None


def command_of(title: str) -> str:
    """UUID in the title of a run that a command dispatched; empty for any other run."""
    found = RUN.search(title)
    return found[1] if found else ""


def command_of_run(run: Any, default_branch: str) -> str:
    """UUID of the command that dispatched a run; empty for any other.

    A title proves nothing: somebody who may push a branch may dispatch a workflow of that branch under any title. So only
    assay's own workflows count, as the default branch has them.
    """
    ours = run.event == "workflow_dispatch" and run.head_branch == default_branch and WORKFLOW.match(run.path)
    return command_of(run.title) if ours else ""


def commands_of(paths: Iterable[str], pull: int) -> dict[str, str]:
    """UUID -> first 12 digits of its head, of the commands that were dispatched for a pull request."""
    matches = (COMMAND.match(path) for path in paths)
    return {match[3]: match[2] for match in matches if match and int(match[1]) == pull}


def command_for(path: str, head_sha: str) -> str:
    """UUID of the command that a journal path holds, when it was for this head; else empty."""
    match = COMMAND.match(path)
    return match[3] if match and head_sha.startswith(match[2]) else ""


def path_of(paths: Iterable[str], identifier: str) -> str | None:
    """Journal path of a dispatched command."""
    return next((path for path in paths if (match := COMMAND.match(path)) and match[3] == identifier), None)


def command_path(pull: int, head_sha: str, identifier: str, user: str, minutes: float, now: datetime) -> str:
    """Where the journal keeps a dispatched command. Who, how long and when stand in the name, so that a listing is enough
    to know what is reserved."""
    moment = now.astimezone(UTC)
    return f"commands/{pull}/{head_sha[:12]}/{identifier}.{name_of(user)}.{minutes:.1f}.{moment:%Y%m%dT%H%MZ}.json"


def spent_path(month: str, pull: int, user: str, identifier: str, minutes: float) -> str:
    """Where the journal keeps what a command spent; the minutes stand in the name, so that a listing is enough."""
    return f"spent/{month}/{pull}/{name_of(user)}/{identifier}.{minutes:.1f}.json"


def name_of(user: str) -> str:
    """A login as part of a path."""
    return "".join(c if (c.isascii() and c.isalnum()) or c == "-" else "_" for c in user) or "_"


def spent(paths: Iterable[str], pull: int, user: str, month: str) -> tuple[float, float]:
    """GPU minutes spent for a pull request, and by a user's commands in a month (`2026-11`)."""
    name = name_of(user)
    for_pull = by_user = 0.0
    for path in paths:
        match = SPENT.match(path)
        if match is None:
            continue
        minutes = float(match[5])
        for_pull += minutes if int(match[2]) == pull else 0.0
        by_user += minutes if match[1] == month and match[3] == name else 0.0
    return for_pull, by_user


def ended(paths: Iterable[str]) -> set[str]:
    """UUIDs of the commands whose minutes are written down: they are over."""
    return {match[4] for path in paths if (match := SPENT.match(path))}


def reserved(paths: Sequence[str], pull: int, user: str, now: datetime) -> tuple[float, float]:
    """GPU minutes that commands in flight are expected to take, for a pull request and for a user.

    In flight is what was dispatched within `MAY_RUN`, and of which nothing is written down as spent.
    """
    over, name = ended(paths), name_of(user)
    for_pull = by_user = 0.0
    for path in paths:
        match = COMMAND.match(path)
        if match is None or match["user"] is None or match[3] in over:
            continue
        if now - datetime.strptime(match["moment"], "%Y%m%dT%H%MZ").replace(tzinfo=UTC) > MAY_RUN:
            continue
        minutes = float(match["minutes"])
        for_pull += minutes if int(match[1]) == pull else 0.0
        by_user += minutes if match["user"] == name else 0.0
    return for_pull, by_user


def holding(paths: Iterable[str], today: date) -> list[str]:
    """Paths of the accepted regressions that hold today, oldest expiry first; the `MAX_ACCEPTED` newest by expiry."""
    return sorted(p for p in paths if (match := ACCEPTED.match(p)) and match[1] >= today.isoformat())[-MAX_ACCEPTED:]


def accepted(paths: Iterable[str], read: Callable[[str], bytes | None], today: date) -> tuple[AcceptedFacts, ...]:
    """Accepted regressions that hold today, oldest expiry first; an entry that cannot be read is left out."""
    found = []
    for path in holding(paths, today):
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
    """A dispatched command. Raises `InputError` when the journal does not hold it, or holds what assay did not write."""
    if data is None:
        raise InputError(
            f"the journal holds no command {identifier[:40]}: only commands that assay dispatched may run."
        )
    try:
        entry = Dispatched.model_validate_json(data)
    except ValidationError:
        raise InputError(
            f"the journal's entry of {identifier[:40]} is none that assay wrote: it was changed by hand; ask again."
        ) from None
    if entry.id != identifier:
        raise InputError(f"the journal's entry of {identifier[:40]} names another command: it was changed by hand.")
    return entry
