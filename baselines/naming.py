"""Lists of names on a command line."""

from __future__ import annotations

from collections.abc import Iterable

from assay.baselines.errors import InputError


def names(given: Iterable[str], option: str) -> tuple[str, ...]:
    """The names in the values of a repeatable option, each once and in order; commas separate them too.

    Raises `InputError` for values without any name, which would otherwise mean what leaving the option out means.
    """
    values = tuple(given)
    found = tuple(dict.fromkeys(word.strip() for value in values for word in value.split(",") if word.strip()))
    if values and not found:
        raise InputError(
            f"{option} {values[0][:40]!r} names nothing: give names, separated by commas, or leave it out."
        )
    return found
