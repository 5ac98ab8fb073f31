"""Comparator of compiled models: exact counts, budgets, and operators that came to the host or left it. No statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date

from assay.baselines.compare.layers import changed_parts
from assay.baselines.compare.protocol import check_protocol
from assay.baselines.compare.verdict import (
    MAX_FLIPS,
    MAX_PARTS,
    Comparison,
    Finding,
    Overall,
    State,
    over,
    summarise,
)
from assay.baselines.environment import differences
from assay.baselines.errors import InputError
from assay.baselines.evidence import Evidence
from assay.baselines.kernel import LEASE
from assay.baselines.npu import (
    COMPILER,
    CYCLES,
    FAILED,
    HOST,
    HOST_ROW,
    KIND,
    LATENCY,
    READ,
    SHARE,
    UNSTABLE,
    VTCM,
    WRITTEN,
    Row,
    rows_of,
)
from assay.baselines.policy import ModelLimits, Policy, accepted_for, exceeded_for, matches, model_limits
from assay.baselines.record import Record

ALL = "all"


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
    """Head against base, model by model.

    Counts are exact, so that a rise over the policy's limit is a regression as it stands; one model's verdict is void when two
    compilations of it differ on either side. A model that the head alone has is held to its budgets only. Where another compiler
    made a published base, a difference advises and does not block, unless the policy judges it; budgets always block. Raises
    `InputError` for an invalid table and for models that the head lacks, `ProtocolMismatchError` for another machine or shape.
    """
    before, after = list(rows_of(base.rows, "base")), list(rows_of(head.rows, "head"))
    known, mine = models_of(base.evidence), models_of(head.evidence)
    dropped = [name for name in known if name not in mine]
    if dropped and not (some_tasks or intersect):
        raise InputError(f"the head has no results for {_some(dropped)}, which the base has: compile the same models.")
    common = [name for name in mine if name in known]
    # A model that failed says nothing of its inputs, and has no counts that another shape would spoil.
    counted = {name for name in common if all(CYCLES + name in side.metrics for side in (base.evidence, head.evidence))}
    check_protocol(base.evidence, head.evidence, counted)
    environment = differences(base.evidence.environment, head.evidence.environment)
    if environment and policy.on_environment_change == "block":
        raise InputError(
            f"the environment changed ({environment[0]}) and the policy blocks that: measure the base again in this environment."
        )
    advisory = policy.npu.on_compiler_change == "advise" and other_compiler(base.evidence, head.evidence)
    findings: list[Finding] = []
    void: list[str] = []
    for name in mine:
        limits = model_limits(policy, name)
        there = base.evidence if name in known else None
        how = _unstable(name, head.evidence, there)
        if how:
            void.append(f"two compilations of {name[:64]} differ ({how})")
            findings.append(_finding(name, "cycles", "unstable", State.INCONCLUSIVE, 0.0, 0.0))
            continue
        failed = _failed(name, head.evidence, there)
        if failed is not None:
            findings.append(replace(failed, advisory=advisory))
        if _value(head.evidence, CYCLES, name) is None:
            continue
        findings += _budgets(name, head.evidence, there, limits)
        if there is not None and _value(there, CYCLES, name) is not None:
            judged = _counts(name, head.evidence, there, limits) + _fallbacks(name, after, before, limits)
            findings += [replace(f, advisory=advisory) for f in judged]
    findings = [_accept(f, policy, today) for f in findings]
    sides = (head.evidence, base.evidence)
    whole = [n for n in common if not _unstable(n, *sides) and all(CYCLES + n in side.metrics for side in sides)]
    parts = changed_parts(before, after, whole)
    return Comparison(
        kind=KIND,
        overall=summarise(findings) if findings else Overall.NO_BASELINE,
        findings=findings,
        environment=environment,
        warnings=[*_warnings(known, mine, advisory), *_unjudged(mine, head.evidence, policy)],
        reason="; ".join(void[:3]),
        alpha=policy.alpha,
        power=policy.power,
        parts=parts[:MAX_PARTS],
        parts_changed=len(parts),
    )


def models_of(evidence: Evidence) -> list[str]:
    """Models of a record, compiled or not, by name: a document keeps no order of its metrics."""
    compiled = [name.removeprefix(CYCLES) for name in evidence.metrics if name.startswith(CYCLES)]
    failed = [name.removeprefix(FAILED) for name in evidence.attributes if name.startswith(FAILED)]
    return sorted({*compiled, *failed})


def other_compiler(base: Evidence, head: Evidence) -> bool:
    """Whether the two sides were compiled by different compilers, so that a difference may be the compiler's."""
    lease = head.attributes.get(LEASE)
    if isinstance(lease, str) and lease and base.attributes.get(LEASE) == lease:
        return False
    names = (COMPILER, "torch")
    return any(base.environment.libraries.get(n) != head.environment.libraries.get(n) for n in names)


def _value(evidence: Evidence, prefix: str, model: str) -> float | None:
    metric = evidence.metrics.get(prefix + model)
    return None if metric is None else float(metric.value)


def dram_of(evidence: Evidence, model: str) -> float | None:
    """DRAM bytes read and written together."""
    read, written = _value(evidence, READ, model), _value(evidence, WRITTEN, model)
    return None if read is None or written is None else read + written


def _unstable(model: str, *sides: Evidence | None) -> str:
    for side in sides:
        how = side.attributes.get(UNSTABLE + model) if side is not None else None
        if how is not None:
            return str(how)[:160]
    return ""


def _failed(model: str, head: Evidence, base: Evidence | None) -> Finding | None:
    now = FAILED + model in head.attributes
    before = base is not None and FAILED + model in base.attributes
    if now:
        # What main does not compile either is no regression of this change, and no pass.
        state = State.INCONCLUSIVE if before else State.REGRESSED
        return _finding(model, "compiles", "compiles", state, 0.0 if before else 1.0, 0.0)
    return _finding(model, "compiles", "compiles", State.IMPROVED, 0.0, 1.0) if before else None


def _counts(model: str, head: Evidence, base: Evidence, limits: ModelLimits) -> list[Finding]:
    pairs = {
        "cycles": (_value(base, CYCLES, model), _value(head, CYCLES, model), limits.cycles),
        "dram": (dram_of(base, model), dram_of(head, model), limits.dram),
        "vtcm": (_value(base, VTCM, model), _value(head, VTCM, model), limits.vtcm),
    }
    found = []
    for metric, (before, after, limit) in pairs.items():
        if before is None or after is None or limit is None:
            continue
        change = relative(before, after)
        state = State.EQUIVALENT
        if over(change, limit / 100):
            state = State.REGRESSED
        elif over(relative(after, before), limit / 100):
            state = State.IMPROVED
        made = _finding(model, metric, "count", state, before, after)
        found.append(replace(made, change=change, low=change, high=change, drop=change, threshold=limit / 100))
    return found


def relative(before: float, after: float) -> float:
    """Change as a proportion of `before`; all of `after` where there was nothing."""
    return after / before - 1 if before else float(after > 0)


def _fallbacks(model: str, after: Iterable[Row], before: Iterable[Row], limits: ModelLimits) -> list[Finding]:
    now, then = _host(after, model), _host(before, model)
    found = []
    for op in sorted(now.keys() | then.keys()):
        if now[op] == then[op]:
            continue
        state = State.IMPROVED
        if now[op] > then[op]:
            forgiven = limits.fallbacks == "report" or matches(op, limits.allowed or [])
            state = State.EQUIVALENT if forgiven else State.REGRESSED
        found.append(_finding(model, op, "fallback", state, then[op], now[op]))
    return found


def _host(rows: Iterable[Row], model: str) -> Counter[str]:
    return Counter(row.op for row in rows if row.kind == HOST_ROW and row.model == model)


def _budgets(model: str, head: Evidence, base: Evidence | None, limits: ModelLimits) -> list[Finding]:
    """One finding for each declared budget; over it is a regression whichever way the count moved."""
    asked: Mapping[str, tuple[float | None, float | None, float | None]] = {
        "max-cycles": (limits.max_cycles, *_both(CYCLES, model, head, base)),
        "max-latency-ms": (limits.max_latency_ms, *_both(LATENCY, model, head, base)),
        "max-dram-bytes": (limits.max_dram_bytes, dram_of(head, model), dram_of(base, model) if base else None),
        "max-vtcm-bytes": (limits.max_vtcm_bytes, *_both(VTCM, model, head, base)),
        "min-share": (limits.min_share, *_both(SHARE, model, head, base)),
    }
    found = []
    for name, (budget, now, then) in asked.items():
        if budget is None or now is None:
            continue
        worse = over(budget - now if name == "min-share" else now - budget, 0.0)
        state = State.REGRESSED if worse else State.EQUIVALENT
        made = _finding(model, name, "budget", state, then if then is not None else now, now)
        found.append(replace(made, floor=float(budget), below_floor=worse))
    return found


def _both(prefix: str, model: str, head: Evidence, base: Evidence | None) -> tuple[float | None, float | None]:
    return _value(head, prefix, model), _value(base, prefix, model) if base is not None else None


def _finding(model: str, metric: str, scale: str, state: State, base: float, head: float) -> Finding:
    """A finding that needs no statistics."""
    worse, better = float(state is not State.REGRESSED), float(state is not State.IMPROVED)
    return Finding(
        group=ALL,
        task=model,
        metric=metric,
        scale=scale,
        n=1,
        base=float(base),
        head=float(head),
        change=float(head) - float(base),
        low=float(head) - float(base),
        high=float(head) - float(base),
        drop=0.0 if state is State.EQUIVALENT else float(state is State.REGRESSED) - float(state is State.IMPROVED),
        state=state,
        p_worse=worse,
        p_better=better,
        p_two_sided=min(worse, better),
        adjusted_worse=worse,
        adjusted_better=better,
        threshold=0.0,
        margin=0.0,
    )


def _accept(finding: Finding, policy: Policy, today: date) -> Finding:
    if finding.state is not State.REGRESSED:
        return finding
    entry = accepted_for(policy, finding.task, finding.metric, finding.drop, today)
    short = None if entry is not None else exceeded_for(policy, finding.task, finding.metric, finding.drop, today)
    return replace(finding, accepted=entry, exceeded=short)


def _warnings(known: Sequence[str], mine: Sequence[str], advisory: bool) -> list[str]:
    found = []
    new = [name for name in mine if name not in known]
    if new:
        found.append(f"{_some(new)} {'has' if len(new) == 1 else 'have'} no baseline yet")
    if advisory:
        found.append(
            "base and head were compiled by different compilers, so that a difference may be the compiler's; "
            "it advises and does not block"
        )
    return found


def _unjudged(mine: Sequence[str], head: Evidence, policy: Policy) -> list[str]:
    """Limits of the policy that nothing was held to."""
    found = [
        f"gate.npu.models names {pattern[:64]!r}, which no compiled model is called"
        for pattern in policy.npu.models
        if not any(matches(name, [pattern]) for name in mine)
    ]
    compiled = [name for name in mine if CYCLES + name in head.metrics]
    timeless = [
        name
        for name in compiled
        if model_limits(policy, name).max_latency_ms is not None and LATENCY + name not in head.metrics
    ]
    if timeless:
        found.append(
            f"max-latency-ms of {_some(timeless)} was not judged: this machine has no clock (compile for one that has, such as htp_v75)"
        )
    empty = [
        name
        for name in compiled
        if model_limits(policy, name).min_share is not None and SHARE + name not in head.metrics
    ]
    if empty:
        found.append(f"min-share of {_some(empty)} was not judged: the model has no multiply-accumulates")
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(n[:60] for n in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def host_count(evidence: Evidence, model: str) -> int | None:
    """Operators of a model that run on the host."""
    value = _value(evidence, HOST, model)
    return None if value is None else int(value)
