"""One reaction to an event: observe, plan and perform, until nothing moved meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.baselines.compare.verdict import Conclusion
from assay.baselines.errors import AssayError, ServiceError
from assay.baselines.ledger import Ledger
from assay.baselines.record import Record
from assay.bot.measuring import own_check
from assay.bot.observe import MAX_ARTIFACT_BYTES, History, observe
from assay.bot.perform import perform
from assay.bot.plan import Plan, together
from assay.bot.snapshot import EventFacts, Snapshot

ROUNDS = 4
"""Each further round means that another run wrote the comment in the seconds between our look and our word."""

Keep = Callable[[Snapshot, Mapping[str, Record]], None]


@dataclass(frozen=True)
class Answer:
    """What was done about one pull request; `pull` is None when none has the head any more."""

    pull: int | None
    plan: Plan


def react(
    facts: EventFacts,
    repository: Any,
    ledger: Ledger,
    history: History,
    store: Path,
    write_summary: Callable[[str], None],
    *,
    check_name: str = "assay",
    max_bytes: int = MAX_ARTIFACT_BYTES,
    keep: Keep | None = None,
) -> list[Answer]:
    """Answer on every pull request that has the measured head; `keep` is shown what was seen.

    The verdicts reach `write_summary` even when GitHub refuses all else. Raises the first `ServiceError`, after
    everything that could be done was done; a check that was opened is closed as failure when nothing else is possible.
    """
    answers: list[Answer] = []
    failures: list[AssayError] = []
    summaries: list[str] = []
    for turn in range(ROUNDS):
        try:
            seen = observe(
                facts, repository, ledger, history, store / str(turn), check_name=check_name, max_bytes=max_bytes
            )
            plans = together(seen)
        except Exception as error:
            _give_up(facts, repository, check_name, error)
            raise
        answers = [Answer(s.pull.number if s.pull else None, p) for s, p in plans]
        failures, summaries = [], []
        moved = False
        for (snapshot, planned), (_, records) in zip(plans, seen, strict=True):
            if keep is not None:
                keep(snapshot, records)
            try:
                moved |= perform(planned.operations, repository, summaries.append)
            except AssayError as error:
                failures.append(error)
        if not moved:
            break
    for text in summaries:
        write_summary(text)
    if failures:
        raise failures[0]
    return answers


def _give_up(facts: EventFacts, repository: Any, check_name: str, error: Exception) -> None:
    """Close our open check, so that a fault of ours or of GitHub's is not taken for work that goes on."""
    if facts.action in ("requested", "in_progress") or facts.pull is not None:
        return
    said = str(error) if isinstance(error, ServiceError) else f"an unexpected {type(error).__name__}"
    try:
        check = own_check(repository.checks(facts.head_sha, check_name), facts)
        if check is not None and check.status != "completed":
            repository.update_check(
                check.id,
                status="completed",
                conclusion=Conclusion.FAILURE.value,
                title="assay could not answer: a fault of the tool or of GitHub, not a regression",
                summary=f"{said}\n\nRun the reporting workflow again.",
            )
    except ServiceError:
        return  # GitHub is away; the error that brought us here is the one to tell
