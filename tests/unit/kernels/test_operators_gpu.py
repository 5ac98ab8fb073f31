"""The operators on a GPU: the kernel inside its region, something else right outside, the same values everywhere."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from assay.kernels import operators
from assay.kernels.contract import compare
from assay.kernels.operators import cases, dispatch, proof
from assay.kernels.operators.eligibility import Path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="there is no Hopper GPU"
    ),
]
BF16, F16, F32, F64 = "bfloat16", "float16", "float32", "float64"


def paths() -> set[Path]:
    return {taken.path for taken in dispatch.counts()}


@pytest.mark.parametrize("name", ["softmax", "rms_norm", "layer_norm"])
@pytest.mark.parametrize(
    ("columns", "dtype", "permuted", "path"),
    [
        (1, BF16, False, Path.CUDA),
        (1_023, BF16, False, Path.CUDA),
        (4_096, F32, False, Path.CUDA),
        (131_072, BF16, False, Path.CUDA),
        (131_073, BF16, False, Path.TRITON),
        (1_023, F16, False, Path.TRITON),
        (1_023, F64, False, Path.FRAMEWORK),
        (1_023, BF16, True, Path.FRAMEWORK),
    ],
)
def test_the_edge_of_the_region_and_the_values_on_both_sides(
    name: str, columns: int, dtype: str, permuted: bool, path: Path
) -> None:
    device = torch.device("cuda")
    generator = torch.Generator(device=device).manual_seed(1)
    case = {"rows": 3, "columns": columns, "dtype": dtype, "permuted": permuted}
    values = cases.inputs(name, case, generator, device)
    dispatch.clear()
    result = cases.OURS[name](**values)
    outputs = list(result) if isinstance(result, tuple) else [result]
    assert paths() == {path}
    assert all(output.is_contiguous() for output in outputs)
    wanted = cases.FRAMEWORK[name](**{key: value.double() for key, value in values.items()})
    tolerance = cases.TOLERANCES[name][BF16 if dtype in (BF16, F16) else F32]
    assert not compare(outputs, list(wanted) if isinstance(wanted, tuple) else [wanted], tolerance).reason


@pytest.mark.parametrize(
    ("head", "dtype", "path"), [(128, BF16, Path.CUDA), (64, BF16, Path.TRITON), (128, F32, Path.FRAMEWORK)]
)
def test_attention_on_each_path(head: int, dtype: str, path: Path) -> None:
    device = torch.device("cuda")
    case = {"batch": 2, "heads": 4, "key_heads": 2, "length": 200, "head": head, "dtype": dtype}
    values = cases.inputs("causal_attention", case, torch.Generator(device=device).manual_seed(1), device)
    dispatch.clear()
    y = operators.causal_attention(**values)
    assert paths() == {path}
    wanted = cases.FRAMEWORK["causal_attention"](**{key: value.double() for key, value in values.items()})
    assert not compare([y], [wanted], cases.TOLERANCES["causal_attention"][dtype]).reason
    assert not any(proof.checked(torch.ops.assay.causal_attention.default, tuple(values.values())).values())


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm"])
def test_gradients_of_the_kernels_are_those_of_float64(name: str) -> None:
    device = torch.device("cuda")
    generator = torch.Generator(device=device).manual_seed(1)
    values = cases.inputs(name, {"rows": 64, "columns": 1_024, "dtype": F32}, generator, device)
    mine = {key: value.clone().requires_grad_() for key, value in values.items()}
    wide = {key: value.double().requires_grad_() for key, value in values.items()}
    dispatch.clear()
    slopes = [torch.randn(64, 1_024, generator=generator, device=device) for _ in range(2)]
    found = torch.autograd.grad(cases.OURS[name](**mine), list(mine.values()), slopes)
    wanted = torch.autograd.grad(cases.FRAMEWORK[name](**wide), list(wide.values()), [s.double() for s in slopes])
    assert paths() == {Path.CUDA, Path.TRITON}  # forward, backward
    for one, other in zip(found, wanted, strict=True):
        assert (one.double() - other).norm() < 1e-5 * other.norm()


def test_threads_do_not_mix_their_launches() -> None:
    inputs = [torch.full((8, 1_024 * (1 + i % 3)), float(i), device="cuda") for i in range(24)]
    wanted = [torch.softmax(x, -1) for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            for one, other in zip(pool.map(operators.softmax, inputs), wanted, strict=True):
                torch.testing.assert_close(one, other)
