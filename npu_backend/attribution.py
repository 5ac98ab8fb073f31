"""Which layer of the model each instruction belongs to: its module's path, its operator, and the line that wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils.flop_counter import flop_registry

from assay.npu_backend.codegen import Program
from assay.npu_backend.isa import Conv2d, LoadTile, MatMul, StoreTile
from assay.npu_backend.partition import Fallback, NpuPart, Plan, source_line

_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "convolution"})
_FOLDED = frozenset({"_native_batch_norm_legit_no_training", "getitem", "add", "mul", "sub", "div", "view", "relu"})
"""Nodes that fusion folds into the product before them, so that the product's layer bears their name."""
_INDEX = re.compile(r"\[['\"]?([^\]'\"]+)['\"]?\]")


@dataclass(frozen=True, order=True)
class Source:
    """A layer as people know it."""

    path: str
    """Dotted path of the module; empty for what the model's own `forward` writes."""
    op: str
    """Operator without namespace and overload, such as `convolution`; `backward` is appended in a backward graph."""
    line: str = ""

    @property
    def label(self) -> str:
        """`features.0.0 convolution`: the same from compile to compile, so that two of them can be compared."""
        return f"{self.path} {self.op}" if self.path else self.op


def sources_of(part: NpuPart, nodes: Mapping[str, fx.Node], *, backward: bool) -> list[Source]:
    """The layer of each instruction of a part's program.

    A computation belongs to the node that its layer was lowered from, a load to the first computation that reads its tile, a
    store to what it stores, and a fused instruction to what it rides on.
    """
    program = part.program
    owner: dict[str, Source] = {}
    found: list[Source | None] = []
    for instruction in program.instructions:
        source: Source | None = None
        if isinstance(instruction, StoreTile) or instruction.fused:
            source = owner.get(instruction.reads()[0])
        if source is None and not isinstance(instruction, LoadTile):
            stem = instruction.out.rpartition(".")[0] or instruction.out
            node = nodes.get(part.graph.origin.get(stem, ""))
            product = isinstance(instruction, MatMul | Conv2d)
            source = source_of(_product(node) if product else node, backward=backward) if node is not None else None
            # A layer that a pass made without saying from what belongs to what it reads.
            source = source or next((owner[n] for n in instruction.reads() if n in owner), None)
        if source is not None:
            owner[instruction.out] = source
        found.append(source)
    return _filled(program, found)


def _filled(program: Program, found: Sequence[Source | None]) -> list[Source]:
    """Every load with the layer of its first reader; what still has none with that of the instruction before it."""
    first: dict[str, Source] = {}
    for instruction, source in zip(reversed(program.instructions), reversed(found), strict=True):
        # A load may read what another load brought, so that both belong to whoever reads the second.
        source = source or first.get(instruction.out)
        if source is not None:
            first.update(dict.fromkeys(instruction.reads(), source))
    whole: list[Source] = []
    for instruction, source in zip(program.instructions, found, strict=True):
        before = whole[-1] if whole else Source("", "program")
        whole.append(source or first.get(instruction.out) or before)
    return whole


def source_of(node: fx.Node, *, backward: bool = False) -> Source:
    """The layer of a graph node."""
    target = node.target
    op = target._schema.name.partition("::")[2] if isinstance(target, torch._ops.OpOverload) else node.name
    return Source(module_path(node), f"{op} backward" if backward else op, source_line(node))


def module_path(node: fx.Node) -> str:
    """Dotted path of the innermost module that wrote a node; empty when nobody recorded it."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    for entry in reversed(list(stack.values())):
        path = entry[0] if isinstance(entry, tuple) else str(entry)
        path = re.sub(r"^L\[['\"]\w+['\"]\]\.?", "", path)  # the model, by whatever name its `forward` has for itself
        path = _INDEX.sub(r".\1", path).replace("._modules.", ".").removeprefix("_modules.").strip(".")
        if path:
            return path
    return ""


def _product(node: fx.Node) -> fx.Node:
    """The product that was folded into a node, when what lies between are folded nodes alone; else the node."""
    here = node
    for _ in range(8):
        if _packet(here) in _PRODUCTS:
            return here
        if _packet(here) not in _FOLDED or not here.all_input_nodes:
            return node
        here = here.all_input_nodes[0]
    return node


def _packet(node: fx.Node) -> str:
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name.partition("::")[2]
    return getattr(target, "__name__", "")


def host_macs(made: Plan, module: fx.GraphModule, fallbacks: Sequence[Fallback]) -> dict[str, int]:
    """Multiply-accumulates of the nodes that run on the host, by node, from PyTorch's own formulas (half of its FLOP count)."""
    names = {entry.node for entry in fallbacks}
    found = {}
    for node in module.graph.nodes:
        target = node.target
        if node.name not in names and not made.whole_on_host:
            continue
        formula = flop_registry.get(target._overloadpacket) if isinstance(target, torch._ops.OpOverload) else None
        if formula is None:
            continue
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: _value(made, n))
        try:
            found[node.name] = int(formula(*args, **kwargs, out_val=_value(made, node))) // 2
        except Exception:  # a formula that does not know these sizes: symbolic ones of a data-dependent graph
            continue
    return found


def _value(made: Plan, node: fx.Node) -> Any:
    return made.values.get(node, node.meta.get("val"))
