"""The orphan branch `assay-journal`: what is no baseline, appended one commit at a time through the Git data API."""

from __future__ import annotations

import base64
import random
from typing import Any
from urllib.parse import quote

from github import GithubException

from assay.baselines.errors import InputError, ServiceError
from assay.baselines.ledger.service import Forbidden, speaking
from assay.bot.rest import Rest

BRANCH = "assay-journal"
ATTEMPTS = 12
MAX_PAUSE_S = 8.0
MAX_PUT_BYTES = 1 << 20


def write(rest: Rest, path: str, data: bytes, message: str, *, replace: bool = False, new: bool = False) -> None:
    """Commit one file on top of the branch; begin again when another writer was faster or a reply was lost.

    A file that is believed to be `new` is first put there by one request, which GitHub refuses where there is such a file
    (it wants the old content's name then), no branch yet, or another writer in the way.

    Blobs, trees and commits that no branch names are nothing that anyone sees, so a writer may die anywhere; the branch
    moves only by fast-forward, so of two writers at once the slower one starts from the other's commit. Writing the same
    bytes again changes nothing; other bytes are an `InputError` unless `replace`.
    """
    if new and len(data) <= MAX_PUT_BYTES and _put(rest, path, data, message):
        return
    last: ServiceError | None = None
    for attempt in range(ATTEMPTS):
        if attempt:
            longest = min(MAX_PAUSE_S, rest.patience.first_pause * 2**attempt)
            rest.patience.wait(longest * random.random(), "the journal moved")
        tip = _tip(rest)
        present = rest.file_at(path, tip) if tip is not None else None
        if present == data:
            return
        if present is not None and not replace:
            raise InputError(f"the journal holds another {path}: entries are never changed; name it by its digest.")
        try:
            _move(rest, tip, _commit(rest, path, data, message, tip))
            return
        except Forbidden:
            raise
        except ServiceError as error:  # no fast-forward, or made by another writer meanwhile, or the reply was lost
            last = error
    raise last or ServiceError("GitHub could not append to the journal: run this again.")


def listed(rest: Rest) -> dict[str, str]:
    """Path -> blob of all files, raising as PyGithub does; empty when there is no journal yet.

    GitHub cuts a recursive list at 100,000 entries or 7 MB and says `truncated`; then the folders are listed one by one.
    """
    try:
        data = rest.read(f"/git/trees/{BRANCH}", {"recursive": "1"})
    except GithubException as error:
        if error.status in {404, 409}:
            return {}
        raise
    return _files(data) if not data.get("truncated") else _by_folder(rest, BRANCH, "")


def _by_folder(rest: Rest, tree: str, prefix: str) -> dict[str, str]:
    """The files below a tree whose recursive list is too long."""
    here = rest.read(f"/git/trees/{tree}")
    if here.get("truncated"):
        raise InputError(f"{prefix or 'the root'} of the journal has more files than GitHub lists: move some away.")
    found = _files(here, prefix)
    for item in here["tree"]:
        if item["type"] == "tree":
            below = f"{prefix}{item['path']}/"
            whole = rest.read(f"/git/trees/{item['sha']}", {"recursive": "1"})
            found |= _by_folder(rest, str(item["sha"]), below) if whole.get("truncated") else _files(whole, below)
    return found


def _files(data: Any, prefix: str = "") -> dict[str, str]:
    return {prefix + str(item["path"]): str(item["sha"]) for item in data["tree"] if item["type"] == "blob"}


def _put(rest: Rest, path: str, data: bytes, message: str) -> bool:
    """Put a new file; False when that may not have happened, so that the long way, which looks first, is taken."""
    body = {"message": message, "content": base64.b64encode(data).decode(), "branch": BRANCH}
    try:
        rest.send("PUT", f"/contents/{quote(path)}", body, f"store {path}", once=True)
    except Forbidden as error:
        if error.status != 404:
            raise
        return False
    except ServiceError:
        return False
    return True


def _tip(rest: Rest) -> str | None:
    with speaking("read the journal branch"):
        try:
            data = rest.read(f"/git/ref/heads/{BRANCH}")
        except GithubException as error:
            if error.status in {404, 409}:  # 409: the repository has no commit at all
                return None
            raise
        return str(data["object"]["sha"])


def _commit(rest: Rest, path: str, data: bytes, message: str, tip: str | None) -> str:
    content = {"content": base64.b64encode(data).decode(), "encoding": "base64"}
    blob = rest.send("POST", "/git/blobs", content, f"store {path}")["sha"]
    tree: dict[str, Any] = {"tree": [{"path": path, "mode": "100644", "type": "blob", "sha": blob}]}
    if tip is not None:
        tree["base_tree"] = rest.get(f"/git/commits/{tip}", "read the journal's last commit")["tree"]["sha"]
    made = rest.send("POST", "/git/trees", tree, f"store {path}")["sha"]
    commit = {"message": message, "tree": made, "parents": [tip] if tip else []}
    return str(rest.send("POST", "/git/commits", commit, f"store {path}")["sha"])


def _move(rest: Rest, tip: str | None, commit: str) -> None:
    if tip is None:
        made = {"ref": f"refs/heads/{BRANCH}", "sha": commit}
        rest.send("POST", "/git/refs", made, "start the journal", once=True)
    else:
        rest.send("PATCH", f"/git/refs/heads/{BRANCH}", {"sha": commit, "force": False}, "append to the journal")
