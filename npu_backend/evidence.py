"""From compiled models to evidence of kind `npu`: one record for the head, one for the base that was compiled beside it."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime

from assay.baselines.checkout import UNCOMMITTED
from assay.baselines.environment import capture
from assay.baselines.evidence import Environment, Evidence, Metric, Provenance, Scalar, Subject
from assay.baselines.kernel import LEASE
from assay.baselines.npu import (
    COMPILER,
    CYCLES,
    FAILED,
    HOST,
    HOST_ROW,
    KIND,
    LATENCY,
    LAYER_ROW,
    MACS,
    MAX_TEXT,
    READ,
    SHARE,
    UNSTABLE,
    VTCM,
    WRITTEN,
    Row,
    table,
)
from assay.baselines.record import Record
from assay.npu_backend.codegen import dump_program
from assay.npu_backend.compilation import Checkout, Model, Request, milliseconds
from assay.npu_backend.source import compiler_digest

HARNESS = "assay compile 1"
LIBRARIES = ("torch", "torchvision", "transformers")


def records(
    request: Request,
    head: Checkout,
    base: Checkout | None,
    *,
    commits: Mapping[str, str | None],
    command: str,
    changed: Mapping[str, int] | None = None,
    run_id: int | None = None,
    attempt: int | None = None,
    environment: Environment | None = None,
    created: datetime | None = None,
) -> tuple[Record, Record | None]:
    """(head, base) as they are written; base is None when nothing was compared.

    `commits` maps `head` and `base` to the commits that were compiled, and `changed` to how many files were not
    as in that commit. `command` repeats the compilation.
    """
    where = environment or capture(LIBRARIES)
    where = where.model_copy(update={"libraries": {**where.libraries, COMPILER: compiler_digest()[:12]}})
    when = created or datetime.now(UTC)
    lease = uuid.uuid4().hex
    made = []
    for side, checkout in (("head", head), ("base", base)):
        if checkout is None:
            continue
        attributes: dict[str, Scalar] = {"command": command, "compilations": 2 if request.twice else 1}
        attributes["machine_source"] = request.machine.source
        if changed is not None and changed.get(side):
            attributes[UNCOMMITTED] = changed[side]
        if base is not None:
            attributes |= {LEASE: lease, "supplement": side == "base"}
        for model in checkout.models:
            attributes |= _attributes(model)
        evidence = Evidence(
            kind=KIND,
            subject=_subject(request, checkout),
            protocol=_protocol(request, checkout),
            environment=where,
            provenance=Provenance(commit=commits.get(side), run_id=run_id, attempt=attempt, created=when),
            metrics={name: metric for model in checkout.models for name, metric in _metrics(model, request).items()},
            attributes=attributes,
        )
        made.append(Record(evidence, table([row for model in checkout.models for row in rows(model)])))
    return made[0], made[1] if len(made) > 1 else None


def rows(model: Model) -> list[Row]:
    """The rows of one model: its layers, then its operators on the host."""
    layers = [
        Row(
            model.name,
            LAYER_ROW,
            layer.path[:MAX_TEXT],
            layer.op[:MAX_TEXT],
            line=layer.line[:MAX_TEXT],
            unit=layer.bottleneck.value,
            cycles=layer.cycles,
            read_bytes=layer.read_bytes,
            written_bytes=layer.written_bytes,
            macs=layer.macs,
            instructions=layer.instructions,
        )
        for layer in model.layers
    ]
    host = [
        Row(
            model.name,
            HOST_ROW,
            h.path[:MAX_TEXT],
            h.op[:MAX_TEXT],
            line=h.line[:MAX_TEXT],
            why=h.why[:MAX_TEXT],
            macs=h.macs,
        )
        for h in model.host
    ]
    return layers + host


def _subject(request: Request, checkout: Checkout) -> Subject:
    hasher = hashlib.sha256(checkout.source.encode())
    configuration: dict[str, Scalar] = {}
    for model in checkout.models:
        hasher.update(f"\0{model.name}\0{model.failed}".encode())
        for program in model.programs:
            hasher.update(dump_program(program).encode())
        several = len(checkout.models) > 1
        for flag, value in {"dtype": model.format, **model.configuration}.items():
            configuration[f"{model.name}.{flag}" if several else flag] = value
    names = [model.name for model in checkout.models]
    fallback = request.file.stem if request.file is not None else "models"
    return Subject(
        name=names[0] if len(names) == 1 else fallback,
        digest=f"sha256:{hasher.hexdigest()}",
        format=", ".join(sorted({model.format for model in checkout.models})),
        backend=f"mock NPU, {request.machine.name}",
        configuration=configuration,
    )


def _protocol(request: Request, checkout: Checkout) -> dict[str, Scalar]:
    facts: dict[str, Scalar] = {
        "harness": HARNESS,
        "machine": request.machine.name,
        "vtcm_bytes": request.machine.vtcm_bytes,
        "strict": request.strict,
        "passes_off": ", ".join(sorted(request.without)),
    }
    for model in checkout.models:
        facts[f"task.{model.name}.training"] = model.training
        if not model.failed:
            facts[f"task.{model.name}.inputs"] = model.inputs
    return facts


def _metrics(model: Model, request: Request) -> dict[str, Metric]:
    if model.failed:
        return {}
    name = model.name
    found = {
        f"{CYCLES}{name}": Metric(value=model.cycles, unit="cycles", direction="lower", primary=True),
        f"{READ}{name}": _cost(model.read_bytes, "B"),
        f"{WRITTEN}{name}": _cost(model.written_bytes, "B"),
        f"{VTCM}{name}": _cost(model.vtcm_peak, "B"),
        f"{MACS}{name}": _cost(model.macs, "MAC"),
        f"{HOST}{name}": _cost(len(model.host), "operators"),
        f"programs/{name}": _cost(len(model.programs), "programs"),
    }
    if model.all_macs:  # of no products there is no share
        found[f"{SHARE}{name}"] = Metric(value=model.share, unit="proportion")
    latency = milliseconds(request.machine, model.cycles)
    if latency is not None:
        found[f"{LATENCY}{name}"] = _cost(latency, "ms")
    for unit, share in model.utilisation.items():
        found[f"busy-{unit.value.replace(' ', '-')}/{name}"] = Metric(value=share, unit="proportion")
    return found


def _cost(value: float, unit: str) -> Metric:
    return Metric(value=value, unit=unit, direction="lower")


def _attributes(model: Model) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    if model.failed:
        found[FAILED + model.name] = model.failed
    if model.unstable:
        found[UNSTABLE + model.name] = model.unstable
    for number, warning in enumerate(model.warnings, start=1):
        found[f"warning.{model.name}.{number}"] = warning
    return found
