"""Every test here gets a GitHub of its own, with a pull request against a published baseline."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.bot.stage import Stage
from tests.loopback import Loopback
from tests.loopback.fixtures import github_description, loopback

__all__ = ["github_description", "loopback"]


@pytest.fixture
def stage(loopback: Loopback, tmp_path: Path) -> Stage:
    return Stage(loopback, tmp_path)
