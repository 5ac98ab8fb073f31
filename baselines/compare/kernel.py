"""Comparator of kernels: the contract first, then the time of each case, block by block where base and head shared a lease."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

import pyarrow as pa

from assay.baselines.compare.lease import Measured, control_facts, disagreements, measured_of, void
from assay.baselines.compare.protocol import ProtocolMismatchError, check_protocol
from assay.baselines.compare.verdict import MAX_FLIPS, Comparison, Finding, Overall, State, over, summarise
from assay.baselines.environment import differences
from assay.baselines.errors import InputError
from assay.baselines.evidence import Evidence
from assay.baselines.kernel import (
    BUSY,
    CONTRACT,
    KIND,
    LEASE,
    NORM,
    REFUSALS,
    REFUSED,
    STANDS_STILL,
    check_rows,
    series_of,
)
from assay.baselines.policy import Policy, accepted_for, exceeded_for
from assay.baselines.record import Record
from assay.baselines.stats.multiplicity import holm
from assay.baselines.stats.speed import detectable, needed_blocks

DECLARED = "model-bytes/"
"""Metric that every declared case has, timed or not."""
SAME_REFERENCE = 1e-6
CASES = "all"
"""The one Holm family."""


def compare(
    head: Record,
    base: Record,
    policy: Policy,
    today: date,
    *,
    intersect: bool = False,
    some_tasks: bool = False,
    max_flips: int = MAX_FLIPS,
) -> Comparison:
    """Head against base.

    A case whose contract the head fails, and one whose time is refused, is regressed: it needs no statistics. Times are
    paired by block when both sides name the same lease; then base against itself is the control, and a control that
    moves voids every time of the lease. Times of two leases are compared unpaired, and a slowdown that they show advises
    and does not block. Raises `InputError` for invalid tables and missing cases, `ProtocolMismatchError` for another
    protocol, other inputs or another reference.
    """
    base_rows, head_rows = check_rows(base.rows, "base"), check_rows(head.rows, "head")
    before, after = series_of(base_rows), series_of(head_rows)
    cases, warnings = _common(base.evidence, head.evidence, some_tasks or intersect)
    check_protocol(base.evidence, head.evidence, set(cases))
    _check_references(base.evidence, head.evidence, cases)
    environment = differences(base.evidence.environment, head.evidence.environment)
    if environment and policy.on_environment_change == "block":
        raise InputError(
            f"the environment changed ({environment[0]}) and the policy blocks that: measure the base again in this environment."
        )
    paired = _same_lease(base.evidence, head.evidence)
    findings = _contract(base.evidence, head.evidence)
    findings += _refused(base.evidence, head.evidence, cases)
    told = {f.task for f in findings if f.scale == "refused"}
    measured = measured_of(before, after, [c for c in cases if c not in told], policy, head.evidence, paired)
    reason = ""
    if paired:
        reason = void(before, measured, policy)
    speed = _judge(measured, policy, today, is_void=bool(reason))
    findings += speed
    if not reason:
        warnings += disagreements(measured)
    warnings += _warnings(base.evidence, head.evidence, head_rows, paired)
    if not findings:
        failing = [a for a, v in base.evidence.attributes.items() if a.startswith(CONTRACT) and v is False]
        if not failing and not _contract_only(head.evidence):
            raise InputError("base and head share no timed case: measure the same cases on both.")
    return Comparison(
        kind=KIND,
        overall=_overall(findings, head.evidence),
        findings=findings,
        examples=sum(f.n for f in speed),
        environment=environment,
        warnings=warnings,
        reason=reason,
        alpha=policy.alpha,
        power=policy.power,
        hypotheses={CASES: len(speed)} if speed else {},
        facts=control_facts(before, measured, policy) if paired else (),
    )


def _overall(findings: Sequence[Finding], head: Evidence) -> Overall:
    if findings:
        return summarise(findings)
    return Overall.EQUIVALENT if _contract_only(head) else Overall.NO_BASELINE


def _contract_only(evidence: Evidence) -> bool:
    """Whether only contracts were checked, with Triton's interpreter, whose times mean nothing."""
    return isinstance(evidence.protocol, dict) and evidence.protocol.get("interpreter") is True


def _common(base: Evidence, head: Evidence, some: bool) -> tuple[list[str], list[str]]:
    """Declared cases of both; a case that only the head has is named, one that it dropped refuses the comparison."""
    before, after = _declared(base), _declared(head)
    dropped = [case for case in before if case not in after]
    if dropped and not some:
        raise InputError(f"the head has no results for {_some(dropped)}, which the base has: measure the same cases.")
    new = [case for case in after if case not in before]
    verb = "has" if len(new) == 1 else "have"
    return [case for case in after if case in before], [f"{_some(new)} {verb} no baseline yet"] if new else []


def _declared(evidence: Evidence) -> list[str]:
    return [name.removeprefix(DECLARED) for name in evidence.metrics if name.startswith(DECLARED)]


def _some(names: Sequence[str]) -> str:
    return ", ".join(n[:60] for n in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _check_references(base: Evidence, head: Evidence, cases: Sequence[str]) -> None:
    """Two references that disagree on the same inputs are two contracts."""
    unlike = []
    for case in cases:
        before, after = base.attributes.get(NORM + case), head.attributes.get(NORM + case)
        if not isinstance(before, float) or not isinstance(after, float):
            continue
        if abs(before - after) > SAME_REFERENCE * max(abs(before), abs(after)):
            unlike.append((f"task.{case}.reference", f"{before:.9g}", f"{after:.9g}"))
    if unlike:
        raise ProtocolMismatchError(unlike)


def _same_lease(base: Evidence, head: Evidence) -> bool:
    lease = head.attributes.get(LEASE)
    return isinstance(lease, str) and bool(lease) and base.attributes.get(LEASE) == lease


def _contract(base: Evidence, head: Evidence) -> list[Finding]:
    """One finding for each contract case that the head fails, or passes where the base fails."""
    found = []
    for name, passed in head.attributes.items():
        if not name.startswith(CONTRACT):
            continue
        before = base.attributes.get(name)
        case = name.removeprefix(CONTRACT)
        if passed is False:
            # What main gets wrong already is no regression of this change, and no pass either.
            state = State.INCONCLUSIVE if before is False else State.REGRESSED
            found.append(_plain(case, "contract", state, 0.0 if before is False else 1.0, 0.0))
        elif before is False:
            found.append(_plain(case, "contract", State.IMPROVED, 0.0, 1.0))
    return found


def _refused(base: Evidence, head: Evidence, cases: Sequence[str]) -> list[Finding]:
    found = []
    for case in cases:
        if head.attributes.get(REFUSED + case) == BUSY:
            found.append(replace(_plain(case, "refused", State.INCONCLUSIVE, 0.0, 0.0), metric=BUSY))
        elif REFUSED + case in head.attributes:
            found.append(_plain(case, "refused", State.REGRESSED, 1.0, 0.0))
        elif REFUSED + case in base.attributes:
            found.append(_plain(case, "refused", State.INCONCLUSIVE, 0.0, 1.0))
    return found


def refusal_of(evidence: Evidence, case: str) -> str:
    """Why the time of a case is refused, in our words, whatever the evidence says."""
    code = evidence.attributes.get(REFUSED + case)
    return REFUSALS.get(code, "its time cannot be trusted") if isinstance(code, str) else ""


def _plain(case: str, scale: str, state: State, base: float, head: float) -> Finding:
    """A finding that needs no statistics."""
    worse = state is State.REGRESSED
    return Finding(
        group=CASES,
        task=case,
        metric=scale,
        scale=scale,
        n=1,
        base=base,
        head=head,
        change=head - base,
        low=head - base,
        high=head - base,
        drop=base - head,
        state=state,
        p_worse=0.0 if worse else 1.0,
        p_better=0.0 if state is State.IMPROVED else 1.0,
        p_two_sided=0.0 if worse else 1.0,
        adjusted_worse=0.0 if worse else 1.0,
        adjusted_better=1.0,
        threshold=0.0,
        margin=0.0,
    )


def _judge(measured: Sequence[Measured], policy: Policy, today: date, *, is_void: bool) -> list[Finding]:
    """The four states. Slower: over the threshold after Holm, and in each round. Same: both one-sided bounds inside the
    margin."""
    if not measured:
        return []
    slower = holm([m.change.p_slower for m in measured])
    faster = holm([m.change.p_faster for m in measured])
    found = []
    for m, worse, better in zip(measured, slower, faster, strict=True):
        c, limits = m.change, m.limits
        inside_high, inside_low = c.bound_high < limits.margin, c.bound_low > -limits.margin / (1 + limits.margin)
        if is_void:
            state = State.INCONCLUSIVE
        elif worse < policy.alpha and all(over(x, limits.threshold) for x in (c.change, *m.rounds)):
            state = State.REGRESSED
        elif better < policy.alpha and all(over(1 / (1 + x) - 1, limits.threshold) for x in (c.change, *m.rounds)):
            state = State.IMPROVED
        elif inside_high:
            state = State.EQUIVALENT
        else:
            state = State.INCONCLUSIVE
        needed = None
        if state is State.INCONCLUSIVE and not is_void:
            needed = needed_blocks(c, limits.threshold, limits.margin, policy.alpha, policy.power)
        finding = Finding(
            group=CASES,
            task=m.case,
            metric="latency",
            scale="speed",
            n=c.blocks,
            base=1e6 * m.base,
            head=1e6 * m.head,
            change=c.change,
            low=c.low,
            high=c.high,
            drop=c.change,
            state=state,
            p_worse=c.p_slower,
            p_better=c.p_faster,
            p_two_sided=min(1.0, 2 * min(c.p_slower, c.p_faster)),
            adjusted_worse=float(worse),
            adjusted_better=float(better),
            threshold=limits.threshold,
            margin=limits.margin,
            one_sided=state is State.EQUIVALENT and not inside_low,
            needed=needed,
            detectable=None if is_void else detectable(c, limits.threshold, policy.alpha, policy.power),
            advisory=not c.paired,
        )
        if state is State.REGRESSED:
            entry = accepted_for(policy, m.case, "latency", c.change, today)
            short = None if entry is not None else exceeded_for(policy, m.case, "latency", c.change, today)
            finding = replace(finding, accepted=entry, exceeded=short)
        found.append(finding)
    return found


def _warnings(base: Evidence, head: Evidence, rows: pa.Table, paired: bool) -> list[str]:
    found = []
    if not paired:
        found.append(
            "base and head come from two leases, so that their blocks are no pairs and a difference between two days or "
            "machines counts as a change; it advises and does not block"
        )
    throttled = sum(1 for value in rows.column("throttled").to_pylist() if value)
    if throttled:
        found.append(f"the GPU was throttled in {throttled} of {rows.num_rows} blocks")
    if head.attributes.get(STANDS_STILL) is False:
        found.append(
            "the runner did not make the arms stand still out of their turn (SIGSTOP has no effect there), so that one that "
            "keeps the machine busy may slow the other"
        )
    failing = [a for a, v in base.attributes.items() if a.startswith(CONTRACT) and v is False]
    if failing:
        found.append(
            f"the base fails its contract on {_some([a.removeprefix(CONTRACT) for a in failing])}: nothing was timed"
        )
    return found
