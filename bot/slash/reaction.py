"""One answer to a comment: observe, plan, perform; whatever goes wrong is said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from assay.baselines.ledger import Ledger
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
    keep: Callable[[CommandSnapshot], None] = lambda _: None,
    dry_run: bool = False,
) -> Sequence[SlashOperation]:
    """Answer one comment and return what was done (or, in a dry run, would be); `keep` is shown what was seen."""
    try:
        seen = observe(facts, repository, ledger, history)
        operations = plan(seen)
    except Exception as error:
        if not dry_run:
            apologise(facts, repository, error)
        raise
    keep(seen)
    if not dry_run:
        perform(operations, repository, report)
    return operations
