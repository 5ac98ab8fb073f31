"""The words of every reply. What people wrote is shown only through `plain` and `code`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta

from assay.baselines.config import CommandSettings
from assay.bot.slash.snapshot import AcceptedFacts, CommandSnapshot, RunFacts
from assay.bot.slash.verbs import BY_NAME, VERBS, Command, Verb, asked_for, nearest_verb, needed, refreshes
from assay.bot.text import code, plain

MAX_LISTED = 20
"""Accepted regressions that a status names: a reply has at most 65,536 characters, and a reason may take 2,000 of them."""
_MARKER = re.compile(r"^<!-- assay command=([0-9a-f-]{36}) comment=(\d+) -->")


def marker(comment: int, identifier: str) -> str:
    """The hidden first line of a reply: which comment it answers, as which command."""
    return f"<!-- assay command={identifier} comment={comment} -->"


def read_marker(body: str) -> tuple[str, int] | None:
    """(command, comment) of a reply of ours; None for any other comment."""
    match = _MARKER.match(body)
    return (match[1], int(match[2])) if match else None


def bad_line(why: str, verb: Verb | None) -> str:
    usage = f"Usage: `{verb.usage}`" if verb is not None else "`/assay help` lists the commands."
    end = "" if why.endswith("?") else "."
    return f"I could not read that: {plain(why, 300)}{end} {usage}"


def unknown_verb(topic: str) -> str:
    near = nearest_verb(topic)
    hint = f"; did you mean {near}?" if near else "."
    return f"There is no command `{code(topic, 40)}`{hint} `/assay help` lists them."


def denied(command: Command, permission: str) -> str:
    return f"`{command.verb.name}` needs {needed(command)} permission on this repository; yours is {plain(permission, 20)}."


def closed() -> str:
    return "This pull request is closed, so that there is nothing to measure; reopen it first."


def bad_policy(problem: str, base: str) -> str:
    return (
        f"`.github/assay.yml` on {plain(base, 60)} cannot be read, so that budgets are unknown: {plain(problem, 300)}"
    )


def no_workflow(command: Command, workflow: str, branch: str) -> str:
    return (
        f"`{command.verb.name}` is run by `.github/workflows/{workflow}`, which {plain(branch, 60)} does not have; "
        "add it there (docs/commands.md), then ask again."
    )


def over_budget(
    command: Command, estimate: float, left_pull: float, left_user: float, settings: CommandSettings
) -> str:
    fewer = "Ask for fewer examples, or raise" if any(a.name == "examples" for a in command.verb.arguments) else "Raise"
    short = "minutes-per-pull" if left_pull <= left_user else "minutes-per-user"
    what = "baseline refresh" if refreshes(command) else command.verb.name
    return (
        f"`{what}` is expected to take {estimate:.0f} GPU minutes; {left_pull:.0f} of {settings.minutes_per_pull} "
        f"are left for this pull request and {left_user:.0f} of {settings.minutes_per_user} for you this month, what runs now "
        f"included. {fewer} `commands.{short}` in the default branch's `.github/assay.yml`."
    )


def other_head(seen: CommandSnapshot, wanted: str) -> str:
    return (
        f"The head is `{seen.head_sha[:12]}`, not `{code(wanted[:12], 12)}`: look at what was pushed, then say it again with the "
        "commit that you mean."
    )


def pushed_after(seen: CommandSnapshot) -> str:
    return (
        f"The branch was pushed to after your comment: its head is `{seen.head_sha[:12]}` now, and nothing was started. "
        "Look at it, then say it again."
    )


def push_unknown(seen: CommandSnapshot) -> str:
    return (
        f"GitHub does not tell when `{seen.head_sha[:12]}` was pushed, so that I cannot know that it is what you looked at. "
        f"Say it again with `head={seen.head_sha[:12]}` if it is."
    )


def dispatched(seen: CommandSnapshot, command: Command, estimate: float, settings: CommandSettings) -> str:
    left = settings.minutes_per_pull - seen.spent_pull - seen.reserved_pull - estimate
    shown = " ".join(f"{key}={value}" for key, value in sorted(command.arguments.items()) if value)
    return (
        f"Started `{command.verb.name}{f' {code(shown, 200)}' if shown else ''}` at `{seen.head_sha[:12]}`: about "
        f"{estimate:.0f} GPU minutes, {left:.0f} of {settings.minutes_per_pull} are left for this pull request. "
        "A push before it runs voids it. The result comes here and into the report."
    )


def failed(why: str) -> str:
    return f"That did not work: {plain(why, 300)}"


def half_done(why: str) -> str:
    return f"That much was done, but then something did not work: {plain(why, 300)}"


def running(url: str) -> str:
    return f"It runs: [Run]({url})."


def finished(command: str, outcome: str, head_sha: str, url: str, minutes: float) -> str:
    return (
        f"`{code(command, 40)}` at `{head_sha[:12]}` ended: {plain(outcome, 160)}. [Run]({url}), {minutes:.0f} minutes. "
        "The report has the details."
    )


def voided(command: str, head_sha: str, url: str) -> str:
    return (
        f"`{code(command, 40)}` at `{head_sha[:12]}` is void, and nothing was measured: the pull request was pushed to or "
        f"closed before it ran. [Run]({url}). Say it again for the new head."
    )


def told_minutes(body: str, url: str) -> float | None:
    """The minutes that a reply gives for the run at `url`; None when it gives none."""
    found = re.search(re.escape(f"]({url}), ") + r"(\d+) minutes", body)
    return float(found[1]) if found else None


def with_line(body: str, url: str, line: str) -> str:
    """A reply with one line about the run at `url`: a line that links to it is replaced, else the line is appended."""
    kept = [text for text in body.rstrip().split("\n") if f"]({url})" not in text or not url]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).rstrip() + f"\n\n{line}\n"


def accepted(seen: CommandSnapshot, command: Command) -> str:
    arguments = command.arguments
    limit = f", up to a drop of {_points(arguments['up-to'])}" if arguments.get("up-to") else ""
    return (
        f"{plain(seen.author, 60)} accepts a regression of {plain(arguments['task'], 80)} until {arguments['expires']}{limit}: "
        f"{plain(arguments['reason'], 500)}\n\nIt is recorded for good on the branch `assay-journal`, and every later report says so."
    )


def _points(text: str) -> str:
    return f"{text} point" if text == "1" else f"{text} points"


def bad_expiry(expires: date, today: date, days: int) -> str:
    if expires < today:
        return f"{expires.isoformat()} is past; give a day from today on."
    return f"{expires.isoformat()} is too far away: at most {days} days, that is {(today + timedelta(days=days)).isoformat()}."


def unknown_task(wanted: str, near: str) -> str:
    hint = f"; did you mean {plain(near, 120)}?" if near else "."
    return f"This pull request is not compared on `{code(wanted, 120)}`, so that nothing was accepted{hint}"


def no_pool(wanted: str, branch: str, there: Sequence[str], near: str) -> str:
    why = f"`.github/assay.yml` on {plain(branch, 60)} makes no pooled comparison `{code(wanted, 120)}`"
    has = f"it has {', '.join(plain(pool, 120) for pool in there[:5])}." if there else "it has none: name a task."
    return f"{why}, so that nothing was accepted; {f'did you mean {plain(near, 120)}?' if ':' in near else has}"


def nothing_to_accept(seen: CommandSnapshot) -> str:
    return (
        f"Nothing is published for {plain(seen.base_ref, 60)} at the merge base or before it: nothing can have regressed, and "
        "nothing was accepted."
    )


def rebuilding(seen: CommandSnapshot) -> str:
    return f"Comparing again at `{seen.head_sha[:12]}`; the report is rewritten in its place."


def nothing_to_compare(seen: CommandSnapshot) -> str:
    active = [r for r in seen.runs if not r.finished]
    if active:
        links = ", ".join(f"[{plain(r.workflow, 60)}]({r.url})" for r in active)
        return f"Nothing is measured at `{seen.head_sha[:12]}` yet, so that there is no report to rewrite; it comes when {links} ends."
    return f"Nothing was measured at `{seen.head_sha[:12]}`, so that there is no report to rewrite; `/assay evaluate` measures it."


def milestones(seen: CommandSnapshot) -> str:
    if seen.milestones:
        return seen.milestones
    return f"{plain(seen.base_ref, 60)} has no `capstone.yml`, so that there are no milestones; `assay capstone init` writes one."


def cancelled(running: Sequence[RunFacts]) -> str:
    if not running:
        return "Nothing runs for this pull request."
    return "Cancelled: " + ", ".join(f"[{plain(r.workflow, 60)}]({r.url})" for r in running) + "."


def nothing_to_rerun(seen: CommandSnapshot) -> str:
    return f"No finished measurement of `{seen.head_sha[:12]}` to run again; `/assay evaluate` starts one."


def not_approved(run: RunFacts) -> str:
    return (
        f"[{plain(run.workflow, 60)}]({run.url}) waits for an approval, and nothing was started: look at what it would run, and "
        "approve it there."
    )


def rerunning(run: RunFacts) -> str:
    return f"Running [{plain(run.workflow, 60)}]({run.url}) again."


def baseline(seen: CommandSnapshot) -> str:
    if not seen.baseline:
        return f"Nothing is published for {plain(seen.base_ref, 60)} at the merge base or before it."
    return (
        f"This pull request is compared with `{code(seen.baseline, 200)}`.\n\n"
        f"Look at it: `assay baseline show --repository {code(seen.repository, 120)} {code(seen.baseline, 200)}`"
    )


def refreshing(seen: CommandSnapshot) -> str:
    return (
        f"Measuring {plain(seen.default_branch, 60)} again; when it is published, `/assay gate` compares with it if it is at "
        "the merge base of this pull request or before it."
    )


def status(seen: CommandSnapshot, settings: CommandSettings) -> str:
    lines = [f"Head `{seen.head_sha[:12]}`, compared with {plain(seen.base_ref, 60)}."]
    running = [r for r in seen.runs if not r.finished]
    lines.append(
        "- Running: "
        + (", ".join(f"[{plain(r.workflow, 60)}]({r.url})" for r in running) if running else "nothing")
        + "."
    )
    lines.append(
        f"- Spent: {seen.spent_pull:.0f} of {settings.minutes_per_pull} GPU minutes for this pull request, "
        f"{seen.spent_user:.0f} of {settings.minutes_per_user} by you this month."
    )
    if seen.reserved_pull or seen.reserved_user:
        lines.append(
            f"- Expected of what runs: {seen.reserved_pull:.0f} GPU minutes for this pull request, {seen.reserved_user:.0f} by you."
        )
    if not seen.accepted:
        lines.append("- Accepted regressions: none.")
    lines += [
        f"- Accepted: {_covered(e)} until {plain(e.expires, 12)}, by {plain(e.by, 60)}: {plain(e.reason, 300)}"
        for e in seen.accepted[:MAX_LISTED]
    ]
    more = len(seen.accepted) - MAX_LISTED
    if more > 0:
        lines.append(
            f"- And {more} more that expire later: the folder `accepted/` of the branch `assay-journal` has them all."
        )
    return "\n".join(lines)


def _covered(entry: AcceptedFacts) -> str:
    """What an acceptance covers: a task, or one of its metrics, and how much of a drop."""
    metric = f" {plain(entry.metric, 60)}" if entry.metric else ""
    limit = f", up to {_points(plain(entry.up_to, 8))}," if entry.up_to else ""
    return f"{plain(entry.task, 80)}{metric}{limit}"


def help_text(topic: str = "") -> str:
    """The help of all verbs, or of one; generated from the registry."""
    if topic:
        verb = BY_NAME[topic]
        lines = [
            f"`{verb.usage}`",
            "",
            f"{verb.summary[:1].upper()}{verb.summary[1:]}. Needs {asked_for(verb)} permission.",
        ]
        lines += [f"- `{a.name}`: {a.help}{f' ({a.default} if left out)' if a.default else ''}" for a in verb.arguments]
        if verb.example:
            lines += ["", f"For example: `{verb.example}`"]
        if verb.terminal:
            lines += ["", verb.terminal]
        return "\n".join(lines)
    rows = [f"| `{code(verb.usage, 200).replace('|', '/')}` | {verb.summary} | {asked_for(verb)} |" for verb in VERBS]
    return "\n".join(
        ["| command | what it does | needs |", "|---|---|---|", *rows, "", "`/assay help <command>` explains one."]
    )
