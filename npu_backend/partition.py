"""A graph of ATen nodes as a plan: NPU programs and host nodes, in an order that keeps what each one reads.

Sizes are numbers here. A graph with symbolic sizes gets one plan for each set of sizes that it meets.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import fx
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    unset_fake_temporarily,
)

import assay.npu_backend.rules  # noqa: F401 (registers the rules)
from assay.baselines.errors import InputError
from assay.npu_backend.codegen import Program
from assay.npu_backend.fusion import fuse, unfuse
from assay.npu_backend.interpreter import execute
from assay.npu_backend.layers import LayerGraph, prepare
from assay.npu_backend.lowering import Result, UnsupportedError, declare_input, lower_node
from assay.npu_backend.precision import with_precision
from assay.npu_backend.scheduling import ordered, over_weights, turns
from assay.npu_backend.tensor import Role
from assay.npu_backend.tiling import DoesNotFitError, tile
from assay.npu_backend.validation import VTCM_BYTES, validate

MOST_KNOWN = 1 << 16
"""Elements of a constant that a rule may look at."""


@dataclass(frozen=True)
class Settings:
    """What decides the programs of a graph."""

    strict: bool = False
    """Whether a node that would run on the host is an error."""
    without: tuple[str, ...] = ()
    """Fusion passes that are off."""
    vtcm_bytes: int = VTCM_BYTES
    precision: str = ""
    """Policy of storage (`precision.POLICIES`); empty: every tensor is stored in its own dtype."""


@dataclass(frozen=True)
class Fallback:
    """A node that runs on the host."""

    node: str
    op: str
    why: str
    line: str
    """Source line that wrote it; empty when nobody recorded it."""


@dataclass(frozen=True)
class NpuPart:
    """Nodes that run as one program."""

    program: Program
    graph: LayerGraph
    outputs: Mapping[fx.Node, str]
    """Node whose value others read -> its tensor."""
    inputs: Mapping[str, fx.Node]
    """Input or weight -> the node that gives it."""
    nodes: tuple[fx.Node, ...] = ()
    """The nodes, in order."""

    def run(self, memory: Mapping[fx.Node, Any], capacity: int) -> dict[fx.Node, torch.Tensor]:
        """Values of the outputs, by the interpreter."""
        # Some host operators give (1,) where their fake, and so the program, says ().
        given = {
            name: memory[node].detach().reshape(self.graph.tensors[name].shape) for name, node in self.inputs.items()
        }
        held = prepare(self.graph, given)
        if self.program.instructions:
            wanted = {t.name: held[t.name].contiguous() for t in self.program.tensors.values() if t.name in held}
            held |= execute(self.program, wanted, capacity=capacity)
        return {node: held[name] for node, name in self.outputs.items()}


@dataclass(frozen=True)
class HostPart:
    """One node that PyTorch runs."""

    node: fx.Node


@dataclass(frozen=True)
class Plan:
    """How a graph runs at one set of sizes."""

    parts: tuple[NpuPart | HostPart, ...]
    values: Mapping[fx.Node, Any]
    """Fake tensors and numbers: what each node gives."""
    fallbacks: tuple[Fallback, ...]
    constant: frozenset[fx.Node] = frozenset()
    """Nodes that depend on sizes alone, and those over weights that no rule lowers: the host computes them as it loads weights."""
    whole_on_host: bool = False
    """PyTorch runs the graph as it is: its sizes depend on data."""

    @property
    def programs(self) -> list[Program]:
        """Programs that have instructions."""
        return [part.program for part in self.parts if isinstance(part, NpuPart) and part.program.instructions]


def number(value: Any) -> Any:
    """A symbolic size as the number of the example that it was traced with; anything else as it is."""
    return value.node.hint if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) else value


def concrete_values(module: fx.GraphModule, arguments: Sequence[Any]) -> dict[fx.Node, Any]:
    """What every node gives, as fake tensors with the sizes of `arguments`, and numbers."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    found: dict[fx.Node, Any] = {}

    class Shapes(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            found[n] = super().run_node(n)
            return found[n]

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return number(value)
        sizes, steps = [number(size) for size in value.shape], [number(step) for step in value.stride()]
        with mode:
            return torch.empty_strided(sizes, steps, dtype=value.dtype, device=value.device)

    fakes = [fake(value) for value in arguments]
    with mode, torch.no_grad():
        Shapes(module).run(*fakes)
    return found


@dataclass
class _Planner:
    module: fx.GraphModule
    values: dict[fx.Node, Any]
    weights: Collection[str]
    settings: Settings
    name: str
    host: dict[fx.Node, str] = field(default_factory=dict)
    """Node -> why it runs on the host."""
    elements: dict[fx.Node, torch.Tensor] = field(default_factory=dict)
    """What nodes that depend on sizes alone give, as far as a rule asked."""

    def __post_init__(self) -> None:
        self.nodes = [n for n in self.module.graph.nodes if n.op == "call_function" and self._computes(n)]
        output = next(n for n in self.module.graph.nodes if n.op == "output")
        self.returned = set(output.all_input_nodes)
        self.constant = self._closed(lambda source: False)
        self.kept = self._closed(lambda source: self.role(source) is Role.WEIGHT)
        for node in self.nodes:
            if str(node.target).startswith("aten.as_strided"):
                self._keep_storage(node)

    def _computes(self, node: fx.Node) -> bool:
        """Whether a node gives tensors, or checks some: an assertion."""
        checks = node.is_impure() and any(_tensors(self.values.get(source)) for source in node.all_input_nodes)
        return checks or _tensors(self.values.get(node))

    def _keep_storage(self, node: fx.Node) -> None:
        """Views whose storage a node addresses are views on the host as well: a program gives each result its own."""
        source = node.args[0]
        while isinstance(source, fx.Node) and source.op == "call_function":
            before = source.args[0] if source.args else None
            if not isinstance(before, fx.Node) or not _share(self.values[source], self.values.get(before)):
                return
            for member in (node, source):
                self.refuse(member, "as_strided addresses the storage of a view")
            source = before

    def role(self, node: fx.Node) -> Role:
        """Weights are parameters, buffers and constants."""
        kept = node.op == "get_attr" or node.name in self.weights or node in self.constant
        return Role.WEIGHT if kept else Role.INPUT

    def _closed(self, given: Callable[[fx.Node], bool]) -> set[fx.Node]:
        """Nodes whose tensors come from each other, from sizes alone, and from what is `given`."""
        found: set[fx.Node] = set()
        for node in self.nodes:
            sources = [s for s in node.all_input_nodes if _tensors(self.values.get(s))]
            if all(source in found or given(source) for source in sources) and not ordered(node):
                found.add(node)
        return found

    def refuse(self, node: fx.Node, why: str) -> list[fx.Node]:
        """Gives a node to the host: at every call, or, with all that it is made from, once as weights are loaded.

        Returns what became a weight by it.
        """
        if node not in self.kept:
            self.host[node] = why
            return []
        found: list[fx.Node] = []
        waiting = [node]
        while waiting:
            here = waiting.pop()
            if here in self.kept and here not in self.constant:
                self.constant.add(here)
                self.host.pop(here, None)
                found.append(here)
                waiting += here.all_input_nodes
        return found

    def known(self, node: fx.Node) -> numpy.ndarray[Any, Any] | None:
        """The whole numbers of a node that depends on sizes alone; None for any other, and for more than `MOST_KNOWN`."""
        with unset_fake_temporarily():  # a graph may be compiled while PyTorch traces with fake tensors
            found = self._elements(node)
            return None if found is None or found.is_floating_point() or found.is_complex() else found.cpu().numpy()

    def _elements(self, node: fx.Node) -> torch.Tensor | None:
        value = self.values.get(node)
        if node not in self.constant or not isinstance(value, torch.Tensor) or value.numel() > MOST_KNOWN:
            return None
        if node not in self.elements:
            read = {
                source: self._elements(source) if _tensors(self.values.get(source)) else self.values[source]
                for source in node.all_input_nodes
            }
            if any(found is None for found in read.values()):
                return None
            args, kwargs = fx.map_arg((node.args, node.kwargs), read.__getitem__)
            self.elements[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        return self.elements[node]

    def on_host(self, node: fx.Node) -> bool:
        """Whether PyTorch computes a node."""
        return node in self.host or node in self.constant

    def sort(self) -> None:
        """Finds the nodes that no rule lowers."""
        scratch = LayerGraph("scratch")
        names: dict[fx.Node, Result] = {}
        for node in self.nodes:
            if self.on_host(node):
                continue
            try:
                if not _tensors(self.values.get(node)):
                    raise UnsupportedError("it gives no tensor")
                self._operands(scratch, names, node)
                names[node] = lower_node(node, scratch, names, self.values, self.known)
            except UnsupportedError as error:
                for made in self.refuse(node, str(error)):
                    names.pop(made, None)  # whoever reads it from here on reads a weight

    def _operands(self, graph: LayerGraph, names: dict[fx.Node, Result], node: fx.Node) -> dict[str, fx.Node]:
        found = {}
        for source in node.all_input_nodes:
            value = self.values[source]
            if source not in names and isinstance(value, torch.Tensor):
                name = declare_input(graph, source.name, value, self.role(source))
                names[source] = name
                found[name] = source
        return found

    def scheduled(self) -> list[list[fx.Node]]:
        """The turns of this graph's nodes (`scheduling.turns`)."""
        host = {node for node in self.nodes if self.on_host(node)}
        sources = {n: [s for s in n.all_input_nodes if _tensors(self.values.get(s))] for n in self.nodes}
        weights = {s for read in sources.values() for s in read if s not in self.host and self.role(s) is Role.WEIGHT}
        return turns(self.nodes, host, over_weights(sources, host, weights))

    def part(self, nodes: list[fx.Node], number: int) -> NpuPart:
        """The program of nodes that run together. Raises `DoesNotFitError` with the layer's output's node."""
        graph = LayerGraph(f"{self.name}_{number}")
        names: dict[fx.Node, Result] = {}
        inputs: dict[str, fx.Node] = {}
        for node in nodes:
            inputs |= self._operands(graph, names, node)
            names[node] = lower_node(node, graph, names, self.values, self.known)
        inside = set(nodes)
        outputs = {
            node: str(names[node])
            for node in nodes
            if isinstance(names[node], str)
            and (node in self.returned or any(user not in inside for user in node.users))
        }
        graph.mark_outputs(outputs.values())
        fused = fuse(graph, without=self.settings.without)
        if self.settings.precision:
            fused = with_precision(fused, self.settings.precision)
        while True:
            try:
                program = tile(fused, capacity=self.settings.vtcm_bytes)
                break
            except DoesNotFitError as error:
                if error.length == 1:
                    raise DoesNotFitError(fused.origin.get(error.out, error.out), 1) from None
                unfuse(fused, error.out, error.length)
        validate(program, capacity=self.settings.vtcm_bytes)
        return NpuPart(program, fused, outputs, inputs, tuple(nodes))


def plan(
    module: fx.GraphModule,
    arguments: Sequence[Any],
    *,
    weights: Collection[str] = (),
    settings: Settings | None = None,
    name: str = "graph",
) -> Plan:
    """Programs and host nodes of a graph at the sizes of `arguments` (tensors, real or fake, and numbers).

    `weights`: names of the placeholders that keep their values from call to call. Raises `InputError` in strict mode for the
    first node that would run on the host, with its operator and source line.
    """
    settings = settings or Settings()
    try:
        values = concrete_values(module, arguments)
    except Exception as error:
        op, why = "the graph", f"its shapes cannot be traced: {type(error).__name__}"
        if isinstance(error, DynamicOutputShapeException | DataDependentOutputException):
            op, why = str(error.func), "a size depends on data"
        if settings.strict:
            raise InputError(f"{op} would run on the host ({why}): rewrite it or leave strict mode.") from None
        return Plan((), {}, (Fallback("", op, why, ""),), whole_on_host=True)
    planner = _Planner(module, values, weights, settings, name)
    while True:
        planner.sort()
        if settings.strict and planner.host:
            node, why = next(iter(planner.host.items()))
            raise InputError(
                f"{_op(node)} would run on the host ({why}), written at {source_line(node) or 'an unknown line'}: "
                "rewrite it or leave strict mode."
            )
        parts: list[NpuPart | HostPart] = []
        try:
            for turn in planner.scheduled():
                if planner.on_host(turn[0]):
                    parts.append(HostPart(turn[0]))
                else:
                    parts.append(planner.part(turn, len(parts)))
        except DoesNotFitError as error:
            node = next(n for n in planner.nodes if n.name == error.out)
            planner.refuse(node, "no tile of it fits VTCM")
            continue
        fallbacks = [
            Fallback(n.name, _op(n), why, source_line(n))
            for n, why in planner.host.items()
            if n.target is not operator.getitem  # it goes with the node that it takes a part of
        ]
        return Plan(tuple(parts), planner.values, tuple(fallbacks), frozenset(planner.constant))


def run_plan(module: fx.GraphModule, made: Plan, arguments: Sequence[Any], settings: Settings) -> list[Any]:
    """Outputs of the graph: programs by the interpreter, host nodes by PyTorch."""
    if made.whole_on_host:
        return list(module(*arguments))
    memory: dict[fx.Node, Any] = {}
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    memory.update(zip(placeholders, arguments, strict=True))
    for node in module.graph.nodes:
        if node.op == "get_attr":
            memory[node] = getattr(module, node.target)
        elif node.op == "call_function" and not _tensors(made.values.get(node)):
            memory[node] = made.values.get(node)
    for part in made.parts:
        if isinstance(part, NpuPart):
            for node, value in part.run(memory, settings.vtcm_bytes).items():
                memory[node] = _laid_out(value, made.values[node])
        else:
            args, kwargs = fx.map_arg((part.node.args, part.node.kwargs), memory.__getitem__)
            memory[part.node] = part.node.target(*args, **kwargs)  # type: ignore[operator]
    output = next(node for node in module.graph.nodes if node.op == "output")
    return list(fx.map_arg(output.args[0], memory.__getitem__))


def _laid_out(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A value with the strides that PyTorch would give, which views on the host rely on."""
    # A step of 0 repeats what is stored once.
    once = value[tuple(slice(0, 1) if step == 0 else slice(None) for step in like.stride())]
    out = torch.empty_strided(tuple(once.shape), like.stride(), dtype=value.dtype)
    return out.copy_(once).expand(like.shape)


def _share(view: Any, base: Any) -> bool:
    """Whether two tensors are one storage."""
    if not isinstance(view, torch.Tensor) or not isinstance(base, torch.Tensor):
        return False
    return bool(view.untyped_storage()._cdata == base.untyped_storage()._cdata)


def _tensors(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (
        isinstance(value, list | tuple) and any(isinstance(item, torch.Tensor) for item in value)
    )


def _op(node: fx.Node) -> str:
    return str(node.target) if isinstance(node.target, torch._ops.OpOverload) else getattr(node.target, "__name__", "?")


def source_line(node: fx.Node) -> str:
    """`file:line: code` of the last frame that wrote a node; empty when nobody recorded it."""
    trace = node.meta.get("stack_trace") or ""
    lines = [line.strip() for line in trace.strip().splitlines()]
    frames = [place for place, line in enumerate(lines) if line.startswith('File "')]
    if not frames:
        return ""
    at = frames[-1]
    file, _, rest = lines[at].removeprefix('File "').partition('", line ')
    code = lines[at + 1] if at + 1 < len(lines) else ""
    return f"{file}:{rest.split(',')[0]}: {code}"
