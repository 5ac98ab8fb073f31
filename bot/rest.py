"""REST calls on one repository: whole replies, all pages, translated errors."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from github import Github, GithubException
from github.Requester import Requester

from assay.baselines.errors import InputError
from assay.baselines.ledger.service import again, speaking
from assay.bot.archive import Source
from assay.bot.transport import Patience, PatientRetry

PER_PAGE = 100

T = TypeVar("T")


class Rest:
    """The repository `name` (`owner/name`). Paths are below `/repos/<name>`; `operation` reads after "could not"."""

    def __init__(self, connection: Github, name: str, patience: Patience) -> None:
        self.name = name
        self.patience = patience
        self._requester: Requester = connection.requester

    def get(self, path: str, operation: str) -> Any:
        """The body of a GET."""
        with speaking(operation):
            return self.read(path)

    def read(self, path: str, parameters: dict[str, Any] | None = None) -> Any:
        """The body of a GET, raising as PyGithub does."""
        url = self._url(path)
        return self._whole(lambda: self._requester.requestJsonAndCheck("GET", url, parameters=parameters)[1])

    def pages(
        self, path: str, operation: str, parameters: dict[str, str] | None = None, key: str | None = None
    ) -> list[Any]:
        """All items of a paginated endpoint, following the Link header; `key` names the list inside the body."""
        items: list[Any] = []
        url: str | None = self._url(path)
        query: dict[str, Any] | None = {"per_page": PER_PAGE} | (parameters or {})
        while url is not None:
            ask = partial(self._requester.requestJsonAndCheck, "GET", url, parameters=query)
            with speaking(operation):
                headers, data = self._whole(ask)
            items.extend(data if key is None else data[key])
            url, query = next_page(str(headers.get("link", ""))), None
        return items

    def send(self, method: str, path: str, body: dict[str, Any] | None, operation: str, *, once: bool = False) -> Any:
        """The reply to a change; one that must happen `once` is not repeated when its reply is lost."""
        ask = partial(self._requester.requestJsonAndCheck, method, self._url(path), input=body)
        with speaking(operation, once=once):
            return (ask() if once else self._whole(ask))[1]

    @property
    def signed_in(self) -> bool:
        """Whether there is a token: GraphQL answers nobody without one."""
        return self._requester.auth is not None

    def graphql(self, query: str, variables: dict[str, Any], operation: str) -> Any:
        """The `data` of a GraphQL query, which changes nothing. Raises `ServiceError` when any part of it was refused."""
        with speaking(operation):
            return self._whole(lambda: self._requester.graphql_query(query, variables)[1])["data"]

    def file_at(self, path: str, ref: str) -> bytes | None:
        """Content of a file at a commit, branch or tag; None when there is none."""
        with speaking(f"read {path} at {ref[:40]}"):
            try:
                data = self.read(f"/contents/{quote(path)}", {"ref": ref})
                if not isinstance(data, dict) or data.get("type") != "file":
                    raise InputError(f"{path} at {ref[:40]} is not a file: give the path of one.")
                if data.get("encoding") != "base64":  # over 1 MiB the contents endpoint gives no content
                    data = self.read(f"/git/blobs/{data['sha']}")
            except GithubException as error:
                if error.status == 404:
                    return None
                raise
            return base64.b64decode(data["content"])

    def viewer(self) -> str:
        """The login of whoever the token is, over GraphQL, which any kind of token may ask."""
        data = self.graphql("query { viewer { login } }", {}, "read the token's own login")
        with speaking("read the token's own login"):
            return str(data["viewer"]["login"])

    def source(self, path: str) -> Source:
        """A download that the API redirects to storage."""
        headers = {"User-Agent": "assay", "Accept": "application/vnd.github+json"}
        if self._requester.auth is not None:
            self._requester.auth.authentication(headers)
        return Source(f"{self._requester.base_url}{self._url(path)}", headers, PatientRetry(patience=self.patience))

    def _url(self, path: str) -> str:
        return path if path == "/user" else f"/repos/{self.name}{path}"

    def _whole(self, call: Callable[[], T]) -> T:
        """Repeat a call that may be repeated until its reply arrives whole."""
        return again(call, lambda seconds: self.patience.wait(seconds, "a reply broke off"), self.patience.attempts)


def next_page(link: str) -> str | None:
    """The `rel="next"` address of a Link header (RFC 8288)."""
    for part in link.split(","):
        address, _, rest = part.partition(";")
        if 'rel="next"' in rest:
            return address.strip().strip("<>")
    return None
