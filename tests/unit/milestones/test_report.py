"""The report: what it says of wins, losses and missing support, and that its reproduction really reproduces."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from tests.states import HOSTILE
from tests.unit.milestones.workbench import (
    ALL,
    EXAMPLES,
    FIRST_TWO,
    LIBRARY,
    PASSED,
    ROOT,
    WITHOUT,
    attention,
    kernel,
    latencies,
    ours,
    shelf,
)

from assay.baselines.ledger.directory import DirectoryLedger
from assay.baselines.record import Record, write_record
from assay.bot.milestones.report import report
from assay.bot.milestones.tables import TABLES, differences, taken_from

GOLDEN = ROOT / "tests" / "golden" / "milestones" / "report"
DAY = date(2026, 12, 1)


def written(*records: Record) -> str:
    return report(
        attention(),
        shelf(*records),
        DAY,
        source=["--ledger", "baselines"],
        capstone_path="capstone.yml",
        report_path="report.md",
    )


def section(text: str, heading: str) -> str:
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


REPORTS = {
    "nothing-measured": (),
    "loses-from-s1024": ALL,
    "unsupported-loss": (LIBRARY, ours(contract={}, traffic=(400.0, 268.0, 268.0, 268.0))),
}


@pytest.mark.parametrize("name", REPORTS)
def test_report_word_for_word(name: str) -> None:
    text = written(*REPORTS[name])
    path = GOLDEN / f"{name}.md"
    if os.environ.get("ASSAY_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


def test_a_loss_is_a_result_when_the_mechanism_ran_and_the_baseline_was_fair() -> None:
    text = written(*ALL)
    assert "wins on 1, loses on 3 and cannot be told apart on 0 of 4 shapes" in text
    why = section(text, "Why this is a result")
    assert "The mechanism ran: online-softmax (kernel): ablation of online-softmax" in why.replace("\u2060", "")
    assert "The baseline was fair: both sides have the same protocol and hardware" in why
    assert "What ran was correct" in why
    assert "does not show that the mechanism fails elsewhere" in why
    assert "Not shown" not in why
    losing = section(text, "Losing regions")
    assert [s for s in ("s512", "s1024", "s2048", "s4096") if f"- {s}:" in losing] == ["s1024", "s2048", "s4096"]
    assert "behind by 11.1%" in losing  # (90 - 80) / 90


def test_a_loss_without_support_says_what_is_not_shown() -> None:
    why = section(written(*REPORTS["unsupported-loss"]), "Why this is a result")
    assert "Not shown: that the mechanism ran" in why
    assert "Not shown: that what ran was correct" in why
    unfair = written(LIBRARY, WITHOUT, ours(protocol={"timer": "wall", "clock": "locked"}))
    assert "Not shown: that the baseline was fair. Contender and baseline were measured differently (timer)" in unfair


def test_a_win_everywhere_needs_no_excuse() -> None:
    slow = kernel("attention-library", latencies(90.0, 180.0, 380.0, 760.0), day=5)
    text = written(*FIRST_TWO, WITHOUT, ours(), slow)
    assert "## Why this is a result" not in text
    assert "on no required shape is the contender behind" in text


def test_raw_data_commands_and_limitations() -> None:
    text = written(*ALL)
    for record in (*FIRST_TWO[1:], ours(), WITHOUT):
        assert record.digest in section(text, "Raw data")
    assert "`assay bench attention`" in section(text, "Commands")
    limits = section(text, "Limitations")
    assert "Excluded: backward pass" in limits
    assert "Deferred: framework integration" in limits
    assert "Nothing is claimed outside dtype bfloat16" in limits
    assert "Milestone 5, open" in limits


def test_hostile_evidence_starts_nothing_in_a_report() -> None:
    hostile = " ".join(HOSTILE)[:400]
    bad = kernel("attention-library", latencies(1.0, 1.0, 1.0, 1.0), attributes={"command": hostile})
    text = re.sub(r"<!-- /?table [a-z]+ -->", "", written(bad, ours()))
    assert "<script" not in text.replace(section(text, "Commands"), "")
    assert "`` " not in section(text, "Commands")
    assert len(re.findall(r"^## ", text, re.MULTILINE)) == len(
        re.findall(r"^## ", written(LIBRARY, ours()), re.MULTILINE)
    )


@pytest.mark.parametrize("name", ["contract", "model", "results", "functional"])
def test_a_table_is_found_again_and_any_change_is_seen(name: str) -> None:
    table = TABLES[name](attention(), shelf(*ALL))
    printed = taken_from(written(*ALL), name)
    assert printed == table.markdown()
    assert differences(printed, table.markdown()) == []
    changed = printed.replace(table.rows[0][1], "41", 1)
    assert changed != printed
    assert differences(changed, printed)
    assert taken_from(written(), name) is None


def sh(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script as a reader would: `assay` and `python` are those of an environment with assay in it."""
    tools = folder / ".tools"
    tools.mkdir(exist_ok=True)
    for name, words in (("assay", "-m assay.bot.cli"), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (tools / name).chmod(0o755)
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src"), "HOME": str(folder)}
    return subprocess.run(
        ["sh", "-e", "-c", script], cwd=folder, capture_output=True, text=True, check=False, env=environment
    )


def reproduction(page: str) -> str:
    found = re.search(r"```sh\n(.*?)\n```", section(page, "Reproduce one table"), re.DOTALL)
    assert found is not None
    return found[1]


def test_another_person_reproduces_one_table_from_a_clean_folder(tmp_path: Path) -> None:
    """The whole way with the shipped example: measure, report, and then its own script where nothing else is."""
    author, reader = tmp_path / "author", tmp_path / "reader"
    shutil.copytree(EXAMPLES / "attention", author)
    made = sh("python functional.py measured\nassay capstone report --evidence measured --output report.md", author)
    assert made.returncode == 0, made.stderr
    shutil.copytree(EXAMPLES / "attention", reader)
    shutil.copy(author / "report.md", reader)
    script = reproduction((reader / "report.md").read_text())
    assert script.startswith("python functional.py build/functional\n")
    done = sh(script, reader)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the table functional is the one that report.md prints" in done.stdout
    # The same script sees a table that the functional case does not give.
    page = (reader / "report.md").read_text()
    assert page.count("| tile-bytes/s128 | 180224 |") == 1
    (reader / "report.md").write_text(page.replace("| tile-bytes/s128 | 180224 |", "| tile-bytes/s128 | 180000 |"))
    shutil.rmtree(reader / "build")
    again = sh(script, reader)
    assert again.returncode == 1
    assert "180000" in again.stdout


def test_without_a_functional_case_the_table_is_made_again_from_raw_data(tmp_path: Path) -> None:
    ledger = DirectoryLedger(tmp_path / "baselines")
    for record in ALL:
        if record.evidence.subject.name != "online-softmax-functional":
            ledger.publish(record, "main")
    shutil.copy(EXAMPLES / "attention" / "capstone.yml", tmp_path)
    made = sh("assay capstone report --ledger baselines --output report.md", tmp_path)
    assert made.returncode == 0, made.stderr
    script = reproduction((tmp_path / "report.md").read_text())
    assert script == "assay capstone report capstone.yml --ledger baselines --table model --check report.md"
    assert sh(script, tmp_path).returncode == 0
    # Raw data that was changed is refused, not compared.
    victim = next(p for p in (tmp_path / "baselines").rglob("evidence.json") if "traffic/s4096" in p.read_text())
    victim.write_text(victim.read_text().replace("275.0", "268.0"))
    if "268.0" not in victim.read_text():
        victim.write_text(victim.read_text().replace("8858.0", "268.0"))
    refused = sh(script, tmp_path)
    assert refused.returncode == 2
    assert "it was changed" in refused.stderr


def published(folder: Path) -> None:
    """A proposal in `folder/repository`, and its evidence in the ledger `folder/repository/baselines`."""
    (folder / "repository").mkdir(parents=True)
    shutil.copy(EXAMPLES / "attention" / "capstone.yml", folder / "repository")
    for record in ALL:
        if record.evidence.subject.name != "online-softmax-functional":
            DirectoryLedger(folder / "repository" / "baselines").publish(record, "main")


@pytest.mark.parametrize("cwd", ["repository", "repository/build", "elsewhere"])
def test_the_script_of_a_report_that_was_written_by_absolute_paths_runs_elsewhere(tmp_path: Path, cwd: str) -> None:
    author, reader = tmp_path / "author", tmp_path / "reader" / "repository"
    published(author)
    (author / cwd).mkdir(parents=True, exist_ok=True)
    place = author / "repository"
    written_by = (
        f"assay capstone report {place}/capstone.yml --ledger {place}/baselines --output {place}/docs/report.md"
    )
    made = sh(written_by, author / cwd)
    assert made.returncode == 0, made.stderr
    shutil.move(place, reader)
    script = reproduction((reader / "docs" / "report.md").read_text())
    assert str(tmp_path) not in (reader / "docs" / "report.md").read_text()
    assert script == "assay capstone report capstone.yml --ledger baselines --table model --check docs/report.md"
    again = sh(script, reader)
    assert again.returncode == 0, again.stderr


def test_raw_data_that_lay_elsewhere_is_a_variable_and_the_report_goes_by_its_name(tmp_path: Path) -> None:
    author, reader = tmp_path / "author", tmp_path / "reader"
    published(author)
    (author / "repository" / "baselines").rename(author / "kept")
    options = f"--ledger {author}/kept --branch main --output {author}/out/report.md"
    made = sh(f"assay capstone report capstone.yml {options}", author / "repository")
    assert made.returncode == 0, made.stderr
    script = reproduction((author / "out" / "report.md").read_text())
    text = (author / "out" / "report.md").read_text()
    assert str(tmp_path) not in text
    assert "· `…/" in text
    shutil.copytree(author / "repository", reader)
    shutil.copy(author / "out" / "report.md", reader)
    shutil.move(author / "kept", tmp_path / "my copy")
    unset = sh(script, reader)
    assert unset.returncode != 0
    assert "LEDGER: is not set: give your copy of the raw data" in unset.stderr
    again = sh(f"LEDGER='{tmp_path}/my copy'\n{script}", reader)
    assert again.returncode == 0, again.stderr


def test_several_folders_of_evidence_have_a_variable_each(tmp_path: Path) -> None:
    for i, record in enumerate(ALL):
        write_record(tmp_path / "kept" / str(i % 2) / str(i), record.evidence, record.rows)
    (tmp_path / "here").mkdir()
    shutil.copy(EXAMPLES / "attention" / "capstone.yml", tmp_path / "here")
    options = " ".join(f"--evidence {tmp_path}/kept/{i}" for i in range(2))
    proposal = tmp_path / "here" / "capstone.yml"
    words = proposal.read_text().replace("  writes: ", "  # writes: ")
    assert words != proposal.read_text()
    proposal.write_text(words)
    made = sh(f"assay capstone report {options}", tmp_path / "here")
    assert made.returncode == 0, made.stderr
    script = reproduction(made.stdout)
    assert str(tmp_path) not in made.stdout
    assert '"${EVIDENCE:?' in script
    assert '"${EVIDENCE_2:?' in script


def test_a_contract_that_failed_is_in_the_table() -> None:
    text = written(FIRST_TWO[1], ours(contract={**PASSED, "tail": False}))
    assert re.search(r"\| online-softmax \| tail \| failed \|", text)
