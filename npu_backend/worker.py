"""The process that runs the user's code: it makes the models, compiles them, and writes down programs. It judges nothing.

    python -P -m assay.npu_backend.worker REQUEST PROGRESS

REQUEST is a JSON file, PROGRESS a descriptor that gets one line as each model begins. The answer goes to `result.json` in the
folder that the request names, with one file for each program; costs are computed by whoever asked, from the programs.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from assay.baselines.errors import InputError
from assay.baselines.usercode import in_brackets
from assay.npu_backend import catalogue
from assay.npu_backend.attribution import host_macs, source_of, sources_of
from assay.npu_backend.cache import cache_at
from assay.npu_backend.codegen import dump_program
from assay.npu_backend.declaration import Declaration, chosen, line_of, load, raised
from assay.npu_backend.partition import NpuPart, Plan
from assay.npu_backend.process import NOTE, RESULT
from assay.npu_backend.register_backend import Compiled, Report, mock_npu

Answer = dict[str, Any]
_NOTES = 3
"""Most notes of the plans' folder."""


def answer(request: Mapping[str, Any], told: Any) -> Answer:
    """The answer to a request: every model's programs, or why it has none. Raises `InputError` for what declares no models."""
    root = Path(request["root"]).resolve()
    if request["file"]:
        told(f"importing {request['file']}")
    declarations = _declarations(request, root)
    folder = Path(request["out"])
    kept = cache_at(None)
    options = dict(request["options"])
    if kept is not None:
        options["cache"] = replace(kept, told=_once(lambda words: told(f"{NOTE}{words}")))
    models = []
    for place, declaration in enumerate(declarations.values()):
        told(f"compiling {declaration.name} ({place + 1} of {len(declarations)})")
        started, written = time.perf_counter(), _written()
        described = {
            "name": declaration.name,
            "dtype": declaration.dtype,
            "precision": declaration.precision,
            "training": declaration.training,
            "configuration": dict(declaration.configuration),
        }
        try:
            found = _compile(declaration, options, folder / f"model-{place}", root)
        except InputError as error:
            _debug(error)
            found = {"failed": without_folders(str(error), root)[:600], "log": [written, _written()]}
        models.append({**described, **found, "seconds": time.perf_counter() - started})
    return {"models": models, "source": _source_digest(root) if request["file"] else ""}


def _once(told: Callable[[str], Any]) -> Callable[[str], None]:
    """Tells the first few different notes: an unusable folder gives one for each graph."""
    heard: set[str] = set()

    def tell(words: str) -> None:
        if words not in heard and len(heard) < _NOTES:
            told(words)
        heard.add(words)

    return tell


def _declarations(request: Mapping[str, Any], root: Path) -> dict[str, Declaration]:
    found: dict[str, Declaration] = {}
    if request["file"]:
        file = root / request["file"]
        found = load(file, root=root)
        names = tuple(n for n in request["names"] if n in found or not request["optional"])
        found = chosen(found, names, file.name) if names or not request["names"] else {}
    how = {key: request[key] for key in ("dtype", "precision", "training")}
    others = [catalogue.torchvision_model(name, **how) for name in request["torchvision"]]
    for name in request["hf"]:
        place = root / name  # base and head have their own, where it lies in the checkout
        others.append(catalogue.hugging_face_model(str(place) if place.exists() else name, **how))
    for made in others:
        if made.name in found:
            raise InputError(f"two models are named {made.name}: compile one of them, or declare them in a file.")
        found[made.name] = made
    return found


def _compile(declaration: Declaration, options: Mapping[str, Any], folder: Path, root: Path) -> Answer:
    """Programs, layers and fallbacks of one model. Raises `InputError` with one line when it does not compile."""
    report, warnings = Report(), list[str]()
    options = {**options, "precision": declaration.precision, "report": report}
    torch.manual_seed(0)
    dtype = getattr(torch, declaration.dtype)
    with _blamed("making the model", root):
        model = declaration.model()
        if not isinstance(model, torch.nn.Module):
            raise InputError(f"`model` made a {type(model).__name__}, not a torch.nn.Module.")
        if isinstance(model, torch.jit.ScriptModule):
            raise InputError("`model` made a scripted or traced module: give the one that it was made from.")
        model = model.to(dtype).train(declaration.training)
    with _blamed("making the inputs", root):
        args, kwargs = _arguments(declaration.inputs(), dtype)
    _on_the_cpu(model, args, kwargs)
    try:
        _run(model, args, kwargs, options, root, fullgraph=True, training=declaration.training)
    except torch._dynamo.exc.Unsupported as error:
        report.graphs.clear()
        _run(model, args, kwargs, options, root, fullgraph=False, training=declaration.training)
        why = next(iter(str(error).strip().splitlines()), "")[:120]
        warnings.append(f"the model has graph breaks ({why}): code that runs several times is counted once")
    if not report.graphs:
        raise InputError("PyTorch found no graph to compile: the model computes nothing on tensors.")
    folder.mkdir(parents=True)
    programs: list[Answer] = []
    host: list[Answer] = []
    for graph in report.graphs:
        for made in graph.plans.values():
            programs += _programs(graph, made, folder, len(programs), root)
            host += _host(graph, made, root)
    return {
        "programs": programs,
        "host": host,
        "graphs": len(report.graphs),
        "warnings": warnings,
        "inputs": _shapes(args, kwargs),
    }


def _on_the_cpu(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raises `InputError` for a tensor elsewhere: all that reads it would run on the host, and cost nothing."""
    given = torch.utils._pytree.tree_leaves((args, kwargs))
    held: dict[str, torch.Tensor] = {f"its parameter {name}": value for name, value in model.named_parameters()}
    held |= {f"its buffer {name}": value for name, value in model.named_buffers()}
    held |= {f"its argument {n}": value for n, value in enumerate(given, start=1) if isinstance(value, torch.Tensor)}
    for name, value in held.items():
        if value.device.type != "cpu":
            raise InputError(
                f"{name} lies on the device {value.device}: make model and inputs on the CPU, with random values if there are none."
            )


@contextmanager
def _blamed(doing: str, root: Path) -> Iterator[None]:
    """Whatever user code raises as an `InputError` that says what it was called for, and where it was."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{error}{in_brackets(line_of([error], root))}") from error
    except BaseException as error:
        raise InputError(f"{doing} {raised([error], root)}") from error


def _shapes(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """`1x3x224x224, mask 1x128 int64`: a floating dtype is the declaration's, so that it is left out."""

    def shown(value: Any) -> str:
        if not isinstance(value, torch.Tensor):
            return repr(value)[:60]
        size = "x".join(map(str, value.shape)) or "scalar"
        return size if value.is_floating_point() else f"{size} {str(value.dtype).removeprefix('torch.')}"

    return ", ".join([*(shown(v) for v in args), *(f"{name} {shown(v)}" for name, v in kwargs.items())])[:1000]


def _arguments(made: Any, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def cast(value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(dtype) if floating else value

    if isinstance(made, Mapping):
        return (), {str(name): cast(value) for name, value in made.items()}
    values = made if isinstance(made, tuple | list) else (made,)
    return tuple(cast(value) for value in values), {}


def _run(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: dict[str, Any],
    root: Path,
    *,
    fullgraph: bool,
    training: bool,
) -> None:
    """One call of the compiled model, so that every graph gets its plan. Raises `InputError` for what does not compile."""
    torch._dynamo.reset()
    # The fast path of attention layers is one operator that hides their products.
    torch.backends.mha.set_fastpath_enabled(False)
    compiled = torch.compile(model, backend=mock_npu, options=options, dynamic=False, fullgraph=fullgraph)
    try:
        with torch.set_grad_enabled(training):
            found = compiled(*args, **kwargs)
        if training:
            leaves = torch.utils._pytree.tree_leaves(found)
            floats = [v for v in leaves if isinstance(v, torch.Tensor) and v.requires_grad]
            if not floats:
                raise InputError("no output depends on a parameter, so that there is no backward: compile inference.")
            torch.stack([v.float().sum() for v in floats]).sum().backward()  # type: ignore[no-untyped-call]
    except torch._dynamo.exc.Unsupported:
        if fullgraph:
            raise
        raise InputError("PyTorch does not trace the model: make it compile with torch.compile first.") from None
    except BaseException as error:
        chain = _chain(error)
        ours = next((e for e in chain if isinstance(e, InputError)), None)
        if ours is not None:
            raise InputError(str(ours)) from error
        # PyTorch wraps what happened in what it was doing; the innermost error is the one that the user knows.
        known = chain[::-1] if type(error).__module__.startswith("torch") else chain
        raise InputError(f"compiling it {raised(known, root, _eager(model, args, kwargs))}") from error


def _eager(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> BaseException | None:
    """What the model raises without a compiler, which has the line that the compiler may have lost."""
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    except BaseException as error:
        return error
    return None


def _chain(error: BaseException) -> list[BaseException]:
    """An error, then what it was raised from, and so on."""
    found: list[BaseException] = []
    here: BaseException | None = error
    while here is not None and not any(here is e for e in found):
        found.append(here)
        here = getattr(here, "inner_exception", None) or here.__cause__ or here.__context__
    return found


def place_of(line: str, root: Path) -> str:
    """A source line without what is peculiar to this machine: relative to the checkout, or to the installed packages."""
    _, packages, inside = line.rpartition(f"site-packages{os.sep}")
    return inside if packages else line.removeprefix(f"{root}{os.sep}")


def without_folders(text: str, root: Path) -> str:
    """A message without the folders that are peculiar to this machine: files relative to the checkout, or to the packages."""
    for folder in (str(root), *(p for p in sys.path if Path(p).name in ("site-packages", "dist-packages"))):
        text = text.replace(f"{folder}{os.sep}", "")
    return text


def _programs(graph: Compiled, made: Plan, folder: Path, first: int, root: Path) -> list[Answer]:
    nodes = {node.name: node for node in graph.module.graph.nodes}
    backward = any(n.op == "placeholder" and n.name.startswith("tangents") for n in graph.module.graph.nodes)
    found: list[Answer] = []
    for part in made.parts:
        if not isinstance(part, NpuPart) or not part.program.instructions:
            continue
        sources = sources_of(part, nodes, backward=backward)
        table = {source: number for number, source in enumerate(dict.fromkeys(sources))}
        file = folder / f"program-{first + len(found)}.json"
        file.write_text(dump_program(part.program))
        found.append(
            {
                "file": f"{folder.name}/{file.name}",
                "layers": [[s.path, s.op, place_of(s.line, root)] for s in table],
                "of": [table[source] for source in sources],
            }
        )
    return found


def _host(graph: Compiled, made: Plan, root: Path) -> list[Answer]:
    nodes = {node.name: node for node in graph.module.graph.nodes}
    macs = host_macs(made, graph.module, made.fallbacks)
    if made.whole_on_host:
        return [
            {"op": f.op, "why": f.why, "path": "", "line": f.line, "macs": sum(macs.values())} for f in made.fallbacks
        ]
    return [
        {
            "op": entry.op,
            "why": entry.why,
            "path": source_of(nodes[entry.node]).path if entry.node in nodes else "",
            "line": place_of(entry.line, root),
            "macs": macs.get(entry.node, 0),
        }
        for entry in made.fallbacks
    ]


def _source_digest(root: Path) -> str:
    """Of every module of the checkout that is imported by now."""
    files = set()
    for module in list(sys.modules.values()):
        place = getattr(module, "__file__", None)
        if isinstance(place, str) and Path(place).resolve().is_relative_to(root):
            files.add(Path(place).resolve())
    kept = sorted(f for f in files if "site-packages" not in f.parts and f.is_file())
    hasher = hashlib.sha256()
    for file in kept:
        hasher.update(
            f"{file.relative_to(root).as_posix()}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode()
        )
    return f"sha256:{hasher.hexdigest()}"


def _written() -> int:
    """Bytes that this process has written to its log so far; 0 where it has none."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # they may be anything by now: user code ran
            stream.flush()
    with suppress(OSError):
        return os.fstat(1).st_size
    return 0


def _debug(error: BaseException) -> None:
    if os.environ.get("ASSAY_DEBUG"):
        traceback.print_exception(error)


def _ends_with(progress: int) -> None:
    """End this process, and what it started, when nobody reads its progress any more: whoever asked has gone."""
    end = select.poll()
    end.register(progress, 0)
    end.poll()
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Run the process."""
    code = 1
    try:
        request = json.loads(Path(sys.argv[1]).read_text())
        progress = int(sys.argv[2])
        threading.Thread(target=_ends_with, args=(progress,), daemon=True).start()
        found: Answer
        try:
            found = answer(request, lambda line: os.write(progress, f"{line}\n".encode(errors="replace")))
        except InputError as error:
            _debug(error)
            found = {"error": without_folders(str(error), Path(request["root"]).resolve())[:1000]}
        place = Path(request["out"]) / RESULT
        place.with_suffix(".partial").write_text(json.dumps(found))
        place.with_suffix(".partial").rename(place)
        code = 0
    except BaseException as error:
        traceback.print_exception(error)
    _written()
    # User code may have left threads and functions of `atexit` behind: nobody waits for them.
    os._exit(code)


if __name__ == "__main__":
    main()
