"""Enterprise Server: only defaults name github.com, and pictures come from where the reader is signed in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.states import NOW

from assay.bot.plan import image_url
from assay.bot.snapshot import EventFacts, Snapshot

ROOT = Path(__file__).parents[3]
HOST = re.compile(r"\b(?:api\.|raw\.|uploads\.)?github(?:usercontent)?\.com\b")
NAMED = {
    ("bot/hosts.py", 'API_URL = "https://api.github.com"'),
    ("bot/hosts.py", 'SERVER_URL = "https://github.com"'),
    ("bot/plan.py", 'return f"https://raw.githubusercontent.com/{snapshot.repository}/assay-journal/{path}"'),
}
"""The defaults, each once, and where public pictures come from: everything else takes its host from the environment."""


def test_only_defaults_name_the_host_and_each_stands_in_one_place() -> None:
    found = [
        (str(path.relative_to(ROOT)), line.strip())
        for folder in ("bot", "baselines", "quant", "actions")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".sh", ".yml", ".j2")
        for line in path.read_text().splitlines()
        if HOST.search(line)
    ]
    assert sorted(found) == sorted(NAMED)


@pytest.mark.parametrize(
    ("server", "private", "expected"),
    [
        ("https://github.com", False, "https://raw.githubusercontent.com/acme/widgets/assay-journal/plots/a.svg"),
        ("https://github.com", True, "https://github.com/acme/widgets/raw/assay-journal/plots/a.svg"),
        ("https://git.example", False, "https://git.example/acme/widgets/raw/assay-journal/plots/a.svg"),
        ("https://git.example", True, "https://git.example/acme/widgets/raw/assay-journal/plots/a.svg"),
    ],
)
def test_pictures(server: str, private: bool, expected: str) -> None:
    snapshot = Snapshot(
        repository="acme/widgets", server_url=server, private=private, now=NOW, event=EventFacts(name="workflow_run")
    )
    assert image_url(snapshot, "plots/a.svg") == expected
