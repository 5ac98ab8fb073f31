"""The part of GitHub's GraphQL API that the bot asks: who the token is, and objects of a repository by expression.

Queries are read by the grammar of GraphQL (one named or unnamed query, variables, aliases, inline fragments); a field, type
or argument that GitHub does not have, or that is not here, is refused as GitHub refuses it: status 200 with `errors`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from .routing import Refusal, Reply, Request
from .state import Repository

TOKEN = re.compile(r'\s*(\.\.\.|[{}():$!,]|"(?:[^"\\]|\\.)*"|[A-Za-z_][A-Za-z0-9_]*|\S)')
MAX_TEXT = 512_000


class Fault(Exception):  # noqa: N818 - GraphQL's own word is error, and Python's errors are others
    """The query is refused; `kind` is the type of GitHub's error."""

    def __init__(self, message: str, kind: str = "undefinedField") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass
class Selection:
    """A field with its alias and arguments, or (with `on`) an inline fragment."""

    name: str = ""
    alias: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    inner: list[Selection] = field(default_factory=list)
    on: str = ""


class Query:
    """A parsed query."""

    def __init__(self, text: str, variables: dict[str, Any]) -> None:
        self._tokens = [t for t in TOKEN.findall(text.strip()) if t != ","]
        self._variables = variables
        self._declared: set[str] = set()
        if self._peek() == "query":
            self._next()
            if self._peek() not in {"(", "{"}:
                self._next()
            if self._peek() == "(":
                self._declarations()
        self.selections = self._selections()
        if self._tokens:
            raise Fault(f"Expected end of document, got {self._tokens[0]!r}", "parse_error")

    def _peek(self) -> str:
        if not self._tokens:
            raise Fault("Unexpected end of document", "parse_error")
        return self._tokens[0]

    def _next(self, wanted: str = "") -> str:
        found = self._peek()
        if wanted and found != wanted:
            raise Fault(f"Expected {wanted!r}, got {found!r}", "parse_error")
        return self._tokens.pop(0)

    def _declarations(self) -> None:
        self._next("(")
        while self._peek() != ")":
            self._next("$")
            name = self._next()
            self._next(":")
            self._next("String")
            if self._peek() == "!":
                self._next()
                if not isinstance(self._variables.get(name), str):
                    raise Fault(f"Variable ${name} of type String! was provided invalid value", "variableMismatch")
            self._declared.add(name)
        self._next(")")

    def _selections(self) -> list[Selection]:
        self._next("{")
        found = []
        while self._peek() != "}":
            found.append(self._selection())
        self._next("}")
        if not found:
            raise Fault("Selections must not be empty", "parse_error")
        return found

    def _selection(self) -> Selection:
        if self._peek() == "...":
            self._next()
            self._next("on")
            return Selection(on=self._next(), inner=self._selections())
        name = alias = self._next()
        if self._peek() == ":":
            self._next()
            name = self._next()
        made = Selection(name, alias)
        if self._peek() == "(":
            self._next()
            while self._peek() != ")":
                key = self._next()
                self._next(":")
                made.arguments[key] = self._value()
            self._next(")")
        if self._tokens and self._peek() == "{":
            made.inner = self._selections()
        return made

    def _value(self) -> Any:
        if self._peek() == "$":
            self._next()
            name = self._next()
            if name not in self._declared:
                raise Fault(f"Variable ${name} is used by query but not declared", "variableNotDefined")
            return self._variables.get(name)
        text = self._next()
        if not text.startswith('"'):
            raise Fault(f"{text!r} is no string", "argumentLiteralsIncompatible")
        return text[1:-1]


def answer(request: Request) -> Reply:
    """The reply to a POST of `{"query": ..., "variables": ...}`."""
    if request.token is None:
        raise Refusal(401, "This endpoint requires you to be authenticated.")
    body = request.json
    try:
        query = Query(str(body.get("query", "")), dict(body.get("variables") or {}))
        return Reply(200, {"data": {s.alias: _root(s, request) for s in query.selections}})
    except Fault as fault:
        where = [{"line": 1, "column": 1}]
        error = {"message": str(fault), "type": fault.kind, "locations": where}
        return Reply(200, {"errors": [error]} | ({"data": None} if fault.kind == "NOT_FOUND" else {}))


def _root(selection: Selection, request: Request) -> Any:
    match selection.name:
        case "viewer":
            return _fields(selection, "User", {"login": request.login})
        case "repository":
            name = f"{selection.arguments.get('owner')}/{selection.arguments.get('name')}"
            repo = request.world.repositories.get(name)
            readable = repo is not None and (not repo.private or request.token.may("contents", "read"))  # type: ignore[union-attr]
            if repo is None or not readable:
                raise Fault(f"Could not resolve to a Repository with the name '{name}'.", "NOT_FOUND")
            return {s.alias: _object(s, repo) for s in selection.inner}
    raise Fault(f"Field '{selection.name}' doesn't exist on type 'Query'")


def _object(selection: Selection, repo: Repository) -> Any:
    if selection.name != "object":
        raise Fault(f"Field '{selection.name}' doesn't exist on type 'Repository'")
    if set(selection.arguments) != {"expression"}:
        raise Fault("object takes an expression here", "argumentNotAccepted")
    ref, _, path = str(selection.arguments["expression"]).partition(":")
    sha = repo.sha(ref)
    if sha is None:
        return None
    files = repo.objects.files(repo.objects.commit(sha).tree)
    path = path.strip("/")
    if path not in files:
        below = any(name.startswith(f"{path}/") for name in files)
        return _fields(selection, "Tree", {"oid": sha}) if below else None
    data = repo.objects.blob(files[path])
    binary = b"\0" in data[:8000]
    text = None if binary else data[:MAX_TEXT].decode("utf-8", "replace")
    facts = {"oid": files[path], "byteSize": len(data), "isBinary": binary, "isTruncated": len(data) > MAX_TEXT}
    return _fields(selection, "Blob", facts | {"text": text})


def _fields(selection: Selection, kind: str, facts: dict[str, Any]) -> dict[str, Any]:
    """What was selected of an object of this type."""
    found: dict[str, Any] = {}
    for inner in selection.inner:
        if inner.on:
            if inner.on == kind:
                found |= _fields(inner, kind, facts)
        elif inner.name == "__typename":
            found[inner.alias] = kind
        elif inner.name in facts:
            found[inner.alias] = facts[inner.name]
        else:
            raise Fault(f"Field '{inner.name}' doesn't exist on type '{kind}'")
    return found
