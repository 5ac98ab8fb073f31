"""Declarations are read from a user's file, and what is wrong in one is said in a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.baselines.errors import InputError
from assay.kernels.declaration import MODULE, Declaration, Tolerance, load

GOOD = """
from assay.kernels.declaration import Declaration, Tolerance
from beside import kernel

double = Declaration(
    name="double", kernel=kernel, inputs=dict, reference=kernel, tolerances={"float32": Tolerance(0, 0)},
    cases={"n8": {"n": 8, "dtype": "float32"}}, bytes=lambda c: 8 * c["n"], flops=lambda c: c["n"],
)
"""


@pytest.fixture(autouse=True)
def _same_path() -> Iterator[None]:
    kept = list(sys.path)
    yield
    sys.path[:] = kept
    for name in (MODULE, "beside"):
        sys.modules.pop(name, None)


def made(**others: Any) -> Declaration:
    return Declaration(
        **{
            "name": "k",
            "kernel": len,
            "inputs": dict,
            "reference": len,
            "tolerances": {"float32": Tolerance(0, 0)},
            "cases": {"a": {"dtype": "float32"}},
            "bytes": len,
            "flops": len,
            **others,
        }
    )


def test_a_file_imports_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def kernel(x): return 2 * x\n")
    (tmp_path / "bench.py").write_text(GOOD)
    found = load(tmp_path / "bench.py")
    assert list(found) == ["double"]
    assert found["double"].kernel(4) == 8


def test_imports_run_as_from_the_root(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def kernel(x): return 3 * x\n")
    (tmp_path / "benches").mkdir()
    (tmp_path / "benches" / "bench.py").write_text(GOOD + "several = [double]\n")
    assert load(tmp_path / "benches" / "bench.py", root=tmp_path)["double"].kernel(4) == 12


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "declares no kernel"),
        ("import sys\nsys.exit()", r"importing bench.py called sys.exit\(\)"),
        ("import nowhere_to_be_found", "importing bench.py raised ModuleNotFoundError"),
        ("def", "importing bench.py raised SyntaxError"),
        (GOOD + "import dataclasses\nagain = dataclasses.replace(double, graph_safe=False)", "declares double twice"),
        (GOOD.replace("dtype", "kind"), "there is no dtype"),
    ],
)
def test_a_bad_file_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def kernel(x): return 2 * x\n")
    (tmp_path / "bench.py").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load(tmp_path / "bench.py")
    assert "\n" not in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file gone\.py"):
        load(tmp_path / "gone.py")


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"name": "a b"}, "named 'a b'"),
        ({"kernel": 3}, "`kernel` is a int"),
        ({"cases": {}}, "declares no case"),
        ({"cases": {"a/b": {"dtype": "float32"}}}, "a case is named 'a/b'"),
        ({"cases": {"a": {"dtype": "float64"}}}, "no tolerance for float64"),
        ({"contract_cases": {"a": {"dtype": "float32"}}}, "a is a timed and a contract case"),
        ({"configuration": {"tile": [1]}}, "the flag tile is a list"),
        ({"configuration": {"tile": "\ud800"}}, "the flag 'tile' holds half a surrogate pair"),
    ],
)
def test_a_bad_declaration_is_refused_when_it_is_made(others: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        made(**others)


@pytest.mark.parametrize("values", [(-1, 0), (0, float("nan")), (0, 0, float("inf"))])
def test_tolerances_are_numbers(values: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="a tolerance's"):
        Tolerance(*values)


def test_a_case_is_found_by_name() -> None:
    d = made(contract_cases={"tail": {"dtype": "float32", "n": 3}})
    assert d.parameters("tail")["n"] == 3
    assert d.tolerance("a") == Tolerance(0, 0)
    with pytest.raises(InputError, match="declares no case 'b'"):
        d.parameters("b")
