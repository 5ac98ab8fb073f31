"""`capstone.yml`: a proposal as a typed file. What is missing in it is no error here but a finding of `lint`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from assay.baselines.config import parse_settings
from assay.baselines.policy import Pattern, Setting
from assay.bot.milestones.vocabulary import (
    Contest,
    FileThere,
    Gate,
    Line,
    Number,
    Percent,
    Predicate,
    RepositoryPath,
    Selector,
)

NAME = "capstone.yml"
PAGE = "docs/milestones.md"
MAX_FILES = 10
STEPS = (
    "reference_validation",
    "naive_baseline",
    "isolated_transformation",
    "profiler",
    "shape_sweep",
    "end_to_end",
)
Text = Annotated[str, Field(max_length=4000)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Baseline(Setting):
    """What the contender is compared with, and why that is fair."""

    naive: Text = Field("", description="The plain implementation that isolates the change.")
    mature: Text = Field("", description="What a user would call today: the library, or the path in production.")
    same_hardware: bool | None = Field(None, description="Measured on the same machine.")
    same_inputs: bool | None = Field(None, description="On the same inputs and shapes.")
    same_contract: bool | None = Field(None, description="Held to the same correctness contract.")
    evidence: Selector | None = Field(None, description="The evidence that holds its measurement.")


class InputFamily(Setting):
    """The inputs that the claim is about."""

    description: Text = Field("", description="In words.")
    axes: dict[Line, list[Line | int | Number]] = Field(default_factory=dict, description="Axis -> its values.")
    shapes: Annotated[list[Line], Field(max_length=500)] = Field(
        default_factory=list, description="Every required shape by its name in the metrics; {shape} stands for each."
    )


class MetricDeclared(Setting):
    """What is measured to answer the question."""

    name: Line
    unit: Line
    direction: Literal["higher", "lower"] = Field(description="Which way is better.")


class Tolerance(Setting):
    """Allowed error of one datatype against the reference."""

    absolute: Amount = Field(0.0, description="Allowed absolute error.")
    relative: Amount = Field(0.0, description="Allowed relative error.")


class Contract(Setting):
    """What correct means, fixed before anything is timed."""

    reference: Text = Field("", description="The implementation that is trusted.")
    tolerances: dict[Line, Tolerance] = Field(default_factory=dict, description="Datatype -> allowed error.")
    cases: Annotated[list[Line], Field(max_length=200)] = Field(
        default_factory=list, description="Kinds of input: random, extreme, all-masked, tail ..."
    )


class Quantity(Setting):
    """A number with its unit."""

    value: Number
    unit: Annotated[str, Field(max_length=100)] = ""


class Prediction(Quantity):
    """A number that the model predicts before it is measured."""

    name: Line


class Bound(Quantity):
    """The most that the change can gain, by analysis: in the unit of `material-gain`."""

    because: Text = Field("", description="How it follows from the model.")


class Model(Setting):
    """The model that predicts what will be measured."""

    formula: Text = Field("", description="As text, with its source.")
    predictions: Annotated[list[Prediction], Field(max_length=500)] = Field(
        default_factory=list, description="Numbers that can turn out wrong."
    )
    bound: Bound | None = Field(None, description="Largest possible gain.")

    @model_validator(mode="after")
    def _names_once(self) -> Model:
        names = [p.name for p in self.predictions]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise ValueError(f"the prediction {twice!r} is there twice")
        return self


class Intervention(Setting):
    """The change that is proposed."""

    change: Text = Field("", description="What is changed.")
    layers: Annotated[list[Line], Field(max_length=50)] = Field(
        default_factory=list, description="Layers of the stack that it touches, each a short name."
    )


class Gain(Quantity):
    """The least gain that would matter to the user."""

    why: Text = Field("", description="Why less would not matter.")


class Proof(Setting):
    """Where a prerequisite was demonstrated: evidence, or a file of the repository."""

    evidence: Selector | None = None
    path: RepositoryPath | None = None

    @model_validator(mode="after")
    def _one(self) -> Proof:
        if (self.evidence is None) == (self.path is None):
            raise ValueError("give evidence or path, one of them")
        return self


class Prerequisite(Setting):
    """Something that the work builds on."""

    name: Line
    layer: Line | None = Field(None, description="The layer of intervention.layers that it covers.")
    demonstrated: Proof | Literal[False] = Field(False, description="Where it was demonstrated, or `no`.")


class Device(Setting):
    """Hardware that is at hand."""

    name: Line
    count: Annotated[int, Field(ge=1, le=1_000_000)] = 1


class Simulation(Setting):
    """The claim is limited to simulation and small-scale tests of the mechanism."""

    mechanism_test: Line = Field(description="What is measured for real, on the hardware at hand, to calibrate it.")
    remains_modeled: Line = Field(description="The scale that is only modelled.")


class Resources(Setting):
    """What is at hand."""

    hardware: Annotated[list[Device], Field(max_length=50)] = Field(default_factory=list)
    compute_hours: Amount | None = Field(None, description="Hours of that hardware.")
    work_hours: Amount | None = Field(None, description="Hours of a person.")
    storage_gb: Amount | None = Field(None, description="Gigabytes for traces and evidence.")
    access: Text = Field("", description="How the hardware is reached.")
    simulation: Simulation | None = Field(None, description="Only when the claim is larger than the hardware.")


class FunctionalCase(Setting):
    """A small case for readers without the hardware."""

    command: Text = Field("", description="What they run, from the top of the repository.")
    shows: Text = Field("", description="What it shows.")
    writes: RepositoryPath | None = Field(None, description="Folder of the evidence that it writes.")
    evidence: Selector | None = Field(None, description="That evidence.")
    metrics: Annotated[list[Pattern], Field(max_length=50)] = Field(
        default_factory=list, description="Its metrics that come out the same on every machine."
    )


class Review(Setting):
    """One weekly review."""

    date: date
    critical_path: Line = Field(description="What the rest waits for.")
    decision: Line = Field(description="What was decided.")


class InterfaceChange(Setting):
    """A changed interface, apart from any change of performance."""

    change: Line
    reason: Text = ""


class ScopeItem(Setting):
    """One line of the scope table."""

    item: Line
    reason: Text = ""


class Scope(Setting):
    """What is in, what is out, what comes later, each with its reason."""

    included: Annotated[list[ScopeItem], Field(max_length=100)] = Field(default_factory=list)
    excluded: Annotated[list[ScopeItem], Field(max_length=100)] = Field(default_factory=list)
    deferred: Annotated[list[ScopeItem], Field(max_length=100)] = Field(default_factory=list)


class MeasurementSequence(Setting):
    """The order of measurement; for each stage, what evidence is decisive."""

    reference_validation: Text = ""
    naive_baseline: Text = ""
    isolated_transformation: Text = ""
    profiler: Text = ""
    shape_sweep: Text = ""
    end_to_end: Text = ""


class LibraryFaster(Contest):
    """The mature library is faster over every required shape."""

    by_percent: Percent = Field(0.0, description="By at least so much, in percent of the contender's value.")


class ScopeAnswered(Setting):
    """The question is answered: these milestones are done."""

    milestones: Annotated[list[Annotated[int, Field(ge=1, le=5)]], Field(min_length=1, max_length=5)] = Field(
        default_factory=lambda: [1, 2, 3, 4], description="Numbers of the milestones that answer it."
    )


class Deadline(Setting):
    """A last day."""

    date: date
    then: Line = Field(description="What is delivered on that day, whatever the state.")


class StopCondition(Setting):
    """When to stop: exactly one of these."""

    bound_below_gain: Literal[True] | None = Field(
        None, description="The analytic bound does not reach the material gain."
    )
    library_faster: LibraryFaster | None = Field(None, description="The library wins on every required shape.")
    scope_answered: ScopeAnswered | None = Field(None, description="The question is answered; nothing more is added.")
    deadline: Deadline | None = Field(None, description="A last day.")

    @model_validator(mode="after")
    def _exactly_one(self) -> StopCondition:
        names = list(type(self).model_fields)
        if sum(getattr(self, name) is not None for name in names) != 1:
            raise ValueError(f"a stop condition is exactly one of {', '.join(n.replace('_', '-') for n in names)}")
        return self


class Milestone(Setting):
    """One of the five: what evidence closes it, and what its review asks."""

    title: Line
    evidence: Annotated[list[Predicate], Field(max_length=20)] = Field(default_factory=list)
    review: Text = Field("", description="The question of its review.")


class Capstone(Setting):
    """The whole of `capstone.yml`."""

    version: Literal[1] = Field(1, description="Version of this file's format.")
    title: Line = Field(description="What people call the project.")
    question: Text = Field(
        "", description="One question that has an answer also when the new implementation is slower."
    )
    decision: Text = Field("", description="The engineering decision that the answer informs.")
    user: Text = Field("", description="Who decides.")
    baseline: Baseline = Field(default_factory=lambda: Baseline())
    input_family: InputFamily = Field(default_factory=lambda: InputFamily())
    metric: MetricDeclared | None = None
    correctness_contract: Contract = Field(default_factory=lambda: Contract())
    quantitative_model: Model = Field(default_factory=lambda: Model())
    intervention: Intervention = Field(default_factory=lambda: Intervention())
    expected_result: Text = Field("", description="What is expected, with its number.")
    material_gain: Gain | None = None
    prerequisites: Annotated[list[Prerequisite], Field(max_length=50)] = Field(default_factory=list)
    resources: Resources = Field(default_factory=lambda: Resources())
    functional_case: FunctionalCase = Field(default_factory=lambda: FunctionalCase())
    weekly_reviews: Annotated[list[Review], Field(max_length=100)] = Field(default_factory=list)
    interface_changes: Annotated[list[InterfaceChange], Field(max_length=100)] = Field(default_factory=list)
    scope: Scope = Field(default_factory=lambda: Scope())
    measurement_sequence: MeasurementSequence = Field(default_factory=lambda: MeasurementSequence())
    stop_conditions: Annotated[list[StopCondition], Field(max_length=20)] = Field(default_factory=list)
    milestones: Annotated[list[Milestone], Field(max_length=20)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _not_too_many_files(self) -> Capstone:
        if len(self.paths()) > MAX_FILES:
            raise ValueError(
                f"{len(self.paths())} files are asked for, and at most {MAX_FILES} are looked at: ask for fewer"
            )
        return self

    def predicates(self) -> Iterator[Predicate]:
        """What all milestones ask for, in order."""
        for milestone in self.milestones:
            yield from milestone.evidence

    def paths(self) -> list[str]:
        """Files of the repository that milestones and prerequisites name, sorted."""
        asked = {p.asked.path for p in self.predicates() if isinstance(p.asked, FileThere)}
        shown = {
            p.demonstrated.path for p in self.prerequisites if isinstance(p.demonstrated, Proof) and p.demonstrated.path
        }
        return sorted(asked | shown)

    def kinds(self) -> list[str]:
        """Kinds of evidence that are asked for, sorted. A gate compares by itself and needs none."""
        selectors = [p.selector for p in self.predicates()]
        selectors += [s.library_faster for s in self.stop_conditions]
        selectors += [p.demonstrated.evidence for p in self.prerequisites if isinstance(p.demonstrated, Proof)]
        selectors += [self.baseline.evidence, self.functional_case.evidence]
        return sorted({s.kind for s in selectors if s is not None})

    def gates(self) -> list[str]:
        """Kinds whose gate a milestone asks for, sorted."""
        return sorted({p.asked.kind for p in self.predicates() if isinstance(p.asked, Gate)})

    def contests(self) -> list[Contest]:
        """Every comparison of a contender with a baseline, in order, once each by what is compared."""
        found: dict[tuple[str | None, ...], Contest] = {}
        asked = [p.losing_regions_listed for p in self.predicates()] + [s.library_faster for s in self.stop_conditions]
        for contest in asked:
            if contest is not None:
                key = (contest.kind, contest.subject, contest.metric, contest.baseline, contest.baseline_metric)
                found.setdefault(key, contest)
        return list(found.values())


def parse_capstone(data: bytes, *, origin: str = NAME) -> Capstone:
    """The proposal in `data`. Raises `InputError` with one line for what is no plain YAML or has unknown or wrong values."""
    return parse_settings(data, Capstone, origin=origin, example="question:", page=PAGE)


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `capstone.yml`, for editors; published as `docs/capstone.schema.json`."""
    schema = Capstone.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": NAME, **schema}
