"""The spike's scope decision: Markdown for people, evidence of kind `kernel` for the checklist of a capstone."""

from __future__ import annotations

import hashlib
import json
import shlex
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
import torch

from assay.baselines.environment import capture
from assay.baselines.errors import InputError
from assay.baselines.evidence import Environment, Evidence, Metric, Provenance, Scalar, Subject
from assay.baselines.kernel import CONTRACT, KIND, LATENCY
from assay.baselines.record import Record, check_folder, check_writable, write_atomically, write_record
from assay.kernels.bench.evidence import LIBRARIES, table
from assay.kernels.bench.spike import Spike, spike
from assay.kernels.bench.timed import Row
from assay.kernels.declaration import Declaration, load
from assay.kernels.operators.proof import BACKEND, overhead

SUBJECT = "operator-spike"
"""Subject of the evidence; the kernel's name stands in its configuration."""
HARNESS = "assay bench --operator 1"
_TITLE = "# Registration spike: "
"""How every scope decision begins."""

_EXCLUDED = (
    ("gradients", "the operator is for inference, and refuses a gradient: a derivative needs a contract of its own"),
    (
        "forward mode",
        "the operator refuses torch.func.jvp and dual levels, where its tangents would be dropped without a word",
    ),
    ("vmap", "no batching rule: vmap falls back to one call for each element or refuses"),
    ("other devices", "the fallback serves them; the kernel was tried on one"),
    (
        "speed",
        "a spike shows that the operator can be called, not that it pays: `assay bench` without --operator times it",
    ),
)


def run(
    file: str,
    *,
    kernels: Sequence[str],
    device: str,
    out: Path,
    commit: str | None,
    run_id: int | None,
    attempt: int | None,
    as_json: bool,
) -> None:
    """`assay bench --operator FILE[:NAME]`: writes the record `out` and the decision beside it, `out`.md."""
    path, name = _split(file)
    check_folder(out)
    decision = out.with_name(f"{out.name}.md")
    check_writable(decision)
    if decision.exists() and not _is_ours(decision):
        raise InputError(f"{decision} is there already, and is no scope decision: give another --out.")
    declaration = _chosen(load(path), path, [*([name] if name else []), *kernels])
    found = spike(declaration, torch.device(device))
    # As it was given: from the same folder the command runs again. A place of this machine is no other's.
    shown = path.name if path.is_absolute() else path.as_posix()
    command = f"assay bench --operator {shlex.quote(f'{shown}:{declaration.name}')} --device {device} --out DIR"
    made = record(
        found,
        digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        command=command,
        provenance=Provenance(commit=commit, run_id=run_id, attempt=attempt, created=datetime.now(UTC)),
    )
    written = write_record(out, made.evidence, made.rows)
    write_atomically(decision, markdown(found, command).encode(errors="replace"))
    if as_json:
        document = {
            "folder": str(out),
            "digest": written.digest,
            "decision": str(decision),
            "schema": found.schema,
            "interfaces": {i.name: {"proven": i.proven, "detail": i.detail} for i in found.interfaces},
            "contract_failed": {case: reason for case, reason in found.contract.items() if reason},
            "fallback_reason": found.fallback_reason,
            "graph_breaks": found.graph_breaks,
        }
        click.echo(json.dumps(document, indent=1))
        return
    click.echo(f"{found.kernel}{found.schema}")
    for interface in found.interfaces:
        click.echo(f"{'proven  ' if interface.proven else 'excluded'} {interface.name}: {interface.detail}")
    click.echo(f"Evidence {written.digest[:12]}: {out}")
    click.echo(f"Scope decision: {decision}")


def _is_ours(decision: Path) -> bool:
    try:
        with decision.open("rb") as stream:
            return stream.read(len(_TITLE)) == _TITLE.encode()
    except OSError:
        return False


def record(
    found: Spike, *, digest: str, command: str, provenance: Provenance, environment: Environment | None = None
) -> Record:
    """The evidence with its rows: one per timed round, arm `head`."""
    label = found.eligible
    metrics = {"graph-breaks": Metric(value=float(found.graph_breaks), direction="lower")}
    if found.seconds:
        times = {name: statistics.median(seconds) for name, seconds in found.seconds.items()}
        calls = len(found.seconds["operator"])
        metrics |= {
            f"{LATENCY}{label}": _cost(1e6 * times["operator"], "us", n=calls, primary=True),
            f"direct/{label}": _cost(1e6 * times["kernel"], "us"),
            "dispatch": _cost(overhead(found.small_seconds, "kernel")["operator"], "us"),
            f"first-use/{label}": _cost(found.first_use_ms, "ms"),
        }
    attributes: dict[str, Scalar] = {
        "command": command,
        "operator.schema": found.schema[:4000],
        "operator.guards": "; ".join(found.guards)[:4000],
        "operator.opcheck": found.contract["opcheck"] or "passed",
        "operator.graph_breaks": found.graph_breaks,
        "operator.outside": found.outside,
        "operator.fallback_reason": found.fallback_reason,
        "operator.proven": ", ".join(i.name for i in found.interfaces if i.proven),
        "operator.excluded": ", ".join([i.name for i in found.interfaces if not i.proven] + [w for w, _ in _EXCLUDED]),
    }
    for case, reason in found.contract.items():
        attributes[CONTRACT + case] = not reason
        if reason:
            attributes[f"contract-reason.{case}"] = reason[:300]
    evidence = Evidence(
        kind=KIND,
        subject=Subject(
            name=SUBJECT,
            digest=f"sha256:{digest}",
            backend=found.device.partition(":")[0] if found.seconds else "triton interpreter",
            configuration={"kernel": found.kernel, "registered": True},
        ),
        protocol={
            "harness": HARNESS,
            "device": found.device.partition(":")[0],
            "timer": "host clock around rounds of calls, contenders in random order, one thread",
            "compiler": BACKEND,
        },
        environment=environment or capture(LIBRARIES),
        provenance=provenance,
        metrics=metrics,
        attributes=attributes,
    )
    rows = [
        Row(label, number, 0, "head", 0, seconds, 1, seconds, None, None)
        for number, seconds in enumerate(found.seconds.get("operator", []))
    ]
    return Record(evidence, table(rows))


def _cost(value: float, unit: str, *, n: int | None = None, primary: bool = False) -> Metric:
    return Metric(value=value, unit=unit, direction="lower", n=n, primary=primary)


def markdown(found: Spike, command: str) -> str:
    """The scope decision."""
    proven = [i for i in found.interfaces if i.proven]
    failed = [i for i in found.interfaces if not i.proven]
    parts = [
        f"{_TITLE}{found.kernel}",
        f"`{found.kernel}{found.schema}` on {found.device}, registered in a throw-away namespace. The fallback is the "
        f"declaration's reference.\n\n```\n{command}\n```",
        "## Interfaces proven feasible",
        _bullets([f"{i.name}: {i.detail}" for i in proven]) or "None.",
        "## Guards",
        "The kernel runs where its contract has looked; every other call takes the fallback:\n\n"
        + _bullets(found.guards),
        "## Excluded",
        _bullets([f"{i.name}: {i.detail}" for i in failed] + [f"{what}: {why}" for what, why in _EXCLUDED]),
        "## Correctness",
        "| case | |\n|---|---|\n"
        + "\n".join(
            f"| {case} | {f'failed: {_cell(why)}' if why else 'passed'} |" for case, why in found.contract.items()
        ),
        "## Dispatch log",
        _bullets([f"{number} x {line}" for line, number in found.dispatched.items()]),
        "## Captured graph",
        f"{found.graph_breaks} graph breaks.\n\n```python\n{found.graph}\n```"
        if found.graph
        else "Nothing was captured.",
        "## Time per call",
        _times(found),
    ]
    return "\n\n".join(parts) + "\n"


def _times(found: Spike) -> str:
    if not found.seconds:
        return "Nothing was timed: Triton interpreted the kernel."
    rows = [f"| {name} | {1e6 * statistics.median(seconds):,.1f} |" for name, seconds in found.seconds.items()]
    return (
        f"A call on the smallest case, {found.small}, costs "
        f"{overhead(found.small_seconds, 'kernel')['operator']:,.1f} µs more as an operator than by calling the kernel (median "
        f"of paired rounds): that is what registration costs. The first call took {found.first_use_ms:,.1f} ms.\n\n"
        f"Median of {len(found.seconds['operator'])} rounds on {found.eligible}, where the kernel's own time and its noise are "
        "the larger part:\n\n"
        "| | µs |\n|---|---:|\n" + "\n".join(rows)
    )


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _split(file: str) -> tuple[Path, str]:
    """FILE[:NAME]; a file whose own name has the colon is itself."""
    path, _, name = file.rpartition(":")
    return (Path(path), name) if path and not Path(file).is_file() else (Path(file), "")


def _chosen(declared: dict[str, Declaration], path: Path, names: Sequence[str]) -> Declaration:
    wanted = list(dict.fromkeys(names)) or list(declared)
    if len(wanted) != 1:
        raise InputError(
            f"{path.name} declares {', '.join(list(declared)[:8])}: name one of them, --operator {path.name}:{next(iter(declared))}."
        )
    if wanted[0] not in declared:
        raise InputError(f"{path.name} declares no {wanted[0][:60]}: it has {', '.join(list(declared)[:8])}.")
    return declared[wanted[0]]
