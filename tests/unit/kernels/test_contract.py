"""The contract sees what a kernel gets wrong; every case here plants one fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from assay.baselines.errors import InputError
from assay.kernels.contract import attributes, check
from assay.kernels.declaration import Declaration, Tolerance

Kernel = Callable[..., Any]


def inputs(case: Any, generator: torch.Generator, device: torch.device) -> dict[str, Any]:
    x = torch.randn(case["rows"], case["columns"], generator=generator, device=device)
    x = x * case.get("scale", 1.0)
    if case.get("masked"):
        x = torch.full_like(x, -torch.inf)
    if case.get("permuted"):
        x = x.t().contiguous().t()
    return {"x": x.to(getattr(torch, case["dtype"]))}


def declared(kernel: Kernel, **others: Any) -> Declaration:
    return Declaration(
        **{
            "name": "softmax",
            "kernel": kernel,
            "inputs": inputs,
            "reference": lambda x: torch.softmax(x, -1),
            "tolerances": {"float32": Tolerance(1e-6, 1e-5), "bfloat16": Tolerance(4e-3, 1.6e-2)},
            "cases": {"c64": {"rows": 8, "columns": 64, "dtype": "float32"}},
            "contract_cases": {
                "tail": {"rows": 3, "columns": 61, "dtype": "float32"},
                "extreme": {"rows": 4, "columns": 64, "dtype": "float32", "scale": 1e4},
                "masked": {"rows": 4, "columns": 64, "dtype": "float32", "masked": True},
                "permuted": {"rows": 4, "columns": 64, "dtype": "bfloat16", "permuted": True},
                "empty": {"rows": 0, "columns": 64, "dtype": "float32"},
            },
            "bytes": lambda case: 8 * case["rows"] * case["columns"],
            "flops": lambda case: 5 * case["rows"] * case["columns"],
            **others,
        }
    )


def right(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def test_a_right_kernel_passes_every_case() -> None:
    results = check(declared(right), "cpu")
    assert [r.reason for r in results] == [""] * 6
    assert attributes(results)["contract.extreme"] is True
    assert 0 < results[0].relative_error < 1e-6


def unwritten(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    out[:, :60] = torch.softmax(x, -1)[:, :60]
    return out


def overflows(x: torch.Tensor) -> torch.Tensor:
    e = x.exp()
    return e / e.sum(-1, keepdim=True)


def fills_masked(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1).nan_to_num(0.0)


class Remembering:
    """Keeps the output of an address: `pointer` alone, or with the version counter."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, ...], torch.Tensor] = {}

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        key = (x.data_ptr(), x._version, *x.shape)
        if key not in self.kept:
            self.kept[key] = torch.softmax(x, -1)
        return self.kept[key]


def mutates(x: torch.Tensor) -> torch.Tensor:
    out = torch.softmax(x, -1)
    x.data.zero_()
    return out


def ignores_strides(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.as_strided(x, x.shape, (x.shape[-1], 1)), -1)


class Lazy(torch.Tensor):
    pass


def lazy(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1).as_subclass(Lazy)


def crashes_on_empty(x: torch.Tensor) -> torch.Tensor:
    if not x.numel():
        raise RuntimeError("grid of zero\nblocks")
    return torch.softmax(x, -1)


@pytest.mark.parametrize(
    ("kernel", "case", "reason"),
    [
        (unwritten, "c64", "32 of 512 elements are NaN on one side alone"),
        (overflows, "extreme", "NaN on one side alone"),
        (fills_masked, "masked", "NaN on one side alone"),
        (Remembering(), "c64", "outside the tolerance"),
        (mutates, "c64", "changed its input x"),
        (ignores_strides, "permuted", "outside the tolerance"),
        (lazy, "c64", "returned a Lazy, not a plain tensor"),
        (crashes_on_empty, "empty", "RuntimeError: grid of zero blocks"),
        (lambda x: torch.full_like(x, 1 / 64), "c64", "outside the tolerance"),
        (lambda x: torch.softmax(x, -1)[:, :-1], "tail", "shape (3, 60)"),
        (lambda x: (torch.softmax(x, -1), x), "c64", "2 outputs where the reference has 1"),
        (lambda x: None, "c64", "returned nothing"),
        (lambda x: torch.softmax(x.half(), -1).float(), "c64", "outside the tolerance"),
    ],
)
def test_a_fault_fails_its_case(kernel: Kernel, case: str, reason: str) -> None:
    results = {r.case: r for r in check(declared(kernel), "cpu")}
    assert not results[case].passed
    assert reason in results[case].reason


def test_the_norm_sees_an_error_that_all_elements_share() -> None:
    tolerance = {"float32": Tolerance(0.0, 1e-3, norm=1e-4)}
    case = {"c64": {"rows": 8, "columns": 64, "dtype": "float32"}}
    wrong = declared(lambda x: torch.softmax(x, -1) * 1.0005, tolerances=tolerance, cases=case, contract_cases={})
    assert "the error's norm is 0.0005" in check(wrong, "cpu")[0].reason


def test_a_kernel_may_write_what_it_declares() -> None:
    def in_place(x: torch.Tensor) -> None:
        x.copy_(torch.softmax(x, -1))

    assert all(r.passed for r in check(declared(in_place, mutates=frozenset({"x"})), "cpu"))
    assert not check(declared(in_place), "cpu")[0].passed


def test_poisoning_leaves_no_trace() -> None:
    check(declared(right), "cpu")
    assert not torch.are_deterministic_algorithms_enabled()


def test_what_overflows_the_dtype_must_be_infinite() -> None:
    def huge(case: Any, generator: torch.Generator, device: torch.device) -> dict[str, Any]:
        return {"x": torch.full((4,), 6e4, dtype=torch.float16)}

    def doubled(kernel: Kernel) -> str:
        return check(
            declared(
                kernel,
                inputs=huge,
                reference=lambda x: 2 * x,
                tolerances={"float16": Tolerance(0, 1e-3)},
                cases={"h": {"dtype": "float16"}},
                contract_cases={},
            ),
            "cpu",
        )[0].reason

    assert doubled(lambda x: 2 * x) == ""
    assert "infinite on one side alone" in doubled(lambda x: (2 * x).clamp(max=65504.0))


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"inputs": lambda c, g, d: {"x": 1}}, "`inputs` gives dict"),
        ({"inputs": lambda c, g, d: 1 / 0}, "`inputs` raised ZeroDivisionError"),
        ({"reference": lambda x: 1}, "`reference` gives int"),
        ({"reference": lambda y: y}, "`reference` raised TypeError"),
    ],
)
def test_a_declaration_at_fault_is_named(others: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(declared(right, **others), "cpu")
