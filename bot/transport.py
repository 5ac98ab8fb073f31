"""How assay waits for GitHub: what may be asked again, after how long, and when to give up.

A request is repeated only when repeating it cannot do its work twice. Reads, `PUT`, `PATCH` and `DELETE` as assay uses
them set an absolute state, and Git objects are named by their content, so those may be sent again after a lost reply.
A `POST` that creates a comment, a check run or a release may not: when its reply is lost the caller looks again.
A rate-limited request was never executed, and one whose connection was refused never arrived: any method waits and
tries again after those.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from github.Requester import Requester
from urllib3 import BaseHTTPResponse
from urllib3.connectionpool import ConnectionPool
from urllib3.exceptions import HTTPError, MaxRetryError, ResponseError
from urllib3.util.retry import Retry

LIMITED = {403, 429}
FAILED = {500, 502, 503, 504}
SECONDARY_WAIT_S = 60.0
"""GitHub's documentation: a secondary limit without Retry-After wants at least one minute."""
MAX_PAUSE_S = 60.0
CONTENT_ADDRESSED = re.compile(r"/git/(blobs|trees|commits)$|/reactions$")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@dataclass
class Patience:
    """The waiting that one run of assay may do, over all of its requests."""

    seconds: float = 900.0
    """Sum of all waits; when the next wait would exceed it, the error is raised instead."""
    attempts: int = 6
    """Repetitions of one request."""
    first_pause: float = 1.0
    """Seconds before the first repetition after a failure; doubled each time, with jitter."""
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time
    say: Callable[[str], None] = _say

    def pause(self, repetition: int) -> float:
        """Seconds before the given repetition (0 is the first)."""
        full = min(MAX_PAUSE_S, self.first_pause * 2.0**repetition)
        return full * (0.75 + 0.5 * random.random())

    def wait(self, seconds: float, why: str) -> None:
        """Spend `seconds` of the allowance, saying why on standard error."""
        self.seconds -= seconds
        if seconds >= 1.0:
            self.say(f"assay: {why}; trying again in {seconds:.0f} s")
        if seconds > 0:
            self.sleep(seconds)


def repeatable(method: str | None, url: str | None) -> bool:
    """True when sending the request again cannot do its work twice."""
    if method in {"GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"}:
        return True
    return method == "POST" and CONTENT_ADDRESSED.search((url or "").partition("?")[0]) is not None


def limit_wait(headers: Mapping[str, str], message: str, now: float) -> float | None:
    """Seconds until a 403 or 429 may be repeated, or None when it is not about rate limits.

    Order of GitHub's documentation ("Best practices for using the REST API"): Retry-After; then, when nothing remains,
    the reset time; otherwise one minute.
    """
    after = headers.get("retry-after", "").strip()
    if after.isdigit():
        return float(after)
    if not (Requester.isRateLimitError(message) or "rate limit" in message.lower()):
        return None
    reset = headers.get("x-ratelimit-reset", "")
    if headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
        return max(0.0, int(reset) - now) + 1.0  # the reset falls somewhere within its second
    return SECONDARY_WAIT_S


class PatientRetry(Retry):
    """The rules above as urllib3 asks for them; one `Patience` is shared by all requests of a connection."""

    def __init__(self, *, patience: Patience, total: int | None = None, **kwargs: Any) -> None:
        kwargs.update(allowed_methods=None, raise_on_status=False, redirect=0)
        super().__init__(total=patience.attempts if total is None else total, **kwargs)
        self.patience = patience
        self.seconds = 0.0
        self.why = ""

    def new(self, **kwargs: Any) -> PatientRetry:
        kwargs.update(patience=self.patience)
        return super().new(**kwargs)

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        return status_code in LIMITED or status_code in FAILED

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: BaseHTTPResponse | None = None,
        error: Exception | None = None,
        _pool: ConnectionPool | None = None,
        _stacktrace: TracebackType | None = None,
    ) -> PatientRetry:
        seconds = self.patience.pause(len(self.history))
        if response is None:
            if error is not None and not self._is_connection_error(error) and not repeatable(method, url):
                raise error
            why = f"no reply ({type(error).__name__})"
        elif response.status in LIMITED:
            seconds, why = max(seconds, self._limit(response)), "GitHub's rate limit"
        else:
            why = f"GitHub answered {response.status}"
            if not repeatable(method, url):
                raise self._given_up(_pool, url, response)
        if response is not None and response.status not in LIMITED and seconds > self.patience.seconds:
            raise self._given_up(_pool, url, response)
        if response is None and error is not None and seconds > self.patience.seconds:
            raise error
        following = super().increment(method, url, response, error, _pool, _stacktrace)
        assert isinstance(following, PatientRetry)
        following.seconds, following.why = seconds, why
        return following

    def sleep(self, response: BaseHTTPResponse | None = None) -> None:
        self.patience.wait(self.seconds, self.why)

    def _limit(self, response: BaseHTTPResponse) -> float:
        """Seconds that a limit asks for; raises PyGithub's exception for another refusal or too long a wait.

        The body tells the two apart and can be read only once, so the exception that PyGithub would have made of it is
        made here.
        """
        headers = {name.lower(): value for name, value in response.headers.items()}
        try:
            body = response.read(1 << 16, decode_content=True)
        except HTTPError:  # the refusal broke off, but a refusal it was: nothing was done
            return 0.0
        try:
            data = json.loads(body)
        except ValueError:
            data = {"message": body.decode("utf-8", "replace")[:200]}
        if not isinstance(data, dict):
            data = {"message": ""}
        seconds = limit_wait(headers, str(data.get("message") or ""), self.patience.clock())
        spent = self.total is not None and self.total is not False and self.total <= 0
        if seconds is None or seconds > self.patience.seconds or spent:
            raise Requester.createException(response.status, headers, data)
        return seconds

    @staticmethod
    def _given_up(pool: ConnectionPool | None, url: str | None, response: BaseHTTPResponse) -> MaxRetryError:
        """With `raise_on_status=False`, urllib3 answers this by handing the response to the caller."""
        reason = ResponseError(ResponseError.SPECIFIC_ERROR.format(status_code=response.status))
        return MaxRetryError(pool, url or "", reason)  # type: ignore[arg-type]
