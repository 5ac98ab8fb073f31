"""What people get wrong when they name a repository, a kind or an age: one line that says so, before anything is asked."""

from __future__ import annotations

import pytest

from assay.bot.cli import main
from assay.bot.github import NAME

NOWHERE = ("--repository", "acme/widgets", "--api-url", "http://127.0.0.1:1")
"""A request would be tried for a minute, and end with exit code 3."""


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    assert left.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    "repository",
    [
        "widgets",
        "acme/",
        "/widgets",
        "a/b/c",
        "acme/widgets?x=1",
        "acme/widgets#x",
        "acme/wid gets",
        "acme/..",
        "../x",
        "a%2f/b",
    ],
)
def test_no_repository(repository: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "baseline", "list", "--repository", repository, "--api-url", "http://127.0.0.1:1")
    assert "names no repository" in line


@pytest.mark.parametrize("repository", ["acme/widgets", "ada-l/x.y_z-1", "ada_corp/.github", "a/b"])
def test_a_repository(repository: str) -> None:
    assert NAME.fullmatch(repository)


@pytest.mark.parametrize("command", [("list",), ("prune", "--keep", "1"), ("nearest", "somewhere")])
@pytest.mark.parametrize("kind", ["*", "Evaluation", "x y", "a-->"])
def test_no_kind(command: tuple[str, ...], kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is no kind of evidence" in refused(capsys, "baseline", *command, "--kind", kind, *NOWHERE)


def test_drift_of_no_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert "is no kind of evidence" in refused(capsys, "drift", "--kind", "evaluation -->", *NOWHERE)


def test_drift_without_a_repository(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    assert "name it with --repository" in refused(capsys, "drift", "--ledger", "somewhere")


@pytest.mark.parametrize(
    "name", ["x", "3f6c1d52-8f0e-4b5e-9a41-0c6d2f1b7a90\nsha=1", "3F6C1D52-8f0e-4b5e-9a41-0c6d2f1b7a90"]
)
def test_no_name_of_a_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is no name of a command" in refused(capsys, "command", "verify", "--id", name, *NOWHERE)


def test_an_age_that_no_calendar_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not in the range" in refused(capsys, "baseline", "prune", "--max-age", "99999999999", *NOWHERE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compile", "--hf", ""], "the argument after --hf is empty"),
        (["compile", "--out=", "models.py"], "the argument after --out is empty"),
        (["evaluate", "--tasks", "", "--checkpoint", "c"], "the argument after --tasks is empty"),
        (["bench", "--", ""], "the argument after -- is empty"),
        (["baseline", "fetch", ""], "the argument after fetch is empty"),
        ([""], "the argument is empty"),
    ],
)
def test_an_empty_argument_is_told(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_a_value_may_end_with_an_equals_sign(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["compile", "--model=a=", "--machine=none"])
    assert "empty" not in capsys.readouterr().err
