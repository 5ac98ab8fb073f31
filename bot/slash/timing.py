"""How long a run took."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any


def minutes_of(run: Mapping[str, Any]) -> float:
    """Minutes from a run's start to its last change, as its event tells; 0 when it does not."""
    try:
        started = datetime.fromisoformat(str(run["run_started_at"]))
        return max(0.0, (datetime.fromisoformat(str(run["updated_at"])) - started).total_seconds() / 60)
    except (KeyError, ValueError, TypeError):
        return 0.0
