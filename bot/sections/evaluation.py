"""The section of an evaluation: what changed, with counts, intervals and p, the examples that flipped, and how."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from assay.baselines.compare.verdict import Comparison, Finding, Flip, State
from assay.bot import plot, text
from assay.bot.headline import dropped, headline
from assay.bot.sections import Result, Room
from assay.bot.templates import template

MARK = {State.REGRESSED: "✗", State.IMPROVED: "✓", State.EQUIVALENT: "✓", State.INCONCLUSIVE: "?"}
_PLAIN_YAML = re.compile(r"[A-Za-z_][\w./-]*(:[\w./-]+)*", re.ASCII)
__all__ = ["change_header", "headline", "render", "verdict_words"]
ORDER = (State.REGRESSED, State.IMPROVED, State.INCONCLUSIVE, State.EQUIVALENT)


def render(result: Result, room: Room) -> str:
    """The section as Markdown."""
    comparison = result.comparison
    if comparison is None:
        return template("no_comparison.md.j2").render(result=result, how=_how(result, room))
    findings = _sorted(comparison.findings)
    shown, folded = _split(findings, room)
    accepted = [f for f in comparison.findings if f.accepted]
    flips = _trim_flips(comparison.flips, room.flips)
    quadrant = plot.mermaid(result.points, result.axes) if result.axes else ""
    standing = plot.sentence(result.points, result.axes, "this PR") if result.axes else ""
    return template("evaluation.md.j2").render(
        result=result,
        comparison=comparison,
        lead=_lead(comparison),
        change=change_header(shown),
        folded_change=change_header(folded),
        rows=[_row(f, comparison) for f in shown],
        folded=[_row(f, comparison) for f in folded[: room.folded]],
        folded_summary=_summary(folded),
        left_out=max(0, len(folded) - room.folded),
        accepted=accepted[: room.folded],
        accepted_left_out=max(0, len(accepted) - room.folded),
        warnings=comparison.warnings[: max(room.environment, 1)],
        accept_as=_accept_as(next((f for f in findings if f.blocks), None), comparison),
        accept_name=_accept_name(next((f for f in findings if f.blocks), None), comparison),
        accept_until="YYYY-MM-DD",
        measure_more=_measure_more(findings),
        flips=[_flip(f) for f in flips],
        changed=comparison.broke + comparison.fixed,
        churn=_churn(comparison),
        net=comparison.fixed - comparison.broke,
        quadrant=quadrant,
        standing=standing,
        how=_how(result, room),
        tests=_tests(comparison),
        two_sided=[
            (_pool_name(f, comparison) if f.pooled else text.plain(f.task, 60), f.p_two_sided)
            for f in findings
            if f.state in (State.REGRESSED, State.IMPROVED)
            and f.broke is not None
            and f.clusters is None
            and not f.growing
        ][:4],
    )


@dataclass(frozen=True)
class Row:
    """One line of the table, ready to print."""

    task: str
    base: str
    head: str
    change: str
    counts: str
    p: str
    verdict: str


def change_header(findings: Sequence[Finding]) -> str:
    """Heading of the column of changes, with their unit; percent signs stand in the rows of perplexity."""
    relative = [f.scale == "loglik" for f in findings]
    return "change" if all(relative) else "change, points" if not any(relative) else "change, points or %"


def remarks(result: Result) -> list[str]:
    """Nothing: the table of an evaluation says all that decided."""
    return []


def _accept_name(f: Finding | None, comparison: Comparison) -> str:
    """What an acceptance calls a finding: its task, or the pool with its group where there are several."""
    if f is None:
        return ""
    groups = {g.group for g in comparison.findings}
    return f.task if not f.pooled or len(groups) == 1 else f"{f.task}:{f.group}"


def _measure_more(findings: Sequence[Finding]) -> tuple[str, int] | None:
    """(task, examples) of the undecided task that needs the fewest examples, rounded up to two digits."""
    open_ = [f for f in findings if f.state is State.INCONCLUSIVE and not f.pooled and f.needed]
    if not open_:
        return None
    least = min(open_, key=lambda f: f.needed or 0)
    return least.task, int(text.about(least.needed or 0).replace(",", ""))


def _accept_as(f: Finding | None, comparison: Comparison) -> str:
    """The entry of `gate.accepted` that would cover a finding, as YAML in one line."""
    if f is None:
        return ""
    name = _accept_name(f, comparison)
    quoted = name if _PLAIN_YAML.fullmatch(name) else json.dumps(name[:200], ensure_ascii=False)
    return f'{{task: {quoted}, reason: "…", by: you, expires: YYYY-MM-DD}}'


def _row(f: Finding, comparison: Comparison) -> Row:
    name = (
        f"{_pool_name(f, comparison)}\u00a0·\u00a0{f.n:,}"
        if f.pooled
        else f"{text.plain(f.task, 60)}\u00a0·\u00a0{f.n:,}"
    )
    if f.scale == "loglik":
        base, head = text.number(f.base), text.number(f.head)
        change = f"{text.signed(100 * f.change, 2)}% ({text.signed(100 * f.low, 2)}, {text.signed(100 * f.high, 2)})"
    else:
        base, head = f"{f.base:.3f}", f"{f.head:.3f}"
        change = f"{text.points(f.change)} {text.interval(f.low, f.high)}"
    if f.state in (State.REGRESSED, State.IMPROVED):
        change = f"**{change.split(' ', 1)[0]}** {change.split(' ', 1)[1]}"
    counts = f"{f.broke:,} / {f.fixed:,}" if f.broke is not None and f.fixed is not None else "–"
    return Row(
        name, base, head, change, counts, text.p_value(f.p), f"{'?' if f.advised else MARK[f.state]} {verdict_words(f)}"
    )


def verdict_words(f: Finding) -> str:
    """The verdict of one finding, as the table says it."""
    unit = "%" if f.scale == "loglik" else ""
    match f.state:
        case State.REGRESSED:
            if f.accepted:
                return f"regressed, accepted until {f.accepted.expires:%Y-%m-%d}"
            if f.advised:
                return "regressed; advisory, so it does not block"
            words = (
                f"regressed: below its floor of {f.floor:.3f}" if f.below_floor and f.floor is not None else "regressed"
            )
            if f.exceeded and f.exceeded.up_to is not None:
                words += f", more than the {_limit(f.exceeded.up_to / 100)}{unit} accepted until {f.exceeded.expires:%Y-%m-%d}"
            return words
        case State.IMPROVED:
            return "improved"
        case State.EQUIVALENT:
            if f.identical:
                return "identical answers"
            words = "not worse by more than" if f.one_sided else "equivalent within"
            return f"{words} {_limit(f.margin)}{unit}"
        case State.INCONCLUSIVE if f.floor_open:
            about = (
                f"about {text.about(f.needed)} examples would decide" if f.needed else "these examples do not show it"
            )
            return f"inconclusive: under its floor of {f.floor:.3f}; {about}"
        case State.INCONCLUSIVE:
            if f.needed is None:
                return "inconclusive: no number of examples would decide a change like this"
            noun = "documents" if f.scale == "loglik" else "examples"
            # The sequential figure is a median; the fixed ones hold with the policy's power.
            often = ", as often as not" if f.growing else ""
            return f"inconclusive: about {text.about(f.needed)} {noun} would decide{often}"


def _lead(comparison: Comparison) -> str:
    """One sentence about the finding that decided, and what the policy does with it."""
    findings = _sorted([f for f in comparison.findings if not f.pooled]) or list(comparison.findings)
    worst = next((f for f in findings if f.blocks), None)
    if worst is None and any(f.blocks for f in comparison.findings):
        worst = next(f for f in comparison.findings if f.blocks)
    if worst is not None:
        if worst.below_floor and worst.floor is not None:
            limit = f"demands at least {worst.floor:.3f}"
            if dropped(worst, comparison.alpha):
                limit += f" and blocks a drop over {text.of_points(worst.threshold)}"
            return f"{_moved(worst, comparison)} The policy {limit}."
        limit = f"{100 * worst.threshold:g}%" if worst.scale == "loglik" else text.of_points(worst.threshold)
        kind = "rise" if worst.scale == "loglik" else "drop"
        return f"{_moved(worst, comparison)} The policy blocks a {kind} over {limit}."
    advised = next((f for f in findings if f.advised), next((f for f in comparison.findings if f.advised), None))
    if advised is not None:
        return (
            f"{_moved(advised, comparison)} This gate alarms too often on identical commits, so it is advisory and does "
            "not block until it recovers. This is not a pass."
        )
    undecided = [f for f in comparison.findings if f.state is State.INCONCLUSIVE]
    if undecided:
        least = max(undecided, key=lambda f: f.drop)
        margin = f"{100 * least.margin:g}%" if least.scale == "loglik" else text.of_points(least.margin)
        seen = ""
        if least.floor_open:
            seen = f" The policy demands at least {least.floor:.3f}; these examples do not show on which side of it the score lies."
        elif least.detectable is not None:
            unit = "%" if least.scale == "loglik" else " points"
            seen = f" They can show a drop of {100 * least.detectable:.1f}{unit} or more, and did not show equivalence within {margin}."
        often = ", as often as not" if least.growing else ""
        needed = f" About {text.about(least.needed)} would decide{often}." if least.needed else ""
        return f"{_moved(least, comparison)}{seen}{needed} This is not a pass."
    gained = next((f for f in findings if f.state is State.IMPROVED), None)
    if gained is not None:
        return _moved(gained, comparison)
    if all(f.accepted for f in comparison.findings):
        return f"{_moved(findings[0], comparison)} It was accepted."
    if findings and all(f.identical for f in findings):
        return f"All {comparison.examples:,} examples got bit-identical responses."
    decided = [f for f in findings if not f.accepted] or findings
    return _moved(max(decided, key=lambda f: f.drop), comparison, least_of=len(decided))


def _moved(f: Finding, comparison: Comparison, least_of: int = 0) -> str:
    name = _pool_name(f, comparison).capitalize() if f.pooled else text.plain(f.task, 60)
    label = f"**{name}**"
    p = f" ({text.p_phrase(f.p)})"
    lead = "The least favourable of them, " if least_of > 1 else ""
    if f.scale == "loglik":
        if f.change == 0:
            moved_by = f"stayed at {text.number(f.head)}"
        else:
            verb = "rose" if f.change > 0 else "fell"
            moved_by = f"{verb} by {abs(100 * f.change):.2f}%, from {text.number(f.base)} to {text.number(f.head)}"
        whose = f"{lead}the perplexity of {label}," if lead else f"The perplexity of {label}"
        return f"{whose} {moved_by}, over {text.plural(f.n, 'document')}{p}."
    moved = round(abs(100 * f.change), 1)
    up, down = (
        ("rose", "fell") if f.change * f.drop > 0 else ("gained", "lost")
    )  # a metric of which less is better rises
    verb = (up if f.change > 0 else down) if moved else "stayed"
    amount = f" {moved:.1f} points, from {f.base:.3f} to {f.head:.3f}" if moved else f" at {f.head:.3f}"
    counts = (
        f": {text.plural(f.broke, 'example')} broke and {f.fixed:,} {'was' if f.fixed == 1 else 'were'} fixed, of {f.n:,}"
        if (f.broke is not None and f.fixed is not None)
        else f", over {text.plural(f.n, 'example')}"
    )
    return f"{lead}{label}{',' if least_of > 1 else ''} {verb}{amount}{counts}{p}."


def _pool_name(f: Finding, comparison: Comparison) -> str:
    # What was accepted is no part of the pool.
    members = sum(
        1 for g in comparison.findings if (g.group, g.scale) == (f.group, f.scale) and not g.pooled and not g.accepted
    )
    group = "" if f.group == "all" else f"{text.plain(f.group, 40)}: "
    return f"{group}all\u00a0{members}\u00a0pooled"


def _sorted(findings: Sequence[Finding]) -> list[Finding]:
    """Worst first: by state, then by drop; the pool of a group after its tasks of the same state."""
    return sorted(findings, key=lambda f: (ORDER.index(f.state), f.pooled, -f.drop))


def _split(findings: Sequence[Finding], room: Room) -> tuple[list[Finding], list[Finding]]:
    """What stands in the open and what is folded: changes and pools first, equivalent tasks only while there is room."""
    few = len(findings) <= min(room.rows, 8)
    open_ = [f for f in findings if few or f.pooled or f.state in (State.REGRESSED, State.IMPROVED)]
    if len(open_) > room.rows:
        pools = [f for f in open_ if f.pooled][: max(1, room.rows // 2)]
        tasks = [f for f in open_ if not f.pooled][: max(1, room.rows - len(pools))]
        open_ = [f for f in findings if f in pools or f in tasks]
    for finding in findings:
        if len(open_) >= room.rows:
            break
        if finding not in open_ and finding.state is State.INCONCLUSIVE and finding.drop > finding.threshold:
            open_.append(finding)
    open_ = [f for f in findings if f in open_]
    open_.sort(key=lambda f: f.pooled)
    return open_, [f for f in findings if f not in open_]


def _summary(folded: Sequence[Finding]) -> str:
    counts = [(state, sum(f.state is state for f in folded)) for state in ORDER]
    return ", ".join(f"{n} {state}" for state, n in counts if n)


def _trim_flips(flips: Sequence[Flip], limit: int) -> list[Flip]:
    """Broken and fixed examples in proportion, broken ones first, at least a few of each."""
    broke = [f for f in flips if f.broke]
    fixed = [f for f in flips if not f.broke]
    keep_fixed = min(len(fixed), max(limit // 4, limit - len(broke)))
    return broke[: max(limit - keep_fixed, 0)] + fixed[:keep_fixed]


@dataclass(frozen=True)
class FlipRow:
    """One changed example, ready to print."""

    kind: str
    task: str
    text: str
    before: str
    after: str


def _flip(flip: Flip) -> FlipRow:
    return FlipRow(
        "broke" if flip.broke else "fixed",
        f"{text.plain(flip.task, 40)} {text.plain(flip.example, 16)}",
        text.plain(flip.text, 100),
        _answer(flip.base_answer, flip.base_margin),
        _answer(flip.head_answer, flip.head_margin),
    )


def _answer(answer: str, margin: float | None) -> str:
    shown = text.plain(answer, 60) or "–"
    return shown if margin is None else f"{shown}, margin {margin:.2g}"


def _churn(comparison: Comparison) -> str:
    """Share of the 0/1 examples whose answer changed, in per cent."""
    # A task may stand in two groups, and its examples still changed once.
    series = {(f.task, f.metric): f.n for f in comparison.findings if f.broke is not None and not f.pooled}
    binary = sum(series.values())
    return f"{100 * (comparison.broke + comparison.fixed) / binary:.1f}" if binary else ""


def _how(result: Result, room: Room) -> list[str]:
    """Facts on how the head was measured, one phrase each."""
    if result.head is None:
        return []
    evidence = result.head
    facts = [
        f"{text.plain(evidence.subject.name, 80)}{f' ({text.plain(evidence.subject.format, 40)})' if evidence.subject.format else ''}"
    ]
    if result.base is not None and result.base.subject != evidence.subject:
        base = result.base.subject
        facts[0] += f" against {text.plain(base.name, 80)}{f' ({text.plain(base.format, 40)})' if base.format else ''}"
    environment = evidence.environment
    machine = [
        environment.hardware,
        environment.driver,
        *(f"{name} {version}" for name, version in environment.libraries.items()),
    ]
    facts.append(", ".join(text.plain(part, 80) for part in machine[: room.environment] if part))
    if isinstance(evidence.protocol, dict):
        wanted = ("batch_size", "batch-size", "dtype", "activation_dtype", "num_fewshot", "max_length", "sampling.seed")
        said = [
            f"{key.rpartition('.')[2].replace('_', ' ')} {evidence.protocol[key]}"
            for key in wanted
            if key in evidence.protocol
        ]
        facts.append(", ".join(text.plain(part, 60) for part in said))
    return [fact for fact in facts if fact]


def _tests(comparison: Comparison) -> str:
    """The tests in one sentence."""
    scales = {f.scale for f in comparison.findings}
    grouped = any(f.clusters for f in comparison.findings)
    parts = []
    if comparison.growing and scales != {"loglik"}:
        parts.append("anytime-valid confidence sequence of the paired difference (examples were added until decided)")
    elif "binary" in scales:
        parts.append("one-sided mid-p McNemar, score (Tango) intervals")
    if grouped:
        parts.append("cluster-robust errors where examples come in groups")
    if "bounded" in scales and not comparison.growing:
        parts.append("paired permutation for graded scores")
    if "loglik" in scales:
        parts.append("paired bootstrap over documents for perplexity")
    families = ", ".join(
        f"{size} in {text.plain(name, 40)}"
        if len(comparison.hypotheses) > 1
        else f"{size} hypothes{'is' if size == 1 else 'es'}"
        for name, size in comparison.hypotheses.items()
    )
    joined = "; ".join(parts)
    return f"{joined[:1].upper()}{joined[1:]}; p as measured, verdicts after Holm over {families}; α {comparison.alpha:g}, power {comparison.power:g}"


def _limit(proportion: float) -> str:
    """A margin in points or percent: one decimal, more only where it has more."""
    value = 100 * proportion
    return f"{value:.1f}" if abs(value - round(value, 1)) < 1e-9 else f"{value:g}"
