"""`issue_comment` events that are damaged: one line, whatever stands in a field."""

from __future__ import annotations

from typing import Any

import pytest

from assay.baselines.errors import InputError
from assay.bot.observe import event_facts
from assay.bot.slash.observe import comment_facts

COMMENT = {"id": 1, "user": {"login": "ada"}, "created_at": "2026-11-30T09:00:00Z", "body": "/assay help"}
ODD = [None, "", {}, [], float("inf"), float("nan"), "0001-01-01T00:00:00+23:59"]


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("field", ["id", "created_at"])
def test_a_damaged_comment_is_refused_in_one_line(field: str, odd: object) -> None:
    payload: dict[str, Any] = {"issue": {"number": 7}, "comment": COMMENT | {field: odd}}
    with pytest.raises(InputError, match="the issue_comment event holds something else") as refusal:
        comment_facts("issue_comment", payload)
    assert "\n" not in str(refusal.value)


def test_a_field_that_is_missing_is_named() -> None:
    payload = {"issue": {"number": 7}, "comment": {k: v for k, v in COMMENT.items() if k != "created_at"}}
    with pytest.raises(InputError, match="the issue_comment event lacks 'created_at'"):
        comment_facts("issue_comment", payload)


def test_an_event_without_a_comment_lacks_it() -> None:
    with pytest.raises(InputError, match="the issue_comment event lacks 'comment'"):
        comment_facts("issue_comment", {"action": "created"})


def test_a_damaged_run_is_refused_in_one_line() -> None:
    with pytest.raises(InputError) as refusal:
        event_facts("workflow_run", {"workflow_run": {"id": 1, "head_sha": "4" * 40, "conclusion": 3}})
    assert str(refusal.value).startswith("the workflow_run event holds something else")
    assert "\n" not in str(refusal.value)
