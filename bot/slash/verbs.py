"""The verbs: what each takes, who may use it, what it dispatches and what that costs."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from assay.bot.slash.line import BadLine, Line
from assay.bot.slash.values import commit, day, drop, milliseconds, name, names, points, sentence, whole

Permission = Literal["read", "write", "admin"]
RANK = {"none": 0, "read": 1, "triage": 1, "write": 2, "maintain": 2, "admin": 3}

Look = Literal["budget", "workflows", "runs", "accepted", "baseline", "metrics", "compared", "push", "milestones"]
"""budget: the journal's list; metrics: those of the baseline; compared: what the reports at the head compare; push: since when
the head is the head."""
STARTING: frozenset[Look] = frozenset({"budget", "workflows", "push"})
"""What a verb with a workflow looks at."""
UNKNOWN_TASKS = 3


@dataclass(frozen=True)
class Argument:
    """One word, `key=value` or `--flag` of a verb. `read` turns the text into its value or raises `BadLine`."""

    name: str
    help: str
    kind: Literal["word", "option", "flag"] = "option"
    required: bool = False
    default: str = ""
    choices: tuple[str, ...] = ()
    read: Callable[[str], str] = lambda text: text

    @property
    def spelling(self) -> str:
        """How it is written."""
        return {"word": f"<{self.name}>", "option": f"{self.name}=…", "flag": f"--{self.name}"}[self.kind]

    @property
    def usage(self) -> str:
        shown = self.spelling
        if self.choices and self.kind == "word":
            shown = "|".join(self.choices)
        return shown if self.required else f"[{shown}]"


@dataclass(frozen=True)
class Verb:
    """A command that people can write."""

    name: str
    summary: str
    arguments: tuple[Argument, ...] = ()
    permission: Permission = "write"
    workflow: str = ""
    """File of the workflow that does the work; empty when the answer is given at once."""
    minutes: Callable[[Mapping[str, str], Sequence[str]], float] = lambda *_: 0.0
    """Expected GPU minutes for these arguments, given the baseline's tasks."""
    looks: frozenset[Look] = frozenset()
    """What answering needs to be looked at, besides the pull request and who asks."""
    example: str = ""
    terminal: str = ""
    """What does the same in a terminal, where that has another name; a sentence for a terminal and for a comment."""

    @property
    def usage(self) -> str:
        return " ".join(["/assay", self.name, *(a.usage for a in self.arguments)])


@dataclass(frozen=True)
class Command:
    """A line that a verb understands, with every default filled in."""

    verb: Verb
    arguments: Mapping[str, str] = field(default_factory=dict)


def evaluation_minutes(arguments: Mapping[str, str], known: Sequence[str] = ()) -> float:
    """Minutes of an evaluation: a start of 3, and 200 multiple-choice examples a minute for each task.

    `known` are the baseline's tasks: a name or pattern counts those that it stands for, as a task group does (`mmlu`), and
    no name at all counts every one of them. Where nothing is known a name counts once, and none as `UNKNOWN_TASKS`.
    """
    named = [n for n in arguments.get("tasks", "").split(",") if n]
    tasks = sum(max(1, len(members(n, known))) for n in named) if named else len(known) or UNKNOWN_TASKS
    return 3 + tasks * int(arguments.get("examples") or 1000) / 200


def members(name: str, known: Sequence[str]) -> list[str]:
    """The tasks that a name stands for: itself, what its pattern matches, or the members of a group (`mmlu_anatomy`)."""
    return [task for task in known if fnmatchcase(task, name) or task.startswith((f"{name}_", f"{name}:", f"{name}/"))]


_TASKS = Argument(
    "tasks", "tasks to measure, separated by commas; those of the workflow if left out", "word", read=names
)
_EXAMPLES = Argument("examples", "examples for each task", default="1000", read=whole(1, 1_000_000))
_HEAD = Argument(
    "head", "the commit that you looked at, 7 digits or more: anything else at the head is refused", read=commit
)

VERBS: tuple[Verb, ...] = (
    Verb(
        "help",
        "list the commands, or explain one",
        (Argument("verb", "the command to explain", "word", read=name),),
        "read",
    ),
    Verb(
        "evaluate",
        "measure the head's accuracy, with more examples or other tasks",
        (_TASKS, _EXAMPLES, Argument("grow", "add examples until every task is decided", "flag"), _HEAD),
        workflow="assay-run.yml",
        minutes=evaluation_minutes,
        looks=STARTING | {"metrics"},
        example="/assay evaluate arc_easy examples=1000",
    ),
    Verb(
        "bench",
        "time the head's kernels against main's",
        (Argument("kernels", "kernels to time, separated by commas", "word", read=names), _HEAD),
        workflow="assay-bench.yml",
        minutes=lambda *_: 15.0,
        looks=STARTING,
        example="/assay bench softmax",
    ),
    Verb(
        "compile",
        "compile the head's models for the NPU beside main's",
        (Argument("models", "models to compile, separated by commas", "word", read=names), _HEAD),
        workflow="assay-compile.yml",
        minutes=lambda *_: 5.0,
        looks=STARTING,
        example="/assay compile mobilenet",
    ),
    Verb(
        "profile",
        "profile the head on a device",
        (
            Argument("model", "model to profile", "word", read=name),
            Argument("device", "device to profile on", read=name),
            _HEAD,
        ),
        workflow="assay-profile.yml",
        minutes=lambda *_: 20.0,
        looks=STARTING,
        example="/assay profile mobilenet device=s24",
    ),
    Verb(
        "quantize",
        "quantize the head's checkpoint and measure what it costs",
        (
            Argument("method", "quantization method", "word", required=True, read=name),
            Argument("bits", "bits of a weight", default="4", choices=("2", "3", "4", "8")),
            _EXAMPLES,
            _HEAD,
        ),
        workflow="assay-quantize.yml",
        minutes=lambda arguments, known: 10 + evaluation_minutes(arguments, known),
        looks=STARTING | {"metrics"},
        example="/assay quantize gptq bits=4",
    ),
    Verb(
        "recommend",
        "recommend a configuration from the evidence",
        (
            Argument("floor", "lowest acceptable accuracy, in points", required=True, read=points),
            Argument("latency", "highest acceptable latency, in ms", read=milliseconds),
            _HEAD,
        ),
        workflow="assay-recommend.yml",
        minutes=lambda *_: 2.0,
        looks=STARTING,
        example="/assay recommend floor=60 latency=20",
    ),
    Verb(
        "gate",
        "compare again with the newest evidence and policy, and rewrite the comment",
        looks=frozenset({"runs"}),
    ),
    Verb(
        "baseline",
        "show the baseline of this pull request, or measure main again",
        (Argument("action", "show or refresh", "word", default="show", choices=("show", "refresh")),),
        permission="read",
        minutes=lambda _, known: evaluation_minutes({}, known),
        looks=frozenset({"baseline"}),
    ),
    Verb(
        "accept",
        "accept a regression on purpose, until a day",
        (
            Argument("task", "task or task/metric; pool for the pooled comparison", "word", required=True, read=name),
            Argument("reason", "why, for everyone who reads later reports", required=True, read=sentence),
            Argument("expires", "last day on which it holds", required=True, read=day),
            Argument("up-to", "largest drop in points that it covers", read=drop),
        ),
        looks=frozenset({"metrics", "compared"}),
        example='/assay accept hellaswag reason="INT4 ships to 4 GB phones" expires=2027-01-31',
        terminal="Without a comment, write it under `gate.accepted` of the base branch's `.github/assay.yml`.",
    ),
    Verb(
        "milestones",
        "show the capstone's checklist",
        permission="read",
        looks=frozenset({"milestones"}),
        terminal="In a terminal it is `assay capstone status`.",
    ),
    Verb(
        "rerun",
        "run the newest measurement of the head again",
        minutes=lambda _, known: evaluation_minutes({}, known),
        looks=frozenset({"runs", "budget", "metrics"}),
    ),
    Verb("cancel", "cancel what is running for this pull request", looks=frozenset({"runs"})),
    Verb(
        "status",
        "say what runs, what was spent and what is accepted",
        permission="read",
        looks=frozenset({"runs", "budget", "accepted"}),
    ),
)

BY_NAME = {verb.name: verb for verb in VERBS}
WORKFLOW_OF_REFRESH = "assay-publish.yml"


def understand(line: Line) -> Command:
    """The verb and its arguments, defaults filled in. Raises `BadLine` with what is wrong, and the nearest verb or key."""
    verb = BY_NAME.get(line.verb)
    if verb is None:
        near = nearest_verb(line.verb)
        hint = f"; did you mean {near}?" if near else ""
        raise BadLine(f"there is no command {line.verb[:40]!r}{hint}")
    found: dict[str, str] = {}
    places = [a for a in verb.arguments if a.kind == "word"]
    if len(line.words) > len(places):
        raise BadLine(f"{line.words[len(places)][:40]!r} is one word too many; a value with spaces goes in quotes")
    for argument, word in zip(places, line.words, strict=False):
        found[argument.name] = _value(argument, word)
    for key, text in line.options:
        argument = _known(verb, key, "option")
        if argument.name in found:
            raise BadLine(f"{argument.name} is there twice")
        found[argument.name] = _value(argument, text)
    for flag in line.flags:
        found[_known(verb, flag, "flag").name] = "true"
    missing = [a for a in verb.arguments if a.required and a.name not in found]
    if missing:
        raise BadLine(f"{missing[0].usage} is missing: {missing[0].help}")
    defaults = {a.name: a.default for a in verb.arguments if a.default}
    return Command(verb, {**defaults, **found})


def nearest_verb(word: str) -> str:
    """The verb most like a wrong one; empty when none is."""
    near = difflib.get_close_matches(word.casefold(), BY_NAME, n=1)
    return near[0] if near else ""


def asked_for(verb: Verb) -> str:
    """The permission of a verb in words, and that of the word which takes another."""
    other = needed(Command(verb, {"action": "refresh"}))
    return verb.permission if other == verb.permission else f"{verb.permission} (refresh: {other})"


def needed(command: Command) -> Permission:
    """The permission that a command takes; refreshing a baseline takes write, showing it read."""
    return "write" if refreshes(command) else command.verb.permission


def looks(command: Command) -> frozenset[Look]:
    """What answering a command needs to be looked at."""
    return frozenset({"budget", "workflows", "metrics"}) if refreshes(command) else command.verb.looks


def refreshes(command: Command) -> bool:
    """Whether the command measures the default branch again."""
    return command.verb.name == "baseline" and command.arguments.get("action") == "refresh"


def estimate(command: Command, known: Sequence[str]) -> float:
    """GPU minutes that a command is expected to take, given the baseline's tasks."""
    return command.verb.minutes(command.arguments, known)


def carried(verb: str, arguments: Mapping[str, str]) -> bool:
    """Whether a command as it was written down is one that its verb could have dispatched: every argument is known to the
    verb and stands in the one spelling that its reader gives, so that it is inert wherever it travels."""
    found = BY_NAME.get(verb)
    if found is None or not found.workflow:
        return False
    by_name = {a.name: a for a in found.arguments if a.name != "head"}
    try:
        return all(k in by_name and _carried(by_name[k], text) for k, text in arguments.items())
    except BadLine:
        return False


def _carried(argument: Argument, text: str) -> bool:
    return text == "true" if argument.kind == "flag" else _value(argument, text) == text


def allowed(command: Command, permission: str) -> bool:
    """Whether somebody with this permission on the repository may use the command."""
    return RANK.get(permission, 0) >= RANK[needed(command)]


def _known(verb: Verb, key: str, kind: str) -> Argument:
    for argument in verb.arguments:
        # A word may also be given by its name: `tasks=arc_easy`.
        if argument.name == key and (argument.kind == kind or (kind == "option" and argument.kind == "word")):
            return argument
    known = {a.name: a for a in verb.arguments}
    near = difflib.get_close_matches(key, known, n=1)
    shown = f"--{key[:40]}" if kind == "flag" else f"{key[:40]}="
    raise BadLine(f"{verb.name} takes no {shown}" + (f"; did you mean {known[near[0]].spelling}?" if near else ""))


def _value(argument: Argument, text: str) -> str:
    if argument.choices:
        if text.lower() not in argument.choices:
            raise BadLine(f"{argument.name} is one of {', '.join(argument.choices)}, not {text[:40]!r}")
        return text.lower()
    return argument.read(text)
