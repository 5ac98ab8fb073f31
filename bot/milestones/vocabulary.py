"""The words in which a milestone says what evidence it wants. A word that is not here is refused when the file is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from assay.baselines.evidence import Kind
from assay.baselines.policy import Pattern, Setting

Line = Annotated[str, StringConstraints(min_length=1, max_length=500, strip_whitespace=True)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Percent = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]


def _inside(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or "\\" in path or any(ord(c) < 32 for c in path):
        raise ValueError("a path stays inside the repository: write it from its top, without ..")
    return path


RepositoryPath = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_inside)]
"""A path inside the repository."""

EnvironmentField = Literal["hardware", "driver", "system", "python", "libraries"]
RECORDED: tuple[EnvironmentField, ...] = ("hardware", "system", "libraries")
"""What an environment must say where a milestone does not name the fields."""

SHAPE = "{shape}"
"""Stands for every shape of `input-family.shapes` in the name of a metric."""


class Selector(Setting):
    """Which evidence is meant. Of several that fit, the newest counts."""

    kind: Kind = Field(description="Kind of evidence: kernel, evaluation, npu, serving ...")
    subject: Pattern = Field("*", description="Name of what was measured, or a pattern such as online-softmax*.")
    format: Pattern | None = Field(None, description="Its format, or a pattern.")
    backend: Pattern | None = Field(None, description="Its backend, or a pattern.")


class Within(Setting):
    """Near another number."""

    of: Line | Number = Field(description="A metric of the same evidence, a prediction of the model, or a number.")
    percent: Percent = Field(description="Largest difference, in percent of it.")


class Measured(Selector):
    """Evidence exists and, with a metric, its value lies where it should."""

    metric: Pattern | None = Field(None, description="Name of a metric; {shape} stands for every required shape.")
    at_least: Number | None = Field(None, description="Smallest value; the whole 95% interval must be above it.")
    at_most: Number | None = Field(None, description="Largest value; the whole 95% interval must be below it.")
    within: Within | None = Field(None, description="Near another number.")

    @model_validator(mode="after")
    def _bounds_need_a_metric(self) -> Measured:
        if self.metric is None and (self.at_least, self.at_most, self.within) != (None, None, None):
            raise ValueError("at-least, at-most and within need a metric: name the one that they bound")
        return self

    @property
    def bounded(self) -> bool:
        """Whether a value is asked for, and not only that something was measured."""
        return (self.at_least, self.at_most, self.within) != (None, None, None)


class ContractPassed(Selector):
    """The correctness contract passed: the attribute `contract.<case>` of the evidence is true for every case."""

    cases: Literal["all"] | Annotated[list[Line], Field(min_length=1, max_length=200)] = Field(
        "all", description="`all` cases of correctness-contract, or some of them by name."
    )


class ModelAgrees(Selector):
    """What was measured agrees with what the model predicted."""

    measured: Pattern = Field(description="Name of the measured metric; {shape} stands for every required shape.")
    predicted: Line | Number = Field(
        description="A metric of the same evidence, a prediction of quantitative-model by name, or a number."
    )
    within_percent: Annotated[float, Field(gt=0, le=100)] = Field(
        description="Largest difference, in percent of the predicted number."
    )


class Contest(Selector):
    """A contender against a baseline, shape by shape. Both may be in one evidence, under two names of a metric."""

    metric: Pattern = Field(description="The contender's metric, such as latency/{shape}.")
    baseline: Pattern | None = Field(None, description="Subject of the baseline's own evidence, if it has its own.")
    baseline_metric: Pattern | None = Field(None, description="The baseline's metric; the same name if left out.")

    @model_validator(mode="after")
    def _two_sides(self) -> Contest:
        if self.baseline is None and self.baseline_metric in (None, self.metric):
            raise ValueError(
                "a contest has two sides: name the baseline's subject (baseline) or its metric (baseline-metric)"
            )
        return self


class Ablation(Selector):
    """Controlled pairs: two measurements that differ in one setting of the subject and in nothing else."""

    pairs: Annotated[list[Line], Field(min_length=1, max_length=50)] = Field(
        description="Settings of subject.configuration, each of which must be varied alone."
    )
    metric: Pattern | None = Field(None, description="A metric that both of a pair must have.")


class EnvironmentRecorded(Selector):
    """The evidence says where it was measured."""

    fields: Annotated[list[EnvironmentField], Field(min_length=1)] = Field(
        default_factory=lambda: list(RECORDED), description="What must be recorded."
    )


class FileThere(Setting):
    """A file of the repository, with these headings in it."""

    path: RepositoryPath = Field(description="Path from the top of the repository.")
    contains_headings: Annotated[list[Line], Field(max_length=50)] = Field(
        default_factory=list, description="Markdown headings that it must have, in any order."
    )


class Gate(Setting):
    """The gate's verdict on the head."""

    kind: Kind = Field("evaluation", description="Kind of evidence that is compared with its baseline.")
    verdict: (
        Annotated[list[Literal["improved", "equivalent", "inconclusive"]], Field(min_length=1)]
        | Literal["improved", "equivalent", "inconclusive"]
    ) = Field(description="The verdict that is asked for, or several.")


class Predicate(Setting):
    """What one milestone asks for: exactly one of these words, and optionally how a person would say it."""

    says: Line | None = Field(None, description="In words; written from the rest if left out.")
    evidence: Measured | None = Field(None, description="Evidence exists, and a metric lies where it should.")
    contract_passed: ContractPassed | None = Field(None, description="The correctness contract passed.")
    model_agrees: ModelAgrees | None = Field(None, description="Measurement agrees with the model's prediction.")
    losing_regions_listed: Contest | None = Field(
        None, description="Every required shape on which the contender loses is in the attribute `losing_regions`."
    )
    file: FileThere | None = Field(None, description="A file of the repository has these headings.")
    ablation: Ablation | None = Field(None, description="Measurements differ in one setting alone.")
    environment_recorded: EnvironmentRecorded | None = Field(
        None, description="The evidence says where it was measured."
    )
    gate: Gate | None = Field(None, description="The gate's verdict on the head.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Predicate:
        given = [name.replace("_", "-") for name, _ in self._given()]
        if len(given) != 1:
            words = ", ".join(name.replace("_", "-") for name in type(self).model_fields if name != "says")
            found = " and ".join(given) if given else "none"
            raise ValueError(f"an item asks for exactly one of {words}; this one has {found}")
        return self

    def _given(self) -> Iterator[tuple[str, Setting]]:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, Setting):
                yield name, value

    @property
    def asked(self) -> Setting:
        """The word that is asked for, with its arguments."""
        return next(value for _, value in self._given())

    @property
    def selector(self) -> Selector | None:
        """Which evidence it looks at; None for files and gates."""
        asked = self.asked
        return asked if isinstance(asked, Selector) else None

    @property
    def decisive(self) -> bool:
        """Whether it can turn out false once the work is done: that a file or a measurement exists decides nothing."""
        match self.asked:
            case Measured(bounded=bounded):
                return bounded
            case FileThere(contains_headings=headings):
                return bool(headings)
            case EnvironmentRecorded():
                return False
            case _:
                return True
