"""What GitHub refuses or fails to do, in one line that names the operation and what to do about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TypeVar

import requests
import urllib3
from github import GithubException

from assay.baselines.errors import ServiceError


class Forbidden(ServiceError):  # noqa: N818 - what it is, not that it is an error
    """The token may not do this, or may not see that it exists (GitHub answers 404 for what a token must not see)."""

    def __init__(self, message: str, status: int = 403) -> None:
        super().__init__(message)
        self.status = status


class ReplyLost(ServiceError):  # noqa: N818
    """The request may or may not have taken effect: look again before repeating it."""


PERMISSION = {401, 403, 404}
BROKEN_OFF = (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError, ValueError)
"""What a reply raises that ends in the middle of its body, where urllib3's own retries are over."""

T = TypeVar("T")


def again(call: Callable[[], T], pause: Callable[[float], None] = time.sleep, attempts: int = 4) -> T:
    """Make a call that may be repeated, until its reply arrives whole; `pause` waits some seconds in between."""
    for attempt in range(attempts - 1):
        try:
            return call()
        except BROKEN_OFF:
            pause(0.5 * 2.0**attempt)
    return call()


@contextmanager
def speaking(operation: str, *, once: bool = False) -> Iterator[None]:
    """Translate what PyGithub and requests raise inside the block.

    `operation` reads after "GitHub could not", for example `read pull request 7`. With `once` the block sends a request
    that must not be repeated blindly (a POST that creates something), and a failure after which the state is unknown
    raises `ReplyLost`. Raises `Forbidden` for 401, 403 and 404, `ServiceError` for everything else.
    """
    try:
        yield
    except GithubException as error:
        raise translated(error, operation, once=once) from None
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        unsent = isinstance(error, requests.ConnectTimeout) or "NewConnectionError" in repr(error)
        kind = ReplyLost if once and not unsent else ServiceError
        raise kind(f"GitHub could not {operation}: {_short(error)}; check the network and run this again.") from None
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        kind = ReplyLost if once else ServiceError
        raise kind(
            f"GitHub's reply could not be read when asked to {operation}: {_short(error)}; run this again."
        ) from None


def translated(error: GithubException, operation: str, *, once: bool = False) -> ServiceError:
    """The assay error for a PyGithub one."""
    status = error.status
    said = message_of(error)
    if limited(error):
        reset = _reset(error)
        return ServiceError(f"GitHub could not {operation}: its rate limit is spent{reset}; run this again later.")
    if status in PERMISSION:
        needs = "the token is not valid" if status == 401 else "the token may lack the permission, or it does not exist"
        line = f"GitHub could not {operation}: {status} {said}: {needs}; check the workflow's `permissions:`."
        return Forbidden(line, status)
    if status >= 500:
        kind = ReplyLost if once else ServiceError
        return kind(f"GitHub could not {operation}: {status} {said}; run this again.")
    return ServiceError(f"GitHub could not {operation}: {status} {said}.")


def message_of(error: GithubException) -> str:
    """GitHub's own words (with the codes of its validation errors), cut to one short line."""
    data = error.data if isinstance(error.data, dict) else {}
    words = [str(data.get("message") or error.message or "")]
    for problem in data.get("errors") or []:
        if isinstance(problem, dict):
            words.append(" ".join(str(problem[key]) for key in ("field", "code", "message") if problem.get(key)))
        else:
            words.append(str(problem))
    return " ".join(" ".join(words).split())[:200]


def limited(error: GithubException) -> bool:
    """True when the error is a primary or secondary rate limit."""
    said = message_of(error).lower()
    return error.status == 429 or (error.status == 403 and "rate limit" in said)


def _reset(error: GithubException) -> str:
    value = str((error.headers or {}).get("x-ratelimit-reset", ""))
    if not value.isdigit():
        return ""
    return f" until {datetime.fromtimestamp(int(value), UTC):%H:%M:%S} UTC"


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
