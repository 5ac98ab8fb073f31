"""From a comment to operations: pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, timedelta

from assay.baselines.config import Configuration, parse_configuration
from assay.baselines.errors import InputError
from assay.baselines.policy import POOL, pools
from assay.bot.objects import APPROVAL
from assay.bot.slash import replies
from assay.bot.slash.acceptance import Series, meant, nearest, series_of
from assay.bot.slash.entries import command_path, spent_path
from assay.bot.slash.line import BadLine, read_line, verb_of
from assay.bot.slash.operations import (
    Cancel,
    Dispatch,
    Hold,
    PinHead,
    React,
    Record,
    Reply,
    Report,
    Rerun,
    SlashOperation,
)
from assay.bot.slash.snapshot import CommandSnapshot
from assay.bot.slash.verbs import (
    BY_NAME,
    WORKFLOW_OF_REFRESH,
    Command,
    allowed,
    estimate,
    looks,
    needed,
    understand,
)


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
        return _refused(seen, replies.bad_line(str(error), BY_NAME.get(verb_of(seen.body))))
    if not allowed(command, seen.permission):
        return _refused(seen, replies.denied(command, seen.permission))
    if not seen.open and needed(command) != "read" and command.verb.name != "cancel":  # what was started may still run
        return _refused(seen, replies.closed())
    if problem and ("budget" in looks(command) or command.verb.name == "accept"):
        return _refused(seen, replies.bad_policy(problem, seen.default_branch))
    return [React(seen.comment, "eyes"), *_act(seen, command, configuration)]


def _act(seen: CommandSnapshot, command: Command, configuration: Configuration) -> list[SlashOperation]:
    """Operations of a command that may be carried out."""
    match command.verb.name:
        case "help":
            topic = command.arguments.get("verb", "")
            if topic and topic not in BY_NAME:
                return _no(seen, replies.unknown_verb(topic))
            return _answer(seen, replies.help_text(topic))
        case "status":
            return _answer(seen, replies.status(seen, configuration.commands))
        case "baseline" if command.arguments["action"] == "show":
            return _answer(seen, replies.baseline(seen))
        case "baseline":
            return _refresh(seen, command, configuration)
        case "accept":
            return _accept(seen, command, configuration)
        case "milestones":
            return _answer(seen, replies.milestones(seen))
        case "gate":
            if not any(r.finished and r.conclusion != APPROVAL for r in seen.runs):
                return _no(seen, replies.nothing_to_compare(seen))
            return [*_answer(seen, replies.rebuilding(seen)), Report(seen.head_sha), React(seen.comment, "rocket")]
        case "cancel":
            running = [r for r in seen.runs if not r.finished]
            if not running:
                return _no(seen, replies.cancelled(running))
            return [
                *_answer(seen, replies.cancelled(running)),
                *(Cancel(r.id) for r in running),
                React(seen.comment, "rocket"),
            ]
        case "rerun":
            newest = next((r for r in seen.runs if r.finished and not r.command), None)
            if newest is None:
                return _no(seen, replies.nothing_to_rerun(seen))
            if newest.conclusion == APPROVAL:  # no command stands for the look that GitHub asks for
                return _no(seen, replies.not_approved(newest))
            over = _over_budget(seen, command, configuration)
            if over:
                return _no(seen, over)
            return [
                *_answer(seen, replies.rerunning(newest)),
                Rerun(newest.id),
                _spent(seen, command),
                React(seen.comment, "rocket"),
            ]
        case _:
            return _dispatch(seen, command, configuration)


def _dispatch(seen: CommandSnapshot, command: Command, configuration: Configuration) -> list[SlashOperation]:
    assert seen.pull is not None
    workflow, settings = command.verb.workflow, configuration.commands
    if workflow not in seen.workflows:
        return _no(seen, replies.no_workflow(command, workflow, seen.default_branch))
    moved = _moved(seen, command)
    if moved:
        return _no(seen, moved)
    over = _over_budget(seen, command, configuration)
    if over:
        return _no(seen, over)
    arguments = {k: v for k, v in command.arguments.items() if v and k != "head"}
    minutes = estimate(command, _tasks(seen))
    entry = {
        "schema_version": 1,
        "id": seen.id,
        "pull": seen.pull,
        "head_sha": seen.head_sha,
        "verb": command.verb.name,
        "arguments": arguments,
        "by": seen.author,
        "comment": seen.comment,
        "estimate_minutes": minutes,
        "created": seen.now.isoformat(),
    }
    # All that people wrote travels as one JSON text: the workflow reads it with a parser and never pastes it into a script.
    inputs = (("id", seen.id), ("pull", str(seen.pull)), ("head", seen.head_sha), ("arguments", _json(arguments)))
    path = command_path(seen.pull, seen.head_sha, seen.id, seen.author, minutes, seen.now)
    return [
        *_answer(seen, replies.dispatched(seen, command, minutes, settings)),
        PinHead(f"assay/{command.verb.name}", seen.head_sha, seen.id),
        Record(path, _json(entry).encode() + b"\n", f"Command {command.verb.name} on #{seen.pull}"),
        Hold(seen.pull, seen.author, settings.minutes_per_pull, settings.minutes_per_user),
        Dispatch(workflow, seen.default_branch, inputs),
        React(seen.comment, "rocket"),
    ]


def _moved(seen: CommandSnapshot, command: Command) -> str:
    """The refusal when the head may be another than the one that the author of the comment saw, else an empty text.

    Naming it settles the matter. Otherwise it must have been there before the comment; a push in the same second counts as
    one after it, for GitHub gives no fractions.
    """
    wanted = command.arguments.get("head", "")
    if wanted:
        return "" if seen.head_sha.startswith(wanted) else replies.other_head(seen, wanted)
    if seen.commented is None:  # a snapshot from before this was looked at
        return ""
    if seen.pushed is None:
        sure = seen.last_push is not None and seen.last_push < seen.commented
        return "" if sure else replies.push_unknown(seen)
    return replies.pushed_after(seen) if seen.pushed >= seen.commented else ""


def _refresh(seen: CommandSnapshot, command: Command, configuration: Configuration) -> list[SlashOperation]:
    """Measure the default branch again and publish it: no code of the pull request runs, so nothing is pinned."""
    if WORKFLOW_OF_REFRESH not in seen.workflows:
        return _no(seen, replies.no_workflow(command, WORKFLOW_OF_REFRESH, seen.default_branch))
    over = _over_budget(seen, command, configuration)
    if over:
        return _no(seen, over)
    return [
        *_answer(seen, replies.refreshing(seen)),
        Dispatch(WORKFLOW_OF_REFRESH, seen.default_branch, ()),
        _spent(seen, command),
        React(seen.comment, "rocket"),
    ]


def _spent(seen: CommandSnapshot, command: Command) -> Record:
    """What a command that starts a run of another name counts for: its estimate, for nothing tells the two together later."""
    assert seen.pull is not None
    minutes = estimate(command, _tasks(seen))
    path = spent_path(f"{seen.now:%Y-%m}", seen.pull, seen.author, seen.id, minutes)
    entry = {"verb": command.verb.name, "minutes": round(minutes, 1), "by": seen.author, "estimate": True}
    return Record(path, _json(entry).encode() + b"\n", f"Spent by {command.verb.name} on #{seen.pull}")


def _over_budget(seen: CommandSnapshot, command: Command, configuration: Configuration) -> str:
    """The refusal when the estimate does not fit what is left, else an empty text."""
    settings = configuration.commands
    expected = estimate(command, _tasks(seen))
    left_pull = settings.minutes_per_pull - seen.spent_pull - seen.reserved_pull
    left_user = settings.minutes_per_user - seen.spent_user - seen.reserved_user
    if expected > min(left_pull, left_user) + 1e-9:
        return replies.over_budget(command, expected, max(left_pull, 0.0), max(left_user, 0.0), settings)
    return ""


def _tasks(seen: CommandSnapshot) -> list[str]:
    """The baseline's tasks."""
    return list(dict.fromkeys(metric.partition("/")[0] for metric in seen.metrics or ()))


def _accept(seen: CommandSnapshot, command: Command, configuration: Configuration) -> list[SlashOperation]:
    assert seen.pull is not None
    arguments, days = command.arguments, configuration.commands.accept_days
    expires, today = date.fromisoformat(arguments["expires"]), seen.now.date()
    if expires < today or expires > today + timedelta(days=days):
        return _no(seen, replies.bad_expiry(expires, today, days))
    series, refusal = _meant(arguments["task"], seen, configuration)
    if refusal:
        return _no(seen, refusal)
    task, metric = series
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
        *_answer(seen, replies.accepted(seen, command)),
        Record(
            f"accepted/{expires.isoformat()}/{seen.id}.json",
            _json(entry).encode() + b"\n",
            f"{seen.author} accepts {task} until {expires}",
        ),
        Report(seen.head_sha),
        React(seen.comment, "rocket"),
    ]


def _meant(wanted: str, seen: CommandSnapshot, configuration: Configuration) -> tuple[Series, str]:
    """The task and metric to accept, and the refusal when nothing that is compared can ever be meant."""
    there = pools(configuration.gate)
    pooled = "/" not in wanted and wanted.partition(":")[0] == POOL
    # The pools of another base branch stand in a policy that was not looked at.
    if pooled and (wanted in there or seen.base_ref != seen.default_branch):
        return (wanted, ""), ""
    known = [*map(series_of, seen.metrics or ()), *seen.compared]
    found = meant(wanted, known)  # a task, or a model, may have such a name
    if found is not None:
        return found, ""
    if pooled:
        return ("", ""), replies.no_pool(wanted, seen.default_branch, there, nearest(wanted, [], there))
    if seen.metrics is None:  # the ledger could not be looked at: the report will show what the entry covers
        return series_of(wanted), ""
    refusal = replies.unknown_task(wanted, nearest(wanted, known, there)) if known else replies.nothing_to_accept(seen)
    return ("", ""), refusal


def _answer(seen: CommandSnapshot, text: str) -> list[SlashOperation]:
    assert seen.pull is not None
    return [Reply(seen.pull, _marked(seen, text))]


def _no(seen: CommandSnapshot, text: str) -> list[SlashOperation]:
    """A refusal after the eyes."""
    return [*_answer(seen, text), React(seen.comment, "confused")]


def _refused(seen: CommandSnapshot, text: str) -> list[SlashOperation]:
    return [React(seen.comment, "eyes"), *_no(seen, text)]


def _marked(seen: CommandSnapshot, text: str) -> str:
    return f"{replies.marker(seen.comment, seen.id)}\n{text}\n"


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True)
