"""`assay` as a process: encodings, pipes, full disks, narrow terminals, signals, and help."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.unit.bot.terminal import STATES, assay, nothing_of_this_machine, refused, write

__all__ = ["nothing_of_this_machine"]  # a fixture of every test here


def run(*arguments: str, shell: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "assay.bot.cli", *arguments]
    line = " ".join(command) + " " + shell
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "ASSAY_"))}
    return subprocess.run(
        ["bash", "-c", line], env={**kept, **environment}, capture_output=True, text=True, check=False, timeout=60
    )


GATE = ("gate", "--base", "base", "--head", "head")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_log_in_any_encoding(encoding: str, tmp_path: Path) -> None:
    write(tmp_path, STATES["regressed"])
    done = run(*GATE, PYTHONIOENCODING=encoding)
    assert done.returncode == 1, done.stderr
    assert "Accuracy regressed" in done.stdout


@pytest.mark.parametrize("more", ["", " --json"])
def test_the_verdict_outlives_its_reader(more: str, tmp_path: Path) -> None:
    write(tmp_path, STATES["regressed"])
    blocked = run(*GATE, shell=f"{more} | true; echo ${{PIPESTATUS[0]}}")
    assert blocked.stdout.strip() == "1"
    assert blocked.stderr == ""
    other = run("config", "schema", shell="| true; echo ${PIPESTATUS[0]}")
    assert other.stdout.strip() == "0"


def test_a_full_disk_is_3(tmp_path: Path) -> None:
    if not Path("/dev/full").is_char_device():
        pytest.skip("this system has no /dev/full")
    write(tmp_path, STATES["equivalent"])
    for done in (run(*GATE, shell="> /dev/full"), run(*GATE, "--markdown", "/dev/full")):
        assert done.returncode == 3
        assert "No space left" in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_narrow_terminal_loses_no_number(tmp_path: Path) -> None:
    write(tmp_path, STATES["regressed"])
    done = run(*GATE, COLUMNS="20", FORCE_COLOR="1", TERM="xterm")
    for number in ("1,000", "−6.0 (−8.0, −4.1)", "80/20", "3.5e-10", "regressed"):
        assert number in done.stdout


def test_the_code_stays_when_nobody_can_be_told(tmp_path: Path) -> None:
    if not Path("/dev/full").is_char_device():
        pytest.skip("this system has no /dev/full")
    assert run("gate", "--base", "nowhere", "--head", "nowhere", shell="2> /dev/full").returncode == 2


def test_no_home(tmp_path: Path) -> None:
    write(tmp_path, STATES["equivalent"])
    assert run(*GATE, HOME="").returncode == 0


def test_ctrl_c_is_130(tmp_path: Path) -> None:
    write(tmp_path, STATES["regressed"])
    os.mkfifo(tmp_path / "policy.yml")
    process = subprocess.Popen(
        [sys.executable, "-m", "assay.bot.cli", *GATE, "--policy", "policy.yml"],
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background job ignores the signal, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    # It waits for somebody to write the policy: opening the pipe returns once it reads.
    with (tmp_path / "policy.yml").open("w"):
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("command", ["", "gate", "comment", "baseline", "baseline publish", "baseline list", "baseline show",
                                     "baseline fetch", "baseline nearest", "evidence", "evidence show", "evidence import",
                                     "config", "config check", "config schema", "simulate", "evaluate"])  # fmt: skip
def test_every_command_explains_itself(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = assay(capfd, *command.split(), "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: assay {command}".rstrip())
    assert len(out) > 100


def test_without_a_command_the_help_is_readable(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = assay(capfd)
    assert code == 2
    assert err.startswith("Usage: assay")
    assert err.count("\n") > 10
    assert "No such command" in refused(capfd, "nosuch")
    assert "No such option" in refused(capfd, "gate", "--hed")
