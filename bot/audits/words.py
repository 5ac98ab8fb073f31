"""What self-audits say, in the words of a report."""

from __future__ import annotations

from assay.baselines.audit import Advised, GateTally, MetricTally, Tally, bounds
from assay.bot.text import plain, plural

MOST_NAMED = 4
FEW = 10
"""Under so many nights a rate says next to nothing: without any alarm it is at most 0.26 with 95% confidence."""


def about(advised: Advised) -> tuple[str, ...]:
    """Phrases for "How it was measured"; none when no self-audit applies."""
    found = advised.tally
    if found is None or found.nights == 0:
        return ()
    lines = [rate(found)]
    lines += by_metric(found) + by_gate(found)
    flipped = flips(found)
    if flipped:
        lines.append(flipped)
    advisory = found.advisory()
    if advisory:
        named = "; ".join(_advisory(g) for g in advisory[:MOST_NAMED])
        more = f"; and {len(advisory) - MOST_NAMED} more" if len(advisory) > MOST_NAMED else ""
        lines.append(f"Advisory until it recovers, as the rate is shown to be over α {found.alpha:g}: {named}{more}")
    return tuple(lines)


def rate(found: Tally) -> str:
    """The false alarms of the whole gate, with what they can be at most."""
    _, high = bounds(found.alarms, found.nights)
    same = ", every answer of which was the same to the last bit" if found.deterministic else ""
    return (
        f"This gate's false alarms on identical commits: {found.alarms} in {plural(found.nights, 'night')}{same} "
        f"(at most {high:.2g} with 95% confidence)"
    )


def by_metric(found: Tally) -> list[str]:
    """The rate of each metric, where there are several."""
    if len(found.metrics) < 2:
        return []
    return ["By metric: " + "; ".join(f"{_metric(m)} {counted(m.alarms, m.nights)}" for m in found.metrics)]


def by_gate(found: Tally) -> list[str]:
    """The rate of each gate, where there are several: those with the most alarms by name, and equal ones together."""
    if len(found.gates) < 2:
        return []
    same: dict[tuple[int, int], list[GateTally]] = {}
    for gate in sorted(found.gates, key=lambda g: (-g.alarms, -g.nights)):
        same.setdefault((gate.alarms, gate.nights), []).append(gate)
    several = len({g.metric for g in found.gates if not g.pooled}) > 1
    parts = []
    for (alarms, nights), gates in same.items():
        named = ", ".join(_gate(g, several) for g in gates[:MOST_NAMED])
        more = f" and {len(gates) - MOST_NAMED} more" if len(gates) > MOST_NAMED else ""
        parts.append(f"{named}{more} {'each ' if len(gates) > 1 else ''}{counted(alarms, nights)}")
    return ["By gate: " + "; ".join(parts)]


def counted(alarms: int, nights: int) -> str:
    """A count of alarms with the interval of their rate, both bounds with 95% confidence, where the nights suffice."""
    count = f"{alarms} in {plural(nights, 'night')}"
    if nights < FEW:
        return f"{count} (too few for a rate)"
    low, high = bounds(alarms, nights)
    return f"{count} ({low:.2g} to {high:.2g})"


def _metric(found: MetricTally) -> str:
    return plain(found.metric, 40) if found.metric else "pooled"


def _gate(found: GateTally, with_metric: bool) -> str:
    return (
        f"{name(found)} {plain(found.metric, 40)}" if with_metric and found.metric and not found.pooled else name(found)
    )


def flips(found: Tally) -> str:
    """The sign-flip audit of the most informative deterministic gate; empty when there is none."""
    audited = [g for g in found.gates if g.flipped is not None]
    best = max(audited, key=lambda g: (g.flipped.pairs if g.flipped else 0, g.pooled), default=None)
    if best is None or best.flipped is None:
        return ""
    low, high = bounds(best.flipped.alarms, best.flipped.draws)
    return (
        f"Deterministic, so its test is audited by random sign flips: of {plural(best.flipped.pairs, 'real changed example')} "
        f"of {name(best)}, {best.flipped.alarms} of {best.flipped.draws:,} draws had p under α {found.alpha:g} "
        f"(a rate of {low:.3f} to {high:.3f}, each bound with 95% confidence)"
    )


def name(gate: GateTally) -> str:
    """A gate as people read it."""
    if gate.pooled:
        return "all tasks pooled" if gate.group == "all" else f"{plain(gate.group, 40)} pooled"
    return plain(gate.task, 60)


def _advisory(gate: GateTally) -> str:
    low, _ = bounds(gate.alarms, gate.nights)
    return f"{name(gate)} ({gate.alarms} in {plural(gate.nights, 'night')}, at least {low:.2g} with 95% confidence)"
