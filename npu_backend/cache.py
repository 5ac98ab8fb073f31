"""Plans on disk: found again by the graph, its sizes, the settings and the compiler, so that they need not be made again.

An entry is one file: the SHA-256 of what follows on the first line, then JSON. It is written atomically and read strictly; one
that is damaged is named in a warning and made anew. No entry is ever executed: programs are data.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from assay.baselines.errors import AssayError, InputError
from assay.baselines.record import write_atomically
from assay.npu_backend.codegen import Program, dump_program, parse_program
from assay.npu_backend.layers import LayerGraph
from assay.npu_backend.partition import (
    Fallback,
    HostPart,
    NpuPart,
    Plan,
    Settings,
    number,
    plan,
    source_line,
)
from assay.npu_backend.source import compiler_digest

FOLDER, MEGABYTES = "ASSAY_NPU_CACHE", "ASSAY_NPU_CACHE_MB"
DEFAULT_MEGABYTES = 512
VERSION = 1
_KEPT = 0.9
"""Share of the bound that is left after entries were removed, so that not every store removes one."""


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)


@dataclass(frozen=True)
class PlanCache:
    """A folder of plans, shared by processes."""

    root: Path
    max_bytes: int = DEFAULT_MEGABYTES << 20
    told: Callable[[str], None] = field(default=_warn, compare=False)
    """Is told of what is damaged or cannot be used."""

    def plan(self, module: fx.GraphModule, arguments: Sequence[Any], **how: Any) -> Plan:
        """As `partition.plan` with the options `how`: the plan that is kept for this graph at these sizes, else a new one, which
        is then kept."""
        key = key_of(module, arguments, **how)
        place = self.root / key[:2] / f"{key}.json"
        kept = self._read(place, module)
        if kept is not None:
            return kept
        made = plan(module, arguments, **how)
        if not made.whole_on_host:
            self._write(place, made)
        return made

    def _read(self, place: Path, module: fx.GraphModule) -> Plan | None:
        try:
            data = place.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.told(f"the plan {place} cannot be read ({error.strerror}): it is made anew.")
            return None
        try:
            digest, _, text = data.partition(b"\n")
            if digest.decode() != hashlib.sha256(text).hexdigest():
                raise InputError("it does not match its digest.")
            found = _plan(json.loads(text), module)
        except (AssayError, ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError) as error:
            self.told(f"the plan {place} is damaged ({str(error)[:120]}): it is made anew.")
            return None
        with suppress(OSError):
            os.utime(place)  # the least recently used go first
        return found

    def _write(self, place: Path, made: Plan) -> None:
        try:
            text = json.dumps(_document(made), allow_nan=False).encode()
        except (TypeError, ValueError):  # what JSON cannot say, such as an infinity: such a plan is made each time
            return
        try:
            write_atomically(place, hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
            self._prune()
        except (AssayError, OSError) as error:
            self.told(f"the plan cannot be kept: {error}")

    def _prune(self) -> None:
        """Remove the least recently used entries while there are more bytes than the bound."""
        found = []
        for path in self.root.glob("??/*.json"):
            with suppress(OSError):
                state = path.stat()
                found.append((state.st_mtime_ns, state.st_size, path))
        size = sum(entry[1] for entry in found)
        if size <= self.max_bytes:
            return
        for _, one, path in sorted(found):
            if size <= _KEPT * self.max_bytes:
                return
            path.unlink(missing_ok=True)
            size -= one


def cache_at(folder: PlanCache | str | os.PathLike[str] | None) -> PlanCache | None:
    """The cache in a folder, else in that of the environment variable ASSAY_NPU_CACHE; None without either. A cache is itself.

    Raises `InputError` for a bound in ASSAY_NPU_CACHE_MB that is no number of megabytes.
    """
    if isinstance(folder, PlanCache):
        return folder
    where = folder or os.environ.get(FOLDER)
    if not where:
        return None
    bound = os.environ.get(MEGABYTES) or str(DEFAULT_MEGABYTES)
    if not bound.isdecimal() or int(bound) == 0:
        raise InputError(f"{MEGABYTES} is {bound[:40]!r}: give a whole number of megabytes.")
    return PlanCache(Path(where).expanduser(), int(bound) << 20)


def plan_with(cache: PlanCache | None) -> Callable[..., Plan]:
    """The function that makes plans: the cache's, or `partition.plan` itself."""
    return plan if cache is None else cache.plan


def key_of(
    module: fx.GraphModule, arguments: Sequence[Any], *, weights: Collection[str], settings: Settings, name: str
) -> str:
    """SHA-256, in hex, of everything that a plan depends on."""
    hasher = hashlib.sha256()
    for line in (
        f"{VERSION} {compiler_digest()}",
        repr(settings),
        name,
        " ".join(sorted(weights)),
        *(_described(value) for value in arguments),
        *_lines(module),
    ):
        hasher.update(line.encode())
        hasher.update(b"\0")
    return hasher.hexdigest()


def _lines(module: fx.GraphModule) -> Iterator[str]:
    """The graph as text: every node with its target and arguments, and what its constants hold."""
    for node in module.graph.nodes:
        target = node.target if isinstance(node.target, str) else _named(node.target)
        yield f"{node.name} {node.op} {target} {node.args!r} {sorted(node.kwargs.items())!r}"
        if node.op == "get_attr":
            held: Any = module
            for part in str(node.target).split("."):
                held = getattr(held, part)
            if isinstance(held, fx.GraphModule):
                yield from _lines(held)
            else:
                yield _described(held)
                yield _content(held)


def _named(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', repr(target))}"


def _described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(number(value))
    sizes, steps = [number(size) for size in value.shape], [number(step) for step in value.stride()]
    return f"{sizes} {steps} {value.dtype} {value.device.type} {value.layout}"


def _content(value: Any) -> str:
    """Digest of a constant's elements: a rule may read them, such as scales."""
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor) or value.is_quantized:
        return ""
    data = value.detach().cpu().contiguous().reshape(-1)
    return hashlib.sha256(data.view(torch.uint8).numpy().tobytes()).hexdigest() if data.numel() else ""


def _document(made: Plan) -> dict[str, Any]:
    return {
        "parts": [_part_document(part) for part in made.parts],
        "fallbacks": [[entry.node, entry.op, entry.why] for entry in made.fallbacks],
        "constant": sorted(node.name for node in made.constant),
        "values": {node.name: _value_document(value) for node, value in made.values.items()},
    }


def _value_document(value: Any) -> Any:
    """What a node gives: a tensor by its sizes, steps, dtype and device, several of them, or a number."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            raise TypeError(f"a {value.layout} tensor")
        dtype = str(value.dtype).removeprefix("torch.")
        return {"tensor": [list(value.shape), list(value.stride()), dtype, str(value.device)]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_value_document(item) for item in value]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__}")


def _value(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    [(kind, held)] = entry.items()
    if kind == "tensor":
        sizes, steps, dtype, device = held
        return torch.empty_strided(sizes, steps, dtype=getattr(torch, dtype), device=device)
    return {"list": list, "tuple": tuple}[kind](_value(item) for item in held)


def _part_document(part: NpuPart | HostPart) -> dict[str, Any]:
    if isinstance(part, HostPart):
        return {"host": part.node.name}
    graph = part.graph
    return {
        "program": dump_program(part.program),
        "layers": dump_program(Program(graph.name, graph.tensors, tuple(graph.layers))),
        "preamble": dump_program(Program(graph.name, {}, tuple(graph.preamble))),
        "constants": {name: [type(value).__name__, repr(value)] for name, value in graph.constants.items()},
        "origin": graph.origin,
        "outputs": {node.name: tensor for node, tensor in part.outputs.items()},
        "inputs": {tensor: node.name for tensor, node in part.inputs.items()},
        "nodes": [node.name for node in part.nodes],
    }


def _plan(document: Mapping[str, Any], module: fx.GraphModule) -> Plan:
    nodes = {node.name: node for node in module.graph.nodes}
    with FakeTensorMode(allow_non_fake_inputs=True):
        values = {nodes[name]: _value(entry) for name, entry in document["values"].items()}
    return Plan(
        parts=tuple(_part(entry, nodes) for entry in document["parts"]),
        values=values,
        # Source lines are those of the code as it is now.
        fallbacks=tuple(Fallback(n, op, why, source_line(nodes[n])) for n, op, why in document["fallbacks"]),
        constant=frozenset(nodes[name] for name in document["constant"]),
    )


_NUMBERS: Mapping[str, Callable[[str], Any]] = {"float": float, "int": int, "bool": lambda text: text == "True"}


def _part(entry: Mapping[str, Any], nodes: Mapping[str, fx.Node]) -> NpuPart | HostPart:
    if "host" in entry:
        return HostPart(nodes[entry["host"]])
    layers, preamble = parse_program(entry["layers"]), parse_program(entry["preamble"])
    graph = LayerGraph(
        layers.name,
        dict(layers.tensors),
        list(layers.instructions),
        {name: _NUMBERS[kind](text) for name, (kind, text) in entry["constants"].items()},
        list(preamble.instructions),
        dict(entry["origin"]),
    )
    return NpuPart(
        program=parse_program(entry["program"]),
        graph=graph,
        outputs={nodes[name]: tensor for name, tensor in entry["outputs"].items()},
        inputs={tensor: nodes[name] for tensor, name in entry["inputs"].items()},
        nodes=tuple(nodes[name] for name in entry["nodes"]),
    )
