"""What the journal says to a comparison: self-audits, and regressions that people accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date

from assay.baselines.audit import PATH, WINDOW, Night, Tally, newest_of, parse_night
from assay.baselines.config import Configuration
from assay.baselines.errors import InputError
from assay.bot.slash import entries
from assay.bot.sources import Place


def tallies(paths: Sequence[str], read: Callable[[str], bytes | None], kinds: Iterable[str]) -> tuple[Tally, ...]:
    """What the newest self-audit of each kind counted, one request each; one that cannot be read is left out."""
    found = []
    for kind in kinds:
        path = newest_of(paths, kind)
        night = _read(path, read) if path is not None else None
        if night is not None and night.tally is not None:
            found.append(night.tally)
    return tuple(found)


def tallies_at(place: Place, kind: str) -> tuple[Tally, ...]:
    """The same for a command; a folder of publications has no journal."""
    if place.ledger_folder is not None or place.repository is None:
        return ()
    github = place.github()
    return tallies(github.journal_list(), github.journal_get, [kind])


def accepting_at(place: Place, configuration: Configuration, today: date) -> Configuration:
    """The configuration with what people accepted by a command, as the bot reads it."""
    if place.ledger_folder is not None or place.repository is None:
        return configuration
    github = place.github()
    accepted = entries.as_policy(entries.accepted(github.journal_list(), github.journal_get, today))
    gate = configuration.gate.model_copy(update={"accepted": [*configuration.gate.accepted, *accepted]})
    return configuration.model_copy(update={"gate": gate})


def nights(paths: Iterable[str], read: Callable[[str], bytes | None], kind: str) -> list[Night]:
    """The newest nights of a kind, at most as many as count."""
    mine = sorted(p for p in paths if (match := PATH.match(p)) and match["kind"] == kind)
    found = [_read(path, read) for path in mine[-WINDOW:]]
    return [night for night in found if night is not None]


def _read(path: str, read: Callable[[str], bytes | None]) -> Night | None:
    data = read(path)
    try:
        return parse_night(data, path) if data is not None else None
    except InputError:
        return None
