"""What the terminal says of compiled models: every count in full, and names that are only names."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.npu_states import BOTH, NET, POOL, SLOWER, record

from assay.baselines.record import Record, write_record
from assay.baselines.sizes import binary_size
from assay.bot.cli import assay
from assay.npu_backend.compilation import HostOp, Layer, Model
from assay.npu_backend.machine import SPEC
from assay.npu_backend.terminal import print_models


def gate(folder: Path, head: Record, base: Record) -> tuple[int, str]:
    for name, made in (("head", head), ("base", base)):
        write_record(folder / name, made.evidence, made.rows)
    ran = CliRunner().invoke(assay, ["gate", "--base", str(folder / "base"), "--head", str(folder / "head")])
    return ran.exit_code, ran.stdout


def test_the_table_of_the_gate(tmp_path: Path) -> None:
    code, out = gate(
        tmp_path, record("head", {**BOTH, "mobilenet": SLOWER}, host={"mobilenet": [POOL]}), record("base", BOTH)
    )
    rows = {tuple(line.split()[:2]): line for line in out.splitlines() if len(line.split()) > 1}
    assert code == 1
    assert out.startswith("✗ aten.max_pool2d_with_indices.default fell back to the host on 1 of 2 models, and slower")
    assert "6,482,920  7,074,792" in rows["mobilenet", "cycles"]
    assert "+9.13%" in rows["mobilenet", "cycles"]
    assert rows["mobilenet", "cycles"].rstrip().endswith("slower")
    assert "falls back to the host" in rows["mobilenet", "aten.max_pool2d_with_indices.default"]
    assert "the same" in rows["encoder", "cycles"]
    assert "mobilenet: classifier.0 addmm: 590,848 → 1,181,696 cycles (+100.0%)" in out
    assert "there is no rule for it, at features.2" in out
    heading = next(line for line in out.splitlines() if line.startswith("model"))
    assert heading.split() == ["model", "count", "base", "head", "change", "limit", "verdict"]
    assert "+1%" in rows["mobilenet", "cycles"]


def test_the_table_says_what_is_void(tmp_path: Path) -> None:
    head = record("head", {"mobilenet": NET}, unstable={"mobilenet": "program 1 of 1 is not the same"})
    code, out = gate(tmp_path, head, record("base", {"mobilenet": NET}))
    assert code == 0
    assert out.startswith("? The compilation is void on mobilenet")
    assert "Two compilations of mobilenet differ (program 1 of 1 is not the same): void. This is not a pass." in out


@pytest.mark.parametrize("name", [":100:", "[red]x[/red]", "\x1b[31mx"])
def test_names_are_only_names(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Model(
        "net",
        "float32",
        "",
        False,
        {},
        inputs="1x3",
        layers=(Layer("a", f"mm{name}", f"a.py:100: {name}"),),
        host=(HostOp(f"aten.{name}", "no rule", "", f"a.py:100: {name}", 0),),
        warnings=(f"{name} breaks",),
    )
    print_models([model], None, SPEC, None)
    out = capsys.readouterr().out
    visible = name.replace("\x1b", "\ufffd")
    assert f"mm{visible}" in out
    assert f"aten.{visible}: no rule" in out
    assert f"a.py:100: {visible}" in out
    assert f"note: {visible} breaks" in out


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "0.977 KiB"), (1 << 20, "1 MiB"), (8 << 20, "8 MiB"), (5 << 40, "5,120 GiB")],
)
def test_sizes_are_short(count: int, shown: str) -> None:
    assert binary_size(count) == shown
