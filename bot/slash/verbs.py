"""The verbs: what each takes, who may use it, what it dispatches and what that costs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

from assay.bot.slash.line import BadLine, Line

Permission = Literal["read", "write", "admin"]
RANK = {"none": 0, "read": 1, "triage": 1, "write": 2, "maintain": 2, "admin": 3}

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.:/@*?-]{0,199}$")


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
    def usage(self) -> str:
        shown = {"word": f"<{self.name}>", "option": f"{self.name}=…", "flag": f"--{self.name}"}[self.kind]
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
    minutes: Callable[[Mapping[str, str]], float] = lambda _: 0.0
    """Expected GPU minutes for these arguments."""
    example: str = ""

    @property
    def usage(self) -> str:
        return " ".join(["/assay", self.name, *(a.usage for a in self.arguments)])


@dataclass(frozen=True)
class Command:
    """A line that a verb understands, with every default filled in."""

    verb: Verb
    arguments: Mapping[str, str] = field(default_factory=dict)


def name(text: str) -> str:
    """A task, metric, tag or run: letters, digits and `_ . : / @ * ? -`, so that it is inert wherever it travels."""
    if not _NAME.match(text) or ".." in text:
        raise BadLine(f"{text[:40]!r} is no name: letters, digits and _ . : / @ * - only")
    return text


def names(text: str) -> str:
    """Names separated by commas."""
    return ",".join(name(part.strip()) for part in text.split(","))


def whole(low: int, high: int) -> Callable[[str], str]:
    """A whole number in a range, with or without thousands separators."""

    def read(text: str) -> str:
        digits = text.replace(",", "").replace("_", "")
        digits = digits.lstrip("0") or digits[:1]
        if not digits.isascii() or not digits.isdigit() or len(digits) > 12 or not low <= int(digits) <= high:
            raise BadLine(f"{text[:20]!r} is no whole number from {low:,} to {high:,}")
        return digits

    return read


def points(text: str) -> str:
    """Points of accuracy, or per cent of perplexity."""
    if re.fullmatch(r"\d{1,3}(\.\d{1,4})?", text) is None or float(text) > 100:
        raise BadLine(f"{text[:20]!r} is no number of points such as 2.5")
    return text


def day(text: str) -> str:
    """A day as YYYY-MM-DD."""
    try:
        return date.fromisoformat(text).isoformat() if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text) else _no_day(text)
    except ValueError:
        return _no_day(text)


def _no_day(text: str) -> str:
    raise BadLine(f"{text[:20]!r} is no day such as 2027-01-31")


def sentence(text: str) -> str:
    """A reason: one line of 3 to 500 characters, shown escaped wherever it appears."""
    kept = " ".join(text.split())
    if not 3 <= len(kept) <= 500:
        raise BadLine("a reason has 3 to 500 characters")
    return kept


def evaluation_minutes(arguments: Mapping[str, str]) -> float:
    """Minutes of an evaluation: a start of 3, and 200 multiple-choice examples a minute for each task."""
    tasks = max(1, arguments.get("tasks", "").count(",") + 1) if arguments.get("tasks") else 3
    return 3 + tasks * int(arguments.get("examples") or 1000) / 200


_TASKS = Argument(
    "tasks", "tasks to measure, separated by commas; those of the workflow if left out", "word", read=names
)
_EXAMPLES = Argument("examples", "examples for each task", default="1000", read=whole(1, 1_000_000))

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
        (_TASKS, _EXAMPLES, Argument("grow", "add examples until every task is decided", "flag")),
        workflow="assay-run.yml",
        minutes=evaluation_minutes,
        example="/assay evaluate arc_easy examples=1000",
    ),
    Verb(
        "bench",
        "time the head's kernels against main's",
        (Argument("kernels", "kernels to time, separated by commas", "word", read=names),),
        workflow="assay-bench.yml",
        minutes=lambda _: 15.0,
        example="/assay bench softmax",
    ),
    Verb(
        "profile",
        "profile the head on a device",
        (
            Argument("model", "model to profile", "word", read=name),
            Argument("device", "device to profile on", read=name),
        ),
        workflow="assay-profile.yml",
        minutes=lambda _: 20.0,
        example="/assay profile mobilenet device=s24",
    ),
    Verb(
        "quantize",
        "quantize the head's checkpoint and measure what it costs",
        (
            Argument("method", "quantization method", "word", required=True, read=name),
            Argument("bits", "bits of a weight", default="4", choices=("2", "3", "4", "8")),
            _EXAMPLES,
        ),
        workflow="assay-quantize.yml",
        minutes=lambda arguments: 10 + evaluation_minutes(arguments),
        example="/assay quantize gptq bits=4",
    ),
    Verb(
        "recommend",
        "recommend a configuration from the evidence",
        (
            Argument("floor", "lowest acceptable accuracy, in points", required=True, read=points),
            Argument("latency", "highest acceptable latency, in ms", read=points),
        ),
        workflow="assay-recommend.yml",
        minutes=lambda _: 2.0,
        example="/assay recommend floor=60 latency=20",
    ),
    Verb("gate", "compare again with the newest evidence and policy, and rewrite the comment"),
    Verb(
        "baseline",
        "show the baseline of this pull request, or measure main again",
        (Argument("action", "show or refresh", "word", default="show", choices=("show", "refresh")),),
        permission="read",
        minutes=lambda arguments: evaluation_minutes({}) if arguments.get("action") == "refresh" else 0.0,
    ),
    Verb(
        "accept",
        "accept a regression on purpose, until a day",
        (
            Argument("task", "task or task/metric; pool for the pooled comparison", "word", required=True, read=name),
            Argument("reason", "why, for everyone who reads later reports", required=True, read=sentence),
            Argument("expires", "last day on which it holds", required=True, read=day),
            Argument("up-to", "largest drop in points that it covers", read=points),
        ),
        example='/assay accept hellaswag reason="INT4 ships to 4 GB phones" expires=2027-01-31',
    ),
    Verb("milestones", "show the capstone's checklist", permission="read"),
    Verb("rerun", "run the newest measurement of the head again", minutes=lambda _: evaluation_minutes({})),
    Verb("cancel", "cancel what is running for this pull request"),
    Verb("status", "say what runs, what was spent and what is accepted", permission="read"),
)

BY_NAME = {verb.name: verb for verb in VERBS}
WORKFLOW_OF_REFRESH = "assay-publish.yml"


def understand(line: Line) -> Command:
    """The verb and its arguments, defaults filled in. Raises `BadLine` with what is wrong, and the nearest verb or key."""
    verb = BY_NAME.get(line.verb)
    if verb is None:
        near = difflib.get_close_matches(line.verb, BY_NAME, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
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


def needed(command: Command) -> Permission:
    """The permission that a command takes; refreshing a baseline takes write, showing it read."""
    refresh = command.verb.name == "baseline" and command.arguments.get("action") == "refresh"
    return "write" if refresh else command.verb.permission


def allowed(command: Command, permission: str) -> bool:
    """Whether somebody with this permission on the repository may use the command."""
    return RANK.get(permission, 0) >= RANK[needed(command)]


def _known(verb: Verb, key: str, kind: str) -> Argument:
    for argument in verb.arguments:
        # A word may also be given by its name: `tasks=arc_easy`.
        if argument.name == key and (argument.kind == kind or (kind == "option" and argument.kind == "word")):
            return argument
    known = [a.name for a in verb.arguments]
    near = difflib.get_close_matches(key, known, n=1)
    shown = f"--{key[:40]}" if kind == "flag" else f"{key[:40]}="
    raise BadLine(f"{verb.name} takes no {shown}" + (f"; did you mean {near[0]}?" if near else ""))


def _value(argument: Argument, text: str) -> str:
    if argument.choices:
        if text.lower() not in argument.choices:
            raise BadLine(f"{argument.name} is one of {', '.join(argument.choices)}, not {text[:40]!r}")
        return text.lower()
    return argument.read(text)
