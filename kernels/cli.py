"""`assay bench`: measure kernels of two checkouts and write evidence."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.baselines.errors import InputError
from assay.baselines.naming import names
from assay.baselines.ranges import FiniteRange

if TYPE_CHECKING:
    from assay.baselines.record import Record
    from assay.kernels.bench.timed import Lease

EXAMPLES = """
A declaration is a module-level value of FILE; docs/bench.md explains each field:

\b
  from assay.kernels.declaration import Declaration, Tolerance
  softmax = Declaration(
      name="row-softmax", kernel=my_softmax,
      inputs=lambda case, generator, device: {"x": torch.randn(case["rows"], case["columns"],
                                                               generator=generator, device=device)},
      reference=lambda x: torch.softmax(x, -1),
      tolerances={"float32": Tolerance(absolute=1e-6, relative=1e-5)},
      cases={"c1024": {"rows": 4096, "columns": 1024, "dtype": "float32"}},
      contract_cases={"tail": {"rows": 3, "columns": 61, "dtype": "float32"}},
      bytes=lambda case: 8 * case["rows"] * case["columns"], flops=lambda case: 5 * case["rows"] * case["columns"])

\b
Examples:
  # this working tree against main, on the CPU
  assay bench benches/softmax.py --base main --out evidence/head
  assay gate --base evidence/head.base --head evidence/head

\b
  # two checkouts on a GPU; a change inside 1% is the same speed
  assay bench benches/softmax.py --base ../main --head . --device cuda --margin 1 --out evidence/head

\b
  # contracts of Triton kernels on a machine without a GPU; nothing is timed
  assay bench benches/softmax.py --triton-interpret --out evidence/contract

\b
  # can this kernel be a framework operator? one day's answer, with evidence
  assay bench --operator benches/softmax.py:row-softmax --out evidence/spike

Exit codes: 0 measured (assay gate judges what), 2 bad input, 3 a worker ended or hung.
"""


@click.command("bench", epilog=EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--base",
    metavar="DIR|REV",
    help="What the head is compared with, in the same lease: a checkout, or a revision of the head's repository.",
)
@click.option(
    "--head",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    help="The checkout that is proposed [default: the current folder].",
)
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="NAMES",
    help="Only these kernels of FILE; repeat, or separate by commas.",
)
@click.option("--device", default="cpu", show_default=True, help="Where to run: cpu, cuda, cuda:1.")
@click.option(
    "--margin",
    type=FiniteRange(0, 100, min_open=True),
    default=2.0,
    show_default=True,
    help="Fixed before measuring: a change of less than so many percent is the same speed.",
)
@click.option(
    "--blocks", type=click.IntRange(8, 100_000), default=60, show_default=True, help="Blocks of each arm and case."
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 20),
    default=2,
    show_default=True,
    help="Rounds of fresh processes over which the blocks are spread; a verdict holds in each of them.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, (1 << 63) - 1),
    default=0,
    show_default=True,
    help="Seed of inputs, order and checks.",
)
@click.option("--block-ms", type=FiniteRange(0.1, 10_000), help="Length of a block [default: 4 on a CPU, 1 on a GPU].")
@click.option(
    "--memory-mb",
    type=click.IntRange(1),
    help="Memory for the input sets of a case [default: 512 on a CPU, 8192 on a GPU].",
)
@click.option(
    "--timeout", type=FiniteRange(1), default=300.0, show_default=True, help="Seconds that one answer may take."
)
@click.option("--triton-interpret", is_flag=True, help="Check contracts with Triton's interpreter, and time nothing.")
@click.option(
    "--operator",
    is_flag=True,
    help="Register one kernel (FILE or FILE:NAME) as a PyTorch operator, try every interface, and write the scope decision to DIR.md.",
)
@click.option("--commit", help="Commit of the head [default: ASSAY_HEAD_SHA, else git rev-parse HEAD].")
@click.option("--run-id", type=click.IntRange(1), envvar="GITHUB_RUN_ID", help="Workflow run [default: GITHUB_RUN_ID].")
@click.option(
    "--attempt",
    type=click.IntRange(1),
    envvar="GITHUB_RUN_ATTEMPT",
    help="Attempt of the run [default: GITHUB_RUN_ATTEMPT].",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder of the record that is written; the base's goes to DIR.base.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def bench(**options: Any) -> None:
    """Time the kernels that FILE declares, after their contract, and write the evidence.

    With --base both checkouts run as processes of their own on one device, one at a time, in short blocks of random
    order; base also runs against itself, and when that control moves the run is void. A kernel whose contract fails is
    not timed.
    """
    from assay.baselines.checkout import base_folder, head_commit, relative_file, uncommitted
    from assay.baselines.record import check_folder, write_record

    _require("torch")
    out: Path = options["out"]
    check_folder(out)
    beside = out.with_name(f"{out.name}.base")
    if options["base"] is not None:
        check_folder(beside)
    if options["operator"]:
        _spike(options)
        return
    from assay.kernels.bench.evidence import records
    from assay.kernels.bench.lease import measure
    from assay.kernels.bench.timed import Plan

    head: Path = options["head"].resolve()
    file = relative_file(options["file"], head)
    gpu = _gpu(options["device"])
    commit = head_commit(options["commit"], head, file)
    changed = {"head": len(uncommitted(head, file))}
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as scratch:
        base, base_commit = None, None
        if options["base"] is not None:
            base, base_commit = base_folder(options["base"], head, Path(scratch))
            if not (base / file).is_file():
                _tell(
                    f"the base has no {file} yet: there is nothing to compare with, and `assay gate --head` alone checks it"
                )
                base = None
            else:
                changed["base"] = len(uncommitted(base))
        plan = Plan(
            file=file,
            head=head,
            base=base,
            device=options["device"],
            kernels=names(options["kernels"], "--kernel"),
            blocks=options["blocks"],
            rounds=min(options["rounds"], options["blocks"] // 4),
            margin=options["margin"] / 100,
            seed=options["seed"],
            timeout=options["timeout"],
            block_seconds=(options["block_ms"] or (1 if gpu else 4)) / 1e3,
            memory=(options["memory_mb"] or (8192 if gpu else 512)) << 20,
            interpret=options["triton_interpret"],
        )
        lease = measure(plan, _tell)
    command = f"assay bench {shlex.quote(file.as_posix())}" + "".join(
        f" --{name} {options[name]:g}" for name in ("blocks", "rounds", "margin", "seed")
    )
    made, other = records(
        lease,
        commits={"head": commit, "base": base_commit},
        changed=changed,
        command=f"{command} --device {options['device']} --base BASE --out DIR",
        run_id=options["run_id"],
        attempt=options["attempt"],
    )
    record = write_record(out, made.evidence, made.rows)
    kept = write_record(beside, other.evidence, other.rows) if other is not None else None
    if other is None and options["base"] is not None and beside.is_dir():
        shutil.rmtree(beside)  # of an earlier lease, whose head was just replaced
    _print(lease, record, kept, out, beside, as_json=options["as_json"])


def _spike(options: dict[str, Any]) -> None:
    """`--operator`: see `assay.kernels.bench.spike`."""
    from assay.baselines.checkout import head_commit

    if options["base"] is not None:
        raise InputError("--operator compares nothing: leave --base out.")
    if options["triton_interpret"]:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    _gpu(options["device"])
    from assay.kernels.bench import spike_scope

    spike_scope.run(
        str(options["file"]),
        kernels=names(options["kernels"], "--kernel"),
        device=options["device"],
        out=options["out"],
        commit=head_commit(options["commit"], options["head"].resolve()),
        run_id=options["run_id"],
        attempt=options["attempt"],
        as_json=options["as_json"],
    )


def _gpu(device: str) -> bool:
    import torch

    kind = device.partition(":")[0]
    if re.fullmatch(r"cpu|cuda(:\d{1,2})?", device, re.ASCII) is None:
        raise InputError(f"--device {device[:40]} is not known: give cpu, cuda or cuda:1.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda needs a GPU that torch can see, and there is none: give --device cpu.")
    if kind == "cuda" and int(device.partition(":")[2] or 0) >= torch.cuda.device_count():
        raise InputError(f"--device {device}: there are {torch.cuda.device_count()} GPUs, counted from 0.")
    return kind == "cuda"


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _print(lease: Lease, record: Record, base: Record | None, out: Path, beside: Path, *, as_json: bool) -> None:
    failed = {
        f"{name}: {kernel}": checkout.failed(kernel)
        for name, checkout in lease.checkouts.items()
        for kernel in checkout.described
        if checkout.failed(kernel)
    }
    refused = {f"{label}: {arm}": fault for label, t in lease.timed.items() for arm, fault in t.faults.items()}
    latency = {n: m for n, m in record.evidence.metrics.items() if n.startswith("latency/")}
    if as_json:
        document = {
            "folder": str(out),
            "digest": record.digest,
            "base": {"folder": str(beside), "digest": base.digest} if base is not None else None,
            "lease": lease.id,
            "contract_failed": failed,
            "refused": {where: {"code": f.code, "detail": f.detail} for where, f in refused.items()},
            "latency_us": {name.removeprefix("latency/"): m.value for name, m in latency.items()},
        }
        click.echo(json.dumps(document, indent=1))
        return
    for where, cases in failed.items():
        click.echo(f"contract failed, {where}: {', '.join(cases[:8])}")
    for where, fault in refused.items():
        click.echo(f"refused, {where}: {fault.detail}")
    for name, metric in latency.items():
        before = base.evidence.metrics.get(name) if base is not None else None
        against = (
            f", base {before.value:.4g} us ({100 * (metric.value / before.value - 1):+.1f}%)"
            if before is not None
            else ""
        )
        click.echo(f"{name.removeprefix('latency/')}: {metric.value:.4g} us{against}")
    click.echo(f"Evidence {record.digest[:12]}: {out}")
    if base is not None:
        click.echo(f"The verdict: assay gate --base {shlex.quote(str(beside))} --head {shlex.quote(str(out))}")


def _require(*modules: str) -> None:
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise InputError(
                f"assay bench needs {name}, which is not installed: pip install 'assay-ci[kernels]' (in a clone of assay: '.[kernels]')."
            )
