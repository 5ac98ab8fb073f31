"""A consumer's repository with a published baseline, on a GitHub of its own for each test module."""

from tests.loopback.consumer_fixtures import _fresh_cache, act_is_there, consumer, github
from tests.loopback.fixtures import github_description

__all__ = ["_fresh_cache", "act_is_there", "consumer", "github", "github_description"]
