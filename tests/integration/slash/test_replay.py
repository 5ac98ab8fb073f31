"""Every webhook payload that GitHub publishes as an example goes through `assay simulate` without an unhandled case."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.loopback.description import EXAMPLES, install
from tests.states import inconclusive
from tests.unit.slash.test_replies import seen

from assay.bot.commands.simulate import simulate
from assay.bot.observe import save


@pytest.fixture(scope="module")
def payloads() -> list[tuple[str, dict[str, object]]]:
    reason = install()
    if reason is not None or not EXAMPLES.exists():
        pytest.skip(f"GitHub's webhook examples are not here: {reason}")
    found = json.loads(EXAMPLES.read_bytes())
    return [(event["name"], example) for event in found for example in event["examples"]]


def test_every_published_payload_replays(payloads: list[tuple[str, dict[str, object]]], tmp_path: Path) -> None:
    made = inconclusive()
    report = save(made.snapshot, made.records, tmp_path / "report")
    command = tmp_path / "command.json"
    command.write_text(seen("/assay help").model_dump_json())
    event = tmp_path / "event.json"
    said: dict[str, int] = {}
    for name, payload in payloads:
        event.write_text(json.dumps(payload))
        snapshot = command if name == "issue_comment" else report
        result = CliRunner().invoke(simulate, [str(event), "--snapshot", str(snapshot)], catch_exceptions=False)
        assert result.exit_code == 0, (name, result.output)
        assert result.output.strip()
        said[name] = said.get(name, 0) + 1
    assert len(said) > 40
    assert said["workflow_run"] >= 3
    assert said["issue_comment"] >= 3


def test_a_comment_event_changes_what_is_answered(
    payloads: list[tuple[str, dict[str, object]]], tmp_path: Path
) -> None:
    payload = next(p for n, p in payloads if n == "issue_comment" and p["action"] == "created")
    comment, issue = dict(payload["comment"]), dict(payload["issue"])  # type: ignore[call-overload]
    issue |= {"pull_request": {"url": "https://api.github.com/repos/acme/widgets/pulls/7"}, "state": "open"}
    (tmp_path / "command.json").write_text(seen("/assay help").model_dump_json())
    comment |= {"body": "/assay evalute x", "user": {**comment["user"], "type": "User"}}
    (tmp_path / "event.json").write_text(json.dumps({**payload, "comment": comment, "issue": issue}))
    arguments = [str(tmp_path / "event.json"), "--snapshot", str(tmp_path / "command.json")]
    result = CliRunner().invoke(simulate, arguments, catch_exceptions=False)
    assert "did you mean evaluate?" in result.output
