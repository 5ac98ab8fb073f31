"""Whether the functions that measure are still the ones that were there before the user's code was imported.

This sees a kernel that patches the clock, torch or assay itself. It is no sandbox: code in the same process that is bent
on forging can look further, which is why the coordinator's own clock, in another process, bounds every block too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch

_OURS = "assay.kernels."
_CONTRACT = (
    "Generator", "equal", "where", "empty", "empty_like", "tensor", "isfinite", "is_deterministic",
    "use_deterministic_algorithms", "device",
    # What `inputs` draws with: it runs between the clock and the check.
    "randn", "rand", "randint", "randperm", "normal", "bernoulli", "randn_like", "rand_like", "randint_like", "zeros", "ones",
    "full", "arange", "linspace", "zeros_like", "ones_like", "full_like", "empty_strided", "as_tensor",
)  # fmt: skip
_TENSOR = (
    "clone", "copy_", "to", "isnan", "isinf", "abs", "norm", "sum", "max", "view", "reshape", "contiguous", "data_ptr",
    "detach", "numel", "stride", "is_floating_point", "__eq__", "__ne__", "__sub__", "__gt__", "cpu", "item", "tolist",
    "numpy", "__bool__", "__float__",
)  # fmt: skip
_CUDA = ("synchronize", "Event", "CUDAGraph", "graph", "current_stream", "Stream", "stream", "_sleep")
_EVENT = ("record", "elapsed_time", "synchronize", "query", "__new__")
_TIME = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time_ns", "time")

Fingerprint = dict[str, Any]


def fingerprint() -> Fingerprint:
    """The functions that count, by name, as they are now."""
    found: Fingerprint = {}
    for owner, label, names in (
        (time, "time", _TIME),
        (torch, "torch", _CONTRACT),
        (torch.Tensor, "torch.Tensor", _TENSOR),
        (torch.cuda, "torch.cuda", _CUDA),
        (torch.cuda.Event, "torch.cuda.Event", _EVENT),
    ):
        found |= {f"{label}.{name}": getattr(owner, name) for name in names if hasattr(owner, name)}
    for name, module in list(sys.modules.items()):
        if name.startswith(_OURS) and isinstance(module, ModuleType):
            found |= _functions(name, vars(module))
    return found


def changed(before: Fingerprint, after: Fingerprint) -> list[str]:
    """Names of functions that are others now. What came in addition does not count: users' modules import more."""
    return sorted(name for name, function in before.items() if after.get(name) is not function)


def _functions(name: str, values: Mapping[str, Any]) -> Fingerprint:
    found: Fingerprint = {}
    for key, value in values.items():
        if getattr(value, "__module__", None) != name:
            continue
        found[f"{name}.{key}"] = value
        # A function keeps its identity when its code is exchanged.
        if hasattr(value, "__code__"):
            found[f"{name}.{key}()"] = value.__code__
        if isinstance(value, type):
            found |= {f"{name}.{key}.{k}": v for k, v in vars(value).items() if callable(v)}
    return found
