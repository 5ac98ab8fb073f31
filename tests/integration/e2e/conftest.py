"""A consumer's repository with a published baseline, on a GitHub of its own for each test module."""

from tests.loopback.consumer_fixtures import act_is_there, consumer, fresh_cache, github
from tests.loopback.fixtures import github_description

__all__ = ["act_is_there", "consumer", "fresh_cache", "github", "github_description"]
