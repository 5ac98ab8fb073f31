"""Fixtures of a consumer's repository with a published baseline, on a GitHub of its own for each test module."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loopback import Loopback, act
from tests.loopback.consumer import Consumer


@pytest.fixture(scope="session", autouse=True)
def act_is_there() -> None:
    assert act.binary() is not None, "these tests need act: `make setup` installs it"


@pytest.fixture(scope="module")
def github(github_description: str | None) -> Iterator[Loopback]:
    with Loopback() as server:
        yield server


@pytest.fixture(scope="module")
def consumer(github: Loopback, tmp_path_factory: pytest.TempPathFactory) -> Consumer:
    """The repository, its baseline published by a push to main."""
    made = Consumer(github, tmp_path_factory.mktemp("consumer"))
    made.publish()
    return made


@pytest.fixture(autouse=True)
def _fresh_cache(consumer: Consumer) -> None:
    shutil.rmtree(Path(consumer.folder) / "cache", ignore_errors=True)
