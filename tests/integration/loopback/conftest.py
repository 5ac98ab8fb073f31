"""Every test here gets a GitHub of its own."""

from tests.loopback.fixtures import github_description, loopback

__all__ = ["github_description", "loopback"]
