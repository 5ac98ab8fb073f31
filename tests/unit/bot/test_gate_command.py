"""`assay gate`, `evidence` and `baseline` as people meet them: exit codes, one-line errors, nothing lost or half-written."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.evidence import evaluation, outcomes
from tests.kernel_states import pair
from tests.unit.bot.terminal import STATES, Counts, assay, nothing_of_this_machine, refused, write

from assay.baselines.record import EVIDENCE_NAME, ROWS_NAME, write_record

__all__ = ["nothing_of_this_machine"]  # a fixture of every test here


@pytest.mark.parametrize(
    ("state", "code", "blocking"),
    [("regressed", 1, 1), ("equivalent", 0, 0), ("inconclusive", 0, 1), ("improved", 0, 0)],
)
def test_exit_codes_and_outputs(
    state: str, code: int, blocking: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, STATES[state])
    gate = ["gate", "--base", "base", "--head", "head"]
    found, out, _ = assay(capfd, *gate, "--json", "--output", "output", "--junit", "new/gate.xml", "--html", "p.html")
    assert found == code
    assert json.loads(out)["overall"] == state
    assert f"verdict={state}\n" in Path("output").read_text()
    ET.parse("new/gate.xml")
    assert "<title>" in Path("p.html").read_text()
    Path("block.yml").write_text("gate: {on-inconclusive: block}\n")
    assert assay(capfd, *gate, "--policy", "block.yml")[0] == blocking


def test_a_step_summary_is_not_filled_over_its_limit(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, {f"t{i}": (60, 2, 2, 0.5) for i in range(200)})
    gate = ["gate", "--base", "base", "--head", "head", "--summary"]
    (tmp_path / "used").write_text("x" * 990_000)
    for name in ("new", "used"):
        assert assay(capfd, *gate, name)[0] == 0
        assert "## ? Inconclusive" in (tmp_path / name).read_text()
    assert (tmp_path / "new").stat().st_size > 20_000
    assert 990_000 < (tmp_path / "used").stat().st_size <= 1_000_000


def test_the_table_shows_the_p_of_what_it_claims(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, STATES["improved"])
    _, out, _ = assay(capfd, "gate", "--base", "base", "--head", "head")
    row = next(line for line in out.splitlines() if line.startswith("mmlu"))
    assert "e-" in row
    assert "+6.0 (+4.1, +8.0)" in row


@pytest.mark.parametrize(
    ("head", "base", "row", "why"),
    [
        (
            {"untimed": True, "contract": {"tail": "3 are NaN"}},
            {"untimed": True},
            "tail",
            "fails its contract: 3 are NaN.",
        ),
        ({"refused": {"c1024": "clock"}}, {}, "c1024", "The time of c1024 is refused: "),
    ],
)
def test_the_table_says_why_a_kernel_is_blocked_and_shows_no_change_of_what_was_not_timed(
    head: dict[str, Any], base: dict[str, Any], row: str, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for side, made in zip(("head", "base"), pair({}, base=base, **head), strict=True):
        write_record(tmp_path / side, made.evidence, made.rows)
    code, out, _ = assay(capfd, "gate", "--base", "base", "--head", "head")
    assert code == 1
    assert why in out
    cells = next(line for line in out.splitlines() if line.startswith(row)).split()
    assert cells[1:7] == ["–"] * 6


def test_the_table_says_what_to_do_about_a_void_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for side, made in zip(("head", "base"), pair({"c4096": 1.08}, base={"control": 1.05}), strict=True):
        write_record(tmp_path / side, made.evidence, made.rows)
    code, out, _ = assay(capfd, "gate", "--base", "base", "--head", "head")
    assert code == 0
    assert "measure again, on a machine with nothing else to do" in out


def test_mismatch_is_2_and_says_which_field(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, STATES["equivalent"])
    made = evaluation(
        {"mmlu": outcomes(8000, 10, 10)[0]}, protocol={"harness": "x", "sampling.seed": 0, "batch_size": 8}
    )
    write_record(tmp_path / "other", made.evidence, made.rows)
    code, out, _ = assay(capfd, "gate", "--base", "base", "--head", "other", "--output", "output")
    assert code == 2
    assert "batch_size is 16 in base and 8 in head" in out
    assert Path("output").read_text() == "verdict=mismatch\nconclusion=failure\n"


def test_unreachable_service_is_3(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, STATES["equivalent"])
    monkeypatch.setenv("PATH", str(tmp_path))  # no git here
    assay(capfd, "baseline", "publish", "base", "--branch", "main", "--ledger", "ledger")
    assert "is git installed?" in refused(capfd, "gate", "--head", "head", "--ledger", "ledger", code=3)
    assert "install git" in refused(capfd, "baseline", "nearest", "out", "--ledger", "ledger", code=3)


@pytest.mark.parametrize("damage", ["missing", "folder", "truncated", "swapped", "pipe", "link", "empty", "huge"])
def test_damaged_records_are_refused(damage: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, STATES["inconclusive"])
    document, rows = tmp_path / "head" / EVIDENCE_NAME, tmp_path / "head" / ROWS_NAME
    match damage:
        case "missing":
            rows.unlink()
        case "folder":
            rows.unlink()
            rows.mkdir()
        case "truncated":
            rows.write_bytes(rows.read_bytes()[:100])
        case "swapped":
            rows.write_bytes((tmp_path / "base" / ROWS_NAME).read_bytes())
        case "pipe":
            document.unlink()
            os.mkfifo(document)
        case "link":
            document.unlink()
            document.symlink_to("/dev/zero")
        case "empty":
            document.write_bytes(b"")
        case "huge":
            with document.open("wb") as stream:
                stream.truncate(1 << 33)
    refused(capfd, "gate", "--base", "base", "--head", "head")
    refused(capfd, "evidence", "show", "head")


@pytest.mark.parametrize(
    "head",
    [
        "nowhere",
        "x" * 5000,
        "run/" + "1" * 5000,
        "baseline/../../etc/aaaaaaaaaaaa/evaluation/aaaaaaaaaaaa",
        "/dev/null",
        "",
    ],
)
def test_names_that_are_nothing(head: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, STATES["inconclusive"])
    assert len(refused(capfd, "gate", "--base", "base", "--head", head, "--ledger", "ledger")) < 500


@pytest.mark.parametrize("option", ["--junit", "--markdown", "--html", "--summary", "--output"])
def test_reports_that_cannot_be_written(option: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, STATES["regressed"])
    gate = ["gate", "--base", "base", "--head", "head", option]
    (tmp_path / "file").write_text("mine")
    for path in (".", "/proc/nothing", "file/below", "x" * 300):
        assert "cannot write" in refused(capfd, *gate, path)
    assert (tmp_path / "file").read_text() == "mine"
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_devices_and_links_are_written_to_and_not_replaced(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, STATES["regressed"])
    gate = ["gate", "--base", "base", "--head", "head", "--markdown"]
    (tmp_path / "link").symlink_to("real.md")
    assert assay(capfd, *gate, "link")[0] == 1
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real.md").read_text().startswith("## ✗")
    before = Path("/dev/null").stat()
    assert assay(capfd, *gate, "/dev/null")[0] == 1
    assert Path("/dev/null").stat().st_rdev == before.st_rdev != 0


def test_nothing_of_the_user_is_replaced_by_a_record(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "scores.csv").write_text("id,score\n1,1\n2,0\n3,1\n")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    for out in ("thesis", ".", "scores.csv"):
        refused(capfd, "evidence", "import", "scores.csv", "--out", out)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"
    assert (tmp_path / "scores.csv").read_text().startswith("id,score")
    assert assay(capfd, "evidence", "import", "scores.csv", "--out", "record")[0] == 0
    assert assay(capfd, "evidence", "import", "scores.csv", "--out", "record")[0] == 0  # a record may be replaced
    assert sorted(p.name for p in (tmp_path / "record").iterdir()) == [EVIDENCE_NAME, ROWS_NAME]


HOSTILE = "a\n::error::pwn\x1b[31m\u202e|<b>@x"


def test_hostile_names_stay_on_their_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, {HOSTILE: (1000, 80, 20, 0.5), "::warning::x": (1000, 80, 20, 0.5)})
    shown = [
        assay(capfd, "gate", "--base", "base", "--head", "head"),
        assay(capfd, "evidence", "show", "head"),
        assay(capfd, "evidence", "show", "head", "--flips-against", "base"),
        assay(capfd, "gate", "--base", "base", "--head", "nowhere\x1b[31m\n::error::x"),
    ]
    for _, out, err in shown:
        assert "\x1b" not in out + err
        assert "\u202e" not in out + err
        assert not [line for line in (out + err).splitlines() if line.lstrip().startswith("::")]


def test_flips_are_all_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, {"mmlu": (2000, 400, 300, 0.5)})
    code, out, _ = assay(capfd, "evidence", "show", "head", "--flips-against", "base")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "400 broke, 300 fixed, of 2,000"
    assert sum(line.startswith("broke\t") for line in lines) == 400
    assert sum(line.startswith("fixed\t") for line in lines) == 300


# -- ledgers ---------------------------------------------------------------------------------------------------------


def git(*arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *identity, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def commit_and_measure(name: str, counts: Counts, side: int) -> str:
    git("commit", "--allow-empty", "-m", name)
    sha = git("rev-parse", "HEAD")
    made = evaluation({t: outcomes(*c)[side] for t, c in counts.items()}, commit=sha, name=name)
    write_record(Path(name), made.evidence, made.rows)
    return sha


@pytest.mark.parametrize("branch", ["main", "release/1.x", "feature/a/b"])
def test_the_nearest_publication_is_found_by_ancestry(
    branch: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    git("init", "-q", "-b", branch)
    place = ["--ledger", "ledger"]
    old = commit_and_measure("old", STATES["regressed"], 0)
    tag = assay(capfd, "baseline", "publish", "old", "--branch", branch, *place)[1].strip()
    assert tag.startswith(f"baseline/{branch}/{old[:12]}/evaluation/")
    git("commit", "--allow-empty", "-m", "between")
    git("checkout", "-q", "-b", "proposal")
    commit_and_measure("head", STATES["regressed"], 1)
    code, out, _ = assay(capfd, "gate", "--head", "head", "--base-branch", branch, *place)
    assert code == 1
    assert "regressed" in out
    code, out, err = assay(capfd, "baseline", "nearest", "got", "--branch", branch, *place)
    assert (code, out) == (0, "got\n")
    assert "1 commit before the merge base" in err
    assert assay(capfd, "baseline", "show", tag, *place)[0] == 0
    assert assay(capfd, "gate", "--base", tag, "--head", "head", *place)[0] == 1
    assert json.loads(assay(capfd, "baseline", "list", "--branch", branch, "--json", *place)[1])[0]["tag"] == tag
    assert "not an empty folder" in refused(capfd, "baseline", "fetch", tag, "got", *place)


def test_two_publications_of_a_commit_and_the_newest_counts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    git("init", "-q", "-b", "main")
    sha = commit_and_measure("first", STATES["equivalent"], 0)
    again = evaluation({"mmlu": outcomes(8000, 900, 10)[0]}, commit=sha, name="second")
    write_record(Path("second"), again.evidence, again.rows)
    place = ["--ledger", "ledger"]
    tags = [
        assay(capfd, "baseline", "publish", name, "--branch", "main", *place)[1].strip() for name in ("first", "second")
    ]
    assert tags[0] != tags[1]
    later = time.time() + 60
    os.utime(Path("ledger") / tags[1] / EVIDENCE_NAME, (later, later))
    assert tags[1] in assay(capfd, "baseline", "nearest", "got", *place)[2]
    assert assay(capfd, "baseline", "publish", "first", "--branch", "main", *place)[1].strip() == tags[0]


def test_no_baseline_passes_and_another_history_does_not(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, STATES["regressed"])
    code, out, _ = assay(capfd, "gate", "--head", "head", "--ledger", "ledger")
    assert code == 0
    assert "No baseline" in out
    git("init", "-q", "-b", "main")
    git("commit", "--allow-empty", "-m", "unrelated")
    assay(capfd, "baseline", "publish", "base", "--branch", "main", "--ledger", "ledger")
    assert "common ancestor" in refused(capfd, "gate", "--head", "head", "--ledger", "ledger")
    assert "common ancestor" in refused(capfd, "baseline", "nearest", "out", "--head", "zzz", "--ledger", "ledger")


def test_a_shallow_clone_is_not_taken_for_no_baseline(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    git("init", "-q", "-b", "main", "origin")
    monkeypatch.chdir(tmp_path / "origin")
    commit_and_measure("old", STATES["regressed"], 0)
    ledger = ["--ledger", str(tmp_path / "ledger")]
    assay(capfd, "baseline", "publish", "old", "--branch", "main", *ledger)
    for name in ("one", "two"):
        git("commit", "--allow-empty", "-m", name)
    git("checkout", "-q", "-b", "proposal")
    commit_and_measure("head", STATES["regressed"], 1)
    head = str(tmp_path / "origin" / "head")
    for depth, code in ((2, 2), (9, 1)):
        clone = tmp_path / f"clone{depth}"
        git(
            "clone",
            "-q",
            "--depth",
            str(depth),
            "--no-single-branch",
            "-b",
            "proposal",
            f"file://{tmp_path}/origin",
            str(clone),
        )
        monkeypatch.chdir(clone)  # main is there as origin/main only
        found, out, err = assay(capfd, "gate", "--head", head, *ledger)
        assert found == code, err
        assert "shallow" in err if code == 2 else "regressed" in out


def test_strange_ledgers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, STATES["regressed"])
    (tmp_path / "file").write_text("x")
    refused(capfd, "baseline", "publish", "base", "--branch", "main", "--ledger", "x" * 5000)
    refused(capfd, "baseline", "list", "--ledger", "x" * 5000)
    assert "is a file" in refused(capfd, "baseline", "list", "--ledger", "file")
    assert "is a file" in refused(capfd, "gate", "--head", "head", "--ledger", "file")
    assert "is a file" in refused(capfd, "baseline", "publish", "base", "--branch", "main", "--ledger", "file")
    for branch in ("a b", "..", "/etc", "a//b", "x.lock", "-x", "", "é" * 181):
        refused(capfd, "baseline", "publish", "base", f"--branch={branch}", "--ledger", "ledger")
        refused(capfd, "baseline", "list", f"--branch={branch}", "--ledger", "ledger")
    for kind in ("**a", "../..", "/", "A"):
        refused(capfd, "baseline", "list", f"--kind={kind}", "--ledger", "ledger")
    code, _, err = assay(capfd, "baseline", "list", "--ledger", "typo")
    assert code == 0
    assert "there is no folder typo" in err
    tag = assay(capfd, "baseline", "publish", "base", "--branch", "main", "--ledger", "ledger")[1].strip()
    kept = tmp_path / "ledger" / tag / ROWS_NAME
    kept.write_bytes(kept.read_bytes()[:-8] + b"tampered")
    for command in (["show", tag], ["fetch", tag, "out"]):
        refused(capfd, "baseline", *command, "--ledger", "ledger")
    assert not (tmp_path / "out").exists()
    for wrong in (
        "main",
        "baseline/main/zz/evaluation/aa",
        "baseline/../x/aaaaaaaaaaaa/evaluation/aaaaaaaaaaaa",
        "x" * 5000,
    ):
        refused(capfd, "baseline", "show", wrong, "--ledger", "ledger")


def test_places_that_are_none(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    listing = ["baseline", "list", "--repository"]
    for repository in ("foo", "a/b/c"):
        refused(capfd, *listing, repository)
    for url in ("x", "ftp://x", "http://[::1"):
        refused(capfd, *listing, "a/b", "--api-url", url)
    monkeypatch.setenv("GITHUB_TOKEN", "secret\nsecond line")
    said = refused(capfd, *listing, "a/b", "--api-url", "http://127.0.0.1:1")
    assert "GITHUB_TOKEN" in said
    assert "secret" not in said


def test_a_policy_that_cannot_be_read_is_not_passed_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, STATES["equivalent"])
    gate = ["gate", "--base", "base", "--head", "head"]
    (tmp_path / ".github").mkdir()
    place = tmp_path / ".github" / "assay.yml"
    place.symlink_to("nowhere")
    assert "cannot read" in refused(capfd, *gate)
    place.unlink()
    place.mkdir()
    assert "cannot read" in refused(capfd, *gate)
    place.rmdir()
    place.write_text("gate: {treshold: 1}")
    assert "did you mean 'threshold'" in refused(capfd, *gate)
    place.write_text("gate: {threshold: 9, margin: 9}")
    assert assay(capfd, *gate)[0] == 0
    refused(capfd, *gate, "--policy", "/dev/zero")
