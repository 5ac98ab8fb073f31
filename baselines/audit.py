"""How often a gate cries wolf: self-audits of one commit measured twice, and what follows from many of them.

A night is one commit measured twice and compared as a pull request would be. Nothing changed, so every alarm is false. The
rate of false alarms gets exact binomial bounds (Clopper and Pearson 1934, Biometrika 26:404), each at 95% confidence of its
own. A gate is advisory only while the lower bound is over its alpha: bad luck silences no gate, and one that recovers
blocks again. A deterministic measurement gives the same answers every night, so that its nights say nothing about the test;
that is audited by flipping the signs of real changed examples at random, which makes the null hypothesis true.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, ValidationError
from scipy.special import betaincinv

from assay.baselines.compare.protocol import TASK_PREFIX
from assay.baselines.compare.verdict import Comparison, Finding, over, summarise
from assay.baselines.errors import InputError
from assay.baselines.evidence import CommitSha, Evidence, Finite, Kind, Name, Sha256, Strict
from assay.baselines.record import Record
from assay.baselines.stats.mcnemar import midp_worse

WINDOW = 90
"""Nights that count: older ones say little about the gate of today."""
CONFIDENCE = 0.95
DRAWS = 2000
PATH = re.compile(r"^audits/(?P<kind>[a-z][a-z0-9-]{0,30})/\d{4}-\d{2}-\d{2}T\d{6}Z-[0-9a-f]{12}\.json$")
Count = Annotated[int, Field(ge=0)]


class Gate(Strict):
    """Which hypothesis: a task's metric in a group, or the pool of a group."""

    group: Name
    task: Name
    metric: Annotated[str, Field(max_length=512)] = ""
    scale: Name
    pooled: bool = False

    @property
    def key(self) -> tuple[str, str, str, str, bool]:
        return self.group, self.task, self.metric, self.scale, self.pooled


class GateNight(Gate):
    """What one night said about a gate."""

    n: Count
    broke: Count | None = None
    fixed: Count | None = None
    p: Finite
    """One-sided p of "the second measurement is worse", before correction."""
    alarmed: bool
    """A pull request would have been blocked for this drop."""
    identical: bool
    """The raw responses are the same in every bit."""


class Flipped(Strict):
    """Random sign flips of real changed examples: how often p came out under alpha."""

    pairs: Count
    """Examples that changed between two publications of the branch."""
    draws: Count
    alarms: Count


class GateTally(Gate):
    """A gate over the nights that count."""

    nights: Count
    alarms: Count
    identical: Count
    flipped: Flipped | None = None
    """Only for deterministic gates, where the branch has changed examples."""

    @property
    def deterministic(self) -> bool:
        """Every night was identical to the last bit."""
        return self.nights > 0 and self.identical == self.nights


class MetricTally(Strict):
    """All gates of a metric over the nights that count."""

    metric: Annotated[str, Field(max_length=512)] = ""
    """Empty for what has no name of its own, such as pools of several metrics."""
    nights: Count
    alarms: Count
    """Nights in which any gate of the metric alarmed."""


class Tally(Strict):
    """All gates of a kind over the nights that count."""

    kind: Kind
    protocol: Sha256
    """Digest of how it was measured: nights under another protocol say nothing about this one."""
    alpha: Annotated[float, Field(gt=0, lt=1)]
    nights: Count
    alarms: Count
    """Nights in which any gate alarmed."""
    gates: Annotated[tuple[GateTally, ...], Field(strict=False, max_length=20_000)] = ()
    metrics: Annotated[tuple[MetricTally, ...], Field(strict=False, max_length=2_000)] = ()

    @property
    def deterministic(self) -> bool:
        return bool(self.gates) and all(g.deterministic for g in self.gates)

    def advisory(self) -> list[GateTally]:
        """Gates whose false alarms are shown to be more frequent than their alpha."""
        return [g for g in self.gates if bounds(g.alarms, g.nights)[0] > self.alpha + 1e-9]


class Night(Strict):
    """One self-audit, as the journal keeps it. `tally` counts this night too, so that readers need one file only."""

    schema_version: Literal[1] = 1
    kind: Kind
    created: Annotated[datetime, Field(strict=False)]
    commit: CommitSha
    first: Sha256
    second: Sha256
    protocol: Sha256
    alpha: Annotated[float, Field(gt=0, lt=1)]
    gates: Annotated[tuple[GateNight, ...], Field(strict=False, max_length=20_000)]
    tally: Tally | None = None

    @property
    def alarmed(self) -> bool:
        return any(g.alarmed for g in self.gates)

    @property
    def path(self) -> str:
        """Where the journal keeps it: in the order of time, and named by the two records."""
        pair = hashlib.sha256(f"{self.first}{self.second}".encode()).hexdigest()[:12]
        return f"audits/{self.kind}/{self.created:%Y-%m-%dT%H%M%SZ}-{pair}.json"

    def dump(self) -> bytes:
        """The bytes of its file."""
        return self.model_dump_json(indent=1).encode() + b"\n"


def bounds(alarms: int, nights: int) -> tuple[float, float]:
    """Exact lower and upper bound of a rate, each with 95% confidence (one-sided Clopper-Pearson)."""
    low = float(betaincinv(alarms, nights - alarms + 1, 1 - CONFIDENCE)) if alarms else 0.0
    high = float(betaincinv(alarms + 1, nights - alarms, CONFIDENCE)) if alarms < nights else 1.0
    return low, high


def protocol_digest(evidence: Evidence) -> str:
    """Digest of how something was measured, apart from facts about single tasks."""
    protocol = evidence.protocol
    facts = (
        protocol if isinstance(protocol, str) else {k: v for k, v in protocol.items() if not k.startswith(TASK_PREFIX)}
    )
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def night(first: Record, second: Record, comparison: Comparison) -> Night:
    """One self-audit from its comparison (`second` as head, `first` as base).

    Raises `InputError` when the records are no two measurements of one commit.
    """
    commit = first.evidence.provenance.commit
    if commit is None or commit != second.evidence.provenance.commit:
        raise InputError("the two records are not of one commit: a self-audit measures the same commit twice.")
    if first.digest == second.digest:
        raise InputError("the two records are one and the same: measure the commit a second time.")
    return Night(
        kind=second.evidence.kind,
        created=second.evidence.provenance.created,
        commit=commit,
        first=first.digest,
        second=second.digest,
        protocol=protocol_digest(second.evidence),
        alpha=comparison.alpha,
        gates=tuple(_gate_night(f, comparison.alpha) for f in comparison.findings),
    )


def tally(nights: Iterable[Night], newest: Night, flipped: dict[tuple[str, str, str, str, bool], Flipped]) -> Tally:
    """The nights that count: of the newest night's kind, protocol and alpha (an alarm at another level says nothing about
    this one), each pair of records once, at most `WINDOW`."""
    by_pair = {(n.first, n.second): n for n in (*nights, newest)}
    same = [
        n for n in by_pair.values() if (n.kind, n.protocol, n.alpha) == (newest.kind, newest.protocol, newest.alpha)
    ]
    counted = sorted(same, key=lambda n: (n.created, n.second), reverse=True)[:WINDOW]
    gates = []
    for gate in newest.gates:
        seen = [g for n in counted for g in n.gates if g.key == gate.key]
        found = GateTally(
            group=gate.group,
            task=gate.task,
            metric=gate.metric,
            scale=gate.scale,
            pooled=gate.pooled,
            nights=len(seen),
            alarms=sum(g.alarmed for g in seen),
            identical=sum(g.identical for g in seen),
        )
        if found.deterministic and gate.key in flipped:
            found = found.model_copy(update={"flipped": flipped[gate.key]})
        gates.append(found)
    return Tally(
        kind=newest.kind,
        protocol=newest.protocol,
        alpha=newest.alpha,
        nights=len(counted),
        alarms=sum(n.alarmed for n in counted),
        gates=tuple(gates),
        metrics=tuple(_metric_tally(name, counted) for name in sorted({g.metric for g in newest.gates})),
    )


def _metric_tally(metric: str, nights: Sequence[Night]) -> MetricTally:
    measured = [mine for n in nights if (mine := [g for g in n.gates if g.metric == metric])]
    return MetricTally(metric=metric, nights=len(measured), alarms=sum(any(g.alarmed for g in m) for m in measured))


def sign_flips(
    comparisons: Sequence[Comparison], *, draws: int = DRAWS
) -> dict[tuple[str, str, str, str, bool], Flipped]:
    """For each 0/1 gate, the changed examples of the first comparison that has any, with their signs drawn anew.

    Under random signs a changed example broke or was fixed with the same chance, as it would if nothing had changed for
    the worse; each p under alpha is then false. Examples in clusters do not flip alone, and growing samples have no
    fixed p, so that these are left out. The draws are seeded by the counts.
    """
    found: dict[tuple[str, str, str, str, bool], Flipped] = {}
    for comparison in comparisons:
        for f in comparison.findings:
            key = (f.group, f.task, f.metric, f.scale, f.pooled)
            if f.broke is None or f.fixed is None or f.clusters is not None or f.growing or key in found:
                continue
            pairs = f.broke + f.fixed
            if pairs == 0:
                continue
            broke = np.random.default_rng(pairs).binomial(pairs, 0.5, draws)
            alarms = int((midp_worse(broke, pairs - broke) < comparison.alpha).sum())
            found[key] = Flipped(pairs=pairs, draws=draws, alarms=alarms)
    return found


@dataclass(frozen=True)
class Advised:
    """A comparison in which the findings of advisory gates do not block."""

    comparison: Comparison
    tally: Tally | None
    """The self-audits that apply to it, if any do."""


def advise(comparison: Comparison, head: Evidence, tallies: Iterable[Tally]) -> Advised:
    """Mark the findings of advisory gates, by the self-audits of the same kind and protocol as the head's, at the same
    alpha: a gate that is told to alarm in 1 of 5 nights and does so is no reason to overrule one of 1 in 100."""
    mine = (head.kind, protocol_digest(head), comparison.alpha)
    found = next((t for t in tallies if (t.kind, t.protocol, t.alpha) == mine), None)
    if found is None:
        return Advised(comparison, None)
    advisory = {g.key for g in found.advisory()}
    if not advisory:
        return Advised(comparison, found)
    findings = [
        replace(f, advisory=(f.group, f.task, f.metric, f.scale, f.pooled) in advisory) for f in comparison.findings
    ]
    return Advised(replace(comparison, findings=findings, overall=summarise(findings)), found)


def newest_of(paths: Iterable[str], kind: str) -> str | None:
    """The newest self-audit of a kind among the journal's paths."""
    return max((p for p in paths if (match := PATH.match(p)) and match["kind"] == kind), default=None)


def parse_night(data: bytes, origin: str) -> Night:
    """Read a self-audit strictly. Raises `InputError` when it is none."""
    try:
        return Night.model_validate_json(data)
    except ValidationError as error:
        raise InputError(f"{origin} is no self-audit ({error.error_count()} faults in it): remove it.") from None


def _gate_night(f: Finding, alpha: float) -> GateNight:
    return GateNight(
        group=f.group,
        task=f.task,
        metric=f.metric,
        scale=f.scale,
        pooled=f.pooled,
        n=f.n,
        broke=f.broke,
        fixed=f.fixed,
        p=f.p_worse,
        # A score under its floor is no false alarm: that is a claim about the score and not about a change.
        alarmed=over(f.drop, f.threshold) and f.adjusted_worse < alpha,
        identical=f.identical,
    )
