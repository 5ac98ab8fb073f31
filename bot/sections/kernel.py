"""The section of kernels: whether they keep their contract, and how their time changed, block by block."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from assay.baselines.compare.kernel import refusal_of
from assay.baselines.compare.lease import registered_margin
from assay.baselines.compare.verdict import Comparison, Finding, Overall, State
from assay.baselines.evidence import Evidence
from assay.baselines.kernel import BUSY, LEASE
from assay.bot import text
from assay.bot.sections import Result, Room
from assay.bot.templates import template

MARK = {State.REGRESSED: "✗", State.IMPROVED: "✓", State.EQUIVALENT: "✓", State.INCONCLUSIVE: "?"}
ORDER = (State.REGRESSED, State.IMPROVED, State.INCONCLUSIVE, State.EQUIVALENT)
_PLAIN_YAML = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)


@dataclass(frozen=True)
class Row:
    """One line of the table, ready to print."""

    case: str
    base: str
    head: str
    change: str
    p: str
    verdict: str


def headline(result: Result) -> str:
    """The verdict in words."""
    comparison = result.comparison
    if comparison is None:
        return {
            Overall.NO_BASELINE: "No baseline to compare with yet",
            Overall.MISMATCH: "Not comparable: main and this PR were measured differently",
            Overall.INVALID: "The evidence cannot be used",
            Overall.BROKEN: "The measurement failed",
        }.get(result.overall, "No verdict")
    findings = comparison.findings
    broken = [f for f in findings if f.scale == "contract" and f.state is State.REGRESSED]
    refused = [f for f in findings if f.scale == "refused" and f.state is State.REGRESSED]
    timed = [f for f in findings if f.scale == "speed"]
    slower = [f for f in timed if f.blocks]
    faster = [f for f in timed if f.state is State.IMPROVED]
    match result.overall:
        case Overall.REGRESSED if broken:
            return f"Wrong results: the contract fails on {_cases(broken)}"
        case Overall.REGRESSED if refused:
            return f"The time is refused on {_cases(refused)}: the benchmark was not run honestly"
        case Overall.REGRESSED:
            return f"Slower on {_of(slower, timed)}"
        case Overall.ADVISORY:
            return f"Perhaps slower on {_of([f for f in timed if f.advised], timed)}: two leases, so this advises only"
        case Overall.IMPROVED if faster:
            return f"Faster on {_of(faster, timed)}"
        case Overall.IMPROVED:
            return "The contract holds now, where main's fails"
        case Overall.INCONCLUSIVE if comparison.reason:
            return "The run is void: base against itself was not equal"
        case Overall.INCONCLUSIVE if not timed:
            return "Not timed: the contract fails on main too"
        case Overall.INCONCLUSIVE:
            open_ = [f for f in timed if f.state is State.INCONCLUSIVE]
            if open_:
                return f"Ambiguous on {_of(open_, timed)}: these blocks cannot tell"
            lost = [f for f in findings if f.state is State.INCONCLUSIVE]
            if any(f.metric == BUSY for f in lost):
                return f"The time is void on {_cases([f for f in lost if f.metric == BUSY])}: the machine was busy"
            return f"No verdict on {_cases(lost)}: main's side cannot be used"
        case Overall.NO_BASELINE:
            return "No speed to compare with: main fails its contract"
        case _ if not timed:
            return "The contract holds; nothing was timed"
        case _:
            if all(f.accepted for f in timed):
                return "Slower, and that was accepted"
            held = "Not slower" if any(f.one_sided for f in timed) else "As fast as before"
            apart = ", apart from what was accepted" if any(f.accepted for f in timed) else ""
            return f"{held}{apart}"


def render(result: Result, room: Room) -> str:
    """The section as Markdown."""
    comparison = result.comparison
    if comparison is None:
        return template("no_comparison.md.j2").render(result=result, how=_how(result, room))
    timed = sorted(
        (f for f in comparison.findings if f.scale == "speed"), key=lambda f: (ORDER.index(f.state), -f.drop)
    )
    plain = [f for f in comparison.findings if f.scale != "speed"]
    blocking = next((f for f in timed if f.blocks), None)
    return template("kernel.md.j2").render(
        result=result,
        comparison=comparison,
        lead=_lead(result, comparison, timed),
        rows=[_row(f) for f in timed[: room.rows]],
        folded=[_row(f) for f in timed[room.rows :][: room.folded]],
        left_out=max(0, len(timed) - room.rows - room.folded),
        faults=[_fault(f, result) for f in plain[: room.rows]],
        faults_left_out=max(0, len(plain) - room.rows),
        accepted=[f for f in timed if f.accepted][: room.folded],
        warnings=comparison.warnings[: max(room.environment, 1)],
        accept_as=_accept_as(blocking),
        accept_task=blocking.task if blocking is not None else "",
        details=_details(result.head, timed, room),
        how=_how(result, room),
        tests=_tests(result, comparison),
        two_sided=[],
    )


def verdict_words(f: Finding) -> str:
    """The verdict of one finding, as the table says it."""
    if f.scale == "contract":
        return {State.REGRESSED: "contract fails", State.IMPROVED: "contract holds now"}.get(
            f.state, "contract fails, as on the base"
        )
    if f.scale == "refused":
        if f.metric == BUSY:
            return "void: the machine was busy"
        return "time refused" if f.state is State.REGRESSED else "the base's time is refused"
    match f.state:
        case State.REGRESSED:
            if f.accepted:
                return f"slower, accepted until {f.accepted.expires:%Y-%m-%d}"
            if f.advised:
                return "slower; two leases, so it does not block"
            if f.exceeded and f.exceeded.up_to is not None:
                return f"slower, more than the {f.exceeded.up_to:g}% accepted until {f.exceeded.expires:%Y-%m-%d}"
            return "slower"
        case State.IMPROVED:
            return "faster"
        case State.EQUIVALENT:
            return f"{'not slower by more than' if f.one_sided else 'same within'} {100 * f.margin:g}%"
        case State.INCONCLUSIVE:
            if f.detectable is None:
                return "void"
            if f.needed is None:
                return "ambiguous: too near the margin for any number of blocks"
            return f"ambiguous: about {text.about(f.needed)} blocks would decide"


def change_header(findings: Sequence[Finding]) -> str:
    """Heading of the column of changes, with their unit."""
    return "change of time"


def remarks(result: Result) -> list[str]:
    """Why a run is void, why a contract fails, why a time is refused; the first 20."""
    comparison = result.comparison
    if comparison is None:
        return []
    void = [_void(comparison.reason)] if comparison.reason else []
    return void + [_fault(f, result) for f in comparison.findings if f.scale != "speed"][:20]


def _row(f: Finding) -> Row:
    change = f"{text.signed(100 * f.change, 1)}% ({text.signed(100 * f.low, 1)}, {text.signed(100 * f.high, 1)})"
    if f.state in (State.REGRESSED, State.IMPROVED):
        change = f"**{change.split(' ', 1)[0]}** {change.split(' ', 1)[1]}"
    return Row(
        case=f"{text.plain(f.task, 60)}\u00a0·\u00a0{f.n:,}",
        base=_time(f.base),
        head=_time(f.head),
        change=change,
        p=text.p_value(f.p),
        verdict=f"{'?' if f.advised else MARK[f.state]} {verdict_words(f)}",
    )


def _time(microseconds: float) -> str:
    return f"{text.number(microseconds)} µs" if microseconds < 1000 else f"{text.number(microseconds / 1000)} ms"


def _lead(result: Result, comparison: Comparison, timed: Sequence[Finding]) -> str:
    """One sentence about the finding that decided, and what follows from it."""
    plain = [f for f in comparison.findings if f.scale != "speed" and f.state is State.REGRESSED]
    if plain:
        what = (
            "A kernel that is wrong is not timed" if plain[0].scale == "contract" else "A time like that says nothing"
        )
        return f"{what}, and this change is blocked until it is mended."
    if comparison.reason:
        return _void(comparison.reason)
    worst = next((f for f in timed if f.blocks), None)
    if worst is not None:
        return f"{_moved(worst)} The policy blocks a slowdown over {100 * worst.threshold:g}%."
    advised = next((f for f in timed if f.advised), None)
    if advised is not None:
        return f"{_moved(advised)} Measure base and head in one lease (`assay bench --base`) to decide it."
    open_ = [f for f in timed if f.state is State.INCONCLUSIVE]
    if open_:
        least = max(open_, key=lambda f: f.drop)
        seen = (
            f" These blocks can show a slowdown of {100 * least.detectable:.1f}% or more." if least.detectable else ""
        )
        needed = f" About {text.about(least.needed)} blocks would decide." if least.needed else ""
        return f"{_moved(least)}{seen}{needed} This is not a pass."
    gained = [f for f in timed if f.state is State.IMPROVED]
    if gained:
        return _moved(min(gained, key=lambda f: f.drop))
    if not timed:
        return "Nothing was timed."
    most = max(timed, key=lambda f: f.drop)
    others = {1: "", 2: " The other changed less, or got faster."}.get(
        len(timed), f" The other {len(timed) - 1} changed less, or got faster."
    )
    return f"{_moved(most)}{others}"


def _moved(f: Finding) -> str:
    moved = abs(100 * f.change)
    interval = f"95% interval {text.signed(100 * f.low, 1)} to {text.signed(100 * f.high, 1)}%"
    verb = (
        f"takes {moved:.1f}% {'more' if f.change > 0 else 'less'} time, {_time(f.head)} instead of {_time(f.base)}"
        if round(moved, 1)
        else f"still takes {_time(f.head)}"
    )
    return f"**{text.plain(f.task, 60)}** {verb} ({interval}, {text.plural(f.n, 'block')})."


def _void(reason: str) -> str:
    """What a control that moved means, and what to do."""
    return (
        f"{text.plain(reason, 200)}, where nothing had changed. So no time of this run is believed; "
        "measure again, on a machine with nothing else to do. This is not a pass."
    )


def _fault(f: Finding, result: Result) -> str:
    """One line on a contract that fails or a time that is refused."""
    name = f"**{text.plain(f.task, 60)}**"
    side = result.base if f.scale == "refused" and f.state is not State.REGRESSED and f.metric != BUSY else result.head
    if f.scale == "refused":
        why = refusal_of(side, f.task) if side is not None else ""
        detail = side.attributes.get(f"refused-detail.{f.task}") if side is not None else None
        why += f" ({text.plain(detail, 200)})" if isinstance(detail, str) and detail else ""
        if f.metric == BUSY:
            return f"The time of {name} is void: {why}. Measure again, on a machine with nothing else to do. This is not a pass."
        whose = f"{text.plain(result.base_name, 40)}'s time of {name}" if side is result.base else f"The time of {name}"
        return f"{whose} is refused: {why}."
    if f.state is State.IMPROVED:
        return f"{name} keeps its contract now."
    reason = result.head.attributes.get(f"contract-reason.{f.task}") if result.head is not None else None
    also = f" (on {text.plain(result.base_name, 40)} too)" if f.state is State.INCONCLUSIVE else ""
    return f"{name} fails its contract{also}{f': {text.plain(reason, 200)}' if isinstance(reason, str) else ''}."


def _accept_as(f: Finding | None) -> str:
    """The entry of `gate.accepted` that would cover a finding, as YAML in one line."""
    if f is None:
        return ""
    quoted = f.task if _PLAIN_YAML.fullmatch(f.task) else json.dumps(f.task[:200], ensure_ascii=False)
    return f'{{task: {quoted}, metric: latency, reason: "…", by: you, expires: YYYY-MM-DD}}'


def _details(head: Evidence | None, timed: Sequence[Finding], room: Room) -> list[dict[str, str]]:
    """What else was measured of each case: bandwidth, share of the roofline, launch overhead, first use."""
    if head is None:
        return []
    found = []
    for f in timed[: max(room.rows, 0)]:
        shown = {"case": text.plain(f.task, 60)}
        for name, form in (
            ("bandwidth", "{:,.0f} GB/s"),
            ("roofline", "{:.0%}"),
            ("launch-overhead", "{:.1f} µs"),
            ("first-use", "{:,.0f} ms"),
        ):
            metric = head.metrics.get(f"{name}/{f.task}")
            shown[name.replace("-", "_")] = form.format(metric.value) if metric is not None else "–"
        found.append(shown)
    return found


def _how(result: Result, room: Room) -> list[str]:
    """Facts on how the head was measured, one phrase each."""
    if result.head is None:
        return []
    evidence = result.head
    backend = f" ({text.plain(evidence.subject.backend, 40)})" if evidence.subject.backend else ""
    beside = result.base.provenance.commit if result.base is not None and result.baseline is None else None
    facts = [f"{text.plain(evidence.subject.name, 80)}{backend}{f', against `{beside[:12]}`' if beside else ''}"]
    environment = evidence.environment
    machine = [
        environment.hardware,
        environment.driver,
        *(f"{name} {version}" for name, version in environment.libraries.items()),
    ]
    facts.append(", ".join(text.plain(part, 80) for part in machine[: room.environment] if part))
    said = [
        f"{word} {text.plain(str(evidence.attributes[name]), 40)}"
        for name, word in (
            ("blocks", "blocks"),
            ("rounds", "rounds of fresh processes"),
            ("order_seed", "order seed"),
            ("clocks", "SM clocks"),
        )
        if name in evidence.attributes
    ]
    if isinstance(evidence.protocol, dict) and "timer" in evidence.protocol:
        said.append(f"timer {text.plain(str(evidence.protocol['timer']), 40)}")
    said.append(f"margin {100 * registered_margin(evidence):g}%, fixed before measuring")
    facts.append(", ".join(said))
    return [fact for fact in facts if fact]


def _tests(result: Result, comparison: Comparison) -> str:
    """The statistics in one sentence."""
    size = comparison.hypotheses.get("all", 0)
    if not size:
        if any(f.scale == "refused" for f in comparison.findings):
            return "Times were taken, and none of them is used"
        return "Nothing was timed: the contract comes first"
    paired = result.base is not None and result.head is not None
    lease = paired and result.head is not None and result.head.attributes.get(LEASE)
    together = bool(lease) and result.base is not None and result.base.attributes.get(LEASE) == lease
    how = "Base and head in one lease, blocks in random order" if together else "Two leases, unpaired"
    control = "".join(f". {text.plain(fact, 200)}" for fact in comparison.facts)
    return (
        f"{how}; median log-ratio of block times, block-bootstrap intervals, p of a slowdown (or a gain) over the threshold, "
        f"verdicts after Holm over {text.plural(size, 'case')}; α {comparison.alpha:g}, power {comparison.power:g}{control}"
    )


def _cases(findings: Sequence[Finding]) -> str:
    return text.plain(findings[0].task, 60) if len(findings) == 1 else f"{len(findings)} cases"


def _of(some: Sequence[Finding], timed: Sequence[Finding]) -> str:
    return f"{len(some)} of {len(timed)} cases" if len(timed) > 1 else text.plain(timed[0].task, 60)
