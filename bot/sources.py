"""What a command's `--base` or `--head` names: a folder, a publication's tag, a workflow run, or the nearest baseline."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from assay.baselines.errors import InputError
from assay.baselines.ledger import Ledger, Nearest, Publication, parse_tag
from assay.baselines.ledger.directory import DirectoryLedger
from assay.baselines.ledger.tags import UNFIT
from assay.baselines.record import EVIDENCE_NAME, Record, read_record
from assay.bot.hosts import API_URL, SERVER_URL

if TYPE_CHECKING:
    from assay.bot.github import GitHub

RUN = re.compile(r"^run/([0-9]{1,18})$")
KIND = re.compile(r"[a-z][a-z0-9-]{0,30}")


@dataclass(frozen=True)
class Place:
    """Where publications are looked for: a folder, or the releases of a repository."""

    ledger_folder: Path | None = None
    repository: str | None = None
    token: str | None = None
    api_url: str = API_URL
    server_url: str = SERVER_URL

    def ledger(self, *, public: bool = False) -> Ledger:
        """The ledger; `public` when the repository is known to be. Raises `InputError` when none is named."""
        if self.ledger_folder is not None:
            if self.ledger_folder.exists() and not self.ledger_folder.is_dir():
                raise InputError(
                    f"{self.ledger_folder} is a file, and a ledger is a folder: give the folder of publications."
                )
            return DirectoryLedger(self.ledger_folder)
        from assay.baselines.ledger.release import ReleaseLedger

        return ReleaseLedger(self.github().repository, cache_folder(), public=public)

    def github(self) -> GitHub:
        """The repository over the API."""
        if self.repository is None:
            raise InputError(
                "no ledger is named: give --ledger FOLDER, or --repository owner/name (GITHUB_REPOSITORY in a workflow)."
            )
        for option, url in (("--api-url", self.api_url), ("--server-url", self.server_url)):
            try:
                urlsplit(url)
            except ValueError as error:
                raise InputError(
                    f"{option} {url[:80]!r} is no address ({error}): give it as https://host/path."
                ) from None
        token = (self.token or "").strip()
        if not token.isprintable() or " " in token:
            # The libraries below would print it.
            raise InputError("the GitHub token has a space or a line break in it: look at how GITHUB_TOKEN is set.")
        from assay.bot.github import GitHub, connect

        return GitHub(connect(token or None, self.api_url), self.repository, server_url=self.server_url)


def cache_folder() -> Path:
    """Where verified downloads are kept: ASSAY_CACHE, else the user's cache folder."""
    override = os.environ.get("ASSAY_CACHE")
    if override:
        return Path(override)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "assay"
    except RuntimeError:  # a container's user may have neither HOME nor an entry in passwd
        return Path(tempfile.gettempdir()) / f"assay-cache-{os.getuid()}"


def check_branch(branch: str) -> str:
    """The branch, or `InputError` when no tag can hold its name (`..` and a leading `/` would leave the ledger's folder)."""
    if not branch or len(branch) > 180 or UNFIT.search(branch):
        raise InputError(f"{branch[:80]!r} is no branch name that a tag can hold: give the branch as git shows it.")
    return branch


def check_kind(kind: str) -> str:
    """The kind, or `InputError` when no evidence is of one with such a name: a slip is not to look like an empty ledger."""
    if KIND.fullmatch(kind) is None:
        raise InputError(f"{kind[:40]!r} is no kind of evidence: give one such as evaluation.")
    return kind


def publication_named(text: str) -> Publication | None:
    """The publication that a tag names; None when the text is no tag of a baseline."""
    publication = parse_tag(text)
    return publication if publication is not None and not UNFIT.search(publication.branch) else None


def resolve(spec: str, place: Place) -> Record:
    """The record that `spec` names: a folder that assay wrote, `baseline/...` (a tag), or `run/<id>` (its artefact)."""
    run = RUN.match(spec)
    if run is not None:
        return _of_run(int(run[1]), place)
    publication = publication_named(spec)
    path = Path(spec)
    try:
        there, is_record = path.exists(), (path / EVIDENCE_NAME).is_file()
    except (OSError, ValueError):  # a name longer than the file system takes, a null character
        there = is_record = False
    if publication is not None and not there:
        return place.ledger().fetch(publication)
    if is_record:
        return read_record(path)
    if there:
        raise InputError(
            f"{spec} is not evidence: there is no {EVIDENCE_NAME} in it; results of another tool become evidence with "
            "`assay evidence import`."
        )
    raise InputError(f"{spec[:120]} is no folder, no tag (baseline/...) and no run (run/ID): give one of these.")


def nearest_baseline(place: Place, kind: str, branch: str, head: str | None, checkout: Path) -> Nearest | None:
    """The publication of `branch` nearest to the merge base of the branch and `head`.

    With a folder ledger the history is the local clone's; with releases it is asked of GitHub, so that a shallow
    checkout is enough. Raises `InputError` when the head's commit is not known, and when the local history ends before
    any publication because it was not fetched: that would be no finding that there is none.
    """
    if head is None:
        raise InputError(
            "the head names no commit, so that its merge base is unknown: measure in a git checkout, or name the baseline."
        )
    from assay.baselines.ledger import history

    check_branch(branch)
    ledger = place.ledger()
    if place.ledger_folder is not None:
        if not ledger.publications(branch, kind):
            return None  # nothing to look for, so that a clone without that branch is no error
        start = _local_start(checkout, branch, head)
        found = history.baseline(ledger, branch, kind, history.local_history(checkout, start))
        if found is None and _is_shallow(checkout):
            raise InputError(
                f"this clone is shallow, and no commit in it is a published one of {branch}: fetch the full history "
                "(`git fetch --unshallow`, or `fetch-depth: 0` of actions/checkout)."
            )
        return found
    github = place.github()
    return history.baseline(ledger, branch, kind, history.history(github.repository, github.merge_base(branch, head)))


def _local_start(checkout: Path, branch: str, head: str) -> str:
    """The merge base in a clone; of a branch that was fetched but never checked out, as in CI, by its remote's name."""
    from assay.baselines.ledger import history

    try:
        return history.local_merge_base(checkout, branch, head)
    except InputError as error:
        try:
            return history.local_merge_base(checkout, f"refs/remotes/origin/{branch}", head)
        except InputError:
            raise error from None


def _is_shallow(checkout: Path) -> bool:
    command = ["git", "-C", str(checkout), "rev-parse", "--is-shallow-repository"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == "true"


def _of_run(run_id: int, place: Place) -> Record:
    from assay.bot.intake import take_in
    from assay.bot.measuring import ARTIFACT_PREFIX
    from assay.bot.observe import MAX_ARTIFACT_BYTES

    github = place.github()
    run = github.run(run_id)
    artifacts = [a for a in github.artifacts(run_id) if a.name.startswith(ARTIFACT_PREFIX) and not a.expired]
    if not artifacts:
        raise InputError(f"run {run_id} has no artefact of assay that is still kept: measure again.")
    heads: list[Record] = []
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        for artifact in artifacts:
            github.download_artifact(artifact.id, Path(folder) / str(artifact.id), MAX_ARTIFACT_BYTES)
            heads += take_in(Path(folder) / str(artifact.id), run.head_sha, run_id).heads
    if len(heads) != 1:
        raise InputError(f"run {run_id} left {len(heads)} records: download its artefacts and name one folder.")
    return heads[0]
