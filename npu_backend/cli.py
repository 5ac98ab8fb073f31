"""`assay compile`: what models compile to on the NPU, what that costs, and evidence of it."""

from __future__ import annotations

import importlib.util
import json
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.baselines.errors import InputError
from assay.baselines.naming import names
from assay.baselines.ranges import FiniteRange

if TYPE_CHECKING:
    from assay.npu_backend.compilation import Checkout, Model, Request

_NAMED = 3
"""Most models whose failures one message tells."""
EXAMPLES = """
A declaration is a module-level value of FILE; docs/compile.md explains each field:

\b
  from assay.npu_backend.declaration import Declaration
  small = Declaration("small", model=lambda: torch.nn.Linear(512, 512), inputs=lambda: torch.randn(8, 512))

\b
Examples:
  # what a model costs; nothing is written
  assay compile models.py:small
  assay compile --torchvision mobilenet_v3_small

\b
  # this working tree against main, with programs, pictures, traces and evidence
  assay compile models.py --base main --out build/npu
  assay gate --base build/npu/evidence.base --head build/npu/evidence

\b
  # what would be lost without a pass; what runs on the host as an error
  assay compile models.py --without batch-norm --strict

Exit codes: 0 compiled (assay gate judges what), 2 bad input or nothing that compiles, 3 a process ended or was too slow.
"""


@click.command("compile", epilog=EXAMPLES)
@click.argument("file", required=False, metavar="[FILE[:NAME]]")
@click.option(
    "--torchvision", multiple=True, metavar="NAME", help="A model of torchvision instead of FILE; repeatable."
)
@click.option(
    "--hf", multiple=True, metavar="DIR", help="A Hugging Face configuration: a folder with config.json, or a hub name."
)
@click.option("--model", "models", multiple=True, metavar="NAMES", help="Only these models of FILE, by comma.")
@click.option(
    "--base",
    metavar="DIR|REV",
    help="What the head is compared with: a checkout, or a revision, whose merge base is taken.",
)
@click.option(
    "--head",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    help="The checkout that is proposed [default: the current folder].",
)
@click.option("--machine", default="spec", show_default=True, help="The machine that is simulated, by name.")
@click.option("--vtcm", type=FiniteRange(0, 1024, min_open=True), metavar="MIB", help="Another size of VTCM, in MiB.")
@click.option(
    "--dtype", default="float32", show_default=True, help="Of --torchvision and --hf: float32, float16, bfloat16."
)
@click.option(
    "--precision", metavar="POLICY", help="Storage of --torchvision and --hf: float16, w8a8, w8a16, w4a8, w4a16."
)
@click.option("--training", is_flag=True, help="Compile forward and backward of --torchvision and --hf.")
@click.option("--strict", is_flag=True, help="An operator that would run on the host is an error.")
@click.option("--without", multiple=True, metavar="PASSES", help="Fusion passes that are off, by comma.")
@click.option(
    "--once", is_flag=True, help="Compile once: faster, and nobody sees whether two compilations are the same."
)
@click.option(
    "--timeout", type=FiniteRange(1), default=900.0, show_default=True, help="Seconds that one checkout may take."
)
@click.option("--commit", help="Commit of the head [default: ASSAY_HEAD_SHA, else git rev-parse HEAD].")
@click.option("--run-id", type=click.IntRange(1), envvar="GITHUB_RUN_ID", help="Workflow run [default: GITHUB_RUN_ID].")
@click.option(
    "--attempt",
    type=click.IntRange(1),
    envvar="GITHUB_RUN_ATTEMPT",
    help="Attempt of the run [default: GITHUB_RUN_ATTEMPT].",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the report: programs, listings, traces, pictures, summary.json, report.html, and the evidence.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON.")
def compile_(**options: Any) -> None:
    """Compile the models that FILE declares for the NPU, simulate them, and say what they cost, layer by layer.

    The models are made and compiled in processes of their own, twice each: a model whose two programs differ has no verdict.
    With --base both checkouts are compiled by the same compiler.
    """
    from assay.baselines.checkout import base_folder, head_commit, uncommitted
    from assay.npu_backend.compilation import compile_checkout
    from assay.npu_backend.report import check_folder

    _require("torch")
    head: Path = options["head"].resolve()
    request = _request(options, head)
    out: Path | None = options["out"]
    if out is not None:
        check_folder(out)
    commit = head_commit(options["commit"], head, request.file, _tell)
    changed = {"head": len(uncommitted(head, request.file))}
    with tempfile.TemporaryDirectory(prefix="assay-compile-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        base: Checkout | None = None
        base_commit = None
        if options["base"] is not None:
            root, base_commit = base_folder(options["base"], head, scratch, _tell)
            changed["base"] = len(uncommitted(root))
            base = _base(request, root, head, scratch)
        found = compile_checkout(request, head, scratch, side="head", told=_tell)
        _nothing(found.models, base)
        if out is not None:
            _write(request, found, base, {"head": commit, "base": base_commit}, changed, options, out)
        _show(request, found, base, out, as_json=options["as_json"])
        if found.models and all(model.failed for model in found.models):
            raise InputError(_failures(found.models))  # the evidence is there all the same, for the gate


def _request(options: dict[str, Any], head: Path) -> Request:
    from dataclasses import replace

    from assay.baselines.checkout import relative_file
    from assay.npu_backend.compilation import Request
    from assay.npu_backend.declaration import DTYPES, PRECISIONS
    from assay.npu_backend.simulator import preset

    file, chosen = _file(options["file"], names(options["models"], "--model"))
    if (file is None) == (not options["torchvision"] and not options["hf"]):
        raise InputError(
            "give FILE, or --torchvision, or --hf: one of them says what to compile (see `assay compile --help`)."
        )
    if chosen and file is None:
        raise InputError("--model chooses among the models of FILE: leave it out, or give FILE.")
    if file is not None and (options["training"] or options["precision"] or options["dtype"] != "float32"):
        raise InputError("a declaration of FILE says this itself: leave --dtype, --precision and --training out.")
    if options["dtype"] not in DTYPES:
        raise InputError(f"--dtype {options['dtype'][:40]} is none: choose from {', '.join(DTYPES)}.")
    if options["precision"] and options["precision"] not in PRECISIONS:
        raise InputError(f"--precision {options['precision'][:40]} is none: choose from {', '.join(PRECISIONS)}.")
    machine = preset(options["machine"])
    if options["vtcm"] is not None:
        machine = replace(machine, vtcm_bytes=int(options["vtcm"] * (1 << 20)))
    return Request(
        file=relative_file(file, head) if file is not None else None,
        machine=machine,
        names=chosen,
        torchvision=tuple(dict.fromkeys(options["torchvision"])),
        hugging_face=tuple(_folder(name, head) for name in dict.fromkeys(options["hf"])),
        dtype=options["dtype"],
        precision=options["precision"] or "",
        training=options["training"],
        strict=options["strict"],
        without=_passes(names(options["without"], "--without")),
        timeout=options["timeout"],
        twice=not options["once"],
    )


def _folder(name: str, head: Path) -> str:
    """A configuration's folder inside the head relative to it, another folder in full, and any other name as it is."""
    place = next((p.resolve() for p in (Path(name), head / name) if p.exists()), None)
    if place is None:
        return name
    return place.relative_to(head).as_posix() if place.is_relative_to(head) else str(place)


def _file(given: str | None, chosen: tuple[str, ...]) -> tuple[Path | None, tuple[str, ...]]:
    """FILE or FILE:NAME as a path and names."""
    if given is None:
        return None, chosen
    file, colon, name = given.rpartition(":")
    if colon and file.endswith(".py"):
        return Path(file), (*chosen, name) if name else chosen
    return Path(given), chosen


def _passes(given: tuple[str, ...]) -> tuple[str, ...]:
    if given:
        from assay.npu_backend.fusion import PASSES

        known = [made.name for made in PASSES]
        for name in given:
            if name not in known:
                raise InputError(f"there is no pass {name[:40]!r}: choose from {', '.join(known)}.")
    return given


def _base(request: Request, root: Path, head: Path, scratch: Path) -> Checkout:
    """The base's models; none where it has no such file yet, so that a new model is held to its budgets alone."""
    from dataclasses import replace

    from assay.npu_backend.compilation import Checkout, compile_checkout

    missing = [n for n in request.hugging_face if (head / n).exists() and not (root / n).exists()]
    for name in missing:
        _tell(f"the base has no {name} yet: there is nothing to compare with")
    request = replace(request, hugging_face=tuple(n for n in request.hugging_face if n not in missing))
    if request.file is None and not request.hugging_face and not request.torchvision:
        return Checkout((), "")
    if request.file is not None and not (root / request.file).is_file():
        _tell(f"the base has no {request.file} yet: there is nothing to compare with")
        return Checkout((), "")
    try:
        return compile_checkout(request, root, scratch, side="base", optional=True, told=_tell)
    except InputError as error:  # a change may be what mends it
        _tell(f"the base declares no models that can be used, so that there is nothing to compare with: {error}")
        return Checkout((), "")


def _nothing(models: tuple[Model, ...], base: Checkout | None) -> None:
    """Raises `InputError` when there is nothing to report: no model compiled, on either side."""
    compiled = [m for m in (*models, *(base.models if base is not None else ())) if not m.failed]
    if models and not compiled:
        raise InputError(_failures(models))


def _failures(models: tuple[Model, ...]) -> str:
    """The models that do not compile, with reasons, on one line."""
    failed = [m for m in models if m.failed]
    more = f"; so do {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    return f"{'; '.join(f'{m.name} does not compile: {m.failed}' for m in failed[:_NAMED])}{more}"


def _write(
    request: Request,
    head: Checkout,
    base: Checkout | None,
    commits: dict[str, str | None],
    changed: dict[str, int],
    options: dict[str, Any],
    out: Path,
) -> None:
    from assay.npu_backend.evidence import records
    from assay.npu_backend.report import write_report

    words = ["assay", "compile", *([request.file.as_posix()] if request.file is not None else [])]
    for option in ("torchvision", "hf", "models", "without"):
        words += [w for value in options[option] for w in (f"--{option.removesuffix('s')}", value)]
    words += [
        w
        for name in ("machine", "vtcm", "precision")
        if options[name] is not None
        for w in (f"--{name}", f"{options[name]}")
    ]
    words += [f"--{name}" for name in ("training", "strict", "once") if options[name]]
    made, beside = records(
        request,
        head,
        base,
        commits=commits,
        changed=changed,
        command=f"{shlex.join(words)}{' --base BASE' if base is not None else ''} --out DIR"[:2000],
        run_id=options["run_id"],
        attempt=options["attempt"],
    )
    write_report(out, head.models, request.machine, made, beside, base.models if base is not None else None)


def _show(request: Request, head: Checkout, base: Checkout | None, out: Path | None, *, as_json: bool) -> None:
    if as_json:
        from assay.npu_backend.report import summary

        document = summary(head.models, request.machine, base.models if base is not None else None)
        document["folder"] = str(out) if out is not None else None
        click.echo(json.dumps(document, indent=1, allow_nan=False))
        return
    from assay.npu_backend.terminal import print_models

    print_models(head.models, base.models if base is not None else None, request.machine, out)


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _require(*modules: str) -> None:
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise InputError(
                f"assay compile needs {name}, which is not installed: pip install 'assay-ci[npu]' (in a clone of assay: '.[npu]')."
            )
