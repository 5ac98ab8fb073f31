"""Guards: for which inputs a registered kernel runs, inferred from the cases that its declaration has verified.

A kernel is trusted where its contract looked: dtypes, numbers of dimensions and contiguity as declared, sizes between the
smallest and the largest declared one. The first dimension of a tensor with several is the batch and free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.baselines.errors import InputError
from assay.kernels.contract import draw
from assay.kernels.declaration import Declaration

_SEED = 20_260_202


@dataclass(frozen=True)
class TensorGuard:
    """What one input tensor must be."""

    name: str
    dtypes: tuple[torch.dtype, ...]
    sizes: Mapping[int, tuple[tuple[int, int], ...]]
    """Number of dimensions -> (smallest, largest) of each; a free one is (0, 0)."""
    contiguous: bool

    def reason(self, tensor: torch.Tensor) -> str:
        """Why it is refused, or ""."""
        if tensor.dtype not in self.dtypes:
            return f"{self.name}: dtype {_word(tensor.dtype)}"
        limits = self.sizes.get(tensor.dim())
        if limits is None:
            return f"{self.name}: {tensor.dim()} dimensions"
        for place, (low, high) in enumerate(limits):
            if high and not low <= tensor.shape[place] <= high:
                return f"{self.name}: dimension {place} is outside {_range(low, high)}"
        if self.contiguous and not tensor.is_contiguous():
            return f"{self.name}: not contiguous"
        return ""

    def words(self) -> str:
        """The guard in a sentence."""
        shapes = []
        for dimensions, limits in sorted(self.sizes.items()):
            bound = [f"dimension {p} of {_range(low, high)}" for p, (low, high) in enumerate(limits) if high]
            noun = "dimension" if dimensions == 1 else "dimensions"
            shapes.append(f"{dimensions} {noun}" + (f", {', '.join(bound)}" if bound else ""))
        layout = ", contiguous" if self.contiguous else ""
        return f"`{self.name}` is {' or '.join(map(_word, self.dtypes))} with {' or '.join(shapes)}{layout}"


@dataclass(frozen=True)
class Guards:
    """All of them."""

    device: str
    tensors: tuple[TensorGuard, ...]
    values: Mapping[str, tuple[Any, ...]]
    """Inputs that are no tensors and no fractions -> the values declared."""

    @classmethod
    def of(cls, cases: Sequence[Mapping[str, Any]], device: str) -> Guards:
        """From the inputs of every declared case (fake tensors will do)."""
        tensors, values = [], {}
        for name in cases[0]:
            seen = [case[name] for case in cases if name in case]
            given = [value for value in seen if isinstance(value, torch.Tensor)]
            if given:
                tensors.append(_tensor_guard(name, given))
            elif not any(isinstance(value, float) for value in seen):
                values[name] = tuple(dict.fromkeys(tuple(v) if isinstance(v, list) else v for v in seen))
        return cls(device, tuple(tensors), values)

    def reason(self, values: Mapping[str, Any]) -> str:
        """Why a call takes the fallback, or "". Reads metadata alone."""
        for guard in self.tensors:
            value = values[guard.name]
            if value is None:
                continue
            if value.device.type != self.device:
                return f"{guard.name}: on {value.device.type}"
            if found := guard.reason(value):
                return found
        for name, allowed in self.values.items():
            value = values[name]
            if (tuple(value) if isinstance(value, list) else value) not in allowed:
                return f"{name}: a value that no case has"
        return ""

    def words(self) -> list[str]:
        """The guards in sentences."""
        found = [f"every tensor is on {self.device}", *(guard.words() for guard in self.tensors)]
        return found + [f"`{name}` is {' or '.join(map(repr, given))}" for name, given in self.values.items()]


def layouts_of(declaration: Declaration, device: torch.device) -> list[dict[str, Any]]:
    """The inputs of every declared case, as fake tensors where the declaration's `inputs` runs on them.

    Raises `InputError` when two cases have inputs of different names: an operator has one schema.
    """
    found = []
    for parameters in (*declaration.cases.values(), *declaration.contract_cases.values()):
        try:
            with FakeTensorMode():
                values = draw(declaration, parameters, _SEED, device)
        except (InputError, RuntimeError):
            values = {name: _outline(v) for name, v in draw(declaration, parameters, _SEED, device).items()}
        found.append(values)
    if any(set(values) != set(found[0]) for values in found):
        raise InputError(f"{declaration.name}: its cases have inputs of different names: give all cases the same ones.")
    return found


def _outline(value: Any) -> Any:
    """A tensor without its memory: the cases of a sweep do not fit a device together."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _tensor_guard(name: str, given: Sequence[torch.Tensor]) -> TensorGuard:
    sizes: dict[int, tuple[tuple[int, int], ...]] = {}
    for dimensions in {tensor.dim() for tensor in given}:
        shapes = [tensor.shape for tensor in given if tensor.dim() == dimensions]
        limits = [(min(column), max(column)) for column in zip(*shapes, strict=True)]
        sizes[dimensions] = tuple(
            (0, 0) if place == 0 and dimensions > 1 else limit for place, limit in enumerate(limits)
        )
    dtypes = tuple(dict.fromkeys(tensor.dtype for tensor in given))
    return TensorGuard(name, dtypes, sizes, all(tensor.is_contiguous() for tensor in given))


def _range(low: int, high: int) -> str:
    return f"{low:,} to {high:,} elements" if low < high else f"{low:,} elements"


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
