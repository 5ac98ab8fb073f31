"""Layers: instructions over whole tensors, before they are cut into tiles.

A layer is an instruction of the set whose operands and output are tensors in DRAM. Lowering writes layers, fusion rewrites
them, tiling turns them into a program. A layer with `fused` rides on the layer directly before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch

from assay.baselines.errors import InputError
from assay.npu_backend.codegen import Program
from assay.npu_backend.interpreter import step, storage
from assay.npu_backend.isa import Instruction
from assay.npu_backend.tensor import Role, Shape, Tensor


@dataclass
class LayerGraph:
    """Layers in order, their tensors, and the weights that are made from other weights before the program runs."""

    name: str
    tensors: dict[str, Tensor] = field(default_factory=dict)
    layers: list[Instruction] = field(default_factory=list)
    constants: dict[str, float] = field(default_factory=dict)
    """Weight -> the number that fills it."""
    preamble: list[Instruction] = field(default_factory=list)
    """Layers over weights alone. The host runs them once, when the weights are loaded."""
    origin: dict[str, str] = field(default_factory=dict)
    """Output of a layer -> the graph node that it was lowered from."""

    def declare(self, name: str, shape: Shape, dtype: str, role: Role) -> str:
        """Adds a tensor; a name that is taken gets a number."""
        free, number = name, 1
        while free in self.tensors:
            free, number = f"{name}_{number}", number + 1
        self.tensors[free] = Tensor(free, shape, dtype, role)
        return free

    def constant(self, value: float, shape: Shape, dtype: str) -> str:
        """A weight filled with one number; the same one for the same request.

        Raises `InputError` for a finite number outside the dtype's range: it would be stored as another one.
        """
        if dtype != "bool" and math.isfinite(value) and not _holds(dtype, value):
            raise InputError(f"{dtype} does not hold {value!r}.")
        for name, known in self.constants.items():
            tensor = self.tensors[name]
            if (tensor.shape, tensor.dtype) == (shape, dtype) and repr(known) == repr(value):
                return name
        name = self.declare("constant", shape, dtype, Role.WEIGHT)
        self.constants[name] = value
        return name

    def add(self, kind: type[Instruction], name: str, origin: str, **fields: object) -> str:
        """Appends a layer and returns its output. Raises `InputError` for operands that do not fit."""
        free = self.declare(name, (), "bool", Role.INTERMEDIATE)
        try:
            layer = kind(out=free, **fields)  # type: ignore[arg-type]
            shape, dtype = layer.result(self.tensors)
        except BaseException:
            del self.tensors[free]
            raise
        self.tensors[free] = Tensor(free, shape, dtype, Role.INTERMEDIATE)
        self.layers.append(layer)
        self.origin[free] = origin
        return free

    def is_weight(self, name: str) -> bool:
        """Whether a tensor is the same at every call."""
        return self.tensors[name].role == Role.WEIGHT

    def readers(self, name: str) -> list[Instruction]:
        """Layers that read a tensor."""
        return [layer for layer in self.layers if name in layer.reads()]

    def producer(self, name: str) -> Instruction | None:
        """The layer that writes a tensor; None for inputs and weights."""
        return next((layer for layer in self.layers if layer.out == name), None)

    def mark_outputs(self, names: Iterable[str]) -> None:
        """Makes intermediate tensors outputs of the program."""
        for name in names:
            if self.tensors[name].role == Role.INTERMEDIATE:
                self.tensors[name] = replace(self.tensors[name], role=Role.OUTPUT)

    def prune(self) -> None:
        """Drops layers that nobody reads, and tensors that no layer names."""
        needed = {name for name, tensor in self.tensors.items() if tensor.role in (Role.OUTPUT, Role.INPUT)}
        for attribute in ("layers", "preamble"):
            kept: list[Instruction] = []
            for layer in reversed(getattr(self, attribute)):
                if layer.out in needed or (attribute == "preamble" and self.tensors[layer.out].role == Role.OUTPUT):
                    kept.append(layer)
                    needed.update(layer.reads())
            setattr(self, attribute, kept[::-1])

    def copy(self) -> LayerGraph:
        """A graph that can be rewritten without changing this one."""
        return LayerGraph(
            self.name,
            dict(self.tensors),
            list(self.layers),
            dict(self.constants),
            list(self.preamble),
            dict(self.origin),
        )


def _holds(dtype: str, value: float) -> bool:
    kind = storage(dtype)
    limits = torch.finfo(kind) if kind.is_floating_point else torch.iinfo(kind)
    return limits.min <= value <= limits.max


def prepare(graph: LayerGraph, arguments: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """`arguments` and the weights that come from constants and from the preamble."""
    memory = dict(arguments)
    for name, value in graph.constants.items():
        tensor = graph.tensors[name]
        memory[name] = torch.full(tensor.shape, value, dtype=storage(tensor.dtype))
    return _run(graph, graph.preamble, memory)


def run_layers(graph: LayerGraph, arguments: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """All tensors, computed layer by layer without tiles: what the tiled program must give too."""
    return _run(graph, graph.layers, prepare(graph, arguments))


def _run(graph: LayerGraph, layers: Iterable[Instruction], memory: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    table = Program(graph.name, graph.tensors, ())
    for layer in layers:
        step(table, layer, memory)
    return memory
