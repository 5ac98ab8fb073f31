"""Commands on a stage with real evidence: what the command workflow and the reporting workflow do, without act."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from tests.integration.bot.stage import Stage
from tests.loopback import events, job_token
from tests.loopback.fixtures import REPOSITORY, client, ledger

from assay.baselines.ledger import Ledger
from assay.baselines.ledger.history import history
from assay.bot.commands.command import checklist, compared, rebuild
from assay.bot.github import GitHub
from assay.bot.observe import event_facts
from assay.bot.reaction import react
from assay.bot.slash.observe import comment_facts
from assay.bot.slash.operations import SlashOperation
from assay.bot.slash.reaction import answer
from assay.bot.slash.replies import read_marker
from assay.bot.slash.route import check_name, redirect
from assay.bot.sources import Place

COMMANDER = job_token(contents="write", pull_requests="write", issues="write", checks="write", actions="write")


@dataclass(frozen=True)
class Here(Place):
    """The loopback as the place of publications, without the second that GitHub wants between writes."""

    stage: Stage | None = None

    def github(self) -> GitHub:
        assert self.stage is not None
        return client(self.stage.github, COMMANDER)

    def ledger(self, *, public: bool = False) -> Ledger:
        assert self.stage is not None
        return ledger(self.stage.github, self.stage.scratch / "cache", COMMANDER)


class Talk:
    """People who talk to the bot on the stage's pull request. `ada` may write."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.repo = stage, stage.repo
        self.place = Here(repository=REPOSITORY, stage=stage)
        self.repo.permissions["ada"] = "write"
        files = {
            f".github/workflows/{name}": "on: workflow_dispatch" for name in ("assay-run.yml", "assay-publish.yml")
        }
        self.repo.commit(files)

    def say(self, body: str, author: str = "ada", comment: int | None = None) -> str:
        """Write a comment, answer it, and return the newest reply."""
        comment = comment if comment is not None else self.repo.comment(self.stage.number, body, author=author)
        self.answer(events.issue_comment(self.stage.github, self.repo, comment))
        return self.replies()[-1] if self.replies() else ""

    def answer(self, event: dict[str, Any]) -> list[SlashOperation]:
        bot = self.place.github()
        return list(
            answer(
                comment_facts("issue_comment", event),
                bot,
                self.place.ledger(),
                partial(history, bot.repository),
                lambda head: rebuild(head, self.place),
                checklist=lambda pull: checklist(pull, self.place),
                compared=lambda pull: compared(pull, self.place),
                pause=lambda _: None,
            )
        )

    def replies(self) -> list[str]:
        return [c.body for c in self.repo.comments_on(self.stage.number) if read_marker(c.body)]

    def newest(self) -> int:
        """The run of the newest dispatch."""
        return int(self.repo.dispatches[-1]["run"])

    def end(
        self,
        run: int,
        folder: Path,
        *,
        attempt: int = 1,
        broke: int | None = None,
        conclusion: str = "success",
        minutes: float = 0.0,
    ) -> None:
        """A dispatched run ends after some minutes, with evidence where `broke` is given, and the report answers."""
        self.repo.runs[run].attempt = attempt
        if broke is not None:
            self.stage.finish(run, broke=broke)
        self.repo.finish_run(run, conclusion)
        payload = json.loads(json.dumps(events.workflow_run(self.stage.github, self.repo, run)))
        told = payload["workflow_run"]
        began = datetime.fromisoformat(told["run_started_at"])
        told["updated_at"] = f"{began + timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"
        bot = self.place.github()
        bot.remember(payload["repository"])
        title = payload["workflow_run"]["display_title"]
        facts, verb = redirect(event_facts("workflow_run", payload), title, bot)
        name = check_name(verb) if verb else "assay"
        past = partial(history, bot.repository)
        react(facts, bot, self.place.ledger(), past, folder, lambda _: None, check_name=name)

    def checks(self) -> list[tuple[str, str | None]]:
        """(name, conclusion) of the head's checks, oldest first."""
        return [(c.name, c.conclusion) for c in self.stage.checks()]

    def journal(self, folder: str) -> list[str]:
        return [path for path in self.place.github().journal_list() if path.startswith(f"{folder}/")]
