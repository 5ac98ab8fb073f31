"""A connection to GitHub, over PyGithub, that waits as `assay.bot.transport` describes."""

from __future__ import annotations

from github import Auth, Github

from assay.baselines.errors import InputError
from assay.bot.hosts import API_URL
from assay.bot.rest import PER_PAGE
from assay.bot.transport import Patience, PatientRetry


def connect(
    token: str | None,
    api_url: str = API_URL,
    *,
    patience: Patience | None = None,
    timeout: int = 30,
    seconds_between_writes: float | None = 1.0,
) -> Github:
    """A PyGithub connection to one API.

    `api_url` is the value of GITHUB_API_URL; without a token only public data is seen. `timeout` is seconds without a
    byte. GitHub asks for a second between writes (`seconds_between_writes`), or counts them as abuse.
    """
    if not api_url.startswith(("https://", "http://")):
        raise InputError(f"the API address {api_url[:80]!r} is not an http(s) URL: give the value of GITHUB_API_URL.")
    return Github(
        auth=Auth.Token(token) if token else None,
        base_url=api_url.rstrip("/"),
        timeout=timeout,
        per_page=PER_PAGE,
        user_agent="assay",
        retry=PatientRetry(patience=patience or Patience()),
        seconds_between_requests=None,
        seconds_between_writes=seconds_between_writes,
        lazy=True,
    )


def patience_of(connection: Github) -> Patience:
    """The patience that `connect` gave the connection, so that all waits come out of one allowance."""
    retry = connection.requester.kwargs.get("retry")
    return retry.patience if isinstance(retry, PatientRetry) else Patience()
