"""`.github/assay.yml`: read strictly, with every mistake named by its key, and described by a JSON Schema."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import Field, ValidationError

from assay.baselines.errors import InputError
from assay.baselines.policy import Policy, Setting

DEFAULT_PATH = Path(".github/assay.yml")
MAX_BYTES = 256 * 1024
MAX_DEPTH = 20

S = TypeVar("S", bound=Setting)


class CommentSettings(Setting):
    """How the comment on a pull request looks."""

    flips: Annotated[int, Field(ge=0, le=200)] = Field(
        20, description="Changed examples listed in the comment; all of them stay in the evidence."
    )
    pareto: bool = Field(True, description="Show where the change lands: accuracy against latency or size.")
    image: bool = Field(True, description="Publish the larger Pareto plot on the journal branch.")
    badge: bool = Field(True, description="Publish an accuracy badge with each baseline.")


class CommandSettings(Setting):
    """Slash commands on pull requests."""

    offer: bool = Field(
        False, description="Offer slash commands in reports; set it where the command workflow is installed."
    )
    bare: bool = Field(False, description="Also understand verbs without /assay, such as /evaluate.")
    minutes_per_pull: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        240, description="GPU minutes that commands may spend on one pull request."
    )
    minutes_per_user: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        1200, description="GPU minutes that one person's commands may spend in a calendar month."
    )
    accept_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        90, description="Longest time, in days, for which /assay accept may accept a regression."
    )


class RetentionSettings(Setting):
    """Which publications `assay baseline prune` keeps, of each branch and kind; with both rules, what either keeps.

    Without a rule nothing is ever removed. The newest publication, what an open pull request is compared with, and what a
    capstone's milestones link to are kept by any rule.
    """

    keep: Annotated[int, Field(ge=1, le=100_000)] | None = Field(None, description="So many newest ones are kept.")
    max_age_days: Annotated[int, Field(ge=0, le=36_500)] | None = Field(
        None, description="What is at most so many days old is kept."
    )


class Configuration(Setting):
    """The whole of `assay.yml`."""

    version: Literal[1] = Field(1, description="Version of this file's format.")
    gate: Policy = Field(default_factory=lambda: Policy(), description="What a change must satisfy.")
    commands: CommandSettings = Field(
        default_factory=lambda: CommandSettings(), description="Slash commands: budgets and limits."
    )
    retention: RetentionSettings = Field(
        default_factory=lambda: RetentionSettings(), description="Which publications the nightly workflow keeps."
    )
    comment: CommentSettings = Field(default_factory=lambda: CommentSettings(), description="How results are shown.")


class _Loader(yaml.SafeLoader):
    """Plain YAML only: no anchors (a few bytes of them expand to gigabytes), no key twice, bounded depth."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise self._problem("anchors and aliases are not allowed")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._problem("nested too deeply")
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def _problem(self, text: str) -> yaml.MarkedYAMLError:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        return yaml.MarkedYAMLError(problem=text, problem_mark=event.start_mark)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def configuration_at(path: Path | None) -> Configuration:
    """The named configuration, else the one of the working folder's repository, else the defaults."""
    if path is not None:
        return load_configuration(path)
    return load_configuration(DEFAULT_PATH) if is_there(DEFAULT_PATH) else Configuration()


def is_there(path: Path) -> bool:
    """Whether anything lies there. Whatever it is is meant as the policy: what cannot be read is refused, not passed over."""
    return path.exists() or path.is_symlink()


def load_configuration(path: Path) -> Configuration:
    """Read `assay.yml`. Raises `InputError` when it is missing or wrong."""
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; give the path of an assay.yml.") from None
    return parse_configuration(data, origin=str(path))


def parse_configuration(data: bytes, *, origin: str = ".github/assay.yml") -> Configuration:
    """The configuration in `data`; an empty file means all defaults.

    Raises `InputError` with one line for what is too large, no plain YAML, or has an unknown key (with the nearest
    known one) or a value out of range.
    """
    return parse_settings(data, Configuration, origin=origin, example="gate:", page="`assay config schema`")


def parse_settings(data: bytes, model: type[S], *, origin: str, example: str, page: str) -> S:
    """Settings of any kind from plain YAML, as strictly as `assay.yml`: bounded, no anchors, no key twice, none unknown.

    `example` is a key that such a file has and `page` the documentation of all of them, for the one line of the `InputError`.
    """
    if len(data) > MAX_BYTES:
        raise InputError(f"{origin} is over {MAX_BYTES:,} bytes, the most that a configuration has.")
    try:
        document = yaml.load(data, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"{origin} is not plain YAML{where}: {error.problem}.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{origin} is not plain YAML: {' '.join(str(error).split())[:160]}.") from None
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise InputError(f"{origin} must be a mapping such as {example!r}, not {type(document).__name__}.")
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise InputError(f"{origin}: {_explain(error, model, page)}") from None


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `assay.yml`, for editors; published as `docs/assay.schema.json`."""
    schema = Configuration.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "assay.yml", **schema}


def _explain(error: ValidationError, model: type[Setting], page: str) -> str:
    found = error.errors(include_url=False)
    # A misspelt key is also a missing one; the unknown key is what explains both.
    first = next((e for e in found if e["type"] == "extra_forbidden"), found[0])
    path = [str(part) for part in first["loc"]]
    where = ".".join(path)[:200] or "the file"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path[-1], _known_keys(model), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; see {page} for the known keys."
        return f"unknown key {where!r}{hint}{more}"
    value = json.dumps(first.get("input"), default=str)[:60]
    message = first["msg"].removeprefix("Value error, ")
    return f"{where}: {message} (it is {value}){more}."


def _known_keys(model: type[Setting]) -> list[str]:
    schema = model.model_json_schema(by_alias=True)
    names: set[str] = set(schema["properties"])
    for definition in schema.get("$defs", {}).values():
        names |= set(definition.get("properties", {}))
    return sorted(names)
