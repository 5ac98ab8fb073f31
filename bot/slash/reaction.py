"""One answer to a comment: observe, plan, perform; whatever goes wrong is said."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from assay.baselines.ledger import Ledger
from assay.bot.objects import Pull
from assay.bot.slash.acceptance import Series
from assay.bot.slash.observe import observe
from assay.bot.slash.operations import SlashOperation
from assay.bot.slash.perform import apologise, perform
from assay.bot.slash.plan import plan
from assay.bot.slash.snapshot import CommandSnapshot


def answer(
    facts: Mapping[str, Any],
    repository: Any,
    ledger: Ledger,
    history: Callable[[str], Iterable[str]],
    report: Callable[[str], None],
    *,
    checklist: Callable[[Pull], str] = lambda _: "",
    compared: Callable[[Pull], Iterable[Series]] = lambda _: (),
    keep: Callable[[CommandSnapshot], None] = lambda _: None,
    pause: Callable[[float], None] = time.sleep,
    dry_run: bool = False,
) -> Sequence[SlashOperation]:
    """Answer one comment and return what was done (or, in a dry run, would be); `keep` is shown what was seen.

    `report(head_sha)` rebuilds the report, `checklist` gives the milestones of a pull request and
    `compared` what its reports compare, `pause` waits some seconds.
    Nothing is returned for a comment that another delivery of the same event answered meanwhile.
    """
    try:
        seen = observe(facts, repository, ledger, history, checklist=checklist, compared=compared)
        operations = plan(seen)
    except Exception as error:
        if not dry_run:
            apologise(facts, repository, error)
        raise
    keep(seen)
    if not dry_run and not perform(operations, repository, report, pause=pause):
        return []
    return operations
