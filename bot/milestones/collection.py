"""What `assay capstone` looks at on a laptop: a ledger, folders of evidence that is not published, and the files beside
the proposal. The bot looks through `holdings`, at a commit, over the API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from urllib.parse import quote

from assay.baselines.compare import compare
from assay.baselines.compare.protocol import ProtocolMismatchError
from assay.baselines.compare.verdict import Overall
from assay.baselines.config import Configuration, load_configuration
from assay.baselines.errors import InputError
from assay.baselines.record import EVIDENCE_NAME, Record, read_record
from assay.bot.milestones.holdings import headings_of, publications
from assay.bot.milestones.proposal import Capstone
from assay.bot.milestones.shelf import Kept, Shelf, Verdict
from assay.bot.sources import Place, check_branch

MAX_FILE_BYTES = 4 << 20
MAX_RECORDS = 200


def collect(capstone: Capstone, root: Path, place: Place, branch: str, folders: Sequence[Path], today: date) -> Shelf:
    """Everything that the milestones ask for, of a branch's publications (where a ledger is named), `folders` and `root`.

    Raises `InputError` for a folder that is not there or holds no evidence, `ServiceError` when the ledger cannot be
    reached.
    """
    kept: list[Kept] = []
    local = records_in(folders)
    if _named(place):
        check_branch(branch)
        if place.ledger_folder is not None and not place.ledger_folder.exists():
            raise InputError(f"there is no folder {place.ledger_folder}: give the folder of publications.")
        found = publications(place.ledger(), branch, capstone.kinds())
        kept += [Kept(record.digest, record.evidence, where(place, p.tag)) for p, record in found]
    kept += [Kept(record.digest, record.evidence, str(folder)) for folder, record in local]
    files = headings_of(capstone.paths(), lambda name: _read(root / name))
    prefix = "" if root == Path() else f"{root}/"
    return Shelf(tuple(kept), files, verdicts(capstone, place, branch, local, root, today), prefix)


def records_in(folders: Sequence[Path]) -> list[tuple[Path, Record]]:
    """The records in folders, each of which is a record or holds some. Raises `InputError` when one holds none."""
    found: list[Path] = []
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"there is no folder {folder}: give one that assay wrote evidence to.")
        own = (folder / EVIDENCE_NAME).is_file()
        inside = [folder] if own else sorted(p.parent for p in folder.rglob(EVIDENCE_NAME))
        if not inside:
            raise InputError(f"no evidence is in {folder}: give a folder that assay wrote evidence to.")
        found += inside
    if len(found) > MAX_RECORDS:
        raise InputError(f"{len(found)} records are in these folders, and at most {MAX_RECORDS} are read: give fewer.")
    return [(folder, read_record(folder)) for folder in found]


def verdicts(
    capstone: Capstone, place: Place, branch: str, local: Sequence[tuple[Path, Record]], root: Path, today: date
) -> dict[str, Verdict]:
    """The gate of each kind that a milestone asks for: the last unpublished record against the newest publication,
    under the policy in `root`'s `.github/assay.yml`."""
    found: dict[str, Verdict] = {}
    for kind in capstone.gates():
        head = next(((f, r) for f, r in reversed(local) if r.evidence.kind == kind), None)
        if head is None:
            continue
        folder, record = head
        bases = publications(place.ledger(), branch, [kind]) if _named(place) else []
        base = next((r for _, r in bases if r.digest != record.digest), None)
        policy_file = root / ".github" / "assay.yml"
        configuration = load_configuration(policy_file) if policy_file.is_file() else Configuration()
        if base is None:
            overall = Overall.NO_BASELINE
        else:
            try:
                overall = compare(record, base, configuration.gate, today).overall
            except ProtocolMismatchError:
                overall = Overall.MISMATCH
            except InputError:
                overall = Overall.INVALID
        found[kind] = Verdict(overall.value, str(folder))
    return found


def where(place: Place, tag: str) -> str:
    """Where a publication can be looked at: its folder, or the page of its release."""
    if place.ledger_folder is not None:
        return str(place.ledger_folder / tag)
    return f"{place.server_url}/{place.repository}/releases/tag/{quote(tag)}"


def _named(place: Place) -> bool:
    return place.ledger_folder is not None or place.repository is not None


def _read(path: Path) -> bytes | None:
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        return stream.read(MAX_FILE_BYTES)
