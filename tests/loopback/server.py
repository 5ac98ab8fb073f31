"""The loopback GitHub itself: HTTP on 127.0.0.1 around the state, the routes and the faults."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from . import conversation_routes, git_routes, graphql_routes, release_routes  # noqa: F401 - they register the routes
from .description import Description, description
from .faults import Fault, Faults
from .payloads import Payloads
from .routing import Refusal, Reply, Request, Route, admit, find
from .state import Asset, Repository, Token, World

API = "/api/v3"
UPLOADS = "/api/uploads"
GRAPHQL = "/api/graphql"
STORAGE = "/_storage"
ARTIFACTS = "/_artifacts"
DOWNLOAD = r"/(?P<name>[\w.-]+/[\w.-]+)/releases/download/(?P<tag>.+)/(?P<asset>[^/]+)"


@dataclass(frozen=True)
class Entry:
    """One request of the log."""

    method: str
    path: str
    query: str
    status: int
    """0 when no reply was sent."""
    login: str | None
    fault: str | None = None


class Loopback:
    """A stateful GitHub at `url`, for the length of a `with` block.

    With `validate` every reply is held against GitHub's description, where that is installed; `violations` lists what
    is wrong, and leaving the block raises when there is any.
    """

    def __init__(self, *, validate: bool = True) -> None:
        self.lock = threading.RLock()
        self.world = World(self.lock)
        self.faults = Faults()
        self.log: list[Entry] = []
        self.violations: list[str] = []
        self.description: Description | None = description() if validate else None
        self._stop = threading.Event()

    def __enter__(self) -> Loopback:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.loopback = self
        port = self._server.server_address[1]
        self.web = f"http://127.0.0.1:{port}"
        self.url = self.web + API
        self.storage = f"http://localhost:{port}{STORAGE}"
        self.payloads = Payloads(self.world, self.url, self.web, self.web + UPLOADS)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stop.set()
        self._server.shutdown()
        self._server.server_close()
        if kind is None and self.violations:
            raise AssertionError("replies unlike GitHub's:\n" + "\n".join(self.violations[:20]))

    def repo(self, full_name: str, *, private: bool = False) -> Repository:
        """The repository of this name, made when new."""
        return self.world.repo(full_name, private=private)

    def token(self, token: Token, secret: str | None = None) -> str:
        """Register a token and return its secret."""
        with self.lock:
            secret = secret or f"ghs_{len(self.world.tokens) + 1:036d}"
            self.world.tokens[secret] = token
            return secret

    def requests(self, method: str = ".*", path: str = ".*") -> list[Entry]:
        """Logged requests that match."""
        return [e for e in self.log if re.fullmatch(method, e.method) and re.search(path, e.path)]

    @property
    def artifacts_url(self) -> str:
        """Where stand-ins of the artifact actions put and get archives: `/<owner>/<repo>/<run id>/<name>`."""
        return self.web + ARTIFACTS

    def answer(
        self, method: str, target: str, headers: Any, data: bytes, fault: Fault | None
    ) -> tuple[Reply, Route | None]:
        """Change the state as the request says. The caller holds the lock."""
        split = urlsplit(target)
        path, query = split.path, dict(parse_qsl(split.query, keep_blank_values=True))
        if path.startswith(STORAGE):
            return self._stored(path, headers), None
        if path.startswith(ARTIFACTS):
            return self._artifact(method, path, data, overwrite=query.get("overwrite") == "true"), None
        if (shown := re.fullmatch(DOWNLOAD, path)) is not None and method == "GET":
            return self._shown(shown["name"], unquote(shown["tag"]), shown["asset"]), None
        if path == GRAPHQL and method == "POST":
            return self._graphql(path, query, headers, data), None
        base = next((prefix for prefix in (API, UPLOADS) if path.startswith(prefix + "/")), None)
        found = find(method, path.removeprefix(base)) if base else None
        if found is None:
            return _refused(404, "Not Found"), None
        route, params = found
        try:
            request = self._request(method, path.removeprefix(base or ""), query, headers, data)
            request.params = params
            if "owner" in params:
                name = f"{params['owner']}/{params['repo']}"
                request.repository = self.world.repositories.get(name)
                if request.repository is None:
                    raise Refusal(404, "Not Found")
            admit(request, route)
            if fault is not None and fault.kind == "half-upload":
                self._half_upload(request)
                return _refused(502, "Server Error"), route
            return route.handle(request), route
        except Refusal as refusal:
            return _refused(refusal.status, refusal.message, refusal.errors), route
        except (KeyError, TypeError, AttributeError) as error:
            return _refused(422, f"Invalid request: {type(error).__name__} {error}"), route

    def _request(self, method: str, path: str, query: dict[str, str], headers: Any, data: bytes) -> Request:
        secret = headers.get("Authorization", "").partition(" ")[2]
        if secret and secret not in self.world.tokens:
            raise Refusal(401, "Bad credentials")
        body: Any = {}
        if data and "json" in headers.get("Content-Type", "application/json"):
            try:
                body = json.loads(data)
            except ValueError:
                raise Refusal(400, "Problems parsing JSON") from None
        token = self.world.tokens.get(secret)
        return Request(
            method, path, query, headers, data, body, token, self.world, self.payloads, self.url, self.storage
        )

    def _graphql(self, path: str, query: dict[str, str], headers: Any, data: bytes) -> Reply:
        try:
            return graphql_routes.answer(self._request("POST", path, query, headers, data))
        except Refusal as refusal:
            return _refused(refusal.status, refusal.message, refusal.errors)

    def _half_upload(self, request: Request) -> None:
        release = release_routes.need(request)
        asset = Asset(request.world.number(), request.query["name"], "", b"", request.world.now(), state="open")
        release.assets[asset.id] = asset

    def _stored(self, path: str, headers: Any) -> Reply:
        if headers.get("Authorization"):
            self.violations.append(f"{path}: the storage was sent the token")
        kind, _, number = path.removeprefix(STORAGE + "/").partition("/")
        for repo in self.world.repositories.values():
            if kind == "assets":
                found = [r.assets[int(number)].data for r in repo.releases.values() if int(number) in r.assets]
            else:
                found = [repo.artifacts[int(number)].data] if int(number) in repo.artifacts else []
            if found:
                return _ranged(found[0], headers.get("Range"))
        return Reply(404, raw=b"not found")

    def _shown(self, name: str, tag: str, asset: str) -> Reply:
        """The address of an asset that people use: a redirect to storage for public repositories, else nothing."""
        repo = self.world.repositories.get(name)
        for release in repo.published(tag) if repo is not None and not repo.private else ():
            for found in release.assets.values():
                if found.name == asset and found.state == "uploaded":
                    return Reply(302, raw=b"", headers={"Location": f"{self.storage}/assets/{found.id}?signature=abc"})
        return Reply(404, raw=b"not found")

    def _artifact(self, method: str, path: str, data: bytes, *, overwrite: bool) -> Reply:
        owner, name, run, artifact = path.removeprefix(ARTIFACTS + "/").split("/", 3)
        repo = self.world.repositories[f"{owner}/{name}"]
        if method in {"PUT", "POST"}:
            same = [a.id for a in repo.artifacts.values() if a.run_id == int(run) and a.name == artifact]
            if same and not overwrite:
                return Reply(409, raw=b"an artifact with this name already exists on the workflow run")
            for number in same:
                del repo.artifacts[number]
            return Reply(201, raw=str(repo.upload(int(run), artifact, data)).encode())
        for found in repo.artifacts.values():
            if found.run_id == int(run) and found.name == artifact:
                return Reply(200, raw=found.data)
        return Reply(404, raw=b"no such artifact")


def _refused(status: int, message: str, errors: list[Any] | None = None) -> Reply:
    body: dict[str, Any] = {
        "message": message,
        "documentation_url": "https://docs.github.com/rest",
        "status": str(status),
    }
    return Reply(status, body | ({"errors": errors} if errors else {}))


def _ranged(data: bytes, wanted: str | None) -> Reply:
    headers = {"ETag": f'"{hashlib.md5(data).hexdigest()}"', "Accept-Ranges": "bytes"}
    match = re.fullmatch(r"bytes=(\d+)-", wanted or "")
    if match is None:
        return Reply(200, raw=data, headers=headers)
    start = int(match[1])
    if start >= len(data):
        return Reply(416, raw=b"", headers={"Content-Range": f"bytes */{len(data)}"})
    headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
    return Reply(206, raw=data[start:], headers=headers)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    loopback: Loopback

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that went away are part of the play."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one segment per reply: head and body apart wait for the client's delayed acknowledgement
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """The log is kept as entries."""

    def _serve(self) -> None:
        loopback = self.server.loopback
        data = self._body()
        path = urlsplit(self.path).path
        fault = loopback.faults.strike(self.command, self.path)
        kind = fault.kind if fault else None
        if fault is not None and kind == "hang":
            self._note(0, kind)
            loopback._stop.wait(fault.seconds)
            return self._cut()
        if kind == "reset":
            self._note(0, kind)
            return self._cut()
        if fault is not None and kind in {"status", "primary", "secondary"}:
            reply, route = _limit(fault), None
        else:
            with loopback.lock:
                reply, route = loopback.answer(self.command, self.path, self.headers, data, fault)
        self._note(0 if kind == "lost" else reply.status, kind)
        if route is not None and loopback.description is not None:
            wrong = loopback.description.faults(self.command, route.template, reply.status, reply.body)
            loopback.violations.extend(f"{path}: {line}" for line in wrong)
        if kind == "lost":
            return self._cut()
        return self._send(reply, truncated=kind == "truncated")

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = do_HEAD = _serve  # noqa: N815 - the names http.server asks for

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _note(self, status: int, fault: str | None) -> None:
        loopback = self.server.loopback
        split = urlsplit(self.path)
        secret = self.headers.get("Authorization", "").partition(" ")[2]
        token = loopback.world.tokens.get(secret)
        path = split.path.removeprefix(API)
        loopback.log.append(Entry(self.command, path, split.query, status, token.login if token else None, fault))

    def _send(self, reply: Reply, *, truncated: bool) -> None:
        raw = reply.raw
        if raw is None:
            raw = b"" if reply.body is None else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        kind = "application/octet-stream" if reply.raw is not None else "application/json; charset=utf-8"
        headers = {"Content-Type": kind, "X-GitHub-Request-Id": "LOOP:BACK", "X-RateLimit-Limit": "5000"}
        headers |= {"X-RateLimit-Remaining": "4999", "X-RateLimit-Reset": "1900000000"} | reply.headers
        for name, value in headers.items():
            self.send_header(name, value)
        if reply.status != 204:
            self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        if self.command == "HEAD" or reply.status == 204:
            return
        self.wfile.write(raw[: len(raw) // 2] if truncated else raw)
        if truncated:
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def _cut(self) -> None:
        """Reset the connection, so that the client sees an error and not an empty reply."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


def _limit(fault: Fault) -> Reply:
    if fault.kind == "status":
        reply = _refused(fault.status, "Server Error")
    elif fault.kind == "primary":
        reply = _refused(403, "API rate limit exceeded for installation ID 1.")
        reset = int(time.time()) + fault.reset_in
        reply.headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(reset)}
    else:
        status = fault.status if fault.status in {403, 429} else 403
        said = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
        reply = _refused(status, said)
    if fault.retry_after is not None:
        reply.headers["Retry-After"] = str(fault.retry_after)
    return reply
