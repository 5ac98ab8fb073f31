"""From ATen nodes to layers: the registry of rules and what a rule is given.

A rule sees one node with its sizes as numbers, appends layers to the graph and returns the name of the result, or a tuple
of names for a node with several results. It raises `UnsupportedError` for what the instruction set cannot express: the node then
runs on the host.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import fx

from assay.baselines.errors import InputError
from assay.npu_backend.isa import Broadcast, Dequantize, Instruction, Reshape
from assay.npu_backend.layers import LayerGraph
from assay.npu_backend.tensor import BITS, FLOATS, Role, Shape


class UnsupportedError(Exception):
    """The instruction set does not express a node; the message says why."""


Result = str | tuple[str | None, ...]
RuleBody = Callable[["Call"], Result]
Known = Callable[[fx.Node], numpy.ndarray[Any, Any] | None]


@dataclass(frozen=True)
class Rule:
    """How one ATen operator becomes layers."""

    op: str
    """Overload, such as `aten.mm.default`."""
    gives: tuple[str, ...]
    """Opcodes that it writes."""
    limits: str
    """What it leaves to the host, for the table in the documentation."""
    body: RuleBody


FAULT = "its rule fails"
"""How the reason begins when a rule raises what no rule should."""
RULES: dict[str, Rule] = {}
"""Overload -> rule; filled by the modules of `rules/`."""


def rule(*ops: str, gives: Sequence[str], limits: str = "") -> Callable[[RuleBody], RuleBody]:
    """Registers a rule for overloads; those of another namespace than `aten` are `namespace::name.overload`."""

    def register(body: RuleBody) -> RuleBody:
        for op in ops:
            name = op.replace("::", ".") if "::" in op else f"aten.{op}"
            assert name not in RULES, name
            RULES[name] = Rule(name, tuple(gives), limits, body)
        return body

    return register


@dataclass
class Call:
    """One node, as a rule sees it."""

    node: fx.Node
    args: tuple[Any, ...]
    """Arguments by the operator's schema, defaults filled in; tensors are names in the graph."""
    value: Any
    """A fake tensor, or a sequence of them, with the sizes as numbers: what the node gives in PyTorch."""
    used: frozenset[int]
    """Which of several results somebody reads."""
    graph: LayerGraph
    values: Mapping[fx.Node, Any]
    """What every node of the graph gives."""
    known: Known
    """The whole numbers of a node that depends on sizes alone; None for any other."""

    def emit(self, kind: type[Instruction], **fields: object) -> str:
        """Appends a layer; returns its output's name."""
        return self.graph.add(kind, self.node.name, self.node.name, **fields)

    def shape(self, name: str) -> Shape:
        """Shape of an operand."""
        return self.graph.tensors[name].shape

    def dtype(self, name: str) -> str:
        """Dtype of an operand."""
        return self.graph.tensors[name].dtype

    def floating(self, name: str) -> None:
        """Raises `UnsupportedError` unless an operand is floating."""
        if self.dtype(name) not in FLOATS:
            raise UnsupportedError(f"{self.dtype(name)} is not floating")

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """An operand in another shape, or itself when it has that shape."""
        shape = tuple(int(size) for size in shape)
        return name if self.shape(name) == shape else self.emit(Reshape, x=name, shape=shape)

    def permute(self, name: str, order: Sequence[int]) -> str:
        """An operand with its dimensions in another order."""
        before = self.shape(name)
        order = tuple(axis % len(before) for axis in order)
        if order == tuple(range(len(before))):
            return name
        shape = tuple(before[axis] for axis in order)
        return self.emit(Reshape, x=name, shape=shape, function="permute", order=order)

    def broadcast(self, name: str, shape: Sequence[int]) -> str:
        """An operand repeated to a shape, or itself when it has that shape."""
        shape = tuple(int(size) for size in shape)
        return name if self.shape(name) == shape else self.emit(Broadcast, x=name, shape=shape)

    def cast(self, name: str, dtype: str) -> str:
        """An operand in a floating dtype, or itself when it has that dtype. Raises `UnsupportedError` for other changes."""
        if self.dtype(name) == dtype:
            return name
        if dtype not in FLOATS or self.dtype(name) not in Dequantize.TAKES:
            raise UnsupportedError(f"a change of dtype from {self.dtype(name)} to {dtype}")
        return self.emit(Dequantize, x=name, dtype=dtype, scale=(1.0,), zero_point=(0,))

    def given(self, place: int) -> Any:
        """An argument as PyTorch sees it: a fake tensor, or a number."""
        argument = self.node.args[place]
        return self.values[argument] if isinstance(argument, fx.Node) else argument

    def number(self, value: float, dtype: str) -> str:
        """A number as a tensor without dimensions."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UnsupportedError(f"{value!r} is not a number")
        if dtype not in FLOATS and not isinstance(value, int):
            raise UnsupportedError(f"{value!r} with {dtype}")
        return self.graph.constant(value, (), dtype)


def dtype_of(value: torch.Tensor) -> str:
    """Name of a tensor's dtype. Raises `UnsupportedError` for one that no instruction knows."""
    name = str(value.dtype).removeprefix("torch.")
    if name not in BITS:
        raise UnsupportedError(f"no instruction knows {name}")
    return name


def check_value(value: torch.Tensor) -> None:
    """Raises `UnsupportedError` for tensors that cannot lie in the NPU's memory."""
    dtype_of(value)
    if value.layout != torch.strided or value.device.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"a {value.layout} tensor on {value.device.type}")
    if value.numel() == 0:
        raise UnsupportedError("a tensor without elements")


def declare_input(graph: LayerGraph, name: str, value: torch.Tensor, role: Role) -> str:
    """Makes a value from outside an operand."""
    check_value(value)
    return graph.declare(name, tuple(int(size) for size in value.shape), dtype_of(value), role)


def lower_node(
    node: fx.Node,
    graph: LayerGraph,
    names: Mapping[fx.Node, Result],
    values: Mapping[fx.Node, Any],
    known: Known = lambda node: None,
) -> Result:
    """Lowers one node and checks that shape and dtype are what PyTorch says.

    Raises `UnsupportedError`; the graph is then as it was.
    """
    if node.target is operator.getitem:
        source, place = node.args
        assert isinstance(source, fx.Node)
        found = names.get(source)
        if not isinstance(found, tuple) or not isinstance(place, int) or found[place] is None:
            raise UnsupportedError("its source is on the host")
        return str(found[place])
    registered = RULES.get(str(node.target))
    if registered is None:
        raise UnsupportedError("there is no rule for it")
    value = values[node]
    if isinstance(value, torch.Tensor):
        check_value(value)
    layers, tensors, constants = len(graph.layers), set(graph.tensors), set(graph.constants)
    try:
        call = Call(node, _arguments(node, names, values), value, _used(node), graph, values, known)
        result = registered.body(call)
        _check_result(graph, result, value)
    except Exception as error:
        del graph.layers[layers:]
        for name in set(graph.tensors) - tensors:
            del graph.tensors[name]
        for name in set(graph.constants) - constants:
            del graph.constants[name]
        if isinstance(error, UnsupportedError | InputError):
            raise UnsupportedError(str(error)) from None
        # A fault of ours costs the node its place on the NPU, not the user his run; conformance counts it as an error.
        raise UnsupportedError(f"{FAULT} ({type(error).__name__}: {' '.join(str(error).split())[:200]})") from error
    return result


def _used(node: fx.Node) -> frozenset[int]:
    places = (user.args[1] for user in node.users if user.target is operator.getitem)
    return frozenset(place for place in places if isinstance(place, int))


def _arguments(node: fx.Node, names: Mapping[fx.Node, Result], values: Mapping[fx.Node, Any]) -> tuple[Any, ...]:
    """Arguments in the order of the schema."""

    def concrete(argument: fx.Node) -> Any:
        value = values[argument]
        if not isinstance(value, torch.Tensor):
            return value
        name = names.get(argument)
        if not isinstance(name, str):
            raise UnsupportedError(f"{argument.name} is not on the NPU")
        return name

    target = node.target
    assert isinstance(target, torch._ops.OpOverload)
    args = list(fx.map_arg(node.args, concrete))
    kwargs = dict(fx.map_arg(node.kwargs, concrete))
    for place, argument in enumerate(target._schema.arguments):
        if place >= len(args):
            args.append(kwargs.get(argument.name, argument.default_value))
    return tuple(args)


def _check_result(graph: LayerGraph, result: Result, value: Any) -> None:
    pairs = [(result, value)] if isinstance(result, str) else list(zip(result, value, strict=True))
    for name, want in pairs:
        if name is None:
            continue
        check_value(want)
        tensor = graph.tensors[str(name)]
        if tensor.shape != tuple(want.shape) or tensor.dtype != dtype_of(want):
            found = f"{tuple(want.shape)} {dtype_of(want)}"
            raise UnsupportedError(f"PyTorch gives {found}, the instructions {tensor.shape} {tensor.dtype}")
