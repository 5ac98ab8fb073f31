"""`assay capstone` as people run it: exit codes, one line for each mistake, JSON for machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.states import equivalent, regressed
from tests.unit.milestones.workbench import ALL, ATTENTION, FIRST_TWO, REPORT, ROOT

from assay.baselines.ledger.directory import DirectoryLedger
from assay.baselines.record import write_record


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "assay.bot.cli", "capstone", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"], "HOME": str(folder)},
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "capstone.yml").write_text(ATTENTION)
    ledger = DirectoryLedger(tmp_path / "baselines")
    for record in FIRST_TWO:
        ledger.publish(record, "main")
    return tmp_path


def test_init_lint_status_on_an_empty_folder(tmp_path: Path) -> None:
    assert run(tmp_path, "init").returncode == 0
    again = run(tmp_path, "init")
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    found = run(tmp_path, "lint", "--json")
    assert found.returncode == 1
    findings = json.loads(found.stdout)
    assert {"key", "problem", "mend"} == set(findings[0])
    assert len(findings) > 20
    shown = run(tmp_path, "status")
    assert shown.returncode == 0
    assert "1. Reference, contract, workload and model: open" in shown.stdout


def test_status_from_a_ledger_and_from_a_folder(repository: Path) -> None:
    shown = json.loads(run(repository, "status", "--ledger", "baselines", "--json").stdout)
    assert [m["state"] for m in shown["milestones"]] == ["done", "done", "open", "open", "open"]
    assert shown["stop"] == []
    [link] = shown["milestones"][0]["evidence"][0]["links"]
    assert (repository / link["target"] / "evidence.json").is_file()
    for i, record in enumerate(ALL[len(FIRST_TWO) :]):
        write_record(repository / "build" / str(i), record.evidence, record.rows)
    (repository / "report.md").write_text("".join(f"## {heading}\n" for heading in REPORT))
    shown = json.loads(run(repository, "status", "--ledger", "baselines", "--evidence", "build", "--json").stdout)
    assert [m["state"] for m in shown["milestones"]] == ["done"] * 5
    assert [s["what"] for s in shown["stop"]] == ["Stop adding"]
    text = run(repository, "status", "--ledger", "baselines", "--evidence", "build").stdout
    assert "STOP  Stop adding: the question is answered" in text
    other = json.loads(run(repository, "status", "--ledger", "baselines", "--branch", "next", "--json").stdout)
    assert [m["state"] for m in other["milestones"]] == ["open"] * 4 + ["done"]  # the report is a file, on any branch


def test_a_report_counts_itself_as_the_file_that_its_milestone_asks_for(repository: Path) -> None:
    elsewhere = run(repository, "report", "--ledger", "baselines", "--output", "draft.md")
    assert elsewhere.returncode == 0, elsewhere.stderr
    assert "Milestone 5, open" in (repository / "draft.md").read_text()
    assert run(repository, "report", "--ledger", "baselines", "--output", "report.md").returncode == 0
    page = (repository / "report.md").read_text()
    assert "Milestone 5, open" not in page
    assert "3 of 5 milestones are done" in page


@pytest.mark.parametrize(("scene", "state"), [(equivalent, "done"), (regressed, "blocked")])
def test_a_gate_is_decided_against_the_published_baseline(tmp_path: Path, scene: object, state: str) -> None:
    made = scene()  # type: ignore[operator]
    [head] = made.snapshot.measurements[0].evidence
    [base] = made.snapshot.baselines
    document = {
        "title": "x",
        "milestones": [{"title": "a", "evidence": [{"gate": {"verdict": ["equivalent", "improved"]}}]}],
    }
    (tmp_path / "capstone.yml").write_text(yaml.safe_dump(document))
    DirectoryLedger(tmp_path / "baselines").publish(made.records[base.digest], "main")
    write_record(tmp_path / "head", made.records[head].evidence, made.records[head].rows)
    asked = ("status", "--ledger", "baselines", "--evidence", "head", "--json")
    shown = json.loads(run(tmp_path, *asked).stdout)
    assert shown["milestones"][0]["state"] == state
    without = json.loads(run(tmp_path, "status", "--evidence", "head", "--json").stdout)
    assert without["milestones"][0]["evidence"][0]["reason"] == "the gate says no-baseline"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("lint", "absent.yml"), "assay capstone init"),
        (("status", "--ledger", "absent"), "there is no folder absent"),
        (("status", "--evidence", "absent"), "there is no folder absent"),
        (("status", "--evidence", "empty"), "no evidence is in empty"),
        (("status", "--ledger", "baselines", "--branch", "../x"), "no branch name"),
        (("report", "--check", "report.md"), "say which with --table"),
        (("report", "--table", "results", "--ledger", "baselines"), "no evidence for the table results"),
        (
            ("report", "--table", "contract", "--ledger", "baselines", "--check", "capstone.yml"),
            "prints no table contract",
        ),
        (("report", "--table", "contract", "--ledger", "baselines", "--check", "absent.md"), "cannot read absent.md"),
        (("report", "--table", "speed"), "speed"),
        (("report", "--ledger", "baselines", "--output", "./capstone.yml"), "is the proposal itself"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(repository: Path, arguments: tuple[str, ...], says: str) -> None:
    (repository / "empty").mkdir()
    done = run(repository, *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_lint_of_an_unreadable_file_is_2_and_not_1(repository: Path) -> None:
    (repository / "capstone.yml").write_text("title: x\nquestoin: y\n")
    done = run(repository, "lint")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'question'?" in done.stderr


def test_hostile_text_reaches_no_terminal(tmp_path: Path) -> None:
    title = "x\u202e \x1b[31m ::error::y".replace("\x1b", "\\e").replace("\u202e", "\\u202e")
    (tmp_path / "capstone.yml").write_text(f'title: "{title}"\nmilestones: [{{title: "{title}"}}]\n')
    for arguments in (("lint",), ("status",)):
        out = run(tmp_path, *arguments).stdout
        assert out
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert " ::error" not in out


def test_schema_is_printed() -> None:
    assert json.loads(run(ROOT, "schema").stdout) == json.loads((ROOT / "docs" / "capstone.schema.json").read_text())
