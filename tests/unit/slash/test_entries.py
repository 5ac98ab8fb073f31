"""What a listing of the journal tells of commands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.bot.slash import entries, replies

NOW = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
HEAD = "4f2c9e1d0b7a" + "5" * 28
IDS = [f"{n:08x}-8f0e-4b5e-9a41-0c6d2f1b7a90" for n in range(8)]


def sent(n: int, *, pull: int = 7, user: str = "ada", minutes: float = 10.0, age: timedelta = timedelta()) -> str:
    return entries.command_path(pull, HEAD, IDS[n], user, minutes, NOW - age)


def test_what_is_in_flight_is_reserved() -> None:
    paths = [
        sent(0),
        sent(1, user="bob", minutes=20.0),
        sent(2, pull=8, minutes=40.0),
        sent(3, minutes=80.0, age=entries.MAY_RUN - timedelta(minutes=1)),
        sent(4, minutes=160.0, age=entries.MAY_RUN + timedelta(minutes=1)),
        sent(5, minutes=320.0),
        entries.spent_path("2026-10", 7, "ada", IDS[5], 0.0),
        f"commands/7/{HEAD[:12]}/{IDS[6]}.json",  # as earlier versions wrote it
        f"accepted/2026-12-01/{IDS[7]}.json",
    ]
    assert entries.reserved(paths, 7, "ada", NOW) == (10.0 + 20.0 + 80.0, 10.0 + 40.0 + 80.0)
    assert entries.ended(paths) == {IDS[5]}
    assert set(entries.commands_of(paths, 7)) == {IDS[n] for n in (0, 1, 3, 4, 5, 6)}
    assert entries.command_for(paths[0], HEAD) == IDS[0]
    assert entries.path_of(paths, IDS[6]) == paths[7]


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=40), st.floats(0, 1e9), st.integers(1, 10**6))
def test_whoever_asks_is_counted(user: str, minutes: float, pull: int) -> None:
    """A name that no listing recognises would have no budget at all."""
    paths = [
        entries.command_path(pull, HEAD, IDS[0], user, minutes, NOW),
        entries.spent_path("2026-11", pull, user, IDS[1], minutes),
    ]
    assert entries.reserved(paths, pull, user, NOW)[1] == pytest.approx(minutes, abs=0.06)
    assert entries.spent(paths, pull, user, "2026-11")[1] == pytest.approx(minutes, abs=0.06)
    assert all("/" not in entries.name_of(user) and path.isascii() for path in paths)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, IDS[0]),
        ({"path": ".github/workflows/assay-bench.yaml"}, IDS[0]),
        ({"path": ".github/workflows/mine.yml"}, ""),
        ({"path": ".github/workflows/assay-run.yml/../x.yml"}, ""),
        ({"head_branch": "feature"}, ""),
        ({"head_branch": None}, ""),
        ({"event": "pull_request"}, ""),
        ({"title": "assay run"}, ""),
    ],
)
def test_only_our_workflows_of_the_default_branch_carry_a_command(changes: dict[str, str | None], found: str) -> None:
    run = {
        "event": "workflow_dispatch",
        "head_branch": "main",
        "path": ".github/workflows/assay-run.yml",
        "title": f"assay {IDS[0]}",
    }
    assert entries.command_of_run(SimpleNamespace(**{**run, **changes}), "main") == found


def test_a_reply_keeps_one_line_for_each_run() -> None:
    one, two = "https://x.test/runs/1", "https://x.test/runs/12"
    body = replies.with_line("marker\nStarted.\n", one, replies.running(one))
    body = replies.with_line(body, two, replies.running(two))
    body = replies.with_line(body, one, replies.finished("evaluate", "✓ Equal", HEAD, one, 12.0))
    assert body.count(f"]({one})") == body.count(f"]({two})") == 1
    assert body.startswith("marker\nStarted.\n")
    assert (replies.told_minutes(body, one), replies.told_minutes(body, two)) == (12.0, None)
    again = replies.with_line(body, one, replies.finished("evaluate", "✗ Worse", HEAD, one, 3.0))
    assert again.count("ended:") == 1
    assert replies.with_line("a\n\nb\n", "", "c") == "a\n\nb\n\nc\n"
