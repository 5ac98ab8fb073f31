"""A declared kernel behind an operator of a throw-away namespace: schema, guards, fallback, fake."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from assay.baselines.errors import InputError
from assay.baselines.usercode import FAILURES
from assay.kernels.bench.spike_guards import Guards
from assay.kernels.contract import outputs_of
from assay.kernels.declaration import Declaration, raised
from assay.kernels.operators.checks import in_forward_mode

KERNEL, FALLBACK = "kernel", "fallback"
_TYPES: tuple[tuple[type, str], ...] = (
    (torch.Tensor, "Tensor"),
    (bool, "bool"),
    (int, "int"),
    (float, "float"),
    (str, "str"),
)


@dataclass
class Registered:
    """A kernel behind an operator, with its dispatch log."""

    declaration: Declaration
    names: list[str]
    schema: str
    guards: Guards
    operator: Any = None
    log: Counter[tuple[str, str]] = field(default_factory=Counter)

    def call(self, **values: Any) -> Any:
        """The operator by names, as the contract calls a kernel."""
        result = self.operator(*(values[name] for name in self.names))
        return tuple(result) if isinstance(result, list) else result


def schema_of(declaration: Declaration, values: Mapping[str, Any], outputs: int) -> str:
    """The schema without a name: `(Tensor x, float epsilon) -> Tensor`. Raises `InputError` for inputs that have none."""
    taken = []
    for number, (name, value) in enumerate(values.items()):
        kind = next((word for type_, word in _TYPES if isinstance(value, type_)), None)
        if value is None:
            kind = "Tensor?"
        elif isinstance(value, list | tuple) and all(type(item) is int for item in value):
            kind = "int[]"
        if kind is None or not name.isidentifier():
            raise InputError(
                f"{declaration.name}: the input {name[:40]} is a {type(value).__name__}: "
                "an operator takes tensors, numbers, words and lists of integers."
            )
        if name in declaration.mutates:
            kind = f"Tensor({chr(ord('a') + number)}!)"
        taken.append(f"{kind} {name}")
    given = "()" if outputs == 0 else "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"
    return f"({', '.join(taken)}) -> {given}"


@contextmanager
def registered(declaration: Declaration, guards: Guards, values: Mapping[str, Any]) -> Iterator[Registered]:
    """The kernel as an operator while the context lasts. `values` is one set of its inputs."""
    given_once = {name: v.clone() if isinstance(v, torch.Tensor) else v for name, v in values.items()}
    try:
        direct = declaration.kernel(**given_once)
    except FAILURES as error:
        raise InputError(f"{declaration.name}: the kernel {raised(error)}") from error
    made = [] if direct is None else outputs_of(declaration, direct, given_once)
    dtypes = {_dtypes(values): [output.dtype for output in made]}
    found = Registered(declaration, list(values), schema_of(declaration, values, len(made)), guards)
    library: Any = torch.library.Library
    namespace = f"assay_spike_{secrets.token_hex(6)}"
    library = library(namespace, "DEF")

    def run(*arguments: Any) -> Any:
        if in_forward_mode():
            raise RuntimeError(
                f"{declaration.name} has no forward-mode derivative: call it outside torch.func.jvp and dual levels."
            )
        given = dict(zip(found.names, arguments, strict=True))
        reason = guards.reason(given)
        found.log[FALLBACK if reason else KERNEL, reason] += 1
        if not reason:
            return _own(declaration.kernel(**given), given)
        return _own(_fall_back(declaration, given, dtypes.get(_dtypes(given))), given)

    def fake(*arguments: Any) -> Any:
        given = dict(zip(found.names, arguments, strict=True))
        if not made:
            return None
        result = declaration.reference(**given)
        several = list(result) if isinstance(result, tuple | list) else [result]
        wanted = dtypes.get(_dtypes(given)) or [output.dtype for output in several]
        outputs = [o.new_empty(o.shape, dtype=dtype) for o, dtype in zip(several, wanted, strict=True)]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def derivative(ctx: Any, *_: Any) -> None:
        raise RuntimeError(f"{declaration.name} is registered for inference only: call it under torch.no_grad().")

    try:
        library.define(f"kernel{found.schema}", tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
        library.impl("kernel", run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{namespace}::kernel", fake, lib=library)
        if not declaration.mutates:
            torch.library.register_autograd(f"{namespace}::kernel", derivative, lib=library)
        found.operator = getattr(torch.ops, namespace).kernel.default
        yield found
    finally:
        torch._dynamo.reset()
        library._destroy()


def _fall_back(declaration: Declaration, values: dict[str, Any], dtypes: list[torch.dtype] | None) -> Any:
    """The reference in the inputs' own precision; where the kernel writes into its inputs, so does this."""
    if not declaration.mutates:
        result = declaration.reference(**values)
        several = list(result) if isinstance(result, tuple | list) else [result]
        several = [o.to(d) for o, d in zip(several, dtypes, strict=True)] if dtypes else several
        return several[0] if len(several) == 1 else tuple(several)
    copies = {name: v.clone() if isinstance(v, torch.Tensor) else v for name, v in values.items()}
    result = declaration.reference(**copies)
    written = sorted(declaration.mutates & set(values))
    several = [copies[name] for name in written] if result is None else listed(result)
    for name, value in zip(written, several, strict=True):
        values[name].copy_(value)
    return None


def _own(result: Any, values: Mapping[str, Any]) -> Any:
    """Results as an operator may give them: contiguous, and in memory that no input has."""
    if result is None:
        return None
    held = {v.untyped_storage().data_ptr() for v in values.values() if isinstance(v, torch.Tensor)}
    several = [
        o.clone(memory_format=torch.contiguous_format)
        if o.untyped_storage().data_ptr() in held
        else o.contiguous().view(-1).view(o.shape)
        for o in listed(result)
    ]
    return several[0] if len(several) == 1 else tuple(several)


def listed(result: Any) -> list[Any]:
    return [] if result is None else list(result) if isinstance(result, tuple | list) else [result]


def _dtypes(values: Mapping[str, Any]) -> tuple[torch.dtype, ...]:
    return tuple(value.dtype for value in values.values() if isinstance(value, torch.Tensor))
