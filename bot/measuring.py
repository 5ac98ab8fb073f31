"""Looking for what was measured at a head: its runs, and the evidence that they left, validated as data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from assay.baselines.errors import InputError
from assay.baselines.record import Record
from assay.bot.intake import Intake, take_in
from assay.bot.objects import APPROVAL, Run
from assay.bot.plan import own_id
from assay.bot.refusal import refuse
from assay.bot.slash import entries
from assay.bot.snapshot import EventFacts, Measurement

ARTIFACT_PREFIX = "assay-"
MAX_ARTIFACTS = 8
MAX_RUNS = 30


class Repository(Protocol):
    """What looking for measurements needs of GitHub; `assay.bot.github.GitHub` has it."""

    def workflow_runs(self, head_sha: str | None = None, event: str | None = None) -> list[Run]: ...
    def default_branch(self) -> str: ...
    def known_run(self, run_id: int | None) -> Run | None: ...
    def run(self, run_id: int) -> Run: ...
    def artifacts(self, run_id: int) -> list[Any]: ...
    def download_artifact(self, artifact_id: int, folder: Path, max_bytes: int) -> list[str]: ...


def runs_of_head(repository: Repository, facts: EventFacts, checks: Sequence[Any]) -> list[Run]:
    """The workflow runs at the head; the one that set us off alone, as its event told of it, where no check of ours says
    that there is another. One that has no check yet reports later, and then looks at all.
    """
    ours = {c.external_id for c in checks if run_of(c.external_id) is not None}
    told = repository.known_run(facts.run_id)
    if told is not None and ours == {own_id(facts)} and not facts.command:
        return [told]
    return repository.workflow_runs(head_sha=facts.head_sha)


def own_run(repository: Repository, facts: EventFacts, listed: Sequence[Run]) -> Run | None:
    """The run that set us off: from the list of the head's runs, where that is as new as the event."""
    for run in listed:
        if run.id == facts.run_id and run.status == "completed" and run.attempt >= (facts.attempt or 1):
            return run
    return repository.run(facts.run_id) if facts.run_id else None


def dispatched(repository: Repository, journal: Sequence[str], head_sha: str) -> list[Run]:
    """Runs that commands dispatched for a head: GitHub lists them at the commit of the workflow's file instead."""
    commands = {found for path in journal if (found := entries.command_for(path, head_sha))}
    if not commands:
        return []
    runs, branch = repository.workflow_runs(event="workflow_dispatch"), repository.default_branch()
    return [replace(run, head_sha=head_sha) for run in runs if entries.command_of_run(run, branch) in commands]


def measurements(
    repository: Repository,
    facts: EventFacts,
    this: Run | None,
    runs: dict[int, Run],
    reported: Collection[int],
    store: Path,
    max_bytes: int,
    records: dict[str, Record],
) -> tuple[Measurement, ...]:
    """The runs at the head that measure something: the one that set us off, and every other that left our artefacts.

    A head can have hundreds of runs that are none of ours, and each costs a request. A run of ours has a check of ours,
    under whatever name, since it was requested, or will have one when its own report looks at all of them. So the one that
    set us off comes first, then those with a check, then others of the same workflow, the newest first; and a workflow's
    runs from before one that left evidence are passed over, for they decide nothing.
    """
    if this is not None:
        runs[this.id] = this

    def first(run: Run) -> tuple[bool, bool, int]:
        return run.id == facts.run_id, run.id in reported, run.id

    def ours(run: Run) -> bool:
        return run.id in {facts.run_id, *reported} or (this is not None and run.path == this.path)

    found: list[Measurement] = []
    for run in sorted(filter(ours, runs.values()), key=first, reverse=True)[:MAX_RUNS]:
        if any(m.evidence and m.workflow == (run.name or run.path)[:200] and m.run_id > run.id for m in found):
            continue
        # A run that waits for an approval is "completed" to GitHub, and has measured nothing yet.
        finished = (run.status == "completed" or run.id == facts.run_id) and run.conclusion != APPROVAL
        artifacts = (
            [a for a in repository.artifacts(run.id) if a.name.startswith(ARTIFACT_PREFIX) and not a.expired]
            if finished
            else []
        )
        found.append(_measurement(repository, run, artifacts, finished, store, max_bytes, records))
    return tuple(sorted(found, key=lambda m: m.run_id, reverse=True))


def _measurement(
    repository: Repository,
    run: Run,
    artifacts: list[Any],
    finished: bool,
    store: Path,
    max_bytes: int,
    records: dict[str, Record],
) -> Measurement:
    intake, problem = Intake((), ()), ""
    if artifacts:
        try:
            newest = _newest_by_name(artifacts)
            if len(newest) > MAX_ARTIFACTS:
                raise InputError(f"the run left {len(newest)} artefacts of assay, over {MAX_ARTIFACTS}: upload one.")
            for artifact in newest:
                folder = store / f"run-{run.id}" / str(artifact.id)
                repository.download_artifact(artifact.id, folder, max_bytes)
                found = take_in(folder, run.head_sha, run.id)
                intake = Intake(intake.heads + found.heads, intake.supplements + found.supplements)
            kinds = [r.evidence.kind for r in intake.heads]
            if len(set(kinds)) < len(kinds):
                raise InputError("the run left two records of one kind: upload one of each kind.")
            if not kinds:
                raise InputError("the run left an artefact without evidence in it: upload the folder that assay wrote.")
        except InputError as error:
            intake, problem = Intake((), ()), f"{refuse(error, f'the evidence of run {run.id} was refused')}."
    for record in (*intake.heads, *intake.supplements):
        records[record.digest] = record
    return Measurement(
        workflow=(run.name or run.path)[:200],
        run_id=run.id,
        attempt=run.attempt,
        url=run.html_url,
        head_sha=run.head_sha,
        finished=finished,
        conclusion=run.conclusion,
        asked=run.event == "workflow_dispatch",
        evidence=tuple(r.digest for r in intake.heads),
        supplements=tuple(r.digest for r in intake.supplements),
        problem=problem,
    )


def _newest_by_name(artifacts: list[Any]) -> list[Any]:
    """A re-run leaves the artefacts of earlier attempts in place; the highest id of a name is the newest."""
    newest: dict[str, Any] = {}
    for artifact in artifacts:
        if artifact.name not in newest or artifact.id > newest[artifact.name].id:
            newest[artifact.name] = artifact
    return [newest[name] for name in sorted(newest)]


def own_check(checks: Iterable[Any], facts: EventFacts) -> Any | None:
    """The newest of these checks that belongs to the run and attempt of the event."""
    wanted = own_id(facts)
    return max((c for c in checks if c.external_id == wanted), key=lambda c: c.id, default=None)


def run_of(external: str) -> int | None:
    """The run that an `external_id` of ours names."""
    run, _, attempt = external.partition("-")
    return int(run) if run.isdecimal() and attempt.isdecimal() else None
