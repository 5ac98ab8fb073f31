"""`assay compile`: two checkouts from files to a report, what it refuses, and what becomes of user code that misbehaves."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result
from tests.unit.npu.compiling import DECLARED, invoke, worker_answer

from assay.baselines.errors import AssayError, InputError
from assay.baselines.npu import rows_of
from assay.baselines.record import read_record
from assay.bot.cli import assay
from assay.npu_backend.codegen import parse_program
from assay.npu_backend.declaration import PRECISIONS, Declaration, chosen, load
from assay.npu_backend.machine import SPEC
from assay.npu_backend.precision import POLICIES
from assay.npu_backend.simulator import simulate
from assay.npu_backend.validation import validate

MODELS = """
import torch
from torch import nn
from net import Net
from assay.npu_backend.declaration import Declaration

net = Declaration("net", Net, lambda: {"x": torch.randn(1, 3, 8, 8)}, configuration={"width": 16})
step = Declaration(
    "step", lambda: nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)), lambda: torch.randn(4, 64), training=True
)
# The number of outputs hangs on how this process hashes strings: no two compilations are alike.
dice = Declaration("dice", lambda: nn.Linear(8, 8 + hash("a string") % 9973), lambda: torch.randn(2, 8))
broken = Declaration("broken", lambda: nn.Linear(4, 4), lambda: torch.randn(1, 5))
"""
NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, WIDTH, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(WIDTH)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x):
        print("noise on standard output")
        y = torch.relu(self.norm(self.conv(x)))
        return self.head(MIDDLE.mean((2, 3)))
"""


def checkout(folder: Path, width: int, middle: str) -> Path:
    folder.mkdir()
    (folder / "models.py").write_text(MODELS)
    (folder / "net.py").write_text(
        NET.replace("WIDTH", str(width))
        .replace("MIDDLE", middle)
        .replace('        print("noise on standard output")\n', "")
    )
    return folder


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """Base and head of two widths, of which the head sends an operator to the host."""
    here = tmp_path_factory.mktemp("compiled")
    base, head = checkout(here / "base", 16, "y"), checkout(here / "head", 24, "y.sort(1).values")
    ran = invoke(head / "models.py", "--head", head, "--base", base, "--out", here / "out", "--commit", "a" * 40)
    return here / "out", ran


def gate(out: Path, *more: object) -> dict[str, Any]:
    arguments = [
        "gate",
        "--base",
        str(out / "evidence.base"),
        "--head",
        str(out / "evidence"),
        "--json",
        *map(str, more),
    ]
    ran = CliRunner().invoke(assay, arguments)
    document: dict[str, Any] = json.loads(ran.stdout)
    assert document["exit_code"] == ran.exit_code
    return document


def test_what_is_said(compiled: tuple[Path, Result]) -> None:
    out, ran = compiled
    assert ran.exit_code == 0, ran.output
    assert "head: compiling net" in ran.stderr
    assert "conv convolution" in ran.stdout
    assert "aten.sort.default: there is no rule for it" in ran.stdout
    assert "net.py:15" in ran.stdout
    assert "broken does not compile" in ran.stdout
    assert "void: two compilations differ (program 1 of 1 is not the same)" in ran.stdout
    assert re.search(r"[\d,]+ cycles \(\+\d\d\.\d\d% from [\d,]+\)", ran.stdout)
    assert str(out) in ran.stdout


def test_the_gate_judges_it(compiled: tuple[Path, Result]) -> None:
    document = gate(compiled[0])
    found = {f"{f['task']}/{f['metric']}": f["state"] for f in document["findings"]}
    assert found == {
        "broken/compiles": "inconclusive",
        "dice/cycles": "inconclusive",
        "net/aten.sort.default": "regressed",
        "net/cycles": "regressed",
        "step/cycles": "equivalent",
    }
    assert (document["overall"], document["exit_code"]) == ("regressed", 1)
    layers = {p["part"]: (p["base"], p["head"]) for p in document["parts"] if p["kind"] == "layer"}
    # A convolution takes outputs times products, and its weight one cycle for each element.
    cost = {width: 64 * width * 27 + 27 * width for width in (16, 24)}
    assert layers["conv convolution"] == (cost[16], cost[24])


@pytest.mark.parametrize(("base", "head", "overall"), [("y", "y.nothing", "regressed"), ("y.nothing", "y", "improved")])
def test_a_model_that_one_side_alone_compiles(base: str, head: str, overall: str, tmp_path: Path) -> None:
    old, new = checkout(tmp_path / "base", 16, base), checkout(tmp_path / "head", 16, head)
    ran = invoke(
        new / "models.py", "--head", new, "--base", old, "--out", tmp_path / "out", "--once", "--model", "net,step"
    )
    assert ran.exit_code == 0, ran.output
    document = gate(tmp_path / "out")
    assert document["overall"] == overall
    found = {f"{f['task']}/{f['metric']}": f["state"] for f in document["findings"]}
    assert found == {"net/compiles": overall, "step/cycles": "equivalent"}


def test_a_policy_can_allow_it(compiled: tuple[Path, Result], tmp_path: Path) -> None:
    policy = tmp_path / "assay.yml"
    policy.write_text("gate:\n  npu: {cycles: 200, allowed: [aten.sor*], models: {net: {max-vtcm-bytes: 1000}}}\n")
    document = gate(compiled[0], "--policy", policy)
    worse = [f"{f['task']}/{f['metric']}" for f in document["findings"] if f["state"] == "regressed"]
    assert worse == ["net/max-vtcm-bytes"]


def test_files_of_the_report(compiled: tuple[Path, Result]) -> None:
    out = compiled[0]
    summary = json.loads((out / "summary.json").read_text())
    models = {entry["name"]: entry for entry in summary["models"]}
    assert set(models) == {"net", "step", "dice", "broken"}
    assert not (out / "broken").exists()
    for name, entry in models.items():
        if "failed" in entry:
            continue
        programs = [parse_program(p.read_text()) for p in sorted((out / name).glob("program*.json"))]
        assert len(programs) == entry["programs"] == len(list((out / name).glob("trace*.json")))
        for program in programs:
            validate(program)
        costs = [simulate(program) for program in programs]
        assert sum(c.cycles for c in costs) == entry["cycles"] == sum(layer["cycles"] for layer in entry["layers"])
        for total, count in (
            ("dram_read_bytes", "read_bytes"),
            ("dram_written_bytes", "written_bytes"),
            ("macs", "macs"),
        ):
            assert (
                sum(getattr(c, count) for c in costs) == entry[total] == sum(layer[total] for layer in entry["layers"])
            )
        for trace in (out / name).glob("trace*.json"):
            assert json.loads(trace.read_text())["traceEvents"]
        for picture in ("timeline", "vtcm", "layers"):
            assert ET.fromstring((out / name / f"{picture}.svg").read_text()).tag.endswith("svg")
        assert (out / name / "listing.txt").read_text().startswith("NPU_PROGRAM:")
    assert models["net"]["deterministic"]
    assert not models["dice"]["deterministic"]
    page = (out / "report.html").read_text()
    assert all(f"<h2>{name}</h2>" in page for name in models)
    assert page.count("<svg") == page.count("</svg>") == 9


def test_the_evidence(compiled: tuple[Path, Result]) -> None:
    head, base = (read_record(compiled[0] / name) for name in ("evidence", "evidence.base"))
    assert head.evidence.provenance.commit == "a" * 40
    assert base.evidence.attributes["supplement"] is True
    assert head.evidence.attributes["lease"] == base.evidence.attributes["lease"]
    assert isinstance(head.evidence.protocol, dict)
    assert head.evidence.protocol["task.net.inputs"] == "x 1x3x8x8"
    assert head.evidence.subject.configuration["net.width"] == 16
    assert head.evidence.subject.digest != base.evidence.subject.digest
    rows = list(rows_of(head.rows, "head"))
    net = [row for row in rows if row.model == "net"]
    assert sum(row.cycles for row in net) == head.evidence.metrics["cycles/net"].value
    [host] = [row for row in net if row.kind == "host"]
    assert (host.op, host.path) == ("aten.sort.default", "")
    assert host.line.startswith("net.py:15: ")
    backward = {row.label for row in rows if row.model == "step" and row.op.endswith("backward")}
    assert "0 mm backward" in backward


def test_a_report_is_replaced_and_nothing_else(compiled: tuple[Path, Result], tmp_path: Path) -> None:
    from assay.npu_backend.report import check_folder

    check_folder(compiled[0])
    check_folder(tmp_path)
    check_folder(tmp_path / "new")
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(InputError, match="other things than a report"):
        check_folder(tmp_path)
    with pytest.raises(InputError, match="no folder"):
        check_folder(tmp_path / "summary.json")
    with pytest.raises(InputError, match="cannot write /proc/report"):
        check_folder(Path("/proc/report"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give FILE, or --torchvision, or --hf"),
        (["models.py", "--torchvision", "resnet18"], "one of them"),
        (["nowhere.py"], "there is no file"),
        (["models.py", "--machine", "cray"], "there is no machine 'cray'"),
        (["models.py", "--without", "magic"], "there is no pass 'magic'"),
        (["models.py", "--dtype", "float16"], "says this itself"),
        (["--torchvision", "resnet18", "--dtype", "int3"], "--dtype int3 is none"),
        (["--torchvision", "resnet18", "--precision", "w1a1"], "--precision w1a1 is none"),
        (["--torchvision", "resnet18", "--model", "a"], "--model chooses among the models of FILE"),
        (["models.py", "--base", "no-such-revision"], "neither a folder nor a revision"),
        (["models.py", "--out", "models.py"], "is no folder"),
    ],
)
def test_refused_before_anything_runs(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models.py").write_text("raise SystemExit('it ran')")
    monkeypatch.chdir(tmp_path)
    ran = invoke(*arguments)
    assert isinstance(ran.exception, AssayError)
    assert words in str(ran.exception)
    assert "\n" not in str(ran.exception)
    assert ran.exception.exit_code == 2
    assert {p.name for p in tmp_path.iterdir()} == {"models.py"}


def test_a_graph_break_is_told_and_all_pieces_are_compiled(tmp_path: Path) -> None:
    text = """
class Net(nn.Module):
    def forward(self, x):
        y = torch.relu(x @ x)
        return torch.sigmoid(y) if y.sum() > 0 else y
m = Declaration("m", Net, lambda: torch.ones(4, 4))
"""
    (tmp_path / "models.py").write_text(DECLARED + text)
    [found] = worker_answer(tmp_path)["models"]
    assert found["graphs"] == 2
    assert "graph breaks (Data-dependent branching)" in found["warnings"][0]
    assert {op for program in found["programs"] for _, op, _ in program["layers"]} >= {"mm", "sigmoid"}


# -- declarations ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "declares no model"),
        ("import nowhere", "importing m.py raised ModuleNotFoundError"),
        ("def (", "importing m.py raised SyntaxError"),
        ("a = Declaration('a b', list, list)", "a model is named 'a b'"),
        ("a = Declaration('evidence', list, list)", "as a file of the report is"),
        ("a = Declaration('a', 3, list)", "`model` is a int, not a function"),
        ("a = Declaration('a', list, list, dtype='int8')", "there is no dtype 'int8'"),
        ("a = Declaration('a', list, list, precision='w1a1')", "there is no precision 'w1a1'"),
        ("a = Declaration('a', list, list, configuration={'f': []})", "the fact f is a list"),
        ("a = Declaration('a', list, list, configuration={'f': float('nan')})", "the fact f cannot be kept"),
        ("a = Declaration('a', list, list, configuration={'f': -1e999})", "the fact f cannot be kept"),
        ("a = Declaration('a', list, list, configuration={'f': 2**63})", "the fact f cannot be kept"),
        ("a = Declaration('a', list, list, configuration={'f': 10**5000})", "the fact f cannot be kept"),
        ("a = Declaration('a', list, list, configuration={'f': 'x' * 401})", "the fact f cannot be kept"),
        ("a = Declaration('a', list, list, configuration={'': 1})", "a fact is named ''"),
        ("a = Declaration('a', list, list, configuration={3: 1})", "a fact is named '3'"),
        ("a = Declaration('a', list, list, configuration={'x' * 401: 1})", "a fact is named 'xxx"),
        ("a = Declaration('a', list, list, configuration={str(n): n for n in range(201)})", "there are 201 facts"),
        ("a, b = Declaration('a', list, list), Declaration('a', list, list)", "declares a twice"),
    ],
)
def test_mistakes_of_a_declaration_are_named(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(f"from assay.npu_backend.declaration import Declaration\n{text}\n")
    before = list(sys.path)
    try:
        with pytest.raises(InputError) as caught:
            load(file)
    finally:
        sys.path[:] = before
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_models_are_chosen_by_name() -> None:
    found = {name: Declaration(name, list, list) for name in ("a", "b", "c")}
    assert list(chosen(found, (), "m.py")) == ["a", "b", "c"]
    assert list(chosen(found, ("c", "a"), "m.py")) == ["c", "a"]
    with pytest.raises(InputError, match=r"m\.py declares no d: it has a, b, c"):
        chosen(found, ("a", "d"), "m.py")


def test_precisions_are_those_of_the_compiler() -> None:
    assert tuple(POLICIES) == PRECISIONS
    assert SPEC.name == "spec"
