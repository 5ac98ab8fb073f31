"""What looking after baselines asks of GitHub beyond what answering a pull request does."""

from __future__ import annotations

from assay.bot.github import GitHub
from assay.bot.objects import Pull, pull_of
from assay.bot.rest import Rest
from assay.bot.transport import Patience


def rest_of(github: GitHub) -> Rest:
    """REST calls on the repository, with a patience of their own."""
    return Rest(github.connection, github.name, Patience())


def open_pulls(rest: Rest, base: str) -> list[Pull]:
    """The open pull requests into a branch, of which each needs its baseline."""
    listed = rest.pages("/pulls", "list the open pull requests", {"state": "open", "base": base})
    return [pull_of(item) for item in listed]
