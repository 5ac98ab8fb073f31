"""The event file of a workflow, read as untrusted data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.baselines.errors import InputError

MAX_EVENT_BYTES = 4 << 20


def read_event(path: Path) -> dict[str, object]:
    """The event file as a mapping. Raises `InputError` when it is missing, too large or not JSON."""
    try:
        if path.stat().st_size > MAX_EVENT_BYTES:
            raise InputError(f"{path} is larger than any event that GitHub writes: give the event file.")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read the event file {path}: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON: give the event file that GitHub wrote.") from None
    if not isinstance(document, dict):
        raise InputError(f"{path} is not an event: give the event file that GitHub wrote.")
    return document


FAULTS = (KeyError, TypeError, ValueError, OverflowError)
"""What reading a field of a damaged event raises."""


def damaged(name: str, error: Exception) -> InputError:
    """The refusal of an event of which a field is missing or is no such thing."""
    what = f"lacks {error}" if isinstance(error, KeyError) else "holds something else than GitHub writes there"
    return InputError(f"the {name} event {what}: give the event file that GitHub wrote.")


def name_of(payload: Mapping[str, Any]) -> str:
    """The kind of an event, told by what it holds; empty for one that the bot does not handle."""
    if isinstance(payload.get("workflow_run"), dict):
        return "workflow_run"
    if isinstance(payload.get("pull_request"), dict) and isinstance(payload.get("number"), int):
        return "pull_request"
    if isinstance(payload.get("comment"), dict) and isinstance(payload.get("issue"), dict):
        return "issue_comment"
    return ""


def title_of(payload: Mapping[str, Any]) -> str:
    """The title of the run that a `workflow_run` event is about, which names the command of a dispatched one."""
    run = payload.get("workflow_run")
    return str(run.get("display_title") or "") if isinstance(run, dict) else ""
