"""Declarations: the models that `assay compile` compiles, as values of a small Python file.

import torch
from assay.npu_backend.declaration import Declaration

small = Declaration(name="small", model=lambda: torch.nn.Linear(512, 512), inputs=lambda: torch.randn(8, 512))
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.baselines import usercode
from assay.baselines.errors import InputError
from assay.baselines.usercode import in_brackets, is_text

if TYPE_CHECKING:
    import torch

Scalar = bool | int | float | str
MODULE = "assay_compile_declaration"
"""The name under which the user's file is imported: no package of theirs has it."""
PRECISIONS = ("float16", "w8a8", "w8a16", "w4a8", "w4a16")
"""Names of `precision.POLICIES`, which needs torch."""
DTYPES = ("float32", "float16", "bfloat16")

MOST_FACTS, MOST_CHARACTERS = 200, 400
"""Of a configuration: how many facts, and how long the name or the text of one may be."""
RESERVED = frozenset({"evidence", "evidence.base", "report.html", "summary.json"})
"""What the report's folder holds besides a folder for each model."""

_OURS = Path(__file__).resolve().parent
"""Frames of the compiler say nothing of the user's code."""
raised = partial(usercode.raised, ours=_OURS)
line_of = partial(usercode.line_of, ours=_OURS)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class Declaration:
    """One model at one set of shapes. Its weights may be random: a program does not depend on their values."""

    name: str
    model: Callable[[], torch.nn.Module]
    """Makes the model; called once in each process, after `torch.manual_seed(0)`."""
    inputs: Callable[[], Any]
    """Makes the arguments of one call: a tensor, a tuple of them, or a dictionary of keyword arguments."""
    dtype: str = "float32"
    """float32, float16 or bfloat16: the model's parameters and floating arguments are converted to it."""
    precision: str = ""
    """Policy of storage, such as w8a8: what tensors take in memory and how fast they multiply, not what they compute."""
    training: bool = False
    """Compile forward and backward of the sum of the floating outputs, instead of inference."""
    configuration: Mapping[str, Scalar] = field(default_factory=dict)
    """Facts of the model that the report shows, such as its method of quantization."""

    def __post_init__(self) -> None:
        if not is_name(self.name):
            raise InputError(
                f"a model is named {self.name!r}: use up to 64 letters, digits, dots, dashes and underscores."
            )
        if self.name.lower() in RESERVED:
            raise InputError(f"a model is named {self.name!r}, as a file of the report is: give it another name.")
        for what in ("model", "inputs"):
            if not callable(getattr(self, what)):
                found = type(getattr(self, what)).__name__
                raise InputError(f"{self.name}: `{what}` is a {found}, not a function that makes it: write a lambda.")
        if self.dtype not in DTYPES:
            raise InputError(f"{self.name}: there is no dtype {self.dtype!r}: choose from {', '.join(DTYPES)}.")
        if self.precision and self.precision not in PRECISIONS:
            known = ", ".join(PRECISIONS)
            raise InputError(f"{self.name}: there is no precision {self.precision!r}: choose from {known}.")
        if len(self.configuration) > MOST_FACTS:
            raise InputError(f"{self.name}: there are {len(self.configuration)} facts: give at most {MOST_FACTS}.")
        for flag, value in self.configuration.items():
            if not isinstance(flag, str) or not is_text(flag) or not 0 < len(flag) <= MOST_CHARACTERS:
                raise InputError(
                    f"{self.name}: a fact is named {str(flag)[:40]!r}: use a word of at most {MOST_CHARACTERS} characters."
                )
            if not isinstance(value, Scalar):
                raise InputError(
                    f"{self.name}: the fact {flag} is a {type(value).__name__}: facts are numbers, words, true or false."
                )
            if isinstance(value, str) and not is_text(value):
                raise InputError(f"{self.name}: the fact {flag} holds half a surrogate pair: give text that UTF-8 has.")
            if (len(value) > MOST_CHARACTERS) if isinstance(value, str) else not -(2.0**63) <= value < 2.0**63:
                raise InputError(
                    f"{self.name}: the fact {flag} cannot be kept: give a finite number of 64 bits, or at most {MOST_CHARACTERS}"
                    " characters."
                )


def is_name(name: object) -> bool:
    """Whether a model may have this name, which is also that of its folder in the report."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def load(path: Path, *, root: Path | None = None) -> dict[str, Declaration]:
    """The declarations of a Python file, by name. Imports run as from `root`, or else from the file's folder.

    Raises `InputError` with one line when there is no file, when importing it fails, and when it declares nothing or one name
    twice; the user's exception is its cause.
    """
    path = Path(path).resolve()
    if not path.is_file():
        raise InputError(f"there is no file {path.name} in {path.parent}: give the file that declares the models.")
    checkout = Path(root or path.parent).resolve()
    for folder in dict.fromkeys((str(path.parent), str(checkout))):
        sys.path[:] = [folder, *(entry for entry in sys.path if entry != folder)]
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path.name} is no Python file: declarations are module-level values of a .py file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    try:
        spec.loader.exec_module(module)
    except InputError as error:
        raise InputError(f"{error}{in_brackets(line_of([error], checkout))}") from error
    except BaseException as error:
        raise InputError(f"importing {path.name} {raised([error], checkout)}") from error
    found: dict[str, Declaration] = {}
    for value in list(vars(module).values()):
        for declaration in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(declaration, Declaration):
                continue
            if found.setdefault(declaration.name, declaration) is not declaration:
                raise InputError(f"{path.name} declares {declaration.name} twice: give each model its own name.")
    if not found:
        raise InputError(
            f"{path.name} declares no model: assign a Declaration to a module-level name (see docs/compile.md)."
        )
    return found


def chosen(found: Mapping[str, Declaration], names: tuple[str, ...], origin: str) -> dict[str, Declaration]:
    """The declarations of these names, all when none is given. Raises `InputError` for a name that is none."""
    for name in names:
        if name not in found:
            raise InputError(f"{origin} declares no {name[:64]}: it has {', '.join(list(found)[:8])}.")
    return {name: found[name] for name in names or found}
