"""From a comment to operations: pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, timedelta

from assay.baselines.config import Configuration, parse_configuration
from assay.baselines.errors import InputError
from assay.bot.slash import replies
from assay.bot.slash.line import BadLine, read_line
from assay.bot.slash.operations import (
    Cancel,
    Dispatch,
    PinHead,
    React,
    Record,
    Reply,
    Report,
    Rerun,
    SlashOperation,
)
from assay.bot.slash.snapshot import CommandSnapshot
from assay.bot.slash.verbs import BY_NAME, WORKFLOW_OF_REFRESH, Command, allowed, understand


def plan(seen: CommandSnapshot) -> list[SlashOperation]:
    """What to do about a comment. Nothing for one that is no command of ours: a bot's, an edit, an issue's, plain talk."""
    if seen.action != "created" or seen.bot or seen.pull is None or seen.answered:
        return []
    try:
        configuration = parse_configuration((seen.configuration or "").encode())
        problem = ""
    except InputError as error:
        configuration, problem = Configuration(), str(error)
    bare = frozenset(BY_NAME) if configuration.commands.bare else frozenset()
    try:
        line = read_line(seen.body, bare=bare)
        if line is None:
            return []
        command = understand(line)
    except BadLine as error:
        verb = line.verb if (line := _verb_of(seen.body, bare)) else ""
        return _refused(seen, replies.bad_line(str(error), BY_NAME.get(verb)))
    if not allowed(command, seen.permission):
        return _refused(seen, replies.denied(command, seen.permission))
    if not seen.open:
        return _refused(seen, replies.closed())
    if problem:
        return _refused(seen, replies.bad_policy(problem, seen.base_ref))
    return [React(seen.comment, "eyes"), *_act(seen, command, configuration)]


def command_path(pull: int, head_sha: str, identifier: str) -> str:
    """Where the journal keeps a dispatched command."""
    return f"commands/{pull}/{head_sha[:12]}/{identifier}.json"


def spent_path(month: str, pull: int, user: str, identifier: str, minutes: float) -> str:
    """Where the journal keeps what a command spent; the minutes stand in the name, so that a listing is enough."""
    name = "".join(c if c.isalnum() or c == "-" else "_" for c in user)
    return f"spent/{month}/{pull}/{name}/{identifier}.{minutes:.1f}.json"


def _act(seen: CommandSnapshot, command: Command, configuration: Configuration) -> list[SlashOperation]:
    """Operations of a command that may be carried out."""
    assert seen.pull is not None
    done: list[SlashOperation]
    match command.verb.name:
        case "help":
            topic = command.arguments.get("verb", "")
            if topic and topic not in BY_NAME:
                return [Reply(seen.pull, _marked(seen, replies.unknown_verb(topic))), React(seen.comment, "confused")]
            return [Reply(seen.pull, _marked(seen, replies.help_text(topic)))]
        case "status":
            return [Reply(seen.pull, _marked(seen, replies.status(seen, configuration.commands)))]
        case "baseline" if command.arguments["action"] == "show":
            return [Reply(seen.pull, _marked(seen, replies.baseline(seen)))]
        case "baseline":
            return _refresh(seen, command, configuration)
        case "accept":
            return _accept(seen, command, configuration.commands.accept_days)
        case "gate" | "milestones":
            return [
                Reply(seen.pull, _marked(seen, replies.rebuilding(seen))),
                Report(seen.head_sha),
                React(seen.comment, "rocket"),
            ]
        case "cancel":
            running = [r for r in seen.runs if not r.finished]
            done = [Cancel(r.id) for r in running]
            return [
                *done,
                Reply(seen.pull, _marked(seen, replies.cancelled(running))),
                React(seen.comment, "rocket" if running else "confused"),
            ]
        case "rerun":
            newest = next((r for r in seen.runs if r.finished and not r.command), None)
            if newest is None:
                return _refused(seen, replies.nothing_to_rerun(seen))[1:]
            over = _over_budget(seen, command, configuration)
            if over:
                return [Reply(seen.pull, _marked(seen, over)), React(seen.comment, "confused")]
            return [
                Rerun(newest.id),
                Reply(seen.pull, _marked(seen, replies.rerunning(newest))),
                React(seen.comment, "rocket"),
            ]
        case _:
            return _dispatch(seen, command, configuration)


def _dispatch(seen: CommandSnapshot, command: Command, configuration: Configuration) -> list[SlashOperation]:
    assert seen.pull is not None
    workflow = command.verb.workflow
    if workflow not in seen.workflows:
        return [
            Reply(seen.pull, _marked(seen, replies.no_workflow(command, workflow, seen.default_branch))),
            React(seen.comment, "confused"),
        ]
    over = _over_budget(seen, command, configuration)
    if over:
        return [Reply(seen.pull, _marked(seen, over)), React(seen.comment, "confused")]
    arguments = {k: v for k, v in command.arguments.items() if v}
    estimate = command.verb.minutes(arguments)
    entry = {
        "schema_version": 1,
        "id": seen.id,
        "pull": seen.pull,
        "head_sha": seen.head_sha,
        "verb": command.verb.name,
        "arguments": arguments,
        "by": seen.author,
        "comment": seen.comment,
        "estimate_minutes": estimate,
        "created": seen.now.isoformat(),
    }
    # All that people wrote travels as one JSON text: the workflow reads it with a parser and never pastes it into a script.
    inputs = (("id", seen.id), ("pull", str(seen.pull)), ("head", seen.head_sha), ("arguments", _json(arguments)))
    path = command_path(seen.pull, seen.head_sha, seen.id)
    return [
        Reply(seen.pull, _marked(seen, replies.dispatched(seen, command, estimate, configuration.commands))),
        PinHead(f"assay/{command.verb.name}", seen.head_sha, seen.id),
        Record(path, _json(entry).encode() + b"\n", f"Command {command.verb.name} on #{seen.pull}"),
        Dispatch(workflow, seen.default_branch, inputs),
        React(seen.comment, "rocket"),
    ]


def _refresh(seen: CommandSnapshot, command: Command, configuration: Configuration) -> list[SlashOperation]:
    """Measure the default branch again and publish it: no code of the pull request runs, so nothing is pinned."""
    assert seen.pull is not None
    if WORKFLOW_OF_REFRESH not in seen.workflows:
        text = replies.no_workflow(command, WORKFLOW_OF_REFRESH, seen.default_branch)
        return [Reply(seen.pull, _marked(seen, text)), React(seen.comment, "confused")]
    over = _over_budget(seen, command, configuration)
    if over:
        return [Reply(seen.pull, _marked(seen, over)), React(seen.comment, "confused")]
    return [
        Dispatch(WORKFLOW_OF_REFRESH, seen.default_branch, ()),
        Reply(seen.pull, _marked(seen, replies.refreshing(seen))),
        React(seen.comment, "rocket"),
    ]


def _over_budget(seen: CommandSnapshot, command: Command, configuration: Configuration) -> str:
    """The refusal when the estimate does not fit what is left, else an empty text."""
    settings = configuration.commands
    estimate = command.verb.minutes(command.arguments)
    left_pull, left_user = settings.minutes_per_pull - seen.spent_pull, settings.minutes_per_user - seen.spent_user
    if estimate > min(left_pull, left_user) + 1e-9:
        return replies.over_budget(command, estimate, max(left_pull, 0.0), max(left_user, 0.0), settings)
    return ""


def _accept(seen: CommandSnapshot, command: Command, days: int) -> list[SlashOperation]:
    assert seen.pull is not None
    arguments = command.arguments
    expires, today = date.fromisoformat(arguments["expires"]), seen.now.date()
    if expires < today or expires > today + timedelta(days=days):
        text = replies.bad_expiry(expires, today, days)
        return [Reply(seen.pull, _marked(seen, text)), React(seen.comment, "confused")]
    task, _, metric = arguments["task"].partition("/")
    entry = {
        "schema_version": 1,
        "id": seen.id,
        "task": task,
        "metric": metric,
        "reason": arguments["reason"],
        "by": seen.author,
        "expires": expires.isoformat(),
        "up_to": arguments.get("up-to", ""),
        "pull": seen.pull,
        "created": seen.now.isoformat(),
    }
    return [
        Record(
            f"accepted/{expires.isoformat()}/{seen.id}.json",
            _json(entry).encode() + b"\n",
            f"{seen.author} accepts {task} until {expires}",
        ),
        Reply(seen.pull, _marked(seen, replies.accepted(seen, command))),
        Report(seen.head_sha),
        React(seen.comment, "rocket"),
    ]


def _refused(seen: CommandSnapshot, text: str) -> list[SlashOperation]:
    assert seen.pull is not None
    return [React(seen.comment, "eyes"), Reply(seen.pull, _marked(seen, text)), React(seen.comment, "confused")]


def _marked(seen: CommandSnapshot, text: str) -> str:
    return f"{replies.marker(seen.comment, seen.id)}\n{text}\n"


def _verb_of(body: str, bare: frozenset[str]):  # type: ignore[no-untyped-def]
    try:
        return read_line(body, bare=bare)
    except BadLine:
        return None


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True)
