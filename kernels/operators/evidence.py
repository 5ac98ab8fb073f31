"""Everything that shows that the operators are what they say: `python -m assay.kernels.operators.evidence`.

For each operator: the contract through the registered operator, opcheck (permuted inputs included), gradcheck, the captured
graph, recompilation over a dynamic batch, the dispatch log, the cost of registration per call, first use, and the time of
a graph around it. Prints Markdown; `--out` writes records of kind `kernel`.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from torch.autograd.gradcheck import GradcheckError

from assay.baselines.errors import AssayError, InputError
from assay.kernels.contract import check_case, draw
from assay.kernels.declaration import Declaration
from assay.kernels.operators import attention, cases, dispatch, proof, rowwise
from assay.kernels.operators.eligibility import Path as Taken

SEED = 20_261_201
KERNEL, OPERATOR, FRAMEWORK = "kernel", "operator", "framework"
"""What is timed: the implementation called directly, through its operator, and the framework's own."""


@dataclass
class Proven:
    """What was found for one operator."""

    name: str
    device: str
    contract: dict[str, str] = field(default_factory=dict)
    """Case -> "" or why it failed."""
    paths: dict[str, list[str]] = field(default_factory=dict)
    """Contract case -> lines of the dispatch log."""
    opcheck: dict[str, str] = field(default_factory=dict)
    graph: str = ""
    graph_breaks: int = 0
    recompiled: str = ""
    first_use_ms: float = 0.0
    seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """Case -> contender -> seconds per call, one number a round."""
    graphs: dict[str, list[float]] = field(default_factory=dict)
    """The compiled graph with our operator, with the framework's, and with none: seconds per call."""
    graph_case: str = ""
    compiler: str = ""

    @property
    def dispatch_us(self) -> float:
        """Microseconds per call for registration and dispatch, on the smallest case."""
        return proof.overhead(next(iter(self.seconds.values())), KERNEL)[OPERATOR]

    @property
    def graph_share(self) -> float:
        """Share of the framework's operator in the graph's time."""
        return 1 - statistics.median(self.graphs["none"]) / statistics.median(self.graphs[FRAMEWORK])

    @property
    def graph_gain_percent(self) -> float:
        """Percent of the graph's time that our operator saves against the framework's; negative when it costs."""
        return 100 * (1 - statistics.median(self.graphs[OPERATOR]) / statistics.median(self.graphs[FRAMEWORK]))

    def losing(self, who: str) -> list[str]:
        """Cases on which the framework's own operator takes less time than `who`, by the medians."""
        return [
            case
            for case, times in self.seconds.items()
            if statistics.median(times[FRAMEWORK]) < statistics.median(times[who])
        ]


def prove(name: str, device: torch.device, *, rounds: int = proof.ROUNDS) -> Proven:
    """All evidence of one operator on one device."""
    declared = cases.declaration(name, device.type)
    found = Proven(name, str(device))
    with torch.no_grad():
        first = _drawn(declared, "random", device)
        found.first_use_ms = proof.first_use(lambda: cases.OURS[name](**first), proof.settling(device))
        _contract(found, declared, device)
        _registration(found, declared, device)
        _times(found, declared, device, rounds)
    if name != "causal_attention":
        found.contract["gradcheck"] = _gradients(name, device)
    return found


def _drawn(declared: Declaration, case: str, device: torch.device) -> dict[str, Any]:
    return draw(declared, declared.parameters(case), SEED, device)


def _contract(found: Proven, declared: Declaration, device: torch.device) -> None:
    for case in declared.contract_cases:
        dispatch.clear()
        found.contract[case] = check_case(declared, case, device, seed=SEED).reason
        found.paths[case] = dispatch.lines()
        if case == cases.FALLS_BACK and any(taken.path is not Taken.FRAMEWORK for taken in dispatch.counts()):
            found.contract[case] = "a kernel ran outside of its region"


def _registration(found: Proven, declared: Declaration, device: torch.device) -> None:
    """opcheck, the graph, and a batch that varies."""
    operator = _operator(found.name)
    for case in ("random", cases.FALLS_BACK):
        for test, reason in proof.checked(operator, _arguments(found.name, _drawn(declared, case, device))).items():
            found.opcheck[test] = found.opcheck.get(test) or reason
    found.contract["opcheck"] = "; ".join(f"{test}: {why}" for test, why in found.opcheck.items() if why)
    names = list(_drawn(declared, "random", device))

    def graph(*values: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = cases.enclosing(cases.OURS[found.name])(**dict(zip(names, values, strict=True)))
        return y

    given = declared.parameters("random")
    batch = "batch" if "batch" in given else "rows"
    calls = [[*draw(declared, {**given, batch: size}, SEED, device).values()] for size in (2, 3, 7)]
    capture = proof.captured(graph, calls[0])
    found.graph, found.graph_breaks = capture.text, capture.breaks
    found.recompiled = proof.recompiled(graph, calls)


def _times(found: Proven, declared: Declaration, device: torch.device, rounds: int) -> None:
    settle = proof.settling(device)
    direct: Any = _direct(found.name)
    for case in declared.cases:
        values = _drawn(declared, case, device)
        arguments = _arguments(found.name, values)
        contenders: dict[str, Callable[[], Any]] = {
            KERNEL: partial(direct, *arguments),
            OPERATOR: partial(_operator(found.name), *arguments),
            FRAMEWORK: partial(cases.FRAMEWORK[found.name], **values),
        }
        for run in contenders.values():
            run()
        one = max(proof.first_use(run, settle) for run in contenders.values()) / 1e3
        calls = max(1, min(200, int(0.005 / one)))
        with torch.inference_mode():
            found.seconds[case] = proof.per_call(contenders, calls=calls, rounds=rounds, settle=settle)
    found.graph_case = cases.ENCLOSED if cases.ENCLOSED in declared.cases else list(declared.cases)[-1]
    found.compiler = "inductor" if device.type == "cuda" else proof.BACKEND
    values = _drawn(declared, found.graph_case, device)
    compiled = {}
    for label, call in ((OPERATOR, cases.OURS[found.name]), (FRAMEWORK, cases.FRAMEWORK[found.name]), ("none", None)):
        made = torch.compile(cases.enclosing(call), backend=found.compiler, fullgraph=True)
        compiled[label] = partial(made, **values)
    found.graphs = proof.per_call(compiled, calls=20, rounds=rounds, settle=settle)
    torch._dynamo.reset()


def _gradients(name: str, device: torch.device) -> str:
    """gradcheck in float64, which the framework's path serves; then float32, and whatever kernel serves it, against that."""
    leaves = cases.gradient_inputs(name, device)
    call = cases.OURS[name]

    def function(*values: torch.Tensor) -> Any:
        return call(**dict(zip(leaves, values, strict=True)))

    try:
        torch.autograd.gradcheck(function, tuple(leaves.values()))
    except GradcheckError as error:
        return proof.line(error)
    grads = []
    for dtype in (torch.float64, torch.float32):
        given = {key: value.detach().to(dtype).requires_grad_() for key, value in leaves.items()}
        result = call(**given)
        outputs = list(result) if isinstance(result, tuple) else [result]
        total = sum((output.double() ** 2).sum() for output in outputs)
        grads.append(torch.autograd.grad(total, list(given.values())))
    for (key, _), exact, found in zip(leaves.items(), *grads, strict=True):
        if (found.double() - exact).abs().max() > 1e-4 * max(1.0, float(exact.abs().max())):
            return f"the float32 gradient of {key} is not the float64 one"
    return ""


def _operator(name: str) -> Any:
    namespace = torch.ops.assay
    return getattr(namespace, f"add_{name}" if "norm" in name else name).default


def _arguments(name: str, values: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(values.values())


def _direct(name: str) -> Any:
    """The implementation behind an operator, with the same arguments."""
    if name == "softmax":
        return rowwise.softmax
    if name == "causal_attention":
        return attention.causal_attention
    if name == "rms_norm":
        return lambda x, residual, weight: rowwise.norm("add_rms_norm", False, x, residual, weight, None, 1e-6)
    return lambda x, residual, weight, bias: rowwise.norm("add_layer_norm", True, x, residual, weight, bias, 1e-5)


@click.command()
@click.option("--device", default="cpu", show_default=True, help="Where to run: cpu, cuda, cuda:1.")
@click.option("--operator", "names", multiple=True, type=click.Choice(cases.NAMES), help="Only these [default: all].")
@click.option("--rounds", type=click.IntRange(4), default=proof.ROUNDS, show_default=True, help="Timed rounds.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Folder for the records.")
def main(device: str, names: tuple[str, ...], rounds: int, out: Path | None) -> None:
    """Prove the operators on a device, and print what was found as Markdown."""
    from assay.baselines.record import check_writable
    from assay.kernels.operators.report import markdown, write_records

    if device.partition(":")[0] == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda needs a GPU that torch can see, and there is none: give --device cpu.")
    if out is not None:
        check_writable(out / cases.NAMES[0])
    found = [prove(name, torch.device(device), rounds=rounds) for name in names or cases.NAMES]
    click.echo(markdown(found))
    if out is not None:
        click.echo(f"{write_records(found, out)} records in {out}", err=True)
    if any(why for one in found for why in one.contract.values()):
        sys.exit(1)


if __name__ == "__main__":
    try:
        main(standalone_mode=False)
    except AssayError as error:
        print(f"assay: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
