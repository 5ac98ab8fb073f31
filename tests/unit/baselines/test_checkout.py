"""What lies in a checkout otherwise than in its commit is told by each command that records the commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.npu.compiling import DECLARED, invoke

from assay.baselines.checkout import UNCOMMITTED, base_folder, head_commit, uncommitted
from assay.baselines.record import read_record
from assay.quant.cli import evaluate

USER = """
import torch
def model(): return torch.nn.Linear(2, 2)
def data(): return torch.zeros(8, 2), torch.zeros(8, dtype=torch.int64)
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=ada", "-c", "user.email=ada@example.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("ASSAY_HEAD_SHA", raising=False)
    folder = tmp_path / "repository"
    (folder / "sub").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "models.py").write_text(f"{DECLARED}m = Declaration('m', nn.ReLU, lambda: torch.zeros(3))\n")
    (folder / "user_code_of_checkout.py").write_text(USER)
    (folder / "sub" / "a b.py").write_text("")
    (folder / ".gitignore").write_text("ignored*\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "all")
    monkeypatch.chdir(folder)
    return folder


def test_what_is_not_as_in_the_commit(repository: Path, tmp_path: Path) -> None:
    assert uncommitted(repository, Path("models.py")) == []
    for name in ("ignored.py", "ignored_too.py", "notes.txt", "new.py"):
        (repository / name).write_text("")
    (repository / "venv/lib/site-packages").mkdir(parents=True)
    (repository / "venv/lib/site-packages/package.py").write_text("")
    assert uncommitted(repository, Path("ignored.py")) == ["new.py", "ignored.py"]
    (repository / "sub" / "a b.py").write_text("changed")
    (repository / "models.py").unlink()
    git(repository, "add", "new.py")
    assert uncommitted(repository) == ["models.py", "new.py", "sub/a b.py"]
    assert uncommitted(repository / "sub") == []  # no commit is recorded for a folder inside
    assert uncommitted(tmp_path) == []


def test_head_and_base_are_told(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit = head_commit(None, repository)
    base_folder(str(repository), tmp_path, tmp_path)
    assert capsys.readouterr().err == ""
    (repository / "models.py").write_text("")
    head_commit("a" * 40, repository)
    base_folder(str(repository), tmp_path, tmp_path)
    assert commit is not None
    assert capsys.readouterr().err.splitlines() == [
        f"note: the head is recorded as {'a' * 12}, but models.py is not as in that commit: commit first.",
        f"note: the base is recorded as {commit[:12]}, but models.py is not as in that commit: commit first.",
    ]


def test_a_compilation_says_so(repository: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    git(tmp_path, "clone", "-q", str(repository), str(base))
    ran = invoke("models.py", "--base", base, "--once", "--out", tmp_path / "clean")
    assert "note" not in ran.stderr
    for name in ("evidence", "evidence.base"):
        assert UNCOMMITTED not in read_record(tmp_path / "clean" / name).evidence.attributes
    (repository / "sub" / "a b.py").write_text("changed")
    (base / "new.py").write_text("")
    (base / "other.py").write_text("")
    ran = invoke("models.py", "--base", base, "--once", "--out", tmp_path / "dirty")
    assert ran.exit_code == 0
    assert [line.split(", but ")[1] for line in ran.stderr.splitlines() if line.startswith("note: ")] == [
        "sub/a b.py is not as in that commit: commit first.",
        "new.py, other.py are not as in that commit: commit first.",
    ]
    found = [read_record(tmp_path / "dirty" / name).evidence for name in ("evidence", "evidence.base")]
    assert [evidence.attributes[UNCOMMITTED] for evidence in found] == [1, 2]


def test_an_evaluation_says_so(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(repository))
    given = ["--model", "user_code_of_checkout:model", "--dataset", "user_code_of_checkout:data"]
    ran = CliRunner().invoke(evaluate, [*given, "--out", str(tmp_path / "clean")])
    assert ran.exit_code == 0, ran.output
    assert "not as in that commit" not in ran.stderr
    (repository / "models.py").write_text("")
    ran = CliRunner().invoke(evaluate, [*given, "--out", str(tmp_path / "dirty")])
    assert "models.py is not as in that commit" in ran.stderr
    marks = [read_record(tmp_path / name).evidence.attributes.get(UNCOMMITTED) for name in ("clean", "dirty")]
    assert marks == [None, 1]
