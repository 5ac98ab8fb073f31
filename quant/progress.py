"""What a measurement tells while it works."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars


class Progress(Protocol):
    """Told of examples as they are measured; `start` comes first, `close` last."""

    def start(self, totals: Mapping[str, int]) -> None: ...

    def advance(self, task: str, examples: int) -> None: ...

    def finish(self, task: str, reason: str) -> None: ...

    def note(self, line: str) -> None: ...

    def close(self) -> None: ...


class Silent:
    """A `Progress` that says nothing."""

    def start(self, totals: Mapping[str, int]) -> None:
        pass

    def advance(self, task: str, examples: int) -> None:
        pass

    def finish(self, task: str, reason: str) -> None:
        pass

    def note(self, line: str) -> None:
        pass

    def close(self) -> None:
        pass


class Terminal:
    """Bars on standard error; plain lines where that is not a terminal (a CI log)."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._ids: dict[str, TaskID] = {}
        self._done: dict[str, int] = {}
        self._totals: dict[str, int] = {}

    def start(self, totals: Mapping[str, int]) -> None:
        self._totals = dict(totals)
        self._bars.start()
        for task, total in totals.items():
            self._ids[task] = self._bars.add_task(task, total=total, state="")

    def advance(self, task: str, examples: int) -> None:
        before = self._done.get(task, 0)
        self._done[task] = before + examples
        self._bars.advance(self._ids[task], examples)
        tenth = max(self._totals[task] // 10, 1)
        if not self._console.is_terminal and before // tenth != self._done[task] // tenth:
            self._line(f"{task}: {self._done[task]:,} of {self._totals[task]:,} examples")

    def finish(self, task: str, reason: str) -> None:
        self._bars.update(self._ids[task], state=reason)
        if not self._console.is_terminal:
            self._line(f"{task}: {reason}")

    def note(self, line: str) -> None:
        self._line(line)

    def close(self) -> None:
        self._bars.stop()

    def _line(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)
