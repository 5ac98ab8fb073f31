"""What is wrong with a proposal, each finding with its mend. The rules are those of the capstone lesson: one bounded
question, numbers before work, a fair baseline, one new layer, hardware that can test the claim, a way to stop."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from assay.bot.milestones.proposal import STEPS, Capstone, Proof
from assay.bot.milestones.vocabulary import SHAPE, Contest, ContractPassed, Measured, ModelAgrees, Selector

Exists = Callable[[str], bool]
MILESTONES = 5
BASELINE_DUE = 2
"""The milestone by which the baseline must be measured: a mature one can reject the opportunity before the work is done."""

_VAGUE = re.compile(
    r"\b(faster|better|quicker|improve[sd]?|optimi[sz]ed?|efficient(?:ly)?|significant(?:ly)?|good|great"
    r"|state[- ]of[- ]the[- ]art|as (?:fast|small) as possible|speed[- ]?up)\b",
    re.IGNORECASE,
)
_MACHINES = re.compile(
    r"\b(\d{1,3}(?:,\d{3})+|\d{1,7})[- ]?(?:x[- ]?)?(?:[A-Z][A-Za-z0-9]*[- ])?(?:GPU|NPU|TPU|accelerator|device|phone|node)s?\b",
    re.IGNORECASE,
)
_BEATS = re.compile(r"\b(?:faster than|beats?|outperforms?|ahead of)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: where, what, and how to mend it."""

    key: str
    problem: str
    mend: str

    def __str__(self) -> str:
        return f"{self.key}: {self.problem}; {self.mend}"

    def as_json(self) -> dict[str, str]:
        """For machines."""
        return asdict(self)


def lint(capstone: Capstone, exists: Exists | None = None) -> list[Finding]:
    """Every finding, in the order of the file. `exists` tells whether a path is in the repository, where one is at hand."""
    if _title_only(capstone):
        return [
            Finding(
                "title",
                f"this is only a title ({capstone.title!r}), which has no condition under which it is finished",
                "narrow it to one question about a bounded family of inputs, with a number that can turn out wrong "
                "(`assay capstone init` writes the whole form)",
            )
        ]
    found: list[Finding] = []
    for check in (_claim, _baseline, _numbers, _layers, _hardware, _cases, _scope, _sequence, _stops, _milestones):
        found += check(capstone)
    if exists is not None:
        found += _paths(capstone, exists)
    return found


def _title_only(c: Capstone) -> bool:
    return not (
        c.question.strip() or c.scope.included or c.milestones or c.expected_result.strip() or c.intervention.layers
    )


def _claim(c: Capstone) -> Iterator[Finding]:
    required = (
        ("question", c.question, "ask one question that has an answer also when the new implementation is slower"),
        ("decision", c.decision, "say which engineering decision the answer informs"),
        ("user", c.user, "say who decides"),
        ("expected-result", c.expected_result, "say what you expect, with its number"),
    )
    for key, text, mend in required:
        if not text.strip():
            yield Finding(key, "is missing", mend)
    for key, text in (("question", c.question), ("expected-result", c.expected_result), ("decision", c.decision)):
        vague = _VAGUE.search(text)
        # A version (FlashAttention-2, sm90, bf16) is no quantity: only free-standing numbers count.
        if vague is not None and re.search(r"(?<![\w-])\d", text) is None:
            yield Finding(key, f"{vague[0]!r} has no number", "say by how much, of what, over which inputs")
    if c.question.strip() and _words(c.question) == _words(c.title):
        yield Finding("question", "repeats the title", "ask what is not known yet")
    modelled = any(isinstance(p.asked, ModelAgrees) for p in c.predicates())
    if _BEATS.search(f"{c.question} {c.expected_result}") and not modelled:
        yield Finding(
            "expected-result",
            "success is only being faster than something mature",
            "add a model-agrees item, so that a slower implementation still answers the question",
        )


def _baseline(c: Capstone) -> Iterator[Finding]:
    b = c.baseline
    if not b.naive.strip() and not b.mature.strip():
        yield Finding("baseline", "is missing", "name the naive implementation and what a user would call today")
        return
    if not b.mature.strip():
        yield Finding(
            "baseline.mature",
            "an easy baseline alone is unfair",
            "name what a user would call today: the framework's or vendor's implementation",
        )
    for key, same in (
        ("same-hardware", b.same_hardware),
        ("same-inputs", b.same_inputs),
        ("same-contract", b.same_contract),
    ):
        if not same:
            why = "is not said" if same is None else "is false, so that the comparison is unfair"
            yield Finding(
                f"baseline.{key}", why, f"measure both with the {key.replace('-', ' ')} and write `{key}: true`"
            )
    if b.evidence is None:
        yield Finding("baseline.evidence", "is missing", "name the kind and subject of the evidence that holds it")
        return
    early = [p.asked for m in c.milestones[:BASELINE_DUE] for p in m.evidence]
    if c.milestones and not any(_measures(asked, b.evidence) for asked in early):
        yield Finding(
            "baseline.evidence",
            f"no item of milestones 1 to {BASELINE_DUE} measures it",
            "ask for it before anything is built: a mature baseline can reject the opportunity",
        )


def _measures(asked: object, wanted: Selector) -> bool:
    if not isinstance(asked, Selector) or asked.kind != wanted.kind:
        return False
    sides = {asked.subject, getattr(asked, "baseline", None)}
    return wanted.subject in sides or wanted.subject == "*"


def _numbers(c: Capstone) -> Iterator[Finding]:
    if c.metric is None:
        yield Finding("metric", "is missing", "give name, unit and direction")
    family = c.input_family
    if not family.axes and not family.shapes:
        yield Finding("input-family", "is unbounded", "give its axes with their values, or the list of shapes")
    asked: list[Measured | ModelAgrees | Contest] = [
        p.asked for p in c.predicates() if isinstance(p.asked, (Measured, ModelAgrees, Contest))
    ]
    if not family.shapes and any(SHAPE in str(a.model_dump()) for a in asked):
        yield Finding(
            "input-family.shapes", "is empty, and milestones ask for every {shape}", "list the required shapes"
        )
    contract = c.correctness_contract
    if not contract.reference.strip():
        yield Finding("correctness-contract.reference", "is missing", "name the implementation that is trusted")
    if not contract.tolerances:
        yield Finding(
            "correctness-contract.tolerances", "is missing", "give the allowed error of each datatype, before timing"
        )
    for dtype, allowed in contract.tolerances.items():
        if allowed.absolute > 0.5 or allowed.relative > 0.5:
            yield Finding(
                f"correctness-contract.tolerances.{dtype}",
                "allows half of the value or more",
                "give an error that a wrong kernel would exceed",
            )
    if not contract.cases:
        yield Finding("correctness-contract.cases", "is missing", "name the kinds of input: random, extreme, tail ...")
    model = c.quantitative_model
    if not model.formula.strip():
        yield Finding("quantitative-model.formula", "is missing", "write the formula as text, with its source")
    if not model.predictions and not _predicted_in_evidence(c):
        yield Finding(
            "quantitative-model.predictions", "is missing", "give at least one number that measurement can refute"
        )
    gain, bound = c.material_gain, model.bound
    if gain is None or gain.value <= 0:
        yield Finding("material-gain", "has no number", "say the least gain that would matter: value and unit")
    if bound is None:
        yield Finding(
            "quantitative-model.bound",
            "is missing",
            "derive the most that the change can gain, in the unit of material-gain",
        )
    elif gain is not None and bound.unit != gain.unit:
        yield Finding(
            "quantitative-model.bound",
            f"is in {bound.unit!r} and material-gain in {gain.unit!r}",
            "give both in one unit",
        )
    resources = c.resources
    for key, value in (
        ("compute-hours", resources.compute_hours),
        ("work-hours", resources.work_hours),
        ("storage-gb", resources.storage_gb),
    ):
        if value is None:
            yield Finding(f"resources.{key}", "is missing", "estimate it: a number")


def _predicted_in_evidence(c: Capstone) -> bool:
    """Whether a model-agrees item takes its prediction from the evidence, where the model's code computed it."""
    return any(isinstance(p.asked, ModelAgrees) for p in c.predicates())


def _layers(c: Capstone) -> Iterator[Finding]:
    if not c.intervention.change.strip():
        yield Finding("intervention.change", "is missing", "say what is changed")
    if not c.intervention.layers:
        yield Finding("intervention.layers", "is missing", "name the layers of the stack that it touches")
    known = {p.layer for p in c.prerequisites if isinstance(p.demonstrated, Proof)}
    new = [layer for layer in dict.fromkeys(c.intervention.layers) if layer not in known]
    if len(new) > 1:
        yield Finding(
            "intervention.layers",
            f"{len(new)} layers are new at once ({', '.join(new)})",
            "keep one of them and defer the others, or demonstrate them first: a failure could not be told apart",
        )
    for i, p in enumerate(c.prerequisites):
        if p.layer is not None and c.intervention.layers and p.layer not in c.intervention.layers:
            yield Finding(
                f"prerequisites.{i}.layer", f"{p.layer!r} is none of intervention.layers", "write it as it stands there"
            )
    if not c.prerequisites:
        yield Finding("prerequisites", "is missing", "list what the work builds on, and what of it is demonstrated")


def _hardware(c: Capstone) -> Iterator[Finding]:
    if not c.resources.hardware:
        yield Finding("resources.hardware", "is missing", "list what is at hand, with its count")
        return
    at_hand = sum(d.count for d in c.resources.hardware)
    for key, text in (("title", c.title), ("question", c.question), ("expected-result", c.expected_result)):
        claimed = max((int(n.replace(",", "")) for n in _MACHINES.findall(text)), default=0)
        if claimed > at_hand and c.resources.simulation is None:
            yield Finding(
                key,
                f"claims {claimed:,} machines and {at_hand:,} {'is' if at_hand == 1 else 'are'} at hand",
                "claim what these can test, or limit it with resources.simulation (mechanism-test, remains-modeled)",
            )


def _cases(c: Capstone) -> Iterator[Finding]:
    if not c.functional_case.command.strip():
        yield Finding("functional-case", "is missing", "give a command that readers without the hardware can run")
    elif not c.functional_case.shows.strip():
        yield Finding("functional-case.shows", "is missing", "say what it shows")


def _scope(c: Capstone) -> Iterator[Finding]:
    if not c.scope.included:
        yield Finding("scope.included", "is empty", "list what is in, each item with its reason")
    if not c.scope.excluded and not c.scope.deferred:
        yield Finding(
            "scope.excluded", "nothing is excluded or deferred", "say what is not done, each item with its reason"
        )
    where: dict[str, str] = {}
    for part in ("included", "excluded", "deferred"):
        for i, entry in enumerate(getattr(c.scope, part)):
            if not entry.reason.strip():
                yield Finding(f"scope.{part}.{i}", f"{entry.item!r} has no reason", "tie it to the question")
            key = _words(entry.item)
            if where.setdefault(key, part) != part:
                yield Finding(
                    f"scope.{part}.{i}", f"{entry.item!r} is also {where[key]}", "keep it in one of the lists"
                )


def _sequence(c: Capstone) -> Iterator[Finding]:
    for step in STEPS:
        if not getattr(c.measurement_sequence, step).strip():
            yield Finding(
                f"measurement-sequence.{step.replace('_', '-')}", "is missing", "say what evidence decides this stage"
            )


def _stops(c: Capstone) -> Iterator[Finding]:
    if not c.stop_conditions:
        yield Finding(
            "stop-conditions", "is missing", "add bound-below-gain, library-faster, scope-answered or a deadline"
        )
        return
    gain, bound = c.material_gain, c.quantitative_model.bound
    numeric = any(
        (s.bound_below_gain and gain is not None and bound is not None)
        or s.library_faster is not None
        or s.deadline is not None
        for s in c.stop_conditions
    )
    if not numeric:
        yield Finding(
            "stop-conditions",
            "none has a number that can end the work",
            "use bound-below-gain with material-gain and quantitative-model.bound, library-faster, or a deadline",
        )


def _milestones(c: Capstone) -> Iterator[Finding]:
    if len(c.milestones) != MILESTONES:
        yield Finding(
            "milestones",
            f"there are {len(c.milestones)}, not {MILESTONES}",
            "reference and model; measured baseline; one change with its ablation; shapes, losses and end to end; report",
        )
    for i, milestone in enumerate(c.milestones):
        if not any(p.decisive for p in milestone.evidence):
            yield Finding(
                f"milestones.{i}.evidence",
                f"nothing decides whether {milestone.title!r} is done",
                "ask for something that can turn out false: a contract, a bound, an ablation, headings of a file",
            )
        if not milestone.review.strip():
            yield Finding(f"milestones.{i}.review", "is missing", "write the question that its review answers")
        for j, predicate in enumerate(milestone.evidence):
            asked = predicate.asked
            if isinstance(asked, ContractPassed) and asked.cases != "all":
                unknown = [case for case in asked.cases if case not in c.correctness_contract.cases]
                if unknown:
                    yield Finding(
                        f"milestones.{i}.evidence.{j}.contract-passed.cases",
                        f"{unknown[0]!r} is no case of correctness-contract",
                        "write it as it stands there",
                    )


def _paths(c: Capstone, exists: Exists) -> Iterator[Finding]:
    for i, p in enumerate(c.prerequisites):
        if isinstance(p.demonstrated, Proof) and p.demonstrated.path is not None and not exists(p.demonstrated.path):
            yield Finding(
                f"prerequisites.{i}.demonstrated.path",
                f"{p.demonstrated.path} is not in the repository",
                "write where it is, or `demonstrated: no`",
            )


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
