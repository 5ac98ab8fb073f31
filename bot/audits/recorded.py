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
    """What the newest self-audit of each kind counted; one that cannot be read is left out."""
    found = []
    for path in newest(paths, kinds):
        night = _read(path, read)
        if night is not None and night.tally is not None:
            found.append(night.tally)
    return tuple(found)


def newest(paths: Sequence[str], kinds: Iterable[str]) -> list[str]:
    """Paths of the newest self-audit of each kind that has any."""
    return [path for kind in kinds if (path := newest_of(paths, kind)) is not None]


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
    paths = github.journal_list()
    read = github.journal_reader(entries.holding(paths, today))
    accepted = entries.as_policy(entries.accepted(paths, read, today))
    gate = configuration.gate.model_copy(update={"accepted": [*configuration.gate.accepted, *accepted]})
    return configuration.model_copy(update={"gate": gate})


def counting(paths: Iterable[str], kind: str) -> list[str]:
    """Paths of the newest nights of a kind, at most as many as count."""
    return sorted(p for p in paths if (match := PATH.match(p)) and match["kind"] == kind)[-WINDOW:]


def nights(paths: Iterable[str], read: Callable[[str], bytes | None], kind: str) -> list[Night]:
    """These nights; one that cannot be read is left out."""
    found = [_read(path, read) for path in counting(paths, kind)]
    return [night for night in found if night is not None]


def _read(path: str, read: Callable[[str], bytes | None]) -> Night | None:
    data = read(path)
    try:
        return parse_night(data, path) if data is not None else None
    except InputError:
        return None
