"""`actions/setup/create-venv.sh` for real from PyPI, and the actions that comment and gate in the environment it makes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.evidence import evaluation, outcomes
from tests.loopback import Loopback, act
from tests.loopback.consumer import ROOT, Consumer, names
from tests.loopback.fixtures import ledger

from assay.baselines.record import read_record, write_record

SCRIPT = "actions/setup/create-venv.sh"


def create(
    engine: Path, tools: Path, *arguments: str, workspace: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    own = {key: os.environ[key] for key in ("PATH", "HOME", "PIP_INDEX_URL", "PIP_CONFIG_FILE") if key in os.environ}
    own |= {"RUNNER_TOOL_CACHE": str(tools)} | env
    command = ["bash", str(engine / SCRIPT), *arguments]
    return subprocess.run(command, env=own, capture_output=True, text=True, check=False, timeout=300, cwd=workspace)


@pytest.fixture(scope="module", autouse=True)
def _pypi(tmp_path_factory: pytest.TempPathFactory) -> None:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(tmp_path_factory.mktemp("pypi")),
               "--disable-pip-version-check", "--retries", "1", "click==8.1.8"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        pytest.skip(f"PyPI is unreachable: {(done.stderr.strip().splitlines() or ['no output'])[-1][:160]}")


@pytest.fixture
def consumer() -> None:
    """Tests here share none."""


@pytest.fixture
def _fresh_cache() -> None:
    """Nor a cache."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This assay with click and its builder only, so that an environment is made in seconds."""
    engine = act.export(ROOT, tmp_path_factory.mktemp("small") / "small engine")
    text = (engine / "requirements/bot.txt").read_text()
    wanted = "click|hatchling|packaging|pathspec|pluggy|tomlkit|trove-classifiers"
    blocks = re.findall(rf"^(?:{wanted})==.*\n(?: +--hash=.*\n)+", text, re.MULTILINE)
    assert len(blocks) == 7
    assert all("--hash=sha256:" in block for block in blocks)
    (engine / "requirements/bot.txt").write_text("".join(block.rstrip().removesuffix("\\") + "\n" for block in blocks))
    return engine


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runner's tool cache, in which one environment is made for the tests that only look at how it is found again."""
    return tmp_path_factory.mktemp("runner") / "tool cache"


def environments(tools: Path) -> list[Path]:
    return sorted(path for path in (tools / "assay").glob("*") if path.is_dir())


def test_made_once_then_reused_whatever_the_caller_has_activated(small: Path, tools: Path, tmp_path: Path) -> None:
    """A venv, PYTHONPATH and modules of the caller, or of the workspace, reach neither the set-up nor the environment."""
    poison = tmp_path / "poison"
    for name in ("pip", "venv", "click", "assay"):
        (poison / name).mkdir(parents=True)
        (poison / name / "__init__.py").write_text("raise ImportError('the caller owns this')\n")
    caller = {"VIRTUAL_ENV": str(tmp_path / "theirs"), "PYTHONPATH": str(poison), "PYTHONHOME": ""}
    first = create(small, tools, "bot", workspace=poison, **caller)
    assert first.returncode == 0, first.stderr
    [environment] = environments(tools)
    assert first.stdout == f"{environment}/bin/assay\n"
    ready = (environment / "ready").stat().st_mtime_ns
    shown = subprocess.run(
        [environment / "bin/python", "-c", "import click, assay.bot.cli as cli; print(click.__file__, cli.__file__)"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert all(part.startswith(str(environment)) for part in shown.stdout.strip().replace(" /", "\n/").split("\n"))
    second = create(small, tools, "bot", **caller)
    assert (second.returncode, second.stdout) == (0, first.stdout)
    assert (environment / "ready").stat().st_mtime_ns == ready


def test_a_half_made_one_is_made_anew_and_two_jobs_at_once_make_one(small: Path, tools: Path) -> None:
    key = create(small, tools, "bot").stdout.strip()
    [environment] = environments(tools)
    (environment / "ready").unlink()
    shutil.rmtree(environment / "bin")
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: create(small, tools, "bot"), range(2)))
    assert [done.returncode for done in both] == [0, 0], [done.stderr for done in both]
    assert {done.stdout.strip() for done in both} == {key}
    assert environments(tools) == [environment]
    subprocess.run([environment / "bin/python", "-c", "import click, assay"], check=True)


def test_a_package_with_another_hash_is_not_installed(small: Path, tmp_path: Path) -> None:
    engine = shutil.copytree(small, tmp_path / "engine", symlinks=True)
    path = engine / "requirements/bot.txt"
    path.write_text(re.sub(r"sha256:[0-9a-f]{8}", "sha256:00000000", path.read_text()))
    done = create(engine, tmp_path / "tools", "bot")
    assert done.returncode != 0
    assert done.stdout == ""
    assert "HASH" in done.stderr.upper()
    assert not [path for path in environments(tmp_path / "tools") if (path / "ready").exists()]


def test_what_cannot_work_is_one_line(tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 && exit 0\nexit 1\n')
    old.chmod(0o755)
    for arguments, env, words in (
        (("speed",), {}, "no profile 'speed': use bot, quant, kernels or npu"),
        (("dev",), {}, "no profile 'dev'"),
        (("bot",), {"ASSAY_PYTHON": str(old)}, "Python 3.9.2 is too old"),
        (("bot", str(tmp_path)), {}, "has no bin/assay"),
    ):
        done = create(ROOT, tmp_path / "tools", *arguments, **env)
        assert (done.returncode, done.stdout) == (2, "")
        [line] = done.stderr.splitlines()
        assert line.startswith("assay: ")
        assert words in line
    assert not (tmp_path / "tools").exists()


def test_an_environment_of_the_runner_is_used_as_it_is(tmp_path: Path) -> None:
    done = create(ROOT, tmp_path / "tools", "quant", sys.prefix)
    assert (done.returncode, done.stdout) == (0, f"{sys.prefix}/bin/assay\n")


STEPS = """      - uses: acme/assay/actions/setup@v1
        id: setup
      - uses: acme/assay/actions/gate@v1
        id: gate
        if: github.event.action == 'completed'
        continue-on-error: true
        with:
          head: run/${{ github.event.workflow_run.id }}
          junit: gate.xml
      - if: github.event.action == 'completed'
        shell: bash
        env:
          ASSAY: ${{ steps.setup.outputs.assay }}
          VERDICT: ${{ steps.gate.outputs.verdict }}/${{ steps.gate.outputs.conclusion }}
        run: |
          echo "it says $VERDICT; VIRTUAL_ENV is '${VIRTUAL_ENV:-}'"
          "$ASSAY" --version
          grep -c "<testcase" gate.xml
          cd "$(dirname "$ASSAY")/.."
          echo "in $(basename "$PWD") of $(find .. -name ready | wc -l), torch: $(find lib -name torch -maxdepth 3 | wc -l)"
      - uses: acme/assay/actions/comment@v1
"""


def measured(folder: Path, commit: str, scores: list[int]) -> Path:
    """Evidence of a commit, as another job left it: the environments of the actions here have no torch to measure with."""
    record = evaluation({"toy": scores}, commit=commit)
    write_record(folder, record.evidence, record.rows)
    return folder


def test_comment_and_gate_in_the_environment_that_they_make(github_description: str | None, tmp_path: Path) -> None:
    """Hash-locked, without torch, made once for a job, in a repository with `bot`, `kernels` and `assay` of its own."""
    with Loopback() as github:
        consumer = Consumer(github, tmp_path)
        report = consumer.clone / ".github/workflows/assay-report.yml"
        text = re.sub(r"\n        with:\n          environment: .*", "", report.read_text())
        report.write_text(text.replace("      - uses: acme/assay/actions/comment@v1\n", STEPS))
        assert "environment:" not in report.read_text()
        consumer.git("commit", "-qam", "Use the environment that the actions make")
        consumer.repo.import_clone(consumer.clone)
        before, after = outcomes(1000, broke=28, fixed=8)
        main = measured(tmp_path / "main", consumer.repo.refs["refs/heads/main"], before)
        ledger(github, tmp_path / "publisher").publish(read_record(main), "main", folder=main)
        number = consumer.pull("drop")
        head = consumer.repo.issues[number].head_sha
        run = consumer.repo.start_run(
            head, branch="drop", name="assay measure", path=".github/workflows/assay-measure.yml"
        )
        consumer.repo.upload(run, "assay-evaluation", measured(tmp_path / "head", head, after))
        consumer.repo.finish_run(run)
        ran = consumer.report(run)
        assert names(consumer.comments(number)) == ["## ✗ Accuracy regressed on toy"]
        assert consumer.checks(number) == [("assay", "completed", "failure")]
        assert "it says regressed/failure; VIRTUAL_ENV is ''" in ran.log
        assert "assay, version" in ran.log
        assert re.search(r"in bot-[0-9a-f]{16} of 1, torch: 0", ran.log)
        assert ran.summary.count("## ✗ Accuracy regressed on toy") >= 2  # of the gate, and of the comment
