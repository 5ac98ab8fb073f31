"""Which commit and which workflow run a measurement belongs to."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime

from pydantic import ValidationError

from assay.baselines.errors import InputError
from assay.baselines.evidence import Provenance


def provenance_of(commit: str | None, run_id: int | None, attempt: int | None) -> Provenance:
    """Provenance of a measurement that happens now.

    The commit is the given one, else ASSAY_HEAD_SHA (the pull request's head, where GITHUB_SHA is a merge commit), else the
    HEAD of the current directory's repository. Raises `InputError` when it is no full SHA.
    """
    found = commit or os.environ.get("ASSAY_HEAD_SHA") or _git_head()
    try:
        return Provenance(
            commit=found or None,
            run_id=run_id,
            attempt=attempt,
            workflow=os.environ.get("GITHUB_WORKFLOW", "")[:200],
            created=datetime.now(UTC),
        )
    except ValidationError:
        raise InputError(f"--commit {str(found)[:60]} is not a full commit: give its 40 hexadecimal digits.") from None


def _git_head() -> str:
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
