"""Render golden comments as pages, to look at them: `python -m tests.look FOLDER [state ...]`."""

from __future__ import annotations

import sys
from pathlib import Path

from assay.bot.operations import AppendJournal, CreateComment, WriteSummary
from assay.bot.page import to_html
from assay.bot.plan import plan

from tests.states import STATES


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for state in sys.argv[2:] or STATES:
        made = STATES[state]()
        operations = plan(made.snapshot, made.records).operations
        texts = [o.body for o in operations if isinstance(o, CreateComment)] or [
            o.text for o in operations if isinstance(o, WriteSummary)
        ]
        pictures = [o.data.decode() for o in operations if isinstance(o, AppendJournal)]
        page = to_html(texts[0], state, pictures[0] if pictures else "")
        (folder / f"{state}.html").write_text(page.replace("<details>", "<details open>"))
        if pictures:
            (folder / f"{state}.svg").write_text(pictures[0])


if __name__ == "__main__":
    main()
