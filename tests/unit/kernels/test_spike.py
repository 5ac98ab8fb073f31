"""`assay bench --operator`: what a registration spike proves of a user's kernel, and what it excludes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from assay.baselines.environment import Environment
from assay.baselines.errors import InputError
from assay.baselines.evidence import Provenance
from assay.baselines.kernel import check_rows
from assay.baselines.record import read_record
from assay.bot.milestones.predicates import Met, judge
from assay.bot.milestones.proposal import parse_capstone
from assay.bot.milestones.shelf import Kept, Shelf
from assay.kernels.bench import spike_scope
from assay.kernels.bench.spike import Spike, spike
from assay.kernels.bench.spike_guards import Guards, layouts_of
from assay.kernels.bench.spike_registration import registered, schema_of
from assay.kernels.cli import bench
from assay.kernels.contract import draw
from assay.kernels.declaration import MODULE, Declaration, Tolerance

ROOT = Path(__file__).resolve().parents[3]
CPU = torch.device("cpu")


def random_rows(case: Any, generator: torch.Generator, device: torch.device) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(case["rows"], case["columns"], generator=generator, device=device)}


def declared(**others: Any) -> Declaration:
    return Declaration(
        **{
            "name": "row-softmax",
            "kernel": lambda x: torch.softmax(x, -1),
            "inputs": random_rows,
            "reference": lambda x: torch.softmax(x, -1),
            "tolerances": {"float32": Tolerance(1e-6, 1e-5)},
            "cases": {"c64": {"rows": 8, "columns": 64, "dtype": "float32"}},
            "contract_cases": {"tail": {"rows": 3, "columns": 5, "dtype": "float32"}},
            "bytes": lambda case: 8 * case["rows"] * case["columns"],
            "flops": lambda case: 5 * case["rows"] * case["columns"],
            **others,
        }
    )


@pytest.fixture(scope="module")
def softmax() -> Spike:
    return spike(declared(), CPU)


def proven(found: Spike) -> dict[str, bool]:
    return {interface.name: interface.proven for interface in found.interfaces}


def detail(found: Spike, name: str) -> str:
    return next(interface.detail for interface in found.interfaces if interface.name == name)


def test_every_interface_of_a_sound_kernel_is_proven(softmax: Spike) -> None:
    assert set(proven(softmax).values()) == {True}
    assert softmax.schema == "(Tensor x) -> Tensor"
    assert softmax.graph_breaks == 0
    assert "torch.ops.spike.kernel.default" in softmax.graph
    assert set(softmax.contract) == {"c64", "tail", "random", "fallback", "opcheck"}
    assert not any(softmax.contract.values())


def test_the_shape_outside_of_the_guards_takes_the_fallback_and_says_why(softmax: Spike) -> None:
    assert softmax.outside == "columns = 65"
    assert softmax.fallback_reason == "x: dimension 1 is outside 5 to 64 elements"
    assert softmax.dispatched["fallback (x: dimension 1 is outside 5 to 64 elements)"] == 1
    assert softmax.dispatched["kernel"] > 1


def test_the_kernel_runs_inside_and_the_reference_outside() -> None:
    # Kernel and reference differ on purpose, so that it shows which one ran.
    declaration = declared(kernel=lambda x: x + 1, reference=lambda x: x - 1)
    values = draw(declaration, declaration.parameters("c64"), 1, CPU)
    guards = Guards.of(layouts_of(declaration, CPU), "cpu")
    wide = torch.zeros(2, 65)
    with registered(declaration, guards, values) as made:
        assert torch.equal(made.call(**values), values["x"] + 1)
        assert torch.equal(made.call(x=wide), wide - 1)
        assert torch.equal(made.call(x=torch.zeros(64, 8).t()), torch.zeros(8, 64) - 1)
        assert sum(made.log.values()) == 3
        assert made.log["fallback", "x: not contiguous"] == 1


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.zeros(1, 5), ""),
        (torch.zeros(9_999, 64), ""),
        (torch.zeros(8, 4), "x: dimension 1 is outside 5 to 64 elements"),
        (torch.zeros(8, 65), "x: dimension 1 is outside 5 to 64 elements"),
        (torch.zeros(64), "x: 1 dimensions"),
        (torch.zeros(8, 64, dtype=torch.float64), "x: dtype float64"),
        (torch.zeros(8, 128)[:, ::2], "x: not contiguous"),
        (torch.zeros(8, 64, device="meta"), "x: on meta"),
    ],
)
def test_guards_hold_exactly_where_the_contract_looked(tensor: torch.Tensor, reason: str) -> None:
    guards = Guards.of(layouts_of(declared(), CPU), "cpu")
    assert guards.reason({"x": tensor}) == reason


def test_inputs_that_read_values_are_drawn_and_only_their_layouts_kept() -> None:
    def inputs(case: Any, generator: torch.Generator, device: torch.device) -> dict[str, torch.Tensor]:
        x = torch.randn(case["rows"], 2 * case["columns"], generator=generator, device=device)
        return {"x": (x / float(x.abs().max()))[:, ::2]}

    found = layouts_of(declared(inputs=inputs), CPU)
    assert [(f["x"].shape, f["x"].stride(), f["x"].device.type) for f in found] == [
        ((8, 64), (128, 2), "meta"),
        ((3, 5), (10, 2), "meta"),
    ]


def test_numbers_and_words_are_guarded_by_the_declared_values() -> None:
    guards = Guards.of([{"groups": 2, "mode": "a", "epsilon": 0.5}, {"groups": 4, "mode": "a", "epsilon": 0.1}], "cpu")
    assert guards.reason({"groups": 4, "mode": "a", "epsilon": 0.7}) == ""
    assert guards.reason({"groups": 3, "mode": "a", "epsilon": 0.5}) == "groups: a value that no case has"
    assert guards.words() == ["every tensor is on cpu", "`groups` is 2 or 4", "`mode` is 'a'"]


def test_a_wrong_kernel_is_not_proven_eager_but_the_rest_is_still_tried() -> None:
    found = spike(declared(kernel=lambda x: torch.softmax(x, -1) * 1.01), CPU)
    assert not proven(found)["eager"]
    assert found.contract["c64"]
    assert proven(found)["torch.compile"]


def test_a_reference_that_reads_values_excludes_fake_and_compiled_execution() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1) if float(x.sum()) < 1e9 else x

    found = spike(declared(reference=reference), CPU)
    names = proven(found)
    assert names["eager"]
    assert names["fallback"]
    assert not names["fake, schema and aliasing (opcheck)"]
    assert not names["torch.compile"]
    assert found.contract["opcheck"]
    assert "torch.compile" in spike_scope.markdown(found, "c").partition("## Excluded")[2]


@pytest.mark.parametrize(
    ("permute", "outside", "reason"),
    [
        (False, "inputs that are not contiguous", "x: not contiguous"),
        (True, "inputs in float64", "x: dtype float64"),
    ],
)
def test_without_a_size_to_exceed_layout_or_dtype_is_what_lies_outside(
    permute: bool, outside: str, reason: str
) -> None:
    def inputs(case: Any, generator: torch.Generator, device: torch.device) -> dict[str, torch.Tensor]:
        x = torch.randn(8, 16, generator=generator, device=device)
        return {"x": x.t() if permute else x}

    declaration = declared(inputs=inputs, cases={"only": {"dtype": "float32"}}, contract_cases={}, bytes=lambda case: 1)
    found = spike(declaration, CPU)
    assert (found.outside, found.fallback_reason, proven(found)["fallback"]) == (outside, reason, True)
    assert detail(found, "dynamic batch") == "no parameter of the case changes the first dimension alone"


def test_a_kernel_that_hands_back_its_input_is_given_memory_of_its_own() -> None:
    found = spike(declared(kernel=lambda x: x, reference=lambda x: x.clone()), CPU)
    assert set(proven(found).values()) == {True}


def test_a_gradient_is_refused_in_words() -> None:
    declaration = declared()
    values = draw(declaration, declaration.parameters("c64"), 1, CPU)
    with registered(declaration, Guards.of(layouts_of(declaration, CPU), "cpu"), values) as made:
        result = made.call(x=values["x"].requires_grad_())
        with pytest.raises(RuntimeError, match="registered for inference only"):
            result.sum().backward()


def test_forward_mode_is_refused_in_words() -> None:
    """A registration without a rule would give a result without its tangent: a derivative that is silently zero."""
    declaration = declared()
    values = draw(declaration, declaration.parameters("c64"), 1, CPU)
    with registered(declaration, Guards.of(layouts_of(declaration, CPU), "cpu"), values) as made:
        x = values["x"]
        with pytest.raises(RuntimeError, match="no forward-mode derivative"):
            torch.func.jvp(lambda x: made.call(x=x), (x,), (x,))
        with torch.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError, match="no forward-mode derivative"):
            made.call(x=torch.autograd.forward_ad.make_dual(x, x))
        assert made.call(x=x) is not None


def test_the_namespace_is_gone_afterwards() -> None:
    declaration = declared()
    values = draw(declaration, declaration.parameters("c64"), 1, CPU)
    with registered(declaration, Guards.of(layouts_of(declaration, CPU), "cpu"), values) as made:
        name = made.operator.name()
        assert torch._C._dispatch_has_kernel(name)
    assert not torch._C._dispatch_has_kernel(name)


def test_schemas_follow_the_inputs() -> None:
    values = {
        "x": torch.zeros(1),
        "mask": None,
        "sizes": [1, 2],
        "causal": True,
        "groups": 2,
        "scale": 0.5,
        "mode": "a",
    }
    expected = "(Tensor(a!) x, Tensor? mask, int[] sizes, bool causal, int groups, float scale, str mode) -> ()"
    assert schema_of(declared(mutates=frozenset({"x"})), values, 0) == expected
    assert schema_of(declared(), {"x": torch.zeros(1)}, 2) == "(Tensor x) -> (Tensor, Tensor)"
    with pytest.raises(InputError, match="the input table is a dict"):
        schema_of(declared(), {"table": {}}, 1)


def test_cases_with_other_inputs_are_refused() -> None:
    def inputs(case: Any, generator: torch.Generator, device: torch.device) -> dict[str, Any]:
        found: dict[str, Any] = random_rows(case, generator, device)
        return found | ({"scale": 2.0} if case["rows"] == 3 else {})

    with pytest.raises(InputError, match="inputs of different names"):
        spike(declared(inputs=inputs), CPU)


def test_a_kernel_that_raises_is_said_in_a_line() -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        raise TypeError("no such launch")

    with pytest.raises(InputError, match="the kernel raised TypeError: no such launch"):
        spike(declared(kernel=kernel), CPU)


def test_the_evidence_meets_the_first_milestone_of_the_registration_proposal(softmax: Spike) -> None:
    capstone = parse_capstone((ROOT / "docs" / "examples" / "registration" / "capstone.yml").read_bytes())
    made = spike_scope.record(
        softmax,
        digest="0" * 64,
        command="c",
        provenance=Provenance(created=datetime(2026, 12, 1, tzinfo=UTC)),
        environment=Environment(hardware="one GPU", driver="NVIDIA 1", libraries={"torch": "2"}),
    )
    headings = [line.lstrip("# ") for line in spike_scope.markdown(softmax, "c").splitlines() if line.startswith("#")]
    shelf = Shelf(kept=(Kept("d" * 64, made.evidence),), files={"docs/softmax-operator.md": tuple(headings)})
    outcomes = [judge(predicate, capstone, shelf) for predicate in capstone.milestones[0].evidence]
    assert [type(outcome) for outcome in outcomes] == [Met, Met, Met]
    broken = dataclasses.replace(softmax, contract={**softmax.contract, "opcheck": "test_faketensor: wrong strides"})
    failed = spike_scope.record(broken, digest="0" * 64, command="c", provenance=made.evidence.provenance)
    shelf = dataclasses.replace(shelf, kept=(Kept("d" * 64, failed.evidence),))
    assert not isinstance(judge(capstone.milestones[0].evidence[0], capstone, shelf), Met)


def test_an_interpreted_kernel_is_tried_and_not_timed(softmax: Spike, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    found = spike(declared(), CPU)
    assert proven(found) == proven(softmax)
    made = spike_scope.record(found, digest="0" * 64, command="c", provenance=Provenance(created=datetime.now(UTC)))
    assert made.evidence.subject.backend == "triton interpreter"
    assert list(made.evidence.metrics) == ["graph-breaks"]
    assert check_rows(made.rows, "spike").num_rows == 0
    assert "Nothing was timed" in spike_scope.markdown(found, "c")


@pytest.fixture
def _same_modules() -> Iterator[None]:
    import sys

    kept = list(sys.path)
    yield
    sys.path[:] = kept
    for name in (MODULE, "softmax"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("_same_modules")
def test_the_command_writes_a_record_and_the_decision_beside_it(tmp_path: Path) -> None:
    file = ROOT / "demo" / "kernels" / "add_norm.py"
    out = tmp_path / "spike"
    arguments = ["--operator", f"{file}:rms-norm-in-place", "--out", str(out), "--head", str(tmp_path), "--json"]
    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    document = json.loads(result.output)
    assert all(interface["proven"] for interface in document["interfaces"].values())
    kept = read_record(out)
    assert kept.digest == document["digest"]
    evidence = kept.evidence
    assert evidence.subject.configuration == {"kernel": "rms-norm-in-place", "registered": True}
    assert evidence.attributes["operator.schema"] == "(Tensor(a!) x) -> ()"
    assert evidence.attributes["operator.opcheck"] == "passed"
    assert evidence.metrics["graph-breaks"].value == 0
    assert check_rows(kept.rows, "spike").num_rows == evidence.metrics["latency/c1024"].n
    decision = (tmp_path / "spike.md").read_text()
    assert "## Interfaces proven feasible" in decision
    assert str(ROOT) not in decision


@pytest.mark.usefixtures("_same_modules")
def test_a_file_of_several_kernels_wants_a_name(tmp_path: Path) -> None:
    file = str(ROOT / "demo" / "kernels" / "add_norm.py")
    for given, said in ((file, "name one of them"), (f"{file}:other", "declares no other")):
        with pytest.raises(InputError, match=said):
            CliRunner().invoke(
                bench,
                ["--operator", given, "--out", str(tmp_path / "s")],
                standalone_mode=False,
                catch_exceptions=False,
            )
    with pytest.raises(InputError, match="leave --base out"):
        CliRunner().invoke(
            bench, ["--operator", file, "--base", "main", "--out", "s"], standalone_mode=False, catch_exceptions=False
        )
