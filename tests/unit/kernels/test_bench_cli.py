"""`assay bench` without workers: what it refuses before it starts any, where checkouts come from, and its help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from assay.baselines.checkout import base_folder, commit_of, head_commit, relative_file
from assay.baselines.errors import InputError
from assay.kernels.cli import bench


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=ada", "-c", "user.email=ada@example.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """main moved on after the branch left it."""
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "-q", "-b", "main")
    (folder / "sub").mkdir()
    for name, text in (("sub/bench.py", "1"), ("sub/bench.py", "2"), ("sub/bench.py", "3")):
        if text == "3":
            git(folder, "checkout", "-q", "-b", "change", "HEAD~1")
        (folder / name).write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", text)
    return folder


def test_the_base_is_the_merge_base(repository: Path, tmp_path: Path) -> None:
    folder, commit = base_folder("main", repository, tmp_path)
    assert (folder / "sub" / "bench.py").read_text() == "1"
    assert commit == git(repository, "rev-parse", "main~1")
    assert not (folder / ".git").exists()


def test_a_head_below_the_top_has_a_base_below_the_top(repository: Path, tmp_path: Path) -> None:
    folder, _ = base_folder("main", repository / "sub", tmp_path)
    assert (folder / "bench.py").read_text() == "1"


def test_a_folder_is_taken_as_it_is(repository: Path, tmp_path: Path) -> None:
    assert base_folder(str(repository), tmp_path, tmp_path) == (repository, git(repository, "rev-parse", "HEAD"))
    assert base_folder(str(tmp_path), repository, tmp_path) == (tmp_path, None)


def test_a_base_has_every_file_of_its_commit(tmp_path: Path) -> None:
    """Also those that an archive would leave out or change, and links that lead out of it."""
    head = tmp_path / "repository"
    head.mkdir()
    git(head, "init", "-q", "-b", "main")
    (head / ".gitattributes").write_text("bench.py export-ignore\nours.py export-subst\n")
    (head / "bench.py").write_text("1")
    (head / "ours.py").write_text("$Format:%H$")
    (head / "data").symlink_to("/nowhere/data")
    git(head, "add", "-A")
    git(head, "commit", "-q", "-m", "all")
    before = git(head, "status", "--porcelain"), git(head, "worktree", "list")
    folder, _ = base_folder("main", head, tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == [".gitattributes", "bench.py", "data", "ours.py"]
    assert (folder / "ours.py").read_text() == "$Format:%H$"
    assert (folder / "data").readlink() == Path("/nowhere/data")
    assert (git(head, "status", "--porcelain"), git(head, "worktree", "list")) == before


def test_a_base_without_a_file(tmp_path: Path) -> None:
    head = tmp_path / "repository"
    head.mkdir()
    git(head, "init", "-q", "-b", "main")
    git(head, "commit", "-q", "--allow-empty", "-m", "nothing")
    folder, _ = base_folder("main", head, tmp_path)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("base", ["nowhere", "--output=/tmp/x", "a" * 40])
def test_no_such_base(base: str, repository: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither a folder nor a revision"):
        base_folder(base, repository, tmp_path)


def test_commits_are_whole(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_HEAD_SHA", raising=False)
    assert head_commit(None, repository) == commit_of(repository) == git(repository, "rev-parse", "HEAD")
    assert head_commit("a" * 40, repository) == "a" * 40
    assert head_commit(None, tmp_path) is None
    with pytest.raises(InputError, match="not a full commit"):
        head_commit("abc", repository)


def test_the_file_lies_in_the_head(repository: Path, tmp_path: Path) -> None:
    assert relative_file(Path("sub/bench.py"), repository) == Path("sub/bench.py")
    assert relative_file(repository / "sub/bench.py", repository / "sub") == Path("bench.py")
    with pytest.raises(InputError, match=r"no file gone\.py"):
        relative_file(Path("gone.py"), repository)
    (tmp_path / "bench.py").write_text("")
    with pytest.raises(InputError, match="does not lie in the head's checkout"):
        relative_file(tmp_path / "bench.py", repository)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "tpu"], "--device tpu is not known"),
        (["--device", "cpu:abc"], "--device cpu:abc is not known"),
        (["--device", "cuda:1x"], "--device cuda:1x is not known"),
        (["--margin", "0"], "Invalid value for '--margin'"),
        (["--blocks", "3"], "Invalid value for '--blocks'"),
        (["--base", "nowhere"], "--base nowhere is neither a folder nor a revision"),
        (["--out", "/proc/out"], "cannot write /proc/out"),
        (["--operator", "--out", "/proc/out"], "cannot write /proc/out"),
        (["--commit", "abc"], "--commit abc is not a full commit"),
    ],
)
def test_bad_usage_is_said_before_any_worker_starts(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "bench.py").write_text("")
    given = [str(tmp_path / "bench.py"), "--head", str(tmp_path), "--out", str(tmp_path / "out"), *arguments]
    result = CliRunner().invoke(bench, given)
    assert result.exit_code != 0
    assert message in (result.output + str(result.exception))
    assert not (tmp_path / "out").exists()


def test_help_teaches_and_needs_no_torch() -> None:
    script = "import sys; from assay.bot.cli import main\ntry: main(['bench', '--help'])\nexcept SystemExit: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "Declaration(" in done.stdout
    assert done.stdout.rstrip().endswith("False")
