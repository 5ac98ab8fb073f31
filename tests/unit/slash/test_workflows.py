"""What the two command workflows promise, in this repository and in the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.bot.slash.verbs import VERBS

ROOT = Path(__file__).parents[3]
FOLDERS = [ROOT / ".github" / "workflows", ROOT / "docs" / "workflows"]
MEASURING = ["assay-bench.yml", "assay-compile.yml", "assay-run.yml"]
"""Workflows that a command starts, and which run a pull request's code."""


def test_no_workflow_of_a_verb_is_left_out() -> None:
    started = {verb.workflow for verb in VERBS if verb.workflow}
    assert [name for name in sorted(started) if (FOLDERS[0] / name).exists()] == MEASURING


def load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    return document


def names(step: dict[str, Any]) -> str:
    return str(step.get("uses", ""))


@pytest.mark.parametrize("name", MEASURING)
@pytest.mark.parametrize("folder", FOLDERS, ids=["ours", "documented"])
def test_the_measuring_job_verifies_before_any_code_of_the_pull_request(folder: Path, name: str) -> None:
    """ "Re-run failed jobs" keeps the outputs of jobs that went well: nothing may come from there."""
    text = (folder / name).read_text()
    assert "needs.verify.outputs" not in text
    job = load(folder / name)["jobs"]["measure"]
    assert job["needs"] == "verify"  # no machine of yours starts before
    assert set(job["permissions"].values()) == {"read"}
    steps = job["steps"]
    verify = next(i for i, step in enumerate(steps) if "actions/verify" in names(step))
    theirs = next(
        i for i, step in enumerate(steps) if "steps.again.outputs.sha" in str(step.get("with", {}).get("ref"))
    )
    assert steps[verify]["id"] == "again"
    assert verify < theirs
    for step in steps[:theirs]:
        ref = step.get("with", {}).get("ref", "")
        assert ref in ("", "${{ github.event.repository.default_branch }}")
    assert (
        "head }}" not in text.split("permissions: {}")[1]
    )  # the pinned commit comes from the journal, never from an input


@pytest.mark.parametrize("folder", FOLDERS, ids=["ours", "documented"])
def test_one_comment_is_answered_by_one_job_at_a_time(folder: Path) -> None:
    workflow = load(folder / "assay-command.yml")
    assert workflow["concurrency"] == {
        "group": "assay-command-${{ github.event.comment.id }}",
        "cancel-in-progress": False,
    }
    condition = workflow["jobs"]["answer"]["if"]
    assert "contains(github.event.comment.body, '/assay')" in condition
    assert "user.type != 'Bot'" in condition
