"""PyTorch's own operator database through the backend: every sample gives what eager PyTorch gives, or the reason is listed.

`python -m assay.npu_backend.conformance --out table.json` runs all operators that take float32 and continues where an
earlier run stopped. An operator during which the process died is listed so by the next run.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils import _pytree as pytree

from assay.baselines.errors import InputError
from assay.npu_backend.lowering import FAULT
from assay.npu_backend.partition import HostPart, NpuPart
from assay.npu_backend.register_backend import Report, mock_npu

GOOD = ("npu", "mixed", "host", "listed")
STATUSES = (*GOOD, "wrong", "error")
MEANING = {
    "npu": "same results, every node on the NPU",
    "mixed": "same results, some nodes on the host",
    "host": "same results, every node on the host",
    "listed": "cannot be compared, with the reason",
    "wrong": "other results than eager",
    "error": "raises where eager does not, or its rule fails",
}
UNINITIALISED = re.compile(r"(^|\.|_)empty")
RTOL, ATOL = 1e-4, 1e-5
"""Sums in another order and decomposed functions; the comparison of integers and of what the host computes is as strict."""


@dataclass(frozen=True)
class Outcome:
    """What became of an operator."""

    status: str
    samples: int
    """Samples whose results were compared."""
    npu: int = 0
    """Nodes that ran on the NPU, over all samples."""
    host: int = 0
    why: str = ""
    """Reasons for the host, or what differs."""


def operators() -> dict[str, Any]:
    """PyTorch's operators that take float32, by name; those with variants are `name.variant`.

    Raises `InputError` when `expecttest`, which the database needs, is not installed.
    """
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        raise InputError(f"the operator database needs a package ({error.name}): pip install expecttest.") from None
    found = {}
    for op in op_db:
        if torch.float32 in op.dtypes:
            found[op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")] = op
    return dict(sorted(found.items()))


@contextmanager
def seeded_by_us() -> Iterator[None]:
    """Takes out the database's own seeding of random operators, which TorchDynamo does not trace: they would run in eager."""
    from torch.testing._internal import common_methods_invocations as database

    def plain(op: Any, *args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    with patch.object(database, "wrapper_set_seed", plain):
        yield


def samples_of(op: Any, count: int) -> list[Any]:
    """`count` samples of an operator, spread evenly over the database's; 0 for all."""
    torch.manual_seed(0)
    every = list(op.sample_inputs("cpu", torch.float32, requires_grad=False))
    if not count or len(every) <= count:
        return every
    # From the middle of each piece: the first samples are often scalars.
    return [every[(2 * place + 1) * len(every) // (2 * count)] for place in range(count)]


def check(op: Any, name: str, count: int) -> Outcome:
    """Runs samples of an operator in eager PyTorch and in `mode="simulate"`, and compares."""
    report, compared, alike, listed = Report(), 0, 0, ""
    for sample in samples_of(op, count):
        torch._dynamo.reset()
        try:
            want, left = _eager(op, sample, 0)
        except Exception as error:
            listed = f"eager raises {type(error).__name__}"
            continue
        again, _ = _eager(op, sample, 1)
        exact = not UNINITIALISED.search(name) and _differs(again, want) == ""
        try:
            got, mine = _compiled(op, sample, report)
        except Exception as error:
            why = _aot(op, sample)
            line = " ".join(str(error).split())[:200]
            if why:
                listed = why
                continue
            return _outcome("error", compared, report, f"{type(error).__name__}: {line}")
        difference = _differs(got, want, values=exact) or _differs(mine, left)
        if difference:
            return _outcome("wrong", compared, report, difference)
        compared += 1
        alike += exact
        if not exact:
            listed = "random or uninitialised: shapes and dtypes are compared"
    # One sample whose values agree says where the operator runs; the reason stays for those that could not be compared.
    return _outcome("" if alike else "listed", compared, report, listed)


def _outcome(status: str, compared: int, report: Report, why: str) -> Outcome:
    npu = host = 0
    for graph in report.graphs:
        for made in graph.plans.values():
            npu += sum(
                len(part.nodes) for part in made.parts if isinstance(part, NpuPart) and part.program.instructions
            )
            host += sum(isinstance(part, HostPart) and part.node not in made.constant for part in made.parts)
            host += made.whole_on_host
    if not report.graphs and not status:
        status, why = "listed", "PyTorch compiles no graph of it, so that it runs in eager"
    elif not npu and not host and not status:
        status, why = "host", "what it gives is there before it runs, or depends on sizes alone"
    elif not status:
        status = "npu" if npu and not host else "mixed" if npu else "host"
    reasons = sorted({f"{f.op}: {f.why}" for f in report.fallbacks})
    faults = [reason for reason in reasons if FAULT in reason]
    if faults:
        return Outcome("error", compared, npu, host, faults[0])
    return Outcome(status, compared, npu, host, why or "; ".join(reasons))


def _eager(op: Any, sample: Any, seed: int) -> tuple[Any, Any]:
    """What the operator gives, and its arguments afterwards."""
    arguments = _copied(sample)
    torch.manual_seed(seed)
    with torch.no_grad(), seeded_by_us():
        return op(arguments[0], *arguments[1], **arguments[2]), arguments


def _compiled(op: Any, sample: Any, report: Report | None, backend: Any = mock_npu) -> tuple[Any, Any]:
    arguments = _copied(sample)

    def call(first: Any, rest: Sequence[Any], named: Mapping[str, Any]) -> Any:
        return op(first, *rest, **named)

    options: Any = {"mode": "simulate", "report": report} if report is not None else None
    torch.manual_seed(0)
    with torch.no_grad(), seeded_by_us():
        return torch.compile(call, backend=backend, options=options)(*arguments), arguments


def _aot(op: Any, sample: Any) -> str:
    """Why PyTorch's own tracing cannot take a sample either; empty when it can."""
    torch._dynamo.reset()
    try:
        _compiled(op, sample, None, "aot_eager")
    except Exception as error:
        return f"PyTorch does not trace it ({type(error).__name__})"
    return ""


def _copied(sample: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    def copied(value: Any) -> Any:
        return value.detach().clone() if isinstance(value, torch.Tensor) else value

    first, rest, named = pytree.tree_map(copied, (sample.input, tuple(sample.args), dict(sample.kwargs)))
    return first, rest, named


def _differs(got: Any, want: Any, *, values: bool = True) -> str:
    """How two results differ; empty when they agree."""
    mine, theirs = pytree.tree_leaves(got), pytree.tree_leaves(want)
    if len(mine) != len(theirs):
        return f"{len(mine)} results instead of {len(theirs)}"
    for a, b in zip(mine, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            if type(a) is not type(b) or (values and a != b and a == a):
                return f"{a!r} instead of {b!r}"
            continue
        if not values:
            if a.shape != b.shape or a.dtype != b.dtype:
                return f"{tuple(a.shape)} {a.dtype} instead of {tuple(b.shape)} {b.dtype}"
            continue
        try:
            torch.testing.assert_close(a, b, rtol=RTOL, atol=ATOL, equal_nan=True, check_layout=True)
        except (AssertionError, RuntimeError, NotImplementedError) as error:
            return " ".join(str(error).split())[:200]
    return ""


def run(
    ops: Mapping[str, Any],
    known: Mapping[str, Outcome],
    *,
    count: int,
    save: Callable[[Mapping[str, Outcome]], None],
    show: Callable[[str], None],
) -> dict[str, Outcome]:
    """Outcomes of all operators. `known` are kept; `save` is called before and after each of the others."""
    found = dict(known)
    for place, (name, op) in enumerate(ops.items(), 1):
        if name in found:
            continue
        save({**found, name: Outcome("error", 0, why="the process died")})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found[name] = check(op, name, count)
        save(found)
        show(f"[{place}/{len(ops)}] {name}: {found[name].status} {found[name].why[:100]}")
    return found


def summary(found: Mapping[str, Outcome]) -> str:
    """Counts by status, as a table."""
    counts = Counter(outcome.status for outcome in found.values())
    rows = [f"| {status} | {counts[status]} | {MEANING[status]} |\n" for status in STATUSES]
    return "| outcome | operators | meaning |\n| --- | --- | --- |\n" + "".join(rows)


def load(path: Path) -> dict[str, Outcome]:
    """Outcomes of an earlier run. Raises `InputError` for a file that is no table."""
    if not path.exists():
        return {}
    try:
        return {name: Outcome(**entry) for name, entry in json.loads(path.read_text())["operators"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path} is no table of operators: delete it or name another file.") from None


def write(path: Path, found: Mapping[str, Outcome], count: int) -> None:
    """Writes the table, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = {
        "torch": torch.__version__.split("+")[0],
        "samples": count,
        "counts": dict(sorted(Counter(outcome.status for outcome in found.values()).items())),
        "operators": {name: asdict(outcome) for name, outcome in sorted(found.items())},
    }
    waiting = path.with_suffix(".part")
    waiting.write_text(json.dumps(table, indent=1) + "\n")
    waiting.replace(path)


def main(arguments: Iterable[str] | None = None) -> int:
    """Exit code 1 when an operator gives a wrong result or raises, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="conformance", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="table that is written, and continued")
    parser.add_argument("--samples", type=int, default=2, help="samples of each operator; 0 for all")
    parser.add_argument("--only", default="", help="regular expression that names must match")
    parser.add_argument("--fresh", action="store_true", help="run again what the table has")
    chosen = parser.parse_args(None if arguments is None else list(arguments))
    try:
        ops = {name: op for name, op in operators().items() if re.search(chosen.only, name)}
        known = load(chosen.out)
    except (InputError, re.error) as error:
        print(f"error: {error}")
        return 2
    if chosen.fresh:
        known = {name: outcome for name, outcome in known.items() if name not in ops}
    found = run(
        ops,
        known,
        count=chosen.samples,
        save=lambda table: write(chosen.out, table, chosen.samples),
        show=lambda line: print(line, flush=True),
    )
    print(summary(found), end="")
    return int(any(outcome.status not in GOOD for outcome in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
