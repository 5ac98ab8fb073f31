"""What a checkout's models compile to: programs from a worker process, and what they cost, computed here from the programs.

The worker runs the user's code, this module does not: it reads programs as data, validates and simulates them. Each model is
compiled twice, by two processes; a model whose two results differ has no cost that could be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.baselines.content import digest_file
from assay.baselines.errors import ServiceError
from assay.npu_backend.codegen import Program, parse_program
from assay.npu_backend.declaration import is_name
from assay.npu_backend.isa import LoadTile, StoreTile
from assay.npu_backend.machine import Machine, Unit, macs_of
from assay.npu_backend.process import Told, run
from assay.npu_backend.simulator import Cost, simulate

Scalar = bool | int | float | str


@dataclass(frozen=True)
class Request:
    """What is compiled, and how; the same for base and head."""

    file: Path | None
    """The declarations, relative to the checkout."""
    machine: Machine
    names: tuple[str, ...] = ()
    torchvision: tuple[str, ...] = ()
    hugging_face: tuple[str, ...] = ()
    dtype: str = "float32"
    precision: str = ""
    training: bool = False
    """For models that no file declares."""
    strict: bool = False
    without: tuple[str, ...] = ()
    timeout: float = 600.0
    twice: bool = True

    def options(self) -> dict[str, Any]:
        """Options of the backend."""
        return {"strict": self.strict, "without": list(self.without), "vtcm_bytes": self.machine.vtcm_bytes}


@dataclass
class Layer:
    """What the instructions of one layer of the model cost together."""

    path: str
    op: str
    line: str
    cycles: int = 0
    """Cycles by which the layer lengthens the program: over all layers they add up to the program's."""
    busy: dict[Unit, int] = field(default_factory=lambda: dict.fromkeys(Unit, 0))
    read_bytes: int = 0
    written_bytes: int = 0
    macs: int = 0
    instructions: int = 0

    @property
    def label(self) -> str:
        """Module path and operator."""
        return f"{self.path} {self.op}" if self.path else self.op

    @property
    def bottleneck(self) -> Unit:
        """The unit that works most for it."""
        return max(Unit, key=lambda unit: self.busy[unit])


@dataclass(frozen=True)
class HostOp:
    """An operator that runs on the host."""

    op: str
    why: str
    path: str
    line: str
    macs: int


@dataclass(frozen=True)
class Model:
    """A model that was compiled, or why it was not."""

    name: str
    dtype: str
    precision: str
    training: bool
    configuration: Mapping[str, Scalar]
    failed: str = ""
    """Why it did not compile; empty when it did."""
    unstable: str = ""
    """How two compilations of it differ; empty when they are the same."""
    programs: tuple[Program, ...] = ()
    costs: tuple[Cost, ...] = ()
    layers: tuple[Layer, ...] = ()
    """In the order of their first instruction."""
    owners: tuple[tuple[str, ...], ...] = ()
    """For each program, the label of the layer of each instruction."""
    host: tuple[HostOp, ...] = ()
    inputs: str = ""
    """Shapes of the arguments."""
    graphs: int = 0
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def format(self) -> str:
        """Dtype, and in what it is stored where a policy says so: `float32 as w8a8`."""
        return f"{self.dtype} as {self.precision}" if self.precision else self.dtype

    @property
    def cycles(self) -> int:
        """Of all programs, one after the other."""
        return sum(cost.cycles for cost in self.costs)

    @property
    def read_bytes(self) -> int:
        """DRAM bytes loaded."""
        return sum(cost.read_bytes for cost in self.costs)

    @property
    def written_bytes(self) -> int:
        """DRAM bytes stored."""
        return sum(cost.written_bytes for cost in self.costs)

    @property
    def vtcm_peak(self) -> int:
        """Most bytes of VTCM that are live at once."""
        return max((cost.vtcm_peak for cost in self.costs), default=0)

    @property
    def macs(self) -> int:
        """Multiply-accumulates on the NPU."""
        return sum(cost.macs for cost in self.costs)

    @property
    def share(self) -> float:
        """Share of all multiply-accumulates that run on the NPU; 1 for a model without any."""
        return self.macs / self.all_macs if self.all_macs else 1.0

    @property
    def all_macs(self) -> int:
        """Multiply-accumulates on the NPU and on the host."""
        return self.macs + sum(entry.macs for entry in self.host)

    @property
    def utilisation(self) -> dict[Unit, float]:
        """Share of all cycles in which a unit works."""
        return {u: sum(c.busy[u] for c in self.costs) / self.cycles if self.cycles else 0.0 for u in Unit}

    @property
    def bottleneck(self) -> Unit:
        """The unit that works most."""
        return max(Unit, key=lambda unit: sum(cost.busy[unit] for cost in self.costs))


@dataclass(frozen=True)
class Checkout:
    """The models of one side."""

    models: tuple[Model, ...]
    source: str
    """Digest of the user's modules."""


def compile_checkout(
    request: Request, root: Path, scratch: Path, *, side: str, optional: bool = False, told: Told = lambda _: None
) -> Checkout:
    """Compile the models of a checkout below `scratch`, in processes of their own.

    `optional`: what `names` asks for may be missing, as a new model is on the base. Raises `InputError` for declarations that
    cannot be used, `ServiceError` for a process that ends or is too slow. A model that does not compile is in the result.
    """
    asked = [
        {
            "root": str(root),
            "file": request.file.as_posix() if request.file is not None else "",
            "names": list(request.names),
            "optional": optional,
            "torchvision": list(request.torchvision),
            "hf": list(request.hugging_face),
            "dtype": request.dtype,
            "precision": request.precision,
            "training": request.training,
            "options": request.options(),
            "out": str(scratch / f"{side}-{turn}"),
        }
        for turn in range(2 if request.twice else 1)
    ]
    answers = run(asked, name=side, seconds=request.timeout, told=told)
    first, folder = answers[0], scratch / f"{side}-0"
    models: list[Model] = []
    for place, entry in enumerate(first["models"]):
        with _readable():
            if not is_name(entry["name"]) or entry["name"] in {model.name for model in models}:
                raise ValueError("a model's name")
            if not entry.get("failed"):
                told(f"{side}: simulating {entry['name']}")
            again = answers[-1]["models"][place] if len(answers[-1]["models"]) > place else {}
            unstable = difference(entry, again, folder, scratch / f"{side}-{len(answers) - 1}")
            models.append(model_of(entry, folder, request.machine, unstable))
            _tell_failure(models[-1], next((e for e in (entry, again) if e.get("failed")), {}), side, told)
    return Checkout(tuple(models), str(first.get("source", ""))[:100])


@contextmanager
def _readable() -> Iterator[None]:
    """Whatever an answer of another form leads to as a `ServiceError`: user code ran in the process that wrote it."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, OSError, OverflowError) as error:
        raise ServiceError(
            f"the worker's answer cannot be read ({type(error).__name__}: {str(error)[:100]}): compile again."
        ) from error


def _within(folder: Path, name: str) -> Path:
    """A file of a folder. Raises `ValueError` for one that lies elsewhere."""
    place = (folder / name).resolve()
    if not place.is_relative_to(folder.resolve()):
        raise ValueError("a program's file")
    return place


def _tell_failure(model: Model, entry: Mapping[str, Any], side: str, told: Told) -> None:
    """Say what was written while a model failed, in whichever process it did."""
    lines = entry.get("output") or ()
    if lines:
        told(f"{side}: {model.name} failed, having written")
    for line in lines:
        told(f"{side}:   {line}")


def difference(first: Mapping[str, Any], second: Mapping[str, Any], here: Path, there: Path) -> str:
    """How two compilations of one model differ, in a phrase; empty when every program is the same to the last byte."""
    if first.get("failed") or second.get("failed"):
        if first.get("failed") and second.get("failed"):
            return ""
        why = str(first.get("failed") or second.get("failed"))
        return f"it compiled once and failed once: {why[:200]}"
    one, two = first.get("programs", ()), second.get("programs", ())
    if len(one) != len(two):
        return f"{len(one)} programs and {len(two)}"
    for place, (a, b) in enumerate(zip(one, two, strict=True), start=1):
        if digest_file(_within(here, a["file"])) != digest_file(_within(there, b["file"])):
            return f"program {place} of {len(one)} is not the same"
    return "" if first.get("host") == second.get("host") else "other operators run on the host"


def model_of(entry: Mapping[str, Any], folder: Path, machine: Machine, unstable: str = "") -> Model:
    """A model from what a worker wrote of it. Raises `ServiceError` for what is no such thing."""
    with _readable():
        model = Model(
            name=str(entry["name"])[:64],
            dtype=str(entry["dtype"])[:20],
            precision=str(entry["precision"])[:20],
            training=bool(entry["training"]),
            configuration=dict(entry["configuration"]),
            seconds=float(entry["seconds"]),
            unstable=unstable,
        )
        if entry.get("failed"):
            return replace(model, failed=str(entry["failed"])[:600])
        programs, costs, owners, layers = [], [], [], dict[tuple[str, str], Layer]()
        for found in entry["programs"]:
            program = parse_program(_within(folder, found["file"]).read_text(), origin=f"the program of {model.name}")
            cost = simulate(program, machine)
            attribute(
                program, cost, [Layer(str(p), str(o), str(w)) for p, o, w in found["layers"]], found["of"], layers
            )
            programs.append(program)
            costs.append(cost)
            owners.append(tuple(Layer(*found["layers"][n][:3]).label for n in found["of"]))
        host = [
            HostOp(str(h["op"]), str(h["why"]), str(h["path"]), str(h["line"]), int(h["macs"])) for h in entry["host"]
        ]
        return replace(
            model,
            programs=tuple(programs),
            costs=tuple(costs),
            layers=tuple(layers.values()),
            owners=tuple(owners),
            host=tuple(host),
            inputs=str(entry["inputs"])[:1000],
            graphs=int(entry["graphs"]),
            warnings=tuple(str(w)[:300] for w in entry["warnings"]),
        )


def attribute(
    program: Program,
    cost: Cost,
    named: Sequence[Layer],
    of: Sequence[int],
    layers: dict[tuple[str, str], Layer],
) -> None:
    """Add a program's cost to its layers, which are found again by path and operator.

    Instructions overlap, so that their durations do not add up. A layer is charged what it lengthens the program by: going
    through the instructions in the order in which they end, each pays for the cycles since the latest end before it.
    """
    if len(of) != len(program.instructions):
        raise ValueError(f"{len(of)} places for {len(program.instructions)} instructions")
    owners = [layers.setdefault((named[n].path, named[n].op), named[n]) for n in of]
    for layer in owners:
        layer.instructions += 1
    end = 0
    for event in sorted(cost.events, key=lambda e: (e.stop, e.place)):
        layer, instruction = owners[event.place], program.instructions[event.place]
        layer.busy[event.unit] += event.cycles
        layer.cycles += max(0, event.stop - end)
        layer.macs += macs_of(instruction, program.tensors)
        if isinstance(instruction, LoadTile):
            layer.read_bytes += program.tensors[instruction.out].bytes
        elif isinstance(instruction, StoreTile):
            layer.written_bytes += program.tensors[instruction.source].bytes
        end = max(end, event.stop)


def milliseconds(machine: Machine, cycles: int) -> float | None:
    """Estimated latency of an inference of so many cycles; None for a machine without a clock."""
    return 1e3 * (cycles + machine.fixed_cycles) / machine.clock_hz if machine.clock_hz else None
