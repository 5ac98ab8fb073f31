"""`torch.compile(model, backend="mock_npu")`: graphs of a model as NPU programs, forward and backward.

One function is registered, whatever the options are, so that TorchDynamo keeps what it has compiled. In `mode="host"`
PyTorch runs the graph and programs are made beside it; in `mode="simulate"` the interpreter runs the programs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import _BACKENDS, register_backend

from assay.baselines.errors import InputError
from assay.npu_backend.cache import PlanCache, cache_at, plan_with
from assay.npu_backend.codegen import Program, print_program
from assay.npu_backend.decompositions import decompositions
from assay.npu_backend.partition import Fallback, Plan, Settings, number, run_plan
from assay.npu_backend.precision import POLICIES
from assay.npu_backend.simulator import SPEC, Cost, simulate
from assay.npu_backend.validation import VTCM_BYTES

NAME = "mock_npu"
MODES = ("host", "simulate")
_OPTIONS = ("mode", "strict", "without", "vtcm_bytes", "report", "cache", "precision")


@dataclass
class Compiled:
    """A graph and its plans, one for each set of sizes."""

    module: fx.GraphModule
    weights: frozenset[str]
    settings: Settings
    mode: str
    name: str
    plans: dict[tuple[Any, ...], Plan] = field(default_factory=dict)
    cache: PlanCache | None = None
    """Where plans are kept on disk."""
    _boxed_call: bool = True

    def plan_for(self, arguments: Sequence[Any]) -> Plan:
        """The plan for the sizes of `arguments`, made on first use."""
        key = tuple(_key(value) for value in arguments)
        if key not in self.plans:
            make = plan_with(self.cache)
            self.plans[key] = make(self.module, arguments, weights=self.weights, settings=self.settings, name=self.name)
        return self.plans[key]

    def __call__(self, arguments: list[Any]) -> Sequence[Any]:
        values = list(arguments)
        arguments.clear()
        made = self.plan_for(values)
        with torch.no_grad():
            if self.mode == "simulate":
                return run_plan(self.module, made, values, self.settings)
            return self.module(*values)  # type: ignore[no-any-return]


@dataclass
class Report:
    """Graphs that were compiled, for whoever passed it as the option `report`."""

    graphs: list[Compiled] = field(default_factory=list)

    @property
    def programs(self) -> list[Program]:
        """Programs of all graphs and sizes."""
        return [program for graph in self.graphs for made in graph.plans.values() for program in made.programs]

    @property
    def fallbacks(self) -> list[Fallback]:
        """Nodes on the host, of all graphs and sizes."""
        return [entry for graph in self.graphs for made in graph.plans.values() for entry in made.fallbacks]


@dataclass(frozen=True)
class NpuProgram:
    """Programs of a model at one set of sizes, and what they cost."""

    programs: tuple[Program, ...]
    fallbacks: tuple[Fallback, ...]
    costs: tuple[Cost, ...]

    def __str__(self) -> str:
        """The specification's printed form, program after program, then what runs on the host."""
        parts = [
            print_program(program, cycles=cost.cycles, peak=cost.vtcm_peak, capacity=VTCM_BYTES)
            for program, cost in zip(self.programs, self.costs, strict=True)
        ]
        if self.fallbacks:
            parts.append("On the host:\n" + "".join(f"  {f.op} ({f.why}) {f.line}\n" for f in self.fallbacks))
        return "".join(parts)


def mock_npu(
    module: fx.GraphModule, examples: list[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """The backend. Options: `mode` host or simulate, `strict`, `without` (fusion passes), `vtcm_bytes`, `report`,
    `cache` (a folder for plans), `precision` (a policy of storage).

    Raises `InputError` for options that are none and, in strict mode, for a node that would run on the host.
    """
    options = dict(options or {})
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise InputError(f"{NAME} has no option {unknown[0]!r}: choose from {', '.join(_OPTIONS)}.")
    mode = options.get("mode", "host")
    if mode not in MODES:
        raise InputError(f"{NAME} has no mode {mode!r}: choose from {', '.join(MODES)}.")
    precision = str(options.get("precision") or "")
    if precision and precision not in POLICIES:
        raise InputError(f"{NAME} has no precision {precision!r}: choose from {', '.join(POLICIES)}.")
    settings = Settings(
        bool(options.get("strict", False)),
        tuple(options.get("without", ())),
        int(options.get("vtcm_bytes", VTCM_BYTES)),
        precision,
    )
    report, cache = options.get("report"), cache_at(options.get("cache"))

    def compiler(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        made = Compiled(graph, _static(graph), settings, mode, "graph", cache=cache)
        if all(_known(value) for value in inputs):
            made.plan_for(inputs)  # else its sizes are known when it is called
        if isinstance(report, Report):
            report.graphs.append(made)
        return made

    backend = aot_autograd(fw_compiler=compiler, decompositions=decompositions())
    return backend(module, examples)


def get_npu_program(model: torch.nn.Module, *inputs: torch.Tensor, strict: bool = False) -> NpuProgram:
    """Programs of a model in inference at the sizes of `inputs`; print it for the listing.

    The model is exported as a whole and not changed. Raises `InputError` when it cannot be exported, and in strict mode for a
    node that would run on the host.
    """
    made = plan_model(model, *inputs, settings=Settings(strict=strict))
    programs = tuple(made.programs)
    return NpuProgram(programs, made.fallbacks, tuple(simulate(program, SPEC) for program in programs))


def plan_model(model: torch.nn.Module, *inputs: torch.Tensor, settings: Settings) -> Plan:
    """The plan of a model in inference at the sizes of `inputs`.

    Raises `InputError` when it cannot be exported, and in strict mode for a node that would run on the host.
    """
    model = copy.deepcopy(model).eval()
    # The fast path of attention layers is one operator that hides their products.
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        exported = torch.export.export(model, inputs, strict=False).run_decompositions(decompositions())
    except Exception as error:
        line = (str(error).strip().splitlines() or [""])[0]
        raise InputError(f"the model does not export ({type(error).__name__}: {line}): make it exportable.") from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    signature = exported.graph_signature
    named = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    held = {**exported.state_dict, **exported.constants}
    given = iter(torch.utils._pytree.tree_leaves(inputs))
    arguments, weights = [], set()
    for node in exported.graph.nodes:
        if node.op != "placeholder":
            continue
        if node.name in named:
            arguments.append(held[named[node.name]])
            weights.add(node.name)
        else:
            arguments.append(next(given))
    return plan_with(cache_at(None))(
        exported.graph_module, arguments, weights=weights, settings=settings, name=type(model).__name__
    )


def _static(graph: fx.GraphModule) -> frozenset[str]:
    """Placeholders that keep their values: parameters and buffers."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    places = set(metadata.static_input_indices) if metadata is not None else set()
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    return frozenset(node.name for place, node in enumerate(placeholders) if place in places)


def _known(value: Any) -> bool:
    """Whether a size, or all of a tensor's, are known while tracing."""
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    return all(number(size) is not None for size in sizes)


def _key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(number(size) for size in value.shape), value.dtype
    return number(value)


# When torch found the entry point of the installed package, it registers what the entry point gives itself.
if NAME not in _BACKENDS:
    register_backend(mock_npu, name=NAME)
