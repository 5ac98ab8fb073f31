"""The one-day registration spike of `assay bench --operator`: a declared kernel as an operator of a throw-away namespace.

Before a team commits weeks to an operator, this answers whether it can be one: schema and guards are inferred from the
declaration, the fallback is its reference, and eager, fake, meta and compiled execution are tried on one eligible shape
and on one deliberately outside of the guards.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from assay.baselines.errors import InputError
from assay.baselines.usercode import FAILURES
from assay.kernels.bench.spike_guards import Guards, layouts_of
from assay.kernels.bench.spike_registration import FALLBACK, Registered, listed, registered
from assay.kernels.contract import check_case, compare, draw, expectation, outputs_of
from assay.kernels.declaration import Declaration, Parameters
from assay.kernels.operators import proof

SEED = 20_260_201


@dataclass(frozen=True)
class Interface:
    """One way of calling the operator, whether it works, and what showed it."""

    name: str
    proven: bool
    detail: str


@dataclass
class Spike:
    """What the spike found."""

    kernel: str
    device: str
    schema: str
    guards: list[str]
    eligible: str
    """The case inside the guards."""
    outside: str
    """What was called outside of them, in words."""
    fallback_reason: str = ""
    interfaces: list[Interface] = field(default_factory=list)
    opcheck: dict[str, str] = field(default_factory=dict)
    contract: dict[str, str] = field(default_factory=dict)
    """Case -> "" or why it failed."""
    dispatched: dict[str, int] = field(default_factory=dict)
    """Lines of the dispatch log -> calls."""
    graph: str = ""
    graph_breaks: int = 0
    first_use_ms: float = 0.0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """Seconds per call of `kernel`, `operator` and `reference` on the eligible case, one number a round; empty when
    Triton interprets the kernel, whose times say nothing."""
    small: str = ""
    small_seconds: dict[str, list[float]] = field(default_factory=dict)
    """The same of kernel and operator on the smallest case that the guards admit, where the dispatch can be seen."""


def spike(declaration: Declaration, device: torch.device) -> Spike:
    """Registers the kernel and tries every interface. Raises `InputError` when its inputs fit no schema, or it fails."""
    if declaration.setup is not None:
        declaration.setup()
    guards = Guards.of(layouts_of(declaration, device), device.type)
    eligible = min(declaration.cases, key=lambda case: declaration.bytes(declaration.parameters(case)))
    parameters = declaration.parameters(eligible)
    values = draw(declaration, parameters, SEED, device)
    try:
        context = registered(declaration, guards, values)
        with context as made:
            return _tried(made, eligible, parameters, values, device)
    except (InputError, torch._dynamo.exc.TorchDynamoException):
        raise
    except RuntimeError as error:
        raise InputError(f"{declaration.name} cannot be registered: {proof.line(error)}") from error


def _tried(
    made: Registered, eligible: str, parameters: Parameters, values: dict[str, Any], device: torch.device
) -> Spike:
    declaration, settle = made.declaration, proof.settling(device)
    through = replace(declaration, kernel=made.call)
    outside, words = _outside(made, parameters, values, device)
    found = Spike(declaration.name, str(device), made.schema, made.guards.words(), eligible, words)
    arguments = [values[name] for name in made.names]
    found.first_use_ms = proof.first_use(lambda: made.operator(*_copied(arguments)), settle)

    for case in dict.fromkeys([eligible, *declaration.contract_cases]):
        found.contract[case] = check_case(through, case, device, seed=SEED).reason
    found.contract.setdefault("random", found.contract[eligible])
    failed = [case for case, reason in found.contract.items() if reason]
    found.interfaces.append(
        Interface(
            "eager",
            not failed,
            f"failed on {', '.join(failed)}" if failed else f"{len(found.contract)} cases of the contract",
        )
    )
    found.fallback_reason, result = _through_fallback(made, eligible, outside)
    found.contract["fallback"] = result
    found.interfaces.append(Interface("fallback", not result, result or f"{words}: {found.fallback_reason}"))

    found.interfaces.append(_attempt("meta", lambda: _meta(made, arguments)))
    inputs = [arguments, *([[proof.permuted(a) if _reversible(a) else a for a in arguments]])]
    found.opcheck = _opchecked(made.operator, inputs)
    broken = [f"{test}: {reason}" for test, reason in found.opcheck.items() if reason]
    found.contract["opcheck"] = "; ".join(broken)[:300]
    found.interfaces.append(
        Interface(
            "fake, schema and aliasing (opcheck)",
            not broken,
            "; ".join(broken)[:300] or "contiguous and permuted inputs",
        )
    )
    found.interfaces.append(_attempt("torch.compile", lambda: _compiled(made, found, arguments)))
    found.interfaces.append(_attempt("dynamic batch", lambda: _dynamic(made, parameters, device)))
    found.dispatched = {
        f"{path}{f' ({reason})' if reason else ''}": n for (path, reason), n in sorted(made.log.items())
    }
    if os.environ.get("TRITON_INTERPRET") == "1":
        return found
    found.seconds = _times(
        made, values, settle, "kernel", "operator", *(["reference"] if not declaration.mutates else [])
    )
    passed = [case for case in declaration.contract_cases if not found.contract[case]]
    found.small = _smallest(made, eligible, passed, device)
    smaller = draw(declaration, declaration.parameters(found.small), SEED, device)
    found.small_seconds = _times(made, smaller, settle, "kernel", "operator")
    return found


def _times(made: Registered, values: dict[str, Any], settle: Callable[[], None], *names: str) -> dict[str, list[float]]:
    arguments = [values[name] for name in made.names]
    contenders: dict[str, Callable[[], Any]] = {
        "kernel": lambda: made.declaration.kernel(**values),
        "operator": lambda: made.operator(*arguments),
        "reference": lambda: made.declaration.reference(**values),
    }
    one = proof.first_use(contenders["operator"], settle) / 1e3
    chosen = {name: contenders[name] for name in names}
    return proof.per_call(chosen, calls=max(1, min(200, int(0.005 / one))), settle=settle)


def _smallest(made: Registered, eligible: str, passed: list[str], device: torch.device) -> str:
    """Of the contract cases that passed, the one with the least to move that has elements and that the guards admit."""
    declaration = made.declaration
    for case in sorted(passed, key=lambda c: declaration.bytes(declaration.parameters(c))):
        values = draw(declaration, declaration.parameters(case), SEED, device)
        if all(v.numel() for v in values.values() if isinstance(v, torch.Tensor)) and not made.guards.reason(values):
            return case
    return eligible


def _outside(
    made: Registered, parameters: Parameters, values: dict[str, Any], device: torch.device
) -> tuple[dict[str, Any], str]:
    """Inputs just outside of the guards, and what they are: one parameter more than any case has, or strided inputs."""
    declared = [*made.declaration.cases.values(), *made.declaration.contract_cases.values()]
    for name, value in parameters.items():
        if type(value) is not int:
            continue
        beyond = max(case[name] for case in declared if type(case.get(name)) is int) + 1
        try:
            found = draw(made.declaration, {**parameters, name: beyond}, SEED, device)
            if made.guards.reason(found):
                expectation(made.declaration, found)
                return found, f"{name} = {beyond:,}"
        except InputError:
            continue
    others: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "inputs that are not contiguous": lambda tensor: _strided(tensor) if tensor.dim() else tensor,
        "inputs in float64": lambda tensor: tensor.double() if tensor.is_floating_point() else tensor,
    }
    for words, change in others.items():
        found = {name: change(v) if isinstance(v, torch.Tensor) else v for name, v in values.items()}
        if made.guards.reason(found):
            return found, words
    raise InputError(
        f"{made.declaration.name}: its cases admit whatever was tried, so there is no shape that must take the fallback."
    )


def _through_fallback(made: Registered, case: str, values: dict[str, Any]) -> tuple[str, str]:
    """(reason in the dispatch log, why the result is wrong or "") of a call outside of the guards."""
    declaration = made.declaration
    expected = expectation(declaration, values)
    before = Counter(made.log)
    try:
        outputs = outputs_of(declaration, made.call(**values), values)
    except FAILURES as error:
        return "", f"the fallback raised {proof.line(error)}"
    taken = [key for key in made.log if made.log[key] > before[key]]
    reasons = [reason for path, reason in taken if path == FALLBACK]
    if not reasons:
        return "", "no guard refuses it, so it was not the fallback that ran"
    return reasons[0], compare(outputs, expected, declaration.tolerance(case)).reason


def _meta(made: Registered, arguments: list[Any]) -> str:
    real = listed(made.operator(*_copied(arguments)))
    meta = listed(made.operator(*(a.to("meta") if isinstance(a, torch.Tensor) else a for a in arguments)))
    for one, other in zip(real, meta, strict=True):
        if (one.shape, one.dtype, one.stride()) != (other.shape, other.dtype, other.stride()):
            raise RuntimeError(
                f"{tuple(other.shape)} {other.dtype} where the kernel gives {tuple(one.shape)} {one.dtype}"
            )
    return "shapes, dtypes and strides as on real tensors"


def _opchecked(operator: Any, inputs: list[list[Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for arguments in inputs:
        try:
            results = proof.checked(operator, _copied(arguments))
        except FAILURES as error:  # opcheck itself ends where a fake cannot run at all
            results = {"opcheck": proof.line(error)}
        for test, reason in results.items():
            found[test] = found.get(test) or reason
    return found


def _compiled(made: Registered, found: Spike, arguments: list[Any]) -> str:
    capture = proof.captured(lambda *given: made.operator(*given), _copied(arguments))
    found.graph = re.sub(r"assay_spike_[0-9a-f]{12}", "spike", capture.text)
    found.graph_breaks = capture.breaks
    if capture.reason:
        raise RuntimeError(capture.reason)
    return f"{capture.graphs} graph, no break, under fullgraph"


def _dynamic(made: Registered, parameters: Parameters, device: torch.device) -> str:
    """Whether one compilation serves batches of several sizes. Raises where no parameter makes such batches."""
    for name, value in parameters.items():
        if type(value) is not int:
            continue
        calls = []
        for size in (max(value, 2), max(value, 2) + 1, max(value, 2) + 3):
            try:
                drawn = draw(made.declaration, {**parameters, name: size}, SEED, device)
            except InputError:
                break
            calls.append([drawn[key] for key in made.names])
        if (
            len(calls) < 3
            or not _only_first(calls)
            or any(made.guards.reason(dict(zip(made.names, c, strict=True))) for c in calls)
        ):
            continue
        again = proof.recompiled(lambda *given: made.operator(*given), calls)
        if again:
            raise RuntimeError(again)
        return f"one compilation for {len(calls)} values of {name}"
    raise RuntimeError("no parameter of the case changes the first dimension alone")


def _attempt(name: str, run: Callable[[], str]) -> Interface:
    try:
        return Interface(name, True, run())
    except FAILURES as error:  # whatever a user's reference raises under the compiler is the finding
        return Interface(name, False, proof.line(error))


def _copied(arguments: list[Any]) -> list[Any]:
    return [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]


def _reversible(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 1


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    return torch.stack((tensor, tensor), -1)[..., 0]


def _only_first(calls: list[list[Any]]) -> bool:
    """Whether tensors differ in their first dimension alone, and at least one does."""
    changed = False
    for values in zip(*calls, strict=True):
        if not isinstance(values[0], torch.Tensor):
            continue
        shapes = {tuple(v.shape) for v in values}
        if len({shape[1:] for shape in shapes}) > 1 or (values[0].dim() < 2 and len(shapes) > 1):
            return False
        changed |= len(shapes) > 1
    return changed
