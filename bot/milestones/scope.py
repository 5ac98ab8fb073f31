"""Scope growth: what a pull request's `capstone.yml` includes that the base branch's does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.bot.milestones.proposal import Capstone, ScopeItem


@dataclass(frozen=True)
class Growth:
    """One newly included item."""

    item: str
    reason: str
    was: str = ""
    """`excluded` or `deferred`, when the base branch had ruled it out."""

    @property
    def explained(self) -> bool:
        return bool(self.reason)


def growth(base: Capstone, head: Capstone) -> list[Growth]:
    """The items that the head includes and the base does not, in the head's order."""
    before = {_key(entry.item) for entry in base.scope.included}
    ruled_out = {_key(e.item): "deferred" for e in base.scope.deferred} | {
        _key(e.item): "excluded" for e in base.scope.excluded
    }
    return [
        Growth(entry.item, entry.reason.strip(), ruled_out.get(_key(entry.item), ""))
        for entry in _once(head.scope.included)
        if _key(entry.item) not in before
    ]


def _once(entries: Sequence[ScopeItem]) -> list[ScopeItem]:
    return list({_key(e.item): e for e in reversed(entries)}.values())[::-1]


def _key(item: str) -> str:
    return " ".join(item.casefold().split())
