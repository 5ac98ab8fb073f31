"""Many small files of a repository in one request, by GitHub's GraphQL API (`Repository.object`, `Blob.text`).

What it cannot give whole (binary or long files, a token that may not ask, a server without GraphQL) is asked for singly by
REST when it is read, so that this saves requests and decides nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from assay.baselines.errors import ServiceError
from assay.bot.rest import Rest

MOST = 100
"""Files of one request: each is a node, of which GitHub allows half a million, but texts may be long."""

Read = Callable[[str, str], bytes | None]
"""(path, ref) -> content of the file at a commit, branch or tag; None when there is none."""


def reader(rest: Rest, wanted: Iterable[tuple[str, str]]) -> Read:
    """A reader that knows the `wanted` files, given as (path, ref), after one request for every hundred of them.

    Each text is held against the name that Git gives to its content, so that what was changed on its way (line endings,
    bytes that are no UTF-8) is asked for again. Raises nothing; reading raises as `Rest.file_at` does.
    """
    known: dict[tuple[str, str], bytes | None] = {}
    files = list(dict.fromkeys(wanted))
    if len(files) > 1 and rest.signed_in:
        for start in range(0, len(files), MOST):
            try:
                known |= _batch(rest, files[start : start + MOST])
            except ServiceError:
                break

    def read(path: str, ref: str) -> bytes | None:
        return known[path, ref] if (path, ref) in known else rest.file_at(path, ref)

    return read


def blob_name(data: bytes) -> str:
    """The name that Git gives to this content (Git's object format: SHA-1 over `blob <length>`, a NUL and the bytes)."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _batch(rest: Rest, files: list[tuple[str, str]]) -> dict[tuple[str, str], bytes | None]:
    """The files that one request gives: present ones whole, absent ones as None."""
    declared = "".join(f", $f{i}: String!" for i in range(len(files)))
    objects = "".join(
        f" f{i}: object(expression: $f{i}) {{ __typename ... on Blob {{ oid text isTruncated }} }}"
        for i in range(len(files))
    )
    query = (
        f"query($owner: String!, $name: String!{declared}) {{ repository(owner: $owner, name: $name) {{{objects} }} }}"
    )
    owner, name = rest.name.split("/")
    variables = {"owner": owner, "name": name} | {f"f{i}": f"{ref}:{path}" for i, (path, ref) in enumerate(files)}
    found: Mapping[str, Any] = rest.graphql(query, variables, f"read {len(files)} files")["repository"]
    given: dict[tuple[str, str], bytes | None] = {}
    for i, file in enumerate(files):
        item = found[f"f{i}"]
        if item is None:
            given[file] = None
        elif item["__typename"] == "Blob" and item["text"] is not None and not item["isTruncated"]:
            data = str(item["text"]).encode()
            if blob_name(data) == item["oid"]:
                given[file] = data
    return given
