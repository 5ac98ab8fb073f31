"""The suite: byte models, declared cases, ratios, the profiler's listing, evidence and the report page."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.baselines.errors import InputError
from assay.baselines.kernel import check_rows
from assay.baselines.record import read_record
from assay.kernels import contract, model
from assay.kernels.suite import declarations, report, sources, stages, timing
from assay.kernels.suite.__main__ import run
from assay.kernels.suite.contenders import OURS, eager
from assay.kernels.suite.records import losing, write_records

ROOT = Path(__file__).resolve().parents[3]
PUBLISHED = ROOT / "docs" / "results" / "kernels"


@pytest.fixture(scope="module")
def results() -> dict[str, object]:
    return dict(json.loads((PUBLISHED / "results.json").read_text()))


def test_byte_models_count_each_tensor_once() -> None:
    x = torch.empty(64, 1024, dtype=torch.bfloat16)
    w = torch.empty(1024, dtype=torch.bfloat16)
    assert model.softmax(64, 1024, "bfloat16").bytes == 2 * x.nbytes
    assert model.norm("rmsnorm", 64, 1024, "bfloat16").bytes == 2 * x.nbytes + w.nbytes
    assert model.norm("layernorm", 64, 1024, "bfloat16", residual=True).bytes == 4 * x.nbytes + 2 * w.nbytes
    q, k = torch.empty(2, 8, 512, 128, dtype=torch.bfloat16), torch.empty(2, 2, 512, 128, dtype=torch.bfloat16)
    cost = model.causal_attention(2, 8, 2, 512, 128)
    assert cost.bytes == 2 * q.nbytes + 2 * k.nbytes
    assert cost.flops == 4 * 2 * 8 * 512 * 512 * 128 / 2
    # Published intensity of causal attention with as many key heads as heads: S / 4 FLOP per byte.
    assert model.causal_attention(1, 16, 16, 4096, 128).intensity == 4096 / 4
    assert model.Cost(100, 1000).floor_seconds(10, 1000) == 10


def framework_gradients(operator: str, **inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """In float32: in bfloat16 the framework's sums over rows do not meet the tolerance on a CPU."""
    leaves = {n: inputs[n].float().requires_grad_() for n in ("x", "weight", "bias") if n in inputs}
    found = torch.autograd.grad(eager(operator, **leaves), list(leaves.values()), inputs["slope"].float())
    return tuple(gradient.to(inputs["x"].dtype) for gradient in found)


@functools.cache
def small(name: str) -> declarations.Declaration:
    """A declaration with the framework's operator as its kernel."""
    if name.endswith("-backward"):
        operator = name.removesuffix("-backward")
        return declarations.norm_backward(operator, functools.partial(framework_gradients, operator))
    operator = name.removeprefix("add-")
    kernel = functools.partial(eager, operator)
    return declarations.rowwise(operator, kernel, residual=name.startswith("add-"))


@pytest.mark.parametrize(
    "name", ["softmax", "rmsnorm", "layernorm", "add-layernorm", "rmsnorm-backward", "layernorm-backward"]
)
def test_the_framework_meets_the_contract(name: str) -> None:
    declaration = small(name)
    for case in declaration.contract_cases:
        result = contract.check_case(declaration, case, torch.device("cpu"))
        assert result.passed, f"{case}: {result.reason}"


def test_a_one_pass_variance_fails_the_contract() -> None:
    def one_pass(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean
        return (x - mean) * torch.rsqrt(variance + declarations.EPSILON) * weight + bias

    declaration = declarations.rowwise("layernorm", one_pass)
    assert contract.check_case(declaration, "float32-random", torch.device("cpu")).passed
    assert not contract.check_case(declaration, "float32-offset", torch.device("cpu")).passed


def test_a_softmax_that_forgets_the_maximum_fails_the_contract() -> None:
    declaration = declarations.rowwise("softmax", lambda x: x.exp() / x.exp().sum(-1, keepdim=True))
    assert contract.check_case(declaration, "float32-random", torch.device("cpu")).passed
    assert not contract.check_case(declaration, "float32-large", torch.device("cpu")).passed


@pytest.mark.parametrize("case", ["grouped", "tail-by-one", "heads-last", "large", "empty"])
def test_attention_of_the_framework_meets_the_contract(case: str) -> None:
    def library(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    result = contract.check_case(declarations.attention(library), case, torch.device("cpu"))
    assert result.passed, result.reason


def test_a_mask_that_is_off_by_one_fails_the_contract() -> None:
    def shifted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        seen = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril(1)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    assert not contract.check_case(declarations.attention(shifted), "tail-by-one", torch.device("cpu")).passed


def test_a_ratio_is_the_median_of_pairs_and_drift_cancels() -> None:
    generator = np.random.default_rng(1)
    drift = 1 + 0.3 * np.sin(np.arange(60) / 8)
    base = drift * (1 + 0.002 * generator.standard_normal(60))
    head = 1.05 * drift * (1 + 0.002 * generator.standard_normal(60))
    found = timing.ratio(head, base)
    assert found.low < 1.05 < found.high
    assert found.high - found.low < 0.005
    assert timing.ratio(base, base) == timing.Ratio(1.0, 1.0, 1.0)


def test_the_profilers_listing_is_read_in_order_and_units() -> None:
    head = '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
    text = (
        "==PROF== Connected\n"
        + head
        + '"0","7","rowwise","dram__bytes_read.sum","Mbyte","536.91"\n'
        + '"0","7","rowwise","dram__bytes_write.sum","Kbyte","1,510.5"\n'
        + '"1","7","attention_forward","dram__bytes_read.sum","byte","12"\n'
        + '"1","7","attention_forward","gpu__time_duration.sum","us","3.5"\n'
    )
    first, second = stages.parse_ncu(text)
    assert first["kernel"] == "rowwise"
    assert first["dram__bytes_read.sum"] == 536_910_000
    assert first["dram__bytes_write.sum"] == 1_510_500
    assert second["gpu__time_duration.sum"] == 3.5e-6
    assert stages.parse_ncu("==ERROR== no permission\n") == []


def test_the_published_page_is_what_the_published_results_give(results: dict[str, object]) -> None:
    for name, text in report.files(results).items():
        assert (PUBLISHED / name).read_text() == text, f"run: make kernels-report ({name})"


def test_a_page_says_which_sources_have_changed_since(results: dict[str, object]) -> None:
    now = sources.digests()
    assert {"cuda/rowwise.cu", "cuda/attention.cu", "rowwise/tuned.json", "attention/hopper.py"} <= set(now)
    assert "Changed since" not in report.report({**results, "sources": now})
    other = {**now, "cuda/attention.cu": "0" * 64, "cuda/gone.cu": "0" * 64}
    text = report.report({**results, "sources": other})
    assert "earlier kernels:** `kernels/cuda/attention.cu`, `kernels/cuda/gone.cu`." in text


def test_a_run_that_was_begun_with_other_sources_does_not_go_on(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps({"sources": {**sources.digests(), "cuda/rowwise.cu": "0" * 64}}))
    with pytest.raises(InputError, match=r"was begun with another cuda/rowwise\.cu: give another --out, or delete it"):
        run(tmp_path, ["machine-code"])


def test_a_kernel_whose_contract_failed_was_not_timed(results: dict[str, object]) -> None:
    contracts: dict[str, list[dict[str, object]]] = results["contract"]  # type: ignore[assignment]
    timed = {case["name"] for stage in ("rowwise", "attention") for case in results[stage]}  # type: ignore[attr-defined]
    assert timed
    assert all(stages.passed(contracts, str(name)) for name in timed)
    assert not stages.passed({"x": [{"passed": True}, {"passed": False}]}, "x")
    assert not stages.passed({}, "x")


def test_evidence_holds_the_times_and_the_losing_regions(results: dict[str, object], tmp_path: Path) -> None:
    written = write_records(results, tmp_path)
    assert written == len(list(tmp_path.iterdir()))
    record = read_record(tmp_path / "softmax")
    case = next(c for c in results["rowwise"] if c["name"] == "softmax")  # type: ignore[attr-defined]
    found = record.evidence.metrics[f"latency/{case['case']}"]
    assert found.value == pytest.approx(1e6 * float(np.median(case["seconds"][OURS])))
    assert record.evidence.attributes["contract.bfloat16-random"] is True
    lost = losing(results, "softmax")
    assert len(lost) > 1
    names = str(record.evidence.attributes["losing_regions"]).split(", ")
    assert all(any(entry.startswith(name + " ") for entry in lost) for name in names)
    assert all(f"latency/{name}" in record.evidence.metrics for name in names)
    assert check_rows(record.rows, "softmax").num_rows == sum(
        len(c["seconds"][OURS])
        for c in results["rowwise"]
        if c["name"] == "softmax"  # type: ignore[attr-defined]
    )
    peer = read_record(tmp_path / "softmax-compile")
    assert peer.evidence.subject.digest == "undeclared"
    assert "losing_regions" not in peer.evidence.attributes


def test_a_losing_region_needs_the_whole_interval() -> None:
    fast = [1.0 + 0.001 * (i % 3) for i in range(20)]
    slow = [1.1 * value for value in fast]
    case = {"name": "k", "case": "c", "seconds": {OURS: slow, "peer": fast}}
    assert losing({"rowwise": [case]}, "k") == ["c (+10.0% against peer)"]
    case["seconds"] = {OURS: fast, "peer": fast}
    assert losing({"rowwise": [case]}, "k") == []
