"""Render golden comments as pages, to look at them: `python -m tests.look FOLDER [--png] [--closed] [state ...]`."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from assay.bot.operations import AppendJournal, CreateComment, WriteSummary
from assay.bot.page import to_html
from assay.bot.plan import plan
from tests.states import STATES

QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1.5",
]


GOLDEN = Path(__file__).parent / "golden"


def names() -> list[str]:
    """Every state, and every golden file of a folder as `folder/name`."""
    return [*STATES, *sorted(str(p.relative_to(GOLDEN).with_suffix("")) for p in GOLDEN.glob("*/*.md"))]


def page(state: str, *, closed: bool) -> str:
    """The comment of a state as an HTML page, its folded parts open unless `closed`."""
    if "/" in state:
        text = to_html((GOLDEN / f"{state}.md").read_text(), state, "")
        return text if closed else text.replace("<details>", "<details open>")
    made = STATES[state]()
    operations = plan(made.snapshot, made.records).operations
    bodies = [o.body for o in operations if isinstance(o, CreateComment)]
    bodies += [o.text for o in operations if isinstance(o, WriteSummary)]
    pictures = [o.data.decode() for o in operations if isinstance(o, AppendJournal)]
    text = to_html(bodies[0], state, pictures[0] if pictures else "")
    return text if closed else text.replace("<details>", "<details open>")


def screenshot(html: Path, png: Path, height: int) -> None:
    """A picture of a page by headless Chromium, 1000 CSS px wide."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("pictures need chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as profile:
        place = [f"--user-data-dir={profile}", f"--window-size=1000,{height}", f"--screenshot={png.resolve()}"]
        subprocess.run([chromium, *QUIET, *place, html.resolve().as_uri()], check=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("states", nargs="*", help="all by default; `folder/name` for a golden file of a folder")
    parser.add_argument("--png", action="store_true", help="also take pictures with chromium")
    parser.add_argument("--closed", action="store_true", help="leave folded parts folded")
    parser.add_argument("--height", type=int, default=1800, help="of a picture, in CSS px")
    options = parser.parse_intermixed_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for state in options.states or names():
        html = options.folder / f"{state.replace('/', '-')}.html"
        html.write_text(page(state, closed=options.closed))
        if options.png:
            screenshot(html, html.with_suffix(".png"), options.height)


if __name__ == "__main__":
    main()
