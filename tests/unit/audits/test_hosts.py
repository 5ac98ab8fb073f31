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
DEFAULTS = re.compile(
    r'^\s*(?:default="https://(?:api\.)?github\.com",|(?:api_url|server_url): str = "https://(?:api\.)?github\.com"'
    r'|(?:API_URL|SERVER_URL) = "https://(?:api\.)?github\.com")'
)
PUBLIC_PICTURES = {
    '    if snapshot.private or snapshot.server_url != "https://github.com":',
    '    return f"https://raw.githubusercontent.com/{snapshot.repository}/assay-journal/{path}"',
}


def test_only_defaults_name_the_host() -> None:
    seen = 0
    for folder in ("bot", "baselines", "quant", "actions"):
        for path in (p for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".sh", ".yml", ".j2")):
            for line in path.read_text().splitlines():
                if HOST.search(line):
                    seen += 1
                    where = f"{path.relative_to(ROOT)}: {line.strip()}"
                    assert DEFAULTS.match(line) or line in PUBLIC_PICTURES, (
                        f"{where} names a host: take it from the environment"
                    )
    assert seen >= len(PUBLIC_PICTURES) + 4


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
