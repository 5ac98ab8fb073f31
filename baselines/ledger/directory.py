"""A ledger in a folder: for laptops, for `make demo`, and for teams that keep baselines on a shared disk."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from assay.baselines.errors import InputError, ServiceError
from assay.baselines.ledger import Publication, parse_tag
from assay.baselines.ledger.tags import hold, pieces, publication_of
from assay.baselines.record import EVIDENCE_NAME, Record, read_record

STAGING = ".staging-"
ABANDONED_S = 24 * 3600.0


class DirectoryLedger:
    """One folder per publication, at its tag below `root`.

    A publication is staged beside and renamed into place, so a reader sees all of it or nothing, whoever crashes; of two
    publishers of one record one rename wins and both return the same publication.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def publish(
        self, record: Record, branch: str, *, folder: Path | None = None, extras: Mapping[str, bytes] | None = None
    ) -> Publication:
        """Publish a record (see `Ledger`), from the `folder` it was read from, with extra files by name."""
        publication = publication_of(record, branch)
        place = self.root / publication.tag
        with pieces(record, folder, extras or {}) as found:
            try:
                self.root.mkdir(parents=True, exist_ok=True)
                self._sweep()
                if not self._complete(place, record.digest):
                    staging = Path(tempfile.mkdtemp(prefix=STAGING, dir=self.root))
                    try:
                        for piece in found:
                            _copy(piece.path, staging / piece.name)
                        staging.chmod(0o755)
                        self._move(staging, place, record.digest)
                    finally:
                        shutil.rmtree(staging, ignore_errors=True)
            except OSError as error:
                raise ServiceError(f"cannot write to the ledger at {self.root}: {error.strerror}.") from None
        return replace(publication, created=_written(place))

    def publications(self, branch: str, kind: str | None = None) -> list[Publication]:
        """See `Ledger`. Anything else that lies in the folder is passed over."""
        found = []
        for path in (self.root / "baseline" / branch).glob(f"*/{kind or '*'}/*/{EVIDENCE_NAME}"):
            publication = parse_tag(path.parent.relative_to(self.root).as_posix())
            if publication is not None and publication.branch == branch:
                found.append(replace(publication, created=_written(path.parent)))
        return found

    def complete(self, publication: Publication) -> bool:
        """True when the publication is there."""
        return (self.root / publication.tag / EVIDENCE_NAME).is_file()

    def fetch(self, publication: Publication) -> Record:
        """See `Ledger`."""
        if not (self.root / publication.tag).is_dir():
            raise InputError(
                f"{self.root} holds no {publication.tag}: `assay baseline list --ledger {self.root}` shows what it holds."
            )
        record = read_record(self.root / publication.tag, expect=publication.digest12)
        hold(publication, record.evidence)
        return record

    def remove(self, publication: Publication) -> None:
        """Take a publication out whole; one that is gone is no error."""
        aside = Path(tempfile.mkdtemp(prefix=STAGING, dir=self.root))
        try:
            (self.root / publication.tag).rename(aside / "record")
        except FileNotFoundError:
            return
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _complete(self, place: Path, digest: str) -> bool:
        """True when the record is there and reads back; damaged content is no publication."""
        try:
            read_record(place, expect=digest)
        except InputError:
            return False
        return True

    def _move(self, staging: Path, place: Path, digest: str) -> None:
        """Rename into place. A full folder there is the same publication by another publisher, or damaged."""
        place.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(8):
            try:
                staging.rename(place)
                _sync(place.parent)
                return
            except OSError:
                if self._complete(place, digest):
                    return
                if not place.exists():
                    raise
            aside = Path(tempfile.mkdtemp(prefix=STAGING, dir=self.root))
            try:
                place.rename(aside / "damaged")
            except FileNotFoundError:
                continue
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        raise ServiceError(f"the ledger at {self.root} keeps changing at {place.name}: publish again.")

    def _sweep(self) -> None:
        """Remove what crashed publishers left behind a day ago."""
        for path in self.root.glob(f"{STAGING}*"):
            try:
                if time.time() - path.stat().st_mtime > ABANDONED_S:
                    shutil.rmtree(path, ignore_errors=True)
            except FileNotFoundError:
                continue


def branches(root: Path) -> list[str]:
    """Branches that have publications below `root`, sorted."""
    tags = (path.parent.relative_to(root).as_posix() for path in Path(root).glob(f"baseline/**/{EVIDENCE_NAME}"))
    return sorted({found.branch for found in map(parse_tag, tags) if found is not None})


def _written(place: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp((place / EVIDENCE_NAME).stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
        writer.flush()
        os.fsync(writer.fileno())


def _sync(folder: Path) -> None:
    """Make a rename durable, where the system lets folders be synchronised."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
