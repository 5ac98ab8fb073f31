"""Functions through the compiler, for tests of rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from functorch.compile import aot_function, make_boxed_func
from torch import fx

from assay.npu_backend.decompositions import decompositions
from assay.npu_backend.partition import Plan, Settings, plan, run_plan

Function = Callable[..., Any]
SMALL = 3000
"""Bytes of VTCM that make these little tensors need several tiles."""


def compiled(function: Function, *inputs: torch.Tensor, vtcm: int = 8 << 20, strict: bool = False) -> tuple[Plan, Any]:
    """The plan of a function and the list of what it gives."""

    def listed(*values: torch.Tensor) -> list[torch.Tensor]:
        found = function(*values)
        return list(found) if isinstance(found, list | tuple) else [found]

    plans: list[Plan] = []

    def compiler(module: fx.GraphModule, values: list[torch.Tensor]) -> Function:
        settings = Settings(strict=strict, vtcm_bytes=vtcm)
        plans.append(plan(module, values, settings=settings))
        return make_boxed_func(lambda *given: run_plan(module, plans[0], given, settings))

    with torch.no_grad():
        got = aot_function(listed, compiler, decompositions=decompositions())(*inputs)
    return plans[0], got


def operators(function: Function, *inputs: torch.Tensor) -> set[str]:
    """ATen operators that a function is taken apart into."""
    seen: set[str] = set()

    def compiler(module: fx.GraphModule, values: list[torch.Tensor]) -> Function:
        seen.update(str(node.target) for node in module.graph.nodes)
        return make_boxed_func(module.forward)

    with torch.no_grad():
        aot_function(function, compiler, decompositions=decompositions())(*inputs)
    return seen


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def positive(*shape: int) -> torch.Tensor:
    return randn(*shape).abs() + 0.1
