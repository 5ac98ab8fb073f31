"""Git objects in memory, named by the SHA-1 that git would give them."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class Commit:
    sha: str
    tree: str
    parents: tuple[str, ...]
    author: str
    email: str
    when: datetime
    message: str


@dataclass(frozen=True)
class Entry:
    mode: str
    name: str
    sha: str

    @property
    def kind(self) -> str:
        return "tree" if self.mode == "40000" else "blob"


class Objects:
    """A shared object store: a repository and its forks see one another's commits, as on GitHub."""

    def __init__(self) -> None:
        self._data: dict[str, tuple[str, bytes]] = {}

    def __contains__(self, sha: str) -> bool:
        return sha in self._data

    def kind(self, sha: str) -> str | None:
        return self._data[sha][0] if sha in self._data else None

    def put(self, kind: str, data: bytes) -> str:
        sha = hashlib.sha1(f"{kind} {len(data)}\0".encode() + data).hexdigest()
        self._data[sha] = (kind, data)
        return sha

    def blob(self, sha: str) -> bytes:
        return self._data[sha][1]

    def put_tree(self, files: Mapping[str, str]) -> str:
        """A tree of nested paths -> blob SHA."""
        folders: dict[str, dict[str, str]] = {}
        entries: list[Entry] = []
        for path, sha in files.items():
            first, _, rest = path.partition("/")
            if rest:
                folders.setdefault(first, {})[rest] = sha
            else:
                entries.append(Entry("100644", first, sha))
        entries += [Entry("40000", name, self.put_tree(inner)) for name, inner in folders.items()]
        # git sorts a folder as if its name ended in a slash
        entries.sort(key=lambda entry: entry.name + ("/" if entry.kind == "tree" else ""))
        return self.put("tree", b"".join(f"{e.mode} {e.name}\0".encode() + bytes.fromhex(e.sha) for e in entries))

    def tree(self, sha: str) -> list[Entry]:
        data, entries = self._data[sha][1], []
        while data:
            head, _, rest = data.partition(b"\0")
            mode, name = head.decode().split(" ", 1)
            entries.append(Entry(mode, name, rest[:20].hex()))
            data = rest[20:]
        return entries

    def files(self, tree: str, prefix: str = "") -> dict[str, str]:
        """All files below a tree: path -> blob SHA."""
        found: dict[str, str] = {}
        for entry in self.tree(tree):
            if entry.kind == "tree":
                found |= self.files(entry.sha, f"{prefix}{entry.name}/")
            else:
                found[prefix + entry.name] = entry.sha
        return found

    def put_commit(
        self, tree: str, parents: tuple[str, ...], message: str, when: datetime, author: str, email: str
    ) -> str:
        person = f"{author} <{email}> {int(when.timestamp())} +0000"
        lines = [f"tree {tree}", *(f"parent {sha}" for sha in parents), f"author {person}", f"committer {person}"]
        return self.put("commit", ("\n".join(lines) + "\n\n" + message).encode())

    def commit(self, sha: str) -> Commit:
        head, _, message = self._data[sha][1].decode("utf-8", "replace").partition("\n\n")
        tree, parents, author, email, when = "", [], "", "", datetime.fromtimestamp(0, UTC)
        for line in head.splitlines():
            word, _, rest = line.partition(" ")
            if word == "tree":
                tree = rest
            elif word == "parent":
                parents.append(rest)
            elif word == "author":
                author, _, tail = rest.partition(" <")
                email, _, stamp = tail.partition("> ")
                when = datetime.fromtimestamp(int(stamp.split()[0]), UTC)
        return Commit(sha, tree, tuple(parents), author, email, when, message)

    def history(self, sha: str) -> Iterator[Commit]:
        """The commit and its ancestors, newest first, children before parents."""
        reachable: dict[str, Commit] = {}
        stack = [sha]
        while stack:
            name = stack.pop()
            if name not in reachable:
                reachable[name] = self.commit(name)
                stack.extend(reachable[name].parents)
        children = dict.fromkeys(reachable, 0)
        for commit in reachable.values():
            for parent in commit.parents:
                children[parent] += 1
        ready = [reachable[sha]]
        while ready:
            ready.sort(key=lambda commit: commit.when)
            commit = ready.pop()
            yield commit
            for parent in commit.parents:
                children[parent] -= 1
                if children[parent] == 0:
                    ready.append(reachable[parent])

    def ancestors(self, sha: str) -> set[str]:
        return {commit.sha for commit in self.history(sha)}

    def merge_base(self, base: str, head: str) -> str | None:
        shared = self.ancestors(base)
        return next((commit.sha for commit in self.history(head) if commit.sha in shared), None)

    def read_clone(self, folder: Path) -> dict[str, str]:
        """Copy every reachable object of a local clone; returns its refs (full name -> SHA)."""
        names = _git(folder, "rev-list", "--objects", "--all").decode().split("\n")
        wanted = "\n".join(line.split(" ")[0] for line in names if line)
        data = _git(folder, "cat-file", "--batch", stdin=wanted.encode() + b"\n")
        while data:
            head, _, data = data.partition(b"\n")
            _, kind, size = head.decode().split()
            self.put(kind, data[: int(size)])
            data = data[int(size) + 1 :]
        refs = _git(folder, "for-each-ref", "--format=%(objectname) %(refname)").decode().splitlines()
        return {name: sha for sha, name in (line.split(" ", 1) for line in refs)}


def _git(folder: Path, *arguments: str, stdin: bytes | None = None) -> bytes:
    return subprocess.run(["git", "-C", str(folder), *arguments], input=stdin, capture_output=True, check=True).stdout
