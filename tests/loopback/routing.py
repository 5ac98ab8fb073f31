"""Requests, replies, refusals, and the table of routes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from .payloads import Payloads
from .state import Repository, Token, World

WITH_SLASHES = {"ref", "path", "tag", "basehead"}


class Refusal(Exception):  # noqa: N818 - GitHub's word for it
    """GitHub says no."""

    def __init__(self, status: int, message: str, errors: list[Any] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.errors = status, message, errors


@dataclass
class Reply:
    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None


@dataclass
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    data: bytes
    json: dict[str, Any]
    token: Token | None
    world: World
    payloads: Payloads
    origin: str
    storage: str
    """Where downloads are redirected to: another host name, which must not be sent the token."""
    repository: Repository | None = None
    params: Mapping[str, str] = field(default_factory=dict)

    @property
    def repo(self) -> Repository:
        assert self.repository is not None
        return self.repository

    @property
    def login(self) -> str:
        return self.token.login if self.token else "anonymous"

    def may_write(self, resource: str) -> bool:
        return self.token is not None and self.token.may(resource, "write")

    def number(self, name: str) -> int:
        try:
            return int(self.params[name])
        except ValueError:
            raise Refusal(404, "Not Found") from None

    def page(self, items: list[Any], render: Callable[[Any], Any], key: str | None = None) -> Reply:
        """One page of a list with its Link header."""
        size = min(100, max(1, int(self.query.get("per_page", 30))))
        number = max(1, int(self.query.get("page", 1)))
        last = max(1, -(-len(items) // size))
        rendered = [render(item) for item in items[(number - 1) * size : number * size]]
        links = {"prev": number - 1, "next": number + 1, "last": last, "first": 1}
        if number >= last:
            del links["next"], links["last"]
        if number == 1:
            del links["prev"], links["first"]
        rest = "".join(f"&{name}={value}" for name, value in self.query.items() if name not in {"page", "per_page"})
        header = ", ".join(
            f'<{self.origin}{self.path}?per_page={size}&page={page}{rest}>; rel="{rel}"' for rel, page in links.items()
        )
        body = rendered if key is None else {"total_count": len(items), key: rendered}
        return Reply(200, body, {"Link": header} if header else {})


@dataclass(frozen=True)
class Route:
    method: str
    template: str
    pattern: re.Pattern[str]
    resource: str | None
    level: str
    handle: Callable[[Request], Reply]
    signed_in: bool = False


ROUTES: list[Route] = []
Handler = Callable[[Request], Reply]


def route(
    method: str, template: str, resource: str | None = None, level: str | None = None, *, signed_in: bool = False
) -> Callable[[Handler], Handler]:
    """Register a handler under the path template of GitHub's description, with the permission that it needs."""
    parts = re.split(r"\{(\w+)\}", template)
    pattern = "".join(
        re.escape(part) if index % 2 == 0 else f"(?P<{part}>{'.+' if part in WITH_SLASHES else '[^/]+'})"
        for index, part in enumerate(parts)
    )

    def register(handle: Handler) -> Handler:
        needed = level or ("read" if method in {"GET", "HEAD"} else "write")
        ROUTES.append(Route(method, template, re.compile(pattern + "$"), resource, needed, handle, signed_in))
        return handle

    return register


def find(method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    """The most specific route for a path (fewest characters taken by parameters), and its parameters."""
    best: tuple[int, Route, dict[str, str]] | None = None
    for candidate in ROUTES:
        match = candidate.pattern.match(path) if candidate.method == method else None
        if match:
            taken = sum(len(value) for value in match.groupdict().values())
            if best is None or taken < best[0]:
                best = (taken, candidate, {name: unquote(value) for name, value in match.groupdict().items()})
    return (best[1], best[2]) if best else None


def admit(request: Request, route: Route) -> None:
    """Raise the refusal that GitHub gives when the token may not do this."""
    token, repo = request.token, request.repository
    if repo is None:
        if route.signed_in and token is None:
            raise Refusal(401, "Requires authentication")
        return
    if repo.private and token is None:
        raise Refusal(404, "Not Found")
    if route.signed_in and token is None:
        raise Refusal(401, "Requires authentication")
    if route.resource is None:
        return
    if token is None:
        if route.level == "write":
            raise Refusal(401, "Requires authentication")
        return
    if route.level == "read" and not repo.private:
        return
    if not token.may(route.resource, route.level):
        who = "integration" if token.kind == "installation" else "personal access token"
        raise Refusal(403, f"Resource not accessible by {who}")
