"""A GitHub and a consumer for the one flow that runs under act."""

from tests.loopback.consumer_fixtures import act_is_there, github
from tests.loopback.fixtures import github_description

__all__ = ["act_is_there", "github", "github_description"]
