"""A pull request whose head was measured by real records, and the bot's answer to it, without act and without sleeping."""

from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any

from tests import evidence
from tests.loopback import Loopback, Token, events
from tests.loopback.fixtures import REPOSITORY, WRITER, client, ledger
from tests.loopback.state import CheckRun, Repository

from assay.baselines.ledger import Publication
from assay.baselines.ledger.history import history
from assay.baselines.record import Record, read_record, write_record
from assay.bot.github import GitHub
from assay.bot.observe import event_facts
from assay.bot.reaction import Answer, react

COSTS = {"size": (5.0e8, 5.0e8, 5.0e8)}
SMALLER = {"size": (1.3e8, 1.3e8, 1.3e8)}
N = 400


class Stage:
    """`acme/widgets`: main has a published baseline of 400 examples, and pull request `number` changes the weights."""

    def __init__(self, github: Loopback, scratch: Path, *, private: bool = False, publish: bool = True) -> None:
        self.github = github
        self.scratch = scratch
        self.repo: Repository = github.repo(REPOSITORY, private=private)
        self.base = self.repo.commit({"weights.txt": "1"})
        self.head = self.repo.commit({"weights.txt": "2"}, branch="feature")
        self.number = self.repo.pull("feature")
        self.summary: list[str] = []
        self._turns = itertools.count()
        self.publication = self.publish(self.base) if publish else None

    # -- what exists ---------------------------------------------------------------------------------------------------

    def record(self, commit: str, *, broke: int = 0, fixed: int = 0, head: bool = True, **more: Any) -> Record:
        """An evaluation of `mmlu` with these flips, as head or as base."""
        before, after = evidence.outcomes(more.pop("n", N), broke, fixed)
        costs = SMALLER if head else COSTS
        return evidence.evaluation({"mmlu": after if head else before}, commit=commit, costs=costs, **more)

    def written(self, record: Record) -> Path:
        folder = self.scratch / f"record{next(self._turns)}"
        write_record(folder, record.evidence, record.rows)
        return folder

    def publish(self, commit: str, branch: str = "main", record: Record | None = None) -> Publication:
        folder = self.written(record or self.record(commit, head=False))
        shelf = ledger(self.github, self.scratch / f"cache{next(self._turns)}")
        return shelf.publish(read_record(folder), branch, folder=folder)

    def start(
        self, name: str = "assay measure", *, head: str | None = None, branch: str = "feature", **more: Any
    ) -> int:
        """A measuring run that has begun."""
        path = f".github/workflows/{name.replace(' ', '-')}.yml"
        return self.repo.start_run(head or self.head, branch=branch, name=name, path=path, **more)

    def finish(self, run: int, *, broke: int = 0, fixed: int = 0, head: str | None = None, **more: Any) -> int:
        """The run ends and leaves evidence."""
        record = self.record(head or self.head, broke=broke, fixed=fixed, run_id=run, **more)
        self.repo.upload(run, "assay-evaluation", self.written(record))
        self.repo.finish_run(run)
        return run

    def measured(self, name: str = "assay measure", *, broke: int = 0, fixed: int = 0, **more: Any) -> int:
        return self.finish(self.start(name, **more), broke=broke, fixed=fixed, head=more.get("head"))

    # -- what the bot does ---------------------------------------------------------------------------------------------

    def react(
        self,
        run: int,
        action: str = "completed",
        *,
        token: Token | None = WRITER,
        bot: GitHub | None = None,
        **more: Any,
    ) -> list[Answer]:
        """What `assay comment` does in the workflow that this event starts; its summary is kept in `summary`."""
        payload = json.loads(json.dumps(events.workflow_run(self.github, self.repo, run, action)))
        folder = self.scratch / f"turn{next(self._turns)}"
        folder.mkdir()
        github = bot or client(self.github, token)
        shelf = more.pop("shelf", None) or ledger(self.github, folder / "cache", token)
        self.summary = []
        facts = event_facts("workflow_run", payload)
        past = partial(history, github.repository)
        return react(facts, github, shelf, past, folder, self.summary.append, **more)

    # -- what people see -----------------------------------------------------------------------------------------------

    def comments(self, number: int | None = None, author: str = "github-actions[bot]") -> list[str]:
        return [c.body for c in self.repo.comments_on(number or self.number) if c.author == author]

    def comment(self, number: int | None = None) -> str:
        """The one comment of ours."""
        [body] = self.comments(number)
        return body

    def checks(self, head: str | None = None) -> list[CheckRun]:
        return [c for c in self.repo.checks.values() if c.head_sha == (head or self.head)]

    def check(self, run: int, attempt: int = 1) -> CheckRun:
        """The one check of a run."""
        [check] = [c for c in self.repo.checks.values() if c.external_id == f"{run}-{attempt}"]
        return check

    def verdict(self, run: int) -> tuple[str, str | None]:
        check = self.check(run)
        return check.status, check.conclusion

    def everything(self) -> str:
        """All text that anyone may read: comments, checks, summaries."""
        checks = [f"{c.title}\n{c.summary}" for c in self.repo.checks.values()]
        return "\n".join([*(c.body for c in self.repo.comments.values()), *checks, *self.summary])


def headline(body: str) -> str:
    return next(line for line in body.splitlines() if line.startswith("## "))
