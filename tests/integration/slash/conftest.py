"""A GitHub of its own for each test. What needs a consumer with a published baseline imports it: act takes its time."""

from tests.loopback.fixtures import github_description, loopback

__all__ = ["github_description", "loopback"]
