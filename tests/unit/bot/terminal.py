"""The command line as people meet it: records to compare, a call in this process, and the one line of a refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.evidence import evaluation, outcomes

from assay.baselines.record import write_record
from assay.bot.cli import main

Counts = dict[str, tuple[int, int, int, float]]
BASE, HEAD = "b" * 40, "a" * 40
STATES: dict[str, Counts] = {
    "regressed": {"mmlu": (1000, 80, 20, 0.5), "arc": (500, 5, 5, 0.5)},
    "equivalent": {"mmlu": (8000, 10, 10, 0.5)},
    "inconclusive": {"mmlu": (200, 8, 4, 0.5)},
    "improved": {"mmlu": (1000, 20, 80, 0.5)},
}


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "GITHUB_REPOSITORY",
        "GITHUB_STEP_SUMMARY",
        "GITHUB_OUTPUT",
        "GITHUB_BASE_REF",
        "ASSAY_LEDGER",
        "ASSAY_DEBUG",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def write(folder: Path, counts: Counts, **options: object) -> None:
    pairs = {task: outcomes(*c) for task, c in counts.items()}
    for side, commit, index in (("base", BASE, 0), ("head", HEAD, 1)):
        made = evaluation({t: p[index] for t, p in pairs.items()}, commit=commit, **options)  # type: ignore[arg-type]
        write_record(folder / side, made.evidence, made.rows)


def assay(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capfd.readouterr()
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    assert isinstance(stop.value.code, int)
    return stop.value.code, out, err


def refused(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """The one line of a refusal."""
    found, _, err = assay(capfd, *arguments)
    assert found == code, err
    assert err.startswith("assay: ")
    assert err.count("\n") == 1
    assert "unexpected" not in err
    return err
