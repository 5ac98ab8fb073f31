"""`assay capstone status` and `report` from the releases of a repository, as anyone can run them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.integration.bot.stage import Stage
from tests.integration.milestones.test_pull_request import at
from tests.unit.milestones.workbench import ATTENTION, FIRST_TWO

from assay.bot.commands.capstone import capstone


def test_from_releases_without_a_token(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for record in FIRST_TWO:
        stage.publish(stage.base, record=at(stage, record, stage.base))
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    proposal = tmp_path / "capstone.yml"
    proposal.write_text(ATTENTION)
    where = ["--repository", "acme/widgets", "--api-url", stage.github.url, "--server-url", "https://ghe.example"]
    shown = CliRunner().invoke(capstone, ["status", str(proposal), *where, "--json"], catch_exceptions=False)
    milestones = json.loads(shown.output)["milestones"]
    assert [m["state"] for m in milestones] == ["done", "done", "open", "open", "open"]
    [link] = milestones[0]["evidence"][0]["links"]
    assert link["target"].startswith("https://ghe.example/acme/widgets/releases/tag/baseline/main/")
    page = tmp_path / "page.md"
    made = CliRunner().invoke(
        capstone, ["report", str(proposal), *where, "--output", str(page)], catch_exceptions=False
    )
    assert made.exit_code == 0
    assert "| tile-bytes/s128 | 180,224 B | 180,224 B | +0.0% |" in page.read_text()
    before = len(stage.github.requests("GET", r"/assets/"))
    CliRunner().invoke(capstone, ["status", str(proposal), *where], catch_exceptions=False)
    assert len(stage.github.requests("GET", r"/assets/")) == before  # read from the cache the second time
