"""The vocabulary of a comparison: findings, their states, and the conclusion of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from assay.baselines.policy import Accepted


class State(StrEnum):
    """What one hypothesis came to, decided in this order."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


class Overall(StrEnum):
    """What the gate as a whole came to."""

    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    ADVISORY = "advisory"
    """Regressed only where the gate alarms too often on identical commits, so that it does not block."""
    IMPROVED = "improved"
    EQUIVALENT = "equivalent"
    NO_BASELINE = "no-baseline"
    MISMATCH = "mismatch"
    INVALID = "invalid"
    BROKEN = "broken"


class Conclusion(StrEnum):
    """Conclusion of a GitHub check run."""

    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"
    ACTION_REQUIRED = "action_required"


@dataclass(frozen=True)
class Finding:
    """One hypothesis of a comparison.

    `change` and its 95% interval are a difference of proportions for scores (graded ones as shares of their declared
    range) and a relative change for perplexity. `drop` is the same oriented so that positive is worse, whichever way
    the metric counts; so are `broke` and `fixed`.
    """

    group: str
    task: str
    metric: str
    scale: str
    n: int
    base: float
    head: float
    change: float
    low: float
    high: float
    drop: float
    state: State
    p_worse: float
    p_better: float
    p_two_sided: float
    adjusted_worse: float
    adjusted_better: float
    threshold: float
    margin: float
    broke: int | None = None
    fixed: int | None = None
    pooled: bool = False
    growing: bool = False
    one_sided: bool = False
    """Only the harmful bound is inside the margin: "not worse by more than", a gain may be larger."""
    identical: bool = False
    """The model's raw responses are the same in every bit."""
    below_floor: bool = False
    floor: float | None = None
    needed: int | None = None
    """Examples in all that would decide, when the state is inconclusive."""
    detectable: float | None = None
    """Smallest drop that these examples would show with the policy's power."""
    clusters: int | None = None
    accepted: Accepted | None = None
    exceeded: Accepted | None = None
    """An acceptance of a smaller drop than this one, which it therefore does not cover."""
    advisory: bool = False
    """Self-audits showed that this gate alarms more often than its alpha on identical commits."""

    @property
    def name(self) -> str:
        """`task` or `task/metric`, as people select it."""
        return f"{self.task}/{self.metric}" if self.metric else self.task

    @property
    def floor_open(self) -> bool:
        """Whether the head's score is below its floor without the examples showing it."""
        return self.floor is not None and self.head < self.floor and not self.below_floor

    @property
    def p(self) -> float:
        """One-sided p of the change in the direction that was seen: of worse for a drop, of better for a gain."""
        return self.p_worse if self.drop >= 0 else self.p_better

    @property
    def blocks(self) -> bool:
        """Whether this finding fails the gate."""
        return self.state is State.REGRESSED and self.accepted is None and (self.below_floor or not self.advisory)

    @property
    def advised(self) -> bool:
        """Whether this finding would fail the gate if the gate were not advisory."""
        return self.state is State.REGRESSED and self.accepted is None and not self.blocks


@dataclass(frozen=True)
class Flip:
    """One example whose answer changed."""

    task: str
    broke: bool
    example: str
    text: str
    base_answer: str
    base_margin: float | None
    head_answer: str
    head_margin: float | None


@dataclass(frozen=True)
class PartChange:
    """A part of what was measured (a layer, an operator on the host) that changed, came or went."""

    task: str
    part: str
    kind: str
    """`layer` or `host`."""
    base: float | None
    """Cycles of a layer, or how often an operator runs on the host; None where the side has no such part."""
    head: float | None
    base_bytes: float | None = None
    """DRAM traffic of a layer."""
    head_bytes: float | None = None
    detail: str = ""


@dataclass(frozen=True)
class Comparison:
    """Head against base under a policy."""

    kind: str
    overall: Overall
    findings: Sequence[Finding] = ()
    flips: Sequence[Flip] = ()
    """The examples that changed and lie nearest to hand, at most `MAX_FLIPS` of each direction, broken ones first."""
    broke: int = 0
    fixed: int = 0
    """All changed examples over the compared tasks, of which `flips` may be a part."""
    examples: int = 0
    environment: Sequence[str] = ()
    warnings: Sequence[str] = ()
    reason: str = ""
    """Why there is no verdict, when there is none."""
    alpha: float = 0.05
    power: float = 0.8
    hypotheses: dict[str, int] = field(default_factory=dict)
    """Holm family -> its size. A family is named like its group, with the scale where a group has several."""
    growing: bool = False
    parts: Sequence[PartChange] = ()
    """Parts that changed, the largest change first, at most `MAX_PARTS`."""
    parts_changed: int = 0
    """All of them."""
    facts: Sequence[str] = ()
    """More on how it was compared, one phrase each, in our own words."""

    @property
    def regressed(self) -> list[Finding]:
        return [f for f in self.findings if f.blocks]


MAX_FLIPS = 200
MAX_PARTS = 1000


def over(drop: float, threshold: float) -> bool:
    """Whether a drop is over its threshold: 5 of 1,000 examples are half a point, and not over it, whatever the rounding
    of means and percentages left in the last bits."""
    return drop - threshold > 1e-12


def summarise(findings: Sequence[Finding]) -> Overall:
    """The state of the whole: the worst that is not accepted, and improved only if nothing is undecided. A regression
    that only an advisory gate sees does not block, and is no pass either."""
    states = {f.state for f in findings if f.state is not State.REGRESSED}
    if any(f.blocks for f in findings):
        return Overall.REGRESSED
    if State.INCONCLUSIVE in states:
        return Overall.INCONCLUSIVE
    if any(f.advised for f in findings):
        return Overall.ADVISORY
    if State.IMPROVED in states:
        return Overall.IMPROVED
    return Overall.EQUIVALENT


def conclude(overall: Overall, *, block_inconclusive: bool) -> tuple[Conclusion, int]:
    """Check conclusion and exit code of an outcome; a blocked gate (1) and a broken tool (3) are never the same."""
    match overall:
        case Overall.REGRESSED:
            return Conclusion.FAILURE, 1
        case Overall.INCONCLUSIVE:
            return (Conclusion.ACTION_REQUIRED, 1) if block_inconclusive else (Conclusion.NEUTRAL, 0)
        case Overall.NO_BASELINE | Overall.ADVISORY:
            return Conclusion.NEUTRAL, 0
        case Overall.MISMATCH | Overall.INVALID:
            return Conclusion.FAILURE, 2
        case Overall.BROKEN:
            return Conclusion.FAILURE, 3
        case Overall.IMPROVED | Overall.EQUIVALENT:
            return Conclusion.SUCCESS, 0


def error_rank(overall: Overall) -> int:
    """Order for the worst of several sections, worst last."""
    order = (
        Overall.EQUIVALENT,
        Overall.IMPROVED,
        Overall.NO_BASELINE,
        Overall.ADVISORY,
        Overall.INCONCLUSIVE,
        Overall.REGRESSED,
        Overall.BROKEN,
        Overall.MISMATCH,
        Overall.INVALID,
    )
    return order.index(overall)
