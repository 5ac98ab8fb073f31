"""A GitHub and a consumer for the one flow that runs under act."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.loopback.consumer_fixtures import act_is_there, github
from tests.loopback.fixtures import github_description

__all__ = ["act_is_there", "github", "github_description"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One core for models: another process of the suite may be timing kernels on the other one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
