"""Declarations: what a kernel is, what it must compute, and what it moves, as values of a small Python file.

from assay.kernels.declaration import Declaration, Tolerance

softmax = Declaration(
    name="row-softmax",
    kernel=my_softmax,
    inputs=lambda case, generator, device: {"x": random(case, generator, device)},
    reference=lambda x: torch.softmax(x, -1),
    tolerances={"float32": Tolerance(absolute=1e-6, relative=1e-5)},
    cases={"c1024": {"rows": 4096, "columns": 1024, "dtype": "float32"}},
    bytes=lambda case: 2 * 4 * case["rows"] * case["columns"],
    flops=lambda case: 5 * case["rows"] * case["columns"],
)
"""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.baselines import usercode
from assay.baselines.errors import InputError

if TYPE_CHECKING:
    import torch

Scalar = bool | int | float | str
Parameters = Mapping[str, Any]
"""Parameters of a case: its shape, `dtype`, and whatever `inputs` reads."""
Inputs = Callable[[Parameters, "torch.Generator", "torch.device"], dict[str, Any]]
MODULE = "assay_bench_declaration"
"""The name under which the user's file is imported: no package of theirs has it."""

_OURS = Path(__file__).resolve().parent
MOST_CASES = 2000
"""Of one kernel, timed and checked ones together."""
_LONGEST_FLAG = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class Tolerance:
    """How far an output may lie from the float64 reference.

    Every finite element must satisfy |out - ref| <= absolute + relative * |ref|; `norm`, where given, bounds
    ||out - ref|| / ||ref|| over the whole output, which sees a small error that all elements share.
    """

    absolute: float
    relative: float
    norm: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("absolute", self.absolute), ("relative", self.relative), ("norm", self.norm)):
            if value is None and name == "norm":
                continue
            if isinstance(value, bool) or not (isinstance(value, int | float) and 0 <= value < math.inf):
                raise InputError(f"a tolerance's {name} is {value!r}: give a number that is not negative.")


@dataclass(frozen=True)
class Declaration:
    """One kernel under test. Declared in a file of its own, before anything is timed.

    The kernel is called as `kernel(**inputs(case, generator, device))` and returns a tensor, a tuple of tensors, or
    None when it writes its results into the inputs named in `mutates`. The reference is called with the same names;
    its floating tensors are float64 copies, its result has the same structure.
    """

    name: str
    kernel: Callable[..., Any]
    inputs: Inputs
    """(parameters, generator, device) -> named tensors and scalars, freshly drawn from the generator at each call."""
    reference: Callable[..., Any]
    tolerances: Mapping[str, Tolerance]
    """By the `dtype` of a case, for example `bfloat16`."""
    cases: Mapping[str, Parameters]
    """The timed cases: name -> parameters."""
    bytes: Callable[[Parameters], float]
    """Bytes that a perfect kernel moves to and from memory, compulsory traffic alone."""
    flops: Callable[[Parameters], float]
    contract_cases: Mapping[str, Parameters] = field(default_factory=dict)
    """Cases that are checked and not timed: extreme values, all masked, tails, non-contiguous, odd widths, empty."""
    setup: Callable[[], None] | None = None
    """Called once in each process before the first kernel: builds extensions, sets flags."""
    mutates: frozenset[str] = frozenset()
    """Inputs that the kernel is allowed to write."""
    graph_safe: bool = True
    """Whether the kernel may be captured in a CUDA graph; without, launch overhead is not told apart."""
    configuration: Mapping[str, Scalar] = field(default_factory=dict)
    """Flags of the kernel that an ablation varies; they become the subject's configuration."""

    def __post_init__(self) -> None:
        _check(self)

    def parameters(self, case: str) -> Parameters:
        """Parameters of a timed or contract case. Raises `InputError` for a name that neither has."""
        if case in self.cases:
            return self.cases[case]
        if case in self.contract_cases:
            return self.contract_cases[case]
        raise InputError(f"{self.name} declares no case {case[:60]!r}: it has {', '.join([*self.cases][:8])}.")

    def tolerance(self, case: str) -> Tolerance:
        """The tolerance of a case, by its dtype."""
        return self.tolerances[str(self.parameters(case)["dtype"])]


def load(path: Path, *, root: Path | None = None) -> dict[str, Declaration]:
    """The declarations of a Python file, by name. Imports run as from `root`, or else from the file's folder.

    Raises `InputError` with one line when there is no file, when importing it fails, and when it declares nothing or
    one name twice, and when two kernels' cases would have one label; the user's exception is its cause.
    """
    path = Path(path).resolve()
    if not path.is_file():
        raise InputError(f"there is no file {path.name} in {path.parent}: give the file that declares the kernels.")
    for folder in dict.fromkeys((str(path.parent), str(Path(root or path.parent).resolve()))):
        sys.path[:] = [folder, *(entry for entry in sys.path if entry != folder)]
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path.name} is no Python file: declarations are module-level values of a .py file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    try:
        spec.loader.exec_module(module)
    except InputError:
        raise
    except usercode.FAILURES as error:
        raise InputError(f"importing {path.name} {raised(error)}") from error
    found: dict[str, Declaration] = {}
    for value in list(vars(module).values()):
        declared = value if isinstance(value, list | tuple) else [value]
        for declaration in declared:
            if not isinstance(declaration, Declaration):
                continue
            if found.setdefault(declaration.name, declaration) is not declaration:
                raise InputError(f"{path.name} declares {declaration.name} twice: give each kernel its own name.")
    if not found:
        raise InputError(
            f"{path.name} declares no kernel: assign a Declaration to a module-level name (see docs/bench.md)."
        )
    _check_labels(path, found)
    return found


def _check_labels(path: Path, found: Mapping[str, Declaration]) -> None:
    """Results go by `<kernel>.<case>`, and both may hold dots: the results of one must not be taken for another's."""
    whose: dict[str, str] = {}
    for declaration in found.values():
        for case in (*declaration.cases, *declaration.contract_cases):
            label = f"{declaration.name}.{case}"
            other = whose.setdefault(label, declaration.name)
            if other != declaration.name:
                raise InputError(
                    f"{path.name}: the results of {other} and of {declaration.name} would both be called {label}: rename a case."
                )


def raised(error: BaseException) -> str:
    """`raised ValueError: no such launch (ours.py:12)`: what user code did and where, in the current folder or below."""
    return usercode.raised([error], Path.cwd().resolve(), ours=_OURS, most=200)


def _check(d: Declaration) -> None:
    if not isinstance(d.name, str) or _NAME.fullmatch(d.name) is None:
        raise InputError(f"a kernel is named {d.name!r}: use up to 64 letters, digits, dots, dashes and underscores.")
    for what in ("kernel", "inputs", "reference", "bytes", "flops"):
        if not callable(getattr(d, what)):
            raise InputError(f"{d.name}: `{what}` is a {type(getattr(d, what)).__name__}, not a function.")
    if d.setup is not None and not callable(d.setup):
        raise InputError(f"{d.name}: `setup` is a {type(d.setup).__name__}, not a function: leave it out or give one.")
    for what, example in (
        ("tolerances", '{"float32": Tolerance(1e-6, 1e-5)}'),
        ("cases", '{"c1024": {"dtype": "float32"}}'),
        ("contract_cases", '{"tail": {"dtype": "float32"}}'),
        ("configuration", '{"stages": 2}'),
    ):
        if not isinstance(getattr(d, what), Mapping):
            raise InputError(
                f"{d.name}: `{what}` is a {type(getattr(d, what)).__name__}: give a dict such as {example}."
            )
    if isinstance(d.mutates, str) or not all(isinstance(name, str) for name in d.mutates):
        raise InputError(f'{d.name}: `mutates` is {d.mutates!r}: give the names of inputs, as in frozenset({{"out"}}).')
    for dtype, tolerance in d.tolerances.items():
        if not isinstance(dtype, str):
            raise InputError(f"{d.name}: `tolerances` has the key {dtype!r}: write it as a word, '{_word(dtype)}'.")
        if not isinstance(tolerance, Tolerance):
            raise InputError(
                f"{d.name}: the tolerance for {dtype} is a {type(tolerance).__name__}: give Tolerance(absolute, relative)."
            )
    object.__setattr__(d, "mutates", frozenset(d.mutates))
    _check_cases(d)
    _check_flags(d)


def _check_cases(d: Declaration) -> None:
    if not d.cases:
        raise InputError(f"{d.name} declares no case: give at least one, for example cases={{'c1024': {{...}}}}.")
    both = set(d.cases) & set(d.contract_cases)
    if both:
        raise InputError(f"{d.name}: {sorted(both)[0]} is a timed and a contract case: name them differently.")
    if len(d.cases) + len(d.contract_cases) > MOST_CASES:
        raise InputError(f"{d.name} declares more than {MOST_CASES:,} cases: declare fewer.")
    for name, parameters in {**d.cases, **d.contract_cases}.items():
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise InputError(f"{d.name}: a case is named {name!r}: use letters, digits, dots, dashes and underscores.")
        if not isinstance(parameters, Mapping) or not all(isinstance(key, str) for key in parameters):
            raise InputError(f"{d.name}, case {name}: its parameters are no dict whose keys are words: give one.")
        dtype = parameters.get("dtype")
        if dtype is None:
            raise InputError(f"{d.name}, case {name}: there is no dtype: give for example 'dtype': 'float32'.")
        if not isinstance(dtype, str):
            raise InputError(f"{d.name}, case {name}: its dtype is {dtype!r}: write it as a word, '{_word(dtype)}'.")
        if dtype not in d.tolerances:
            raise InputError(f"{d.name}, case {name}: there is no tolerance for {dtype}: add it to `tolerances`.")


def _check_flags(d: Declaration) -> None:
    for flag, value in d.configuration.items():
        if not isinstance(flag, str) or not isinstance(value, Scalar):
            raise InputError(
                f"{d.name}: the flag {str(flag)[:60]} is a {type(value).__name__}: flags are numbers, words, true or false."
            )
        if not all(usercode.is_text(text) for text in (flag, str(value))):
            raise InputError(f"{d.name}: the flag {flag!r} holds half a surrogate pair: give text that UTF-8 has.")
        if len(flag) > _LONGEST_FLAG or len(str(value)) > _LONGEST_FLAG:
            raise InputError(f"{d.name}: the flag {flag[:60]} is longer than {_LONGEST_FLAG} characters: shorten it.")
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{d.name}: the flag {flag} is {value}: give a finite number.")


def _word(dtype: Any) -> str:
    """A torch.dtype as declarations write it."""
    return str(dtype).removeprefix("torch.")[:40]
