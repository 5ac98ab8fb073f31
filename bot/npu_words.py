"""The verdict on compiled models in words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assay.baselines.compare.verdict import Finding, Overall, State
from assay.bot import text
from assay.bot.sections import Result

_WORSE = {"cycles": "slower", "dram": "more DRAM traffic", "vtcm": "more VTCM"}
_OPERATOR = re.compile(r"[A-Za-z_][\w.]{0,59}", re.ASCII)
_BETTER = {"cycles": "faster", "dram": "less DRAM traffic", "vtcm": "less VTCM"}


def headline(result: Result) -> str:
    """The verdict in words."""
    comparison = result.comparison
    if comparison is None:
        return {
            Overall.NO_BASELINE: "No baseline to compare with yet",
            Overall.MISMATCH: "Not comparable: main and this PR were compiled differently",
            Overall.INVALID: "The evidence cannot be used",
            Overall.BROKEN: "The compilation failed",
        }.get(result.overall, "No verdict")
    findings = comparison.findings
    match result.overall:
        case Overall.REGRESSED:
            return _worse([f for f in findings if f.blocks], findings)
        case Overall.ADVISORY:
            worse = _worse([f for f in findings if f.advised], findings)
            return f"{worse}: another compiler made the baseline, so this advises only"
        case Overall.INCONCLUSIVE if comparison.reason:
            return f"The compilation is void on {_of([f for f in findings if f.scale == 'unstable'], findings)}"
        case Overall.INCONCLUSIVE:
            open_ = [f for f in findings if f.state is State.INCONCLUSIVE]
            return f"No verdict on {_of(open_, findings)}: main's side does not compile either"
        case Overall.IMPROVED:
            return _better([f for f in findings if f.state is State.IMPROVED], findings)
        case Overall.NO_BASELINE:
            return "No baseline to compare with yet"
    if any(f.accepted for f in findings):
        return "Worse, and that was accepted"
    counted = [f for f in findings if f.scale == "count"]
    if not counted:
        return "Within budget; there is no baseline yet"
    return "The same cycles as before" if all(not f.change for f in counted) else "As fast as before"


def _worse(some: Sequence[Finding], findings: Sequence[Finding]) -> str:
    """What got worse, the gravest first, at most two of them."""
    found = []
    failed = [f for f in some if f.scale == "compiles"]
    if failed:
        found.append(f"does not compile on {_of(failed, findings)}")
    fallen = [f for f in some if f.scale == "fallback"]
    if fallen:
        ops = {f.metric for f in fallen}
        one = next(iter(ops))
        named = len(ops) == 1 and _OPERATOR.fullmatch(one) is not None  # nothing else belongs into the first line
        what = text.plain(one, 60) if named else text.plural(len(ops), "operator")
        found.append(f"{what} fell back to the host on {_of(fallen, findings)}")
    for metric, words in _WORSE.items():
        moved = [f for f in some if f.scale == "count" and f.metric == metric]
        if moved:
            found.append(f"{words} on {_of(moved, findings)}")
    budgets = [f for f in some if f.scale == "budget"]
    if budgets:
        found.append(f"over budget on {_of(budgets, findings)}")
    return _sentence(found)


def _better(some: Sequence[Finding], findings: Sequence[Finding]) -> str:
    found = []
    compiles = [f for f in some if f.scale == "compiles"]
    if compiles:
        found.append(f"compiles now on {_of(compiles, findings)}")
    for metric, words in _BETTER.items():
        moved = [f for f in some if f.scale == "count" and f.metric == metric]
        if moved:
            found.append(f"{words} on {_of(moved, findings)}")
    left = [f for f in some if f.scale == "fallback"]
    if left:
        found.append(
            f"{text.plural(len({f.metric for f in left}), 'operator')} fewer on the host on {_of(left, findings)}"
        )
    return _sentence(found)


def _sentence(found: Sequence[str]) -> str:
    """At most two phrases; the name of an operator keeps its small letter."""
    joined = ", and ".join(found[:2])
    return joined if "fell back" in found[0] else joined[:1].upper() + joined[1:]


def _of(some: Sequence[Finding], findings: Sequence[Finding]) -> str:
    models, all_ = {f.task for f in some}, {f.task for f in findings}
    return f"{len(models)} of {len(all_)} models" if len(all_) > 1 else text.plain(findings[0].task, 60)


def verdict_words(f: Finding) -> str:
    """The verdict of one finding, as the table says it."""
    if f.accepted:
        return f"{_words(f)}, accepted until {f.accepted.expires:%Y-%m-%d}"
    if f.advised:
        return f"{_words(f)}; another compiler, so it does not block"
    if f.exceeded and f.exceeded.up_to is not None:
        return f"{_words(f)}, more than the {f.exceeded.up_to:g}% accepted until {f.exceeded.expires:%Y-%m-%d}"
    return _words(f)


def _words(f: Finding) -> str:
    match f.scale, f.state:
        case "count", State.REGRESSED:
            return _WORSE[f.metric]
        case "count", State.IMPROVED:
            return _BETTER[f.metric]
        case "count", _:
            return f"same within {100 * f.threshold:g}%" if f.change else "the same"
        case "fallback", State.REGRESSED:
            return "falls back to the host"
        case "fallback", State.IMPROVED:
            return "less on the host"
        case "fallback", _:
            return "on the host, allowed"
        case "budget", State.REGRESSED:
            return "under the least share" if f.metric == "min-share" else "over budget"
        case "budget", _:
            return "within budget"
        case "compiles", State.REGRESSED:
            return "does not compile"
        case "compiles", State.IMPROVED:
            return "compiles now"
        case "compiles", _:
            return "does not compile, as on the base"
    return "void"


def budget_line(f: Finding, name: str) -> str:
    """One line on a budget that is not kept."""
    budget = f.floor or 0.0
    match f.metric:
        case "min-share":
            return f"{name} has {100 * f.head:.2f}% of its multiply-accumulates on the NPU; the policy asks for {100 * budget:g}%."
        case "max-latency-ms":
            return f"{name} is over its budget: about {f.head:.3g} ms of at most {budget:g} ms."
        case "max-cycles":
            return f"{name} is over its budget: {f.head:,.0f} cycles of at most {budget:,.0f}."
    what = "of DRAM traffic" if f.metric == "max-dram-bytes" else "of VTCM"
    return f"{name} is over its budget: {f.head:,.0f} bytes {what} of at most {budget:,.0f}."
