"""`assay config` and `assay simulate`: what they print can be read back, and any file that is not theirs is one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from tests.states import STATES

from assay.baselines.config import Configuration, parse_configuration
from assay.baselines.errors import InputError
from assay.bot.cli import assay
from assay.bot.observe import save
from assay.bot.operations import CloseCheck
from assay.bot.plan import plan


def test_check_prints_the_whole_policy_in_words_that_are_valid_again(tmp_path: Path) -> None:
    path = tmp_path / "assay.yml"
    path.write_text("gate: {threshold: 0.7, tasks: {mmlu_*: {floor: 0.4}}, groups: {g: {tasks: [a, 'b*']}}}")
    shown = CliRunner().invoke(assay, ["config", "check", str(path)], catch_exceptions=False)
    document = json.loads(shown.output)
    assert document["gate"]["threshold"] == 0.7
    assert document["gate"]["alpha"] == 0.05
    assert parse_configuration(shown.output.encode()) == parse_configuration(path.read_bytes())
    schema = json.loads(CliRunner().invoke(assay, ["config", "schema"]).output)
    Draft202012Validator(schema).validate(document)


def test_without_a_policy_the_defaults_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(assay, ["config", "check"], catch_exceptions=False)
    assert (shown.exit_code, shown.stderr.count("\n")) == (0, 1)
    assert "there is no .github/assay.yml here: the defaults hold" in shown.stderr
    assert parse_configuration(shown.stdout.encode()) == Configuration()
    Path(".github").mkdir()
    Path(".github/assay.yml").write_text("gate: {threshold: 0.7}")
    own = CliRunner().invoke(assay, ["config", "check"], catch_exceptions=False)
    assert own.stderr == ""
    assert json.loads(own.stdout)["gate"]["threshold"] == 0.7


@pytest.mark.parametrize(
    "arguments", [["nothing.yml"], [".github/assay.yml"], []], ids=["named", "default", "dangling"]
)
def test_a_policy_that_is_named_must_be_there(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if not arguments:  # something lies at the default path, but leads nowhere
        Path(".github").mkdir()
        Path(".github/assay.yml").symlink_to("nowhere.yml")
    with pytest.raises(InputError, match="cannot read"):
        CliRunner().invoke(assay, ["config", "check", *arguments], catch_exceptions=False)


@pytest.mark.parametrize(
    "text",
    ["1: 2", "? [a]: b", "gate: {1: 2}", "~: 1", "gate: !!binary aGk=", "a\x1b[31m: 1", "\n---\na: 1\n---\nb: 2", "gate: {threshold: 1:30}",
     "gate: {on_inconclusive: block, on-inconclusive: pass}", "'" + "k" * 5000 + "': 1", "gate: {alpha: 1e-320}"],
)  # fmt: skip
def test_strange_configurations(text: str, tmp_path: Path) -> None:
    path = tmp_path / "assay.yml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        CliRunner().invoke(assay, ["config", "check", str(path)], catch_exceptions=False)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("state", STATES)
def test_a_replay_says_what_the_run_did(state: str, tmp_path: Path) -> None:
    made = STATES[state]()
    path = save(made.snapshot, made.records, tmp_path / "seen")
    shown = CliRunner().invoke(assay, ["simulate", "--snapshot", str(path)], catch_exceptions=False).output
    planned = plan(made.snapshot, made.records)
    [close] = [o for o in planned.operations if isinstance(o, CloseCheck)]
    assert f"operations: {len(planned.operations)}" in shown
    assert f"as {close.conclusion.value}: {close.title}" in shown
    assert not [line for line in shown.splitlines() if line.lstrip().startswith("::")]
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "x", '{"schema_version": 1}', '{"schema_version": 2}', "\x00", "[" * 5000]
)
def test_what_is_no_snapshot(text: str, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text(text)
    for place in (path, tmp_path, tmp_path / "nothing", Path("/dev/zero")):
        with pytest.raises(InputError) as caught:
            CliRunner().invoke(assay, ["simulate", "--snapshot", str(place)], catch_exceptions=False)
        assert "\n" not in str(caught.value)


def test_a_snapshot_whose_evidence_was_changed(tmp_path: Path) -> None:
    made = STATES["regressed"]()
    path = save(made.snapshot, made.records, tmp_path / "seen")
    kept = next((path.parent / "evidence").iterdir()) / "evidence.json"
    kept.write_bytes(kept.read_bytes().replace(b"acme", b"evil"))
    with pytest.raises(InputError, match="has digest"):
        CliRunner().invoke(assay, ["simulate", "--snapshot", str(path)], catch_exceptions=False)
