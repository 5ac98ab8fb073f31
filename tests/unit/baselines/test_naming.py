"""Lists of names on a command line."""

from __future__ import annotations

import pytest

from assay.baselines.errors import InputError
from assay.baselines.naming import names


def test_names_come_once_and_in_order() -> None:
    assert names(["b, a", "c,b,"], "--model") == ("b", "a", "c")
    assert names([], "--model") == ()


@pytest.mark.parametrize("value", [",", " , ", ""])
def test_a_list_without_names_is_not_every_name(value: str) -> None:
    with pytest.raises(InputError, match="names nothing"):
        names([value], "--model")
