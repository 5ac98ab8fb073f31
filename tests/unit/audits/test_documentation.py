"""What docs/audits.md shows as a report is what the golden files say."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_shown_lines_are_rendered_ones() -> None:
    golden = "\n".join(p.read_text() for p in sorted((ROOT / "tests" / "golden" / "audits").glob("*.md")))
    golden = golden.replace("\u00a0", " ").replace("&lt;&nbsp;", "< ").replace("&nbsp;", " ")
    shown = [line[2:] for line in (ROOT / "docs" / "audits.md").read_text().splitlines() if line.startswith("> ")]
    assert len(shown) > 10
    for line in shown:
        assert line.removeprefix("### ") in golden, f"docs/audits.md shows what no report says: {line}"
