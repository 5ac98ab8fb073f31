"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from assay.bot.hosts import API_URL, SERVER_URL

F = TypeVar("F", bound=Callable[..., Any])


def place_options(command: F) -> F:
    """Where publications are: `--ledger` or `--repository`, and how GitHub is reached (from the workflow's environment)."""
    for option in reversed(
        [
            click.option(
                "--ledger",
                type=click.Path(path_type=Path),
                envvar="ASSAY_LEDGER",
                help="A folder of publications, instead of releases.",
            ),
            click.option(
                "--repository",
                envvar="GITHUB_REPOSITORY",
                metavar="OWNER/NAME",
                help="The repository whose releases hold the baselines.",
            ),
            click.option(
                "--github-token",
                envvar="GITHUB_TOKEN",
                metavar="TOKEN",
                help="Read from GITHUB_TOKEN; not needed to read public repositories.",
            ),
            click.option(
                "--api-url",
                envvar="GITHUB_API_URL",
                default=API_URL,
                show_default=True,
                help="For GitHub Enterprise Server.",
            ),
            click.option(
                "--server-url",
                envvar="GITHUB_SERVER_URL",
                default=SERVER_URL,
                show_default=True,
                help="For GitHub Enterprise Server.",
            ),
        ]
    ):
        command = option(command)
    return command


def policy_option(command: F) -> F:
    """`--policy`: which assay.yml decides."""
    option = click.option(
        "--policy",
        type=click.Path(path_type=Path),
        help="The assay.yml with the policy.  [default: .github/assay.yml if there is one, else the built-in policy]",
    )
    return option(command)
