"""Taking in evidence from an artefact: it comes from untrusted code, so it is read as data and checked against its run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.baselines.errors import InputError
from assay.baselines.evidence import Evidence
from assay.baselines.record import EVIDENCE_NAME, Record, read_record

MAX_RECORDS = 8
MAX_DEPTH = 4


@dataclass(frozen=True)
class Intake:
    """The valid evidence of one run: heads by kind, and supplementary base rows."""

    heads: tuple[Record, ...]
    supplements: tuple[Record, ...]


def take_in(folder: Path, head_sha: str, run_id: int | None) -> Intake:
    """Read all records below `folder` and check that they are of this head and run.

    Raises `InputError` when a record is invalid, claims another head SHA than the run's, claims another run, or when two
    are of the same kind. Its message may quote the artefact: publish `assay.bot.refusal.own_words` of it.
    """
    heads: dict[str, Record] = {}
    supplements: list[Record] = []
    for place in _records(folder):
        record = _read(place)
        evidence = record.evidence
        if evidence.provenance.run_id is not None and run_id is not None and evidence.provenance.run_id != run_id:
            raise InputError("the evidence names another run than the one that uploaded it: measure again.")
        if is_supplement(evidence):
            supplements.append(record)
            continue
        if evidence.provenance.commit != head_sha:
            raise InputError(
                "the evidence claims another head commit than the run measured: measure the pull request's head commit."
            )
        if evidence.kind in heads:
            raise InputError(f"the run left two records of one kind ({evidence.kind}): upload one of each kind.")
        heads[evidence.kind] = record
    return Intake(tuple(heads[kind] for kind in sorted(heads)), tuple(supplements))


def is_supplement(evidence: Evidence) -> bool:
    """Whether a record holds base rows that were measured because the published baseline lacked them."""
    return evidence.attributes.get("supplement") is True


def _read(place: Path) -> Record:
    """A record, its faults told without the path."""
    try:
        return read_record(place)
    except InputError as error:
        raise InputError(_impersonal(str(error), place)) from None


def _impersonal(message: str, place: Path) -> str:
    """The message with our folder taken out, so that it names the file and not this machine."""
    return message.replace(f"{place}{os.sep}", "").replace(str(place), "the artefact")


def _records(folder: Path) -> Iterator[Path]:
    found = 0
    for path, names, files in os.walk(folder, followlinks=False):
        here = Path(path)
        names.sort()
        if len(here.relative_to(folder).parts) >= MAX_DEPTH:
            names.clear()
        if EVIDENCE_NAME in files:
            found += 1
            if found > MAX_RECORDS:
                raise InputError(f"the artefact holds more than {MAX_RECORDS} records: upload one of each kind.")
            yield here
