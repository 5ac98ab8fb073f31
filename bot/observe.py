"""Looking: from an event to a snapshot of everything that a plan needs, and the evidence beside it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from assay.baselines.errors import AssayError, InputError
from assay.baselines.ledger import Ledger, Publication
from assay.baselines.ledger.history import baseline
from assay.baselines.record import Record, read_record, write_record
from assay.bot.audits.recorded import tallies
from assay.bot.intake import Intake, take_in
from assay.bot.milestones.holdings import observe_capstone
from assay.bot.objects import Pull, Run
from assay.bot.perform import is_ours
from assay.bot.plan import own_id
from assay.bot.refusal import refuse
from assay.bot.slash import entries
from assay.bot.slash.replies import read_marker
from assay.bot.slash.timing import minutes_of
from assay.bot.snapshot import (
    Acknowledgement,
    BaselineFacts,
    CommentFacts,
    EventFacts,
    Measurement,
    PullFacts,
    Rival,
    Snapshot,
)

ARTIFACT_PREFIX = "assay-"
MAX_ARTIFACT_BYTES = 512 << 20
MAX_ARTIFACTS = 8
MAX_RUNS = 30
MAX_RIVALS = 2
MEASURING_EVENTS = ("pull_request", "workflow_dispatch")


class Repository(Protocol):
    """What observing needs of GitHub; `assay.bot.github.GitHub` has it."""

    name: str
    server_url: str

    @property
    def private(self) -> bool: ...
    def viewer_login(self, default: str = ...) -> str: ...
    def pulls_for_head(self, sha: str, head_owner: str | None = None) -> list[Pull]: ...
    def pulls_of_run(self, run: Run, head_owner: str | None = None) -> list[Pull]: ...
    def pull(self, number: int) -> Pull: ...
    def merge_base(self, base: str, head: str) -> str: ...
    def issue_comments(self, number: int) -> list[Any]: ...
    def checks(self, head_sha: str, name: str | None = None) -> list[Any]: ...
    def workflow_runs(self, head_sha: str | None = None, event: str | None = None) -> list[Run]: ...
    def run(self, run_id: int) -> Run: ...
    def artifacts(self, run_id: int) -> list[Any]: ...
    def download_artifact(self, artifact_id: int, folder: Path, max_bytes: int) -> list[str]: ...
    def file_at(self, path: str, ref: str) -> bytes | None: ...
    def journal_list(self) -> list[str]: ...
    def journal_get(self, path: str) -> bytes | None: ...


History = Callable[[str], Iterable[str]]


def event_facts(name: str, payload: Mapping[str, Any]) -> EventFacts:
    """The facts of a `workflow_run` event. Raises `InputError` for an event that `assay comment` does not handle."""
    run = payload.get("workflow_run")
    if name != "workflow_run" or not isinstance(run, dict):
        raise InputError(
            f"assay comment handles workflow_run events, not {name[:40]!r}: call it from a workflow with `on: workflow_run`."
        )
    try:
        return EventFacts(
            name=name,
            action=str(payload.get("action", "")),
            run_id=int(run["id"]),
            attempt=int(run.get("run_attempt") or 1),
            workflow=str(run.get("name") or run.get("path") or "")[:200],
            run_url=str(run.get("html_url", "")),
            head_sha=str(run["head_sha"]),
            conclusion=run.get("conclusion"),
            trigger=str(run.get("event") or ""),
            minutes=minutes_of(run),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the workflow_run event lacks {error}: give the event file that GitHub wrote.") from None


def observe(
    facts: EventFacts,
    repository: Repository,
    ledger: Ledger,
    history: History,
    store: Path,
    *,
    check_name: str = "assay",
    max_bytes: int = MAX_ARTIFACT_BYTES,
    now: datetime | None = None,
) -> list[tuple[Snapshot, dict[str, Record]]]:
    """One snapshot, with its records, for each open pull request that has the measured head; one without a pull request
    when the head has moved on, so that the check of the old head is still closed.

    `history(sha)` yields the ancestry of a commit, nearest first; an artefact over `max_bytes`, packed or unpacked, is
    refused.
    """
    if facts.trigger and facts.trigger not in MEASURING_EVENTS:
        return []
    common: dict[str, Any] = {
        "repository": repository.name,
        "server_url": repository.server_url,
        "now": now or datetime.now(UTC),
        "event": facts,
        "check_name": check_name,
    }
    opening = facts.action in ("requested", "in_progress")
    everything = repository.checks(facts.head_sha, check_name if opening else None)
    checks = [check for check in everything if check.name == check_name]
    check = own_check(checks, facts)
    if check is not None:
        common |= {"check_id": check.id, "check_completed": check.status == "completed"}
    common["check_runs"] = tuple(sorted({n for c in checks if (n := run_of(c.external_id)) is not None}))
    if opening:
        return [(Snapshot(**common), {})]
    listed = repository.workflow_runs(head_sha=facts.head_sha)
    run = _own_run(repository, facts, listed)
    if run is not None and run.event not in MEASURING_EVENTS:
        return []
    if run is not None and facts.command:
        run = replace(run, head_sha=facts.head_sha)  # GitHub names the commit of the workflow's file
    owner = (run.head_repository or "").partition("/")[0] if run is not None and not facts.command else ""
    pulls = repository.pulls_of_run(run, owner or None) if run is not None else []
    pulls = pulls or repository.pulls_for_head(facts.head_sha, owner or None)
    records: dict[str, Record] = {}
    journal = repository.journal_list()
    sent = _dispatched(repository, journal, facts.head_sha)
    reported = {n for c in everything if (n := run_of(c.external_id)) is not None} | {r.id for r in sent}
    runs = {r.id: r for r in listed if r.event == "pull_request"} | {r.id: r for r in sent}
    measurements = _measurements(repository, facts, run, runs, reported, store, max_bytes, records)
    if not pulls:
        return [(Snapshot(**common, measurements=measurements), records)]
    common["private"] = repository.private
    # Only apps have checks: the app of the check that the same workflow opened is who it comments as.
    viewer = f"{check.app}[bot]" if check is not None and check.app else repository.viewer_login()
    accepted = entries.accepted(journal, repository.journal_get, common["now"].date())
    found = []
    for pull in pulls:
        conversation = repository.issue_comments(pull.number)
        comments = tuple(CommentFacts(id=c.id, body=c.body) for c in conversation if is_ours(c, viewer))
        merge_base = repository.merge_base(pull.base_ref, pull.head_sha)
        kinds = sorted({r.evidence.kind for r in records.values()})
        baselines, rivals, problem = _baselines(ledger, pull.base_ref, kinds, history, merge_base, records)
        configuration, unreadable = _configuration(repository, pull.base_ref)
        capstone, kept = observe_capstone(repository, ledger, pull.base_ref, pull.head_sha, records)
        snapshot = Snapshot(
            **common,
            pull=PullFacts(
                number=pull.number,
                head_sha=pull.head_sha,
                base_ref=pull.base_ref,
                merge_base=merge_base,
                fork=pull.fork,
                url=pull.html_url,
            ),
            comments=comments,
            accepted=accepted,
            audits=tallies(journal, repository.journal_get, kinds),
            acknowledgement=_acknowledgement(conversation, viewer, facts, repository, journal),
            measurements=measurements,
            baselines=baselines,
            rivals=rivals,
            baseline_problem=problem,
            configuration=configuration,
            configuration_problem=unreadable,
            capstone=capstone,
        )
        found.append((snapshot, {**records, **kept}))
    return found


def save(snapshot: Snapshot, records: Mapping[str, Record], folder: Path) -> Path:
    """Write a snapshot and its evidence, so that `assay simulate` can replay the run. Returns the snapshot's path."""
    for digest, record in records.items():
        write_record(folder / "evidence" / digest, record.evidence, record.rows)
    path = folder / "snapshot.json"
    path.write_text(snapshot.model_dump_json(indent=1) + "\n")
    return path


def load(path: Path) -> tuple[Snapshot, dict[str, Record]]:
    """Read what `save` wrote. Raises `InputError` when it is not a snapshot or evidence is missing."""
    try:
        snapshot = Snapshot.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a snapshot of assay ({' '.join(str(error).split())[:120]}).") from None
    named = {d for m in snapshot.measurements for d in (*m.evidence, *m.supplements)}
    named |= {b.digest for b in snapshot.baselines} | {r.digest for r in snapshot.rivals}
    named |= {e.digest for e in snapshot.capstone.evidence} if snapshot.capstone is not None else set()
    return snapshot, {digest: read_record(path.parent / "evidence" / digest, expect=digest) for digest in sorted(named)}


def own_check(checks: Iterable[Any], facts: EventFacts) -> Any | None:
    """The newest of these checks that belongs to the run and attempt of the event."""
    wanted = own_id(facts)
    return max((c for c in checks if c.external_id == wanted), key=lambda c: c.id, default=None)


def run_of(external: str) -> int | None:
    """The run that an `external_id` of ours names."""
    run, _, attempt = external.partition("-")
    return int(run) if run.isdecimal() and attempt.isdecimal() else None


def _configuration(repository: Repository, branch: str) -> tuple[str | None, str]:
    """The text of the base branch's assay.yml, and why it cannot be read."""
    try:
        data = repository.file_at(".github/assay.yml", branch)
        return (data.decode("utf-8") if data is not None else None), ""
    except UnicodeDecodeError:
        return None, ".github/assay.yml is not UTF-8 text: save it again."
    except InputError as error:
        return None, str(error)


def _measurements(
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
        finished = run.status == "completed" or run.id == facts.run_id
        artifacts = (
            [a for a in repository.artifacts(run.id) if a.name.startswith(ARTIFACT_PREFIX) and not a.expired]
            if finished
            else []
        )
        found.append(_measurement(repository, run, artifacts, finished, store, max_bytes, records))
    return tuple(sorted(found, key=lambda m: m.run_id, reverse=True))


def _own_run(repository: Repository, facts: EventFacts, listed: Sequence[Run]) -> Run | None:
    """The run that set us off: from the list of the head's runs, where that is as new as the event."""
    for run in listed:
        if run.id == facts.run_id and run.status == "completed" and run.attempt >= (facts.attempt or 1):
            return run
    return repository.run(facts.run_id) if facts.run_id else None


def _dispatched(repository: Repository, journal: Sequence[str], head_sha: str) -> list[Run]:
    """Runs that commands dispatched for a head: GitHub lists them at the commit of the workflow's file instead."""
    commands = {found for path in journal if (found := entries.command_for(path, head_sha))}
    if not commands:
        return []
    runs = repository.workflow_runs(event="workflow_dispatch")
    return [replace(run, head_sha=head_sha) for run in runs if entries.command_of(run.title) in commands]


def _acknowledgement(
    comments: Iterable[Any], viewer: str, facts: EventFacts, repository: Repository, journal: Sequence[str]
) -> Acknowledgement | None:
    """Our reply to the command that dispatched the run."""
    path = entries.path_of(journal, facts.command) if facts.command else None
    if path is None:
        return None
    entry = entries.dispatched(repository.journal_get(path), facts.command)
    for comment in comments:
        marker = read_marker(comment.body)
        if comment.author == viewer and marker is not None and marker[0] == facts.command:
            return Acknowledgement(id=comment.id, body=comment.body, verb=entry.verb, by=entry.by)
    return None


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


def _baselines(
    ledger: Ledger,
    branch: str,
    kinds: list[str],
    history: History,
    merge_base: str,
    records: dict[str, Record],
) -> tuple[tuple[BaselineFacts, ...], tuple[Rival, ...], str]:
    found, rivals = [], []
    try:
        for kind in kinds:
            chosen = baseline(ledger, branch, kind, history(merge_base))
            if chosen is None:
                continue
            record = ledger.fetch(chosen.publication)
            records[record.digest] = record
            created = chosen.publication.created or record.evidence.provenance.created
            found.append(
                BaselineFacts(
                    kind=kind,
                    tag=chosen.publication.tag,
                    digest=record.digest,
                    commit=chosen.commit,
                    distance=chosen.distance,
                    created=created,
                )
            )
            if record.evidence.metrics.keys() & {"latency", "size", "memory"}:
                rivals += _rivals(ledger, ledger.publications(branch, kind), chosen.publication, records)
    except AssayError as error:
        return tuple(found), tuple(rivals), str(error)
    return tuple(found), tuple(rivals), ""


def _rivals(
    ledger: Ledger, publications: list[Publication], chosen: Publication, records: dict[str, Record]
) -> list[Rival]:
    """The newest other publications of the branch, for the Pareto plot."""
    others = sorted(
        (p for p in publications if p.created is not None and p.tag != chosen.tag),
        key=lambda p: str(p.created),
        reverse=True,
    )
    rivals = []
    for publication in others[:MAX_RIVALS]:
        record = ledger.fetch(publication)
        records[record.digest] = record
        subject = record.evidence.subject
        rivals.append(
            Rival(name=f"{subject.format or subject.name[:24]}, {publication.created:%-d %b}", digest=record.digest)
        )
    return rivals
