"""Evidence: one measurement, with what was measured, how, where, and by which run.

A record on disk is a folder with `evidence.json` and, when the measurement has rows, `rows.parquet` beside it. The
digest of a record is the SHA-256 of `evidence.json`, which itself names the SHA-256 of the table, so that one digest
vouches for both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from assay.baselines.errors import InputError

SCHEMA_VERSION = 1
MAX_JSON_BYTES = 4 * 1024 * 1024
UNDECLARED = "undeclared"

Text = Annotated[str, StringConstraints(max_length=4096)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=512)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
CommitSha = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Kind = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,30}$")]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Scalar = bool | int | Finite | Text | None
Facts = Annotated[dict[Name, Scalar], Field(max_length=20_000)]


class Strict(BaseModel):
    """Unknown fields are refused and values are never changed after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class Subject(Strict):
    """What was measured. Base and head may differ in all of it; that difference is the point of the comparison."""

    name: Name
    """What people call it, for example the checkpoint's directory or hub id."""
    digest: Name
    """Content digest of the measured thing (`sha256:...`), or `undeclared` for imported results."""
    format: Text = ""
    """Weight format as people write it: `float32`, `int8`, `int4-g128`."""
    backend: Text = ""
    configuration: Facts = Field(default_factory=dict)


class Environment(Strict):
    """Where it was measured. Differences are named in the report and block only by policy."""

    hardware: Text = ""
    driver: Text = ""
    system: Text = ""
    python: Text = ""
    libraries: Annotated[dict[Name, Text], Field(max_length=500)] = Field(default_factory=dict)


class Provenance(Strict):
    """Which run made it."""

    commit: CommitSha | None = None
    run_id: int | None = None
    attempt: int | None = None
    workflow: Text = ""
    created: datetime = Field(strict=False)


class Metric(Strict):
    """One aggregated value.

    `scale` tells how the rows of the metric are compared: `binary` scores are 0 or 1 (McNemar), `bounded` ones lie in
    [low, high] (paired permutation), `loglik` ones are summed log-likelihoods in nats with a token or word `weight`
    (relative change of perplexity), and `measure` has no rows (latency, size, memory).
    """

    value: Finite
    unit: Text = ""
    direction: Literal["higher", "lower"] = "higher"
    scale: Literal["binary", "bounded", "loglik", "measure"] = "measure"
    n: Annotated[int, Field(ge=0)] | None = None
    chance: Finite | None = None
    """Score of guessing, where the harness can tell (1 / number of choices)."""
    low: Finite | None = None
    high: Finite | None = None
    """For `bounded`, the range of one row's score; for `measure`, the 95% interval of the value."""
    primary: bool = False
    """The metric of its task that a policy gates unless it names another."""


class TableRef(Strict):
    """The Parquet table beside the JSON."""

    sha256: Sha256
    rows: Annotated[int, Field(ge=0)]
    bytes: Annotated[int, Field(ge=0)]


class Evidence(Strict):
    """One measurement of one subject under one protocol."""

    schema_version: Literal[1] = 1
    kind: Kind
    subject: Subject
    protocol: Facts | Literal["undeclared"]
    """How it was measured. Base and head must agree; a refusal names the field. `undeclared` for imported results."""
    environment: Environment
    provenance: Provenance
    metrics: Annotated[dict[Name, Metric], Field(max_length=20_000)]
    attributes: Facts = Field(default_factory=dict)
    """Facts of the run that need not agree, for example whether its sample was fixed or grown."""
    table: TableRef | None = None


Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

UPGRADES: dict[int, Upgrade] = {}
"""Older schema version -> the step that lifts a document to the next version. Version 1 is the first."""


def dump_evidence(evidence: Evidence) -> bytes:
    """Canonical JSON (sorted keys, no NaN), the bytes that `digest_of` names."""
    document = evidence.model_dump(mode="json")
    return json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1).encode() + b"\n"


def digest_of(data: bytes) -> str:
    """SHA-256 of `data` in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def parse_evidence(data: bytes, *, origin: str = "evidence", upgrades: Mapping[int, Upgrade] = UPGRADES) -> Evidence:
    """Read evidence strictly.

    Raises `InputError` with one line for a document that is too large, is no JSON, has NaN or unknown fields, or has a
    schema version that this assay does not know.
    """
    if len(data) > MAX_JSON_BYTES:
        raise InputError(
            f"{origin} is {len(data):,} bytes; evidence has at most {MAX_JSON_BYTES:,}: was a table inlined?"
        )
    try:
        document = json.loads(data, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except RecursionError:
        raise InputError(f"{origin} is nested too deeply to be evidence: measure again.") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{origin} is not valid JSON ({_one_line(error)}): fetch or measure it again.") from None
    if not isinstance(document, dict):
        raise InputError(
            f"{origin} is JSON but not an object: evidence is written by assay evaluate or assay evidence import."
        )
    version = document.get("schema_version")
    while (
        isinstance(version, int) and not isinstance(version, bool) and version < SCHEMA_VERSION and version in upgrades
    ):
        document = upgrades[version](document)
        if document.get("schema_version") == version:
            raise InputError(
                f"{origin}: the upgrade from schema_version {version} did not advance; report this as a bug."
            )
        version = document.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise InputError(
            f"{origin} has schema_version {str(version)[:40]!s}, and this assay reads {SCHEMA_VERSION}: "
            "install the assay version that wrote it, or measure again."
        )
    try:
        return Evidence.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:200]
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise InputError(f"{origin}: {where or 'document'}: {_one_line(first['msg'])}{more}; measure again.") from None


def _refuse_constant(token: str) -> float:
    raise ValueError(f"{token} is not a number that evidence may hold")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("an object has the same key twice")
    return document


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:200]
