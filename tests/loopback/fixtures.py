"""Fixtures around the loopback; a test folder's `conftest.py` imports them by name."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from assay.baselines.evidence import Environment, Evidence, Metric, Provenance, Subject
from assay.baselines.ledger.release import ReleaseLedger
from assay.baselines.record import Record, write_record
from assay.bot.github import GitHub, connect
from assay.bot.transport import Patience
from tests.loopback import Loopback, Token, install, job_token

WRITER = job_token(contents="write", pull_requests="write", issues="write", checks="write", actions="write")
REPOSITORY = "acme/widgets"


@pytest.fixture(scope="session")
def github_description() -> str | None:
    """Installs GitHub's description; says so when replies cannot be validated against it."""
    reason = install()
    if reason is not None:
        warnings.warn(f"replies of the loopback are not validated against GitHub's description: {reason}", stacklevel=1)
    return reason


@pytest.fixture
def loopback(github_description: str | None) -> Iterator[Loopback]:
    """A GitHub of its own; the test fails when any of its replies was unlike GitHub's."""
    with Loopback() as github:
        yield github


def patience(**changes: object) -> Patience:
    """Patience that does not really sleep and says nothing."""
    return Patience(**({"sleep": lambda _: None, "say": lambda _: None} | changes))  # type: ignore[arg-type]


def client(
    github: Loopback, token: Token | None = WRITER, repository: str = REPOSITORY, waiting: Patience | None = None,
    timeout: int = 10,
) -> GitHub:  # fmt: skip
    """The bot's view of a repository through a token (None: without one)."""
    waiting = waiting or patience()
    secret = github.token(token) if token is not None else None
    connection = connect(secret, github.url, patience=waiting, timeout=timeout, seconds_between_writes=None)
    return GitHub(connection, repository, server_url=github.web, patience=waiting)


def ledger(github: Loopback, cache: Path, token: Token | None = WRITER, repository: str = REPOSITORY) -> ReleaseLedger:
    """A release ledger through a token, which never really sleeps."""
    return ReleaseLedger(client(github, token, repository).repository, cache, pause=lambda _: None)


def measured(
    folder: Path, commit: str | None, *, value: float = 0.5, rows: int = 200, kind: str = "evaluation"
) -> Record:
    """A record of `commit`, written to `folder`."""
    evidence = Evidence(
        kind=kind,
        subject=Subject(name="model", digest="sha256:" + "0" * 64),
        protocol={"seed": 1},
        environment=Environment(),
        provenance=Provenance(commit=commit, created=datetime(2026, 11, 30, 12, tzinfo=UTC)),
        metrics={"acc": Metric(value=value)},
    )
    table = pa.table({"score": np.random.default_rng(rows).random(rows)}) if rows else None
    return write_record(folder, evidence, table)
