"""The contract of a kernel: what it computes is right on every declared case, before anything is timed.

Each case runs twice, with freshly drawn inputs. In the first run every new tensor starts as NaN, so that an element
that nobody wrote is seen. In the second the inputs keep their addresses, and even their version counters, while their
values change: an output that was remembered is stale then.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from assay.baselines.errors import InputError
from assay.baselines.usercode import FAILURES
from assay.kernels.declaration import Declaration, Parameters, Tolerance, raised

PREFIX = "contract."
"""Attribute of the evidence for each case: `contract.<case>` is true or false."""
RAISED = "the kernel raised"
"""How the reason begins when it did."""
_SEED = 20_260_101


@dataclass(frozen=True)
class CaseResult:
    """What one case came to."""

    case: str
    passed: bool
    relative_error: float
    """||out - ref|| / ||ref||, the larger of the two runs, over the elements that are finite in the reference."""
    largest_error: float
    """max |out - ref| over the same elements."""
    reason: str = ""
    """Why it failed, in one line."""


def check(declaration: Declaration, device: torch.device | str, *, seed: int = _SEED) -> list[CaseResult]:
    """Every timed and contract case of a declaration against its float64 reference.

    A kernel that raises or returns something else than plain tensors fails its case; inputs or a reference that raise
    are the declaration's fault and raise `InputError`.
    """
    place = torch.device(device)
    results: list[CaseResult] = []
    for number, case in enumerate([*declaration.cases, *declaration.contract_cases]):
        try:
            results.append(check_case(declaration, case, place, seed=seed + number))
        except InputError:
            # An illegal access leaves the whole device context broken: then no inputs can be drawn either.
            broken = next((r for r in results if r.reason.startswith(RAISED)), None)
            if broken is None or place.type == "cpu":
                raise
            results.append(CaseResult(case, False, 0.0, 0.0, f"not run, since on {broken.case} {broken.reason}"))
    return results


def check_case(declaration: Declaration, case: str, device: torch.device, *, seed: int = _SEED) -> CaseResult:
    """One case, as `check` does it."""
    parameters, tolerance = declaration.parameters(case), declaration.tolerance(case)
    first = draw(declaration, parameters, seed, device)
    second = draw(declaration, parameters, seed + 7_919, device)
    worst = Distance(0.0, 0.0, "")
    for values, poison in ((first, True), (second, False)):
        # The second run happens in the first one's memory.
        held = first if values is first else overwrite(first, second)
        expected = expectation(declaration, values)
        before = {name: bits_of(value) for name, value in held.items() if isinstance(value, torch.Tensor)}
        try:
            with _poisoned_memory(poison):
                outputs = outputs_of(declaration, declaration.kernel(**held), held)
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
        except InputError as error:
            return CaseResult(case, False, worst.relative, worst.largest, str(error))
        except FAILURES as error:
            return CaseResult(case, False, worst.relative, worst.largest, f"the kernel {raised(error)}")
        distance = compare(outputs, expected, tolerance)
        reason = distance.reason or mutated(held, before, declaration.mutates)
        worst = Distance(
            max(worst.relative, distance.relative), max(worst.largest, distance.largest), worst.reason or reason
        )
        if worst.reason:
            break
    return CaseResult(case, not worst.reason, worst.relative, worst.largest, worst.reason)


def attributes(results: Sequence[CaseResult]) -> dict[str, bool]:
    """`contract.<case>` for the attributes of the evidence."""
    return {PREFIX + result.case: result.passed for result in results}


@dataclass(frozen=True)
class Distance:
    """How far outputs lie from the reference; `reason` is empty when that is within the tolerance."""

    relative: float
    largest: float
    reason: str


def draw(declaration: Declaration, parameters: Parameters, seed: int, device: torch.device) -> dict[str, Any]:
    """Fresh inputs from a seed. Raises `InputError` when the declaration's `inputs` fails or gives no dictionary."""
    generator = torch.Generator(device=device)
    generator.manual_seed(seed)
    try:
        found = declaration.inputs(parameters, generator, device)
    except FAILURES as error:
        raise InputError(f"{declaration.name}: `inputs` {raised(error)}") from error
    if not isinstance(found, dict) or not any(isinstance(value, torch.Tensor) for value in found.values()):
        raise InputError(f"{declaration.name}: `inputs` gives {type(found).__name__}: return named tensors in a dict.")
    for name, value in found.items():
        if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
            raise InputError(f"{declaration.name}: the input {name} is a sparse tensor: give its parts as plain ones.")
    unknown = sorted(declaration.mutates - found.keys())
    if unknown:
        raise InputError(f"{declaration.name}: `mutates` names {unknown[0]}, and `inputs` gives {', '.join(found)}.")
    return found


def digest_of(values: Mapping[str, Any], most: int) -> str:
    """Of inputs: names, shapes, strides, types, and the first `most` bytes of each tensor (0: its form alone)."""
    hasher = hashlib.sha256()
    for name, value in sorted(values.items()):
        hasher.update(name.encode())
        if isinstance(value, torch.Tensor):
            hasher.update(f"{tuple(value.shape)}{value.stride()}{value.dtype}".encode())
            if most:
                hasher.update(bits_of(value)[:most].cpu().numpy().tobytes())
        else:
            hasher.update(repr(value)[:1000].encode())
    return hasher.hexdigest()[:16]


def expectation(declaration: Declaration, inputs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The reference's result, float64 where it is floating. Raises `InputError` when the reference fails."""
    copies = {
        name: value.detach().clone().to(torch.float64)
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value.clone()
        if isinstance(value, torch.Tensor)
        else value
        for name, value in inputs.items()
    }
    try:
        result = declaration.reference(**copies)
    except FAILURES as error:
        raise InputError(f"{declaration.name}: `reference` {raised(error)}") from error
    found = _as_list(result, copies, declaration.mutates)
    if not found or not all(isinstance(value, torch.Tensor) for value in found):
        raise InputError(f"{declaration.name}: `reference` gives {type(result).__name__}: return the tensors.")
    return found


def outputs_of(declaration: Declaration, result: Any, inputs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors that a call gave.

    Raises `InputError` for anything else than plain tensors: a subclass may put off its work until it is read.
    """
    found = _as_list(result, inputs, declaration.mutates)
    if not found:
        raise InputError("the kernel returned nothing, and no input is declared in `mutates`")
    for value in found:
        if type(value) is not torch.Tensor:
            raise InputError(f"the kernel returned a {type(value).__name__}, not a plain tensor")
        if value.layout is not torch.strided:
            raise InputError("the kernel returned a sparse tensor, not a plain one")
        if value.is_neg() or value.is_conj():
            raise InputError(
                "the kernel returned a view that is negated or conjugated only when it is read: resolve it"
            )
    return found


def compare(outputs: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], tolerance: Tolerance) -> Distance:
    """Outputs against the float64 reference: shapes, NaN and infinities must agree, finite elements lie within the
    tolerance. A reference beyond the range of the output's dtype must come out infinite."""
    if len(outputs) != len(expected):
        return Distance(0.0, 0.0, f"{len(outputs)} outputs where the reference has {len(expected)}")
    relative = largest = 0.0
    reason = ""
    for number, (out, ref) in enumerate(zip(outputs, expected, strict=True)):
        found = _compare_one(out, ref, tolerance)
        relative, largest = max(relative, found.relative), max(largest, found.largest)
        if found.reason and not reason:
            reason = f"output {number}: {found.reason}" if len(outputs) > 1 else found.reason
    return Distance(relative, largest, reason)


def _compare_one(out: torch.Tensor, ref: torch.Tensor, tolerance: Tolerance) -> Distance:
    if out.shape != ref.shape:
        return Distance(0.0, 0.0, f"shape {tuple(out.shape)} where the reference has {tuple(ref.shape)}")
    if out.device != ref.device:
        return Distance(0.0, 0.0, f"the output is on {out.device}, the inputs on {ref.device}")
    if out.numel() == 0:
        return Distance(0.0, 0.0, "")
    if not out.is_floating_point():
        wrong = int((out != ref).sum())
        return Distance(0.0, 0.0, f"{wrong:,} of {out.numel():,} elements differ" if wrong else "")
    # What the dtype cannot hold rounds to infinity, in the reference as in the kernel.
    rounded = ref.to(out.dtype).to(torch.float64)
    ref = torch.where(rounded.isinf(), rounded, ref.to(torch.float64))
    got = out.to(torch.float64)
    if unlike := int((got.isnan() != ref.isnan()).sum()):
        return Distance(
            0.0, 0.0, f"{unlike:,} of {out.numel():,} elements are NaN on one side alone (perhaps not written)"
        )
    infinite = ref.isinf() | got.isinf()
    if unlike := int((infinite & (got != ref)).sum()):
        return Distance(0.0, 0.0, f"{unlike:,} of {out.numel():,} elements are infinite on one side alone")
    finite = ~(infinite | ref.isnan())
    error = torch.where(finite, got - ref, 0.0).abs()
    size = torch.where(finite, ref, 0.0)
    largest = float(error.max())
    norm, reach = float(error.norm()), float(size.norm())
    relative = norm / reach if reach else (0.0 if norm == 0 else float("inf"))
    over = int((error > tolerance.absolute + tolerance.relative * size.abs()).sum())
    reason = ""
    if over:
        reason = f"{over:,} of {out.numel():,} elements are outside the tolerance (largest error {largest:.3g})"
    elif tolerance.norm is not None and relative > tolerance.norm:
        reason = f"the error's norm is {relative:.3g} of the reference's, over {tolerance.norm:g}"
    return Distance(relative, largest, reason)


@contextmanager
def _poisoned_memory(active: bool) -> Iterator[None]:
    """While active, memory that torch hands out without a value is NaN (or the largest integer)."""
    if not active:
        yield
        return
    memory: Any = torch.utils.deterministic  # its setting is a property that type stubs do not know
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        memory.fill_uninitialized_memory,
    )
    with warnings.catch_warnings():
        # Only the filling is wanted; that some operator has no deterministic form is nothing to warn of here.
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        memory.fill_uninitialized_memory = True
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            memory.fill_uninitialized_memory = before[2]


def overwrite(held: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """`held` with the values of another draw in the same memory, where shapes and strides allow it.

    `.data` leaves the version counter as it is, so that an output remembered by address and version is stale.
    """
    result = dict(values)
    for name, value in values.items():
        kept = held.get(name)
        if (
            isinstance(value, torch.Tensor)
            and isinstance(kept, torch.Tensor)
            and kept.shape == value.shape
            and kept.stride() == value.stride()
            and not _overlaps(kept)
        ):
            kept.data.copy_(value)
            result[name] = kept
    return result


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether elements share memory, as in an expanded tensor, which cannot be written."""
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor's bytes, flat: so NaN equals NaN."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).clone()


def mutated(inputs: Mapping[str, Any], before: Mapping[str, torch.Tensor], allowed: frozenset[str]) -> str:
    """Why inputs are not as they were (`before`: their bytes), or "" when all that changed is `allowed`."""
    for name, bits in before.items():
        if name not in allowed and not torch.equal(bits_of(inputs[name]), bits):
            return f"the kernel changed its input {name}, which `mutates` does not name"
    return ""


def _as_list(result: Any, inputs: Mapping[str, Any], mutates: frozenset[str]) -> list[Any]:
    if result is None:
        return [inputs[name] for name in sorted(mutates) if name in inputs]
    # Not by the class's own iteration, which may be the user's.
    if isinstance(result, tuple):
        return list(tuple.__iter__(result))
    return list(list.__iter__(result)) if isinstance(result, list) else [result]
