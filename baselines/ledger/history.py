"""Ancestry, nearest first: in what order to look for the baseline of a commit.

The order is topological over all parents, newest first: no commit comes before one of its descendants. The
publications of one branch were all its tip at some time, so by ancestry they form a chain, and the first of them met in
such an order is the one with no publication between it and the start: the nearest. Following first parents alone would
miss it whenever the branch's earlier tip became a second parent (a `git pull` that merged before pushing), and counting
steps over a merge could prefer an old tip two parents away to a newer one three away. In a linear history all of these
are the same.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from github import GithubException
from github.Repository import Repository

from assay.baselines.errors import InputError, ServiceError
from assay.baselines.ledger import Nearest, Publication, nearest
from assay.baselines.ledger.service import again, speaking

LIMIT = 5_000
"""Commits to look back. A baseline further away than this measures another program."""
PER_PAGE = 100
FULL = re.compile(r"[0-9a-f]{40}")


class Complete(Protocol):
    """What choosing a baseline asks of a ledger; both ledgers answer it."""

    def publications(self, branch: str, kind: str | None = None) -> list[Publication]: ...

    def complete(self, publication: Publication) -> bool: ...


def baseline(ledger: Complete, branch: str, kind: str, ancestry: Iterable[str]) -> Nearest | None:
    """The nearest publication that can be fetched, or None.

    `ancestry` is a history as below, consumed only as far as needed. A tag whose release was pruned is passed over for
    the next nearest.
    """
    candidates = ledger.publications(branch, kind)
    walked: list[str] = []
    rest = iter(ancestry)

    def walk() -> Iterator[str]:
        yield from list(walked)
        for commit in rest:
            walked.append(commit)
            yield commit

    while (found := nearest(candidates, walk())) is not None:
        if ledger.complete(found.publication):
            return found
        candidates.remove(found.publication)
    return None


def history(repository: Repository, sha: str, *, limit: int = LIMIT) -> Iterator[str]:
    """Full SHAs of `sha` and its ancestors over the commits API, nearest first, a page at a time as they are consumed.

    GitHub lists commits as `git log` does: newest first, all parents followed. A full SHA heads its own history, so that
    it is given before anything is asked: where it was published itself, nothing is.
    """
    known = FULL.fullmatch(sha) is not None
    if known:
        yield sha
    for page in range(1, -(-limit // PER_PAGE) + 1):
        with speaking(f"list the history of {sha[:12]}"):
            data = _get(repository, "/commits", {"sha": sha, "per_page": PER_PAGE, "page": page})
            commits = [str(item["sha"]) for item in data]
        yield from commits[1:] if known and page == 1 and commits[:1] == [sha] else commits
        if len(commits) < PER_PAGE:
            return


def local_history(path: Path, sha: str = "HEAD", *, limit: int = LIMIT) -> Iterator[str]:
    """The same of a local clone, by `git rev-list --date-order` (children always before parents)."""
    command = [
        "git",
        "-C",
        str(path),
        "rev-list",
        "--date-order",
        f"--max-count={limit}",
        "--end-of-options",
        sha,
        "--",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            for line in process.stdout:
                yield line.strip()
        except GeneratorExit:
            process.kill()
            raise
        said = process.stderr.read()
        if process.wait() != 0:
            raise InputError(
                f"git cannot list the history of {sha[:40]} in {path}: {_last(said)}; fetch the full history."
            )


def merge_base(repository: Repository, base: str, head: str) -> str:
    """Best common ancestor by the compare API. `base` and `head` are commits or branches of the repository's network.

    Raises `InputError` when the two have no common history.
    """
    with speaking(f"compare {base[:12]} with {head[:12]}"):
        try:
            data = _get(repository, f"/compare/{quote(base, safe='')}...{quote(head, safe='')}", {"per_page": 1})
        except GithubException as error:
            if error.status == 404 and "common ancestor" in str(error.data):
                raise InputError(
                    f"{base[:12]} and {head[:12]} have no common history: rebase the pull request."
                ) from None
            raise
        return str(data["merge_base_commit"]["sha"])


def local_merge_base(path: Path, base: str, head: str) -> str:
    """Best common ancestor by `git merge-base`.

    Raises `InputError` when git finds none (a shallow clone, another history).
    """
    try:
        done = subprocess.run(
            ["git", "-C", str(path), "merge-base", "--end-of-options", base, head],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceError(f"git merge-base did not run ({error}): is git installed?") from None
    if done.returncode != 0:
        raise InputError(
            f"git finds no common ancestor of {base[:40]} and {head[:40]} in {path}: {_last(done.stderr)}; "
            "fetch the full history, or name the branch that it began on (--base-branch, --branch)."
        )
    return done.stdout.strip()


def _get(repository: Repository, path: str, parameters: dict[str, Any]) -> Any:
    url = f"{repository.url}{path}"
    return again(lambda: repository.requester.requestJsonAndCheck("GET", url, parameters=parameters)[1])


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no common history"
