"""The environment of a workflow, without a token, for commands that are called as a person calls them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.bot.stage import Stage
from tests.loopback.fixtures import REPOSITORY

from assay.bot.cli import main

CLEARED = (
    "GITHUB_TOKEN", "ASSAY_LEDGER", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "GITHUB_BASE_REF", "GITHUB_REF_NAME",
)  # fmt: skip


def settle(stage: Stage, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point the environment at the loopback, with a cache and a working folder of the test's own."""
    for name in CLEARED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITHUB_API_URL", stage.github.url)
    monkeypatch.setenv("GITHUB_SERVER_URL", stage.github.web)
    monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
    monkeypatch.setenv("ASSAY_CACHE", str(folder / "cache"))
    monkeypatch.chdir(folder)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of `assay ...`."""
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    said = capsys.readouterr()
    return int(stop.value.code or 0), said.out, said.err
