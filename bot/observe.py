"""Looking: from an event to a snapshot of everything that a plan needs, and the evidence beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from assay.baselines.errors import AssayError, InputError
from assay.baselines.ledger import Ledger, Publication
from assay.baselines.ledger.history import baseline
from assay.baselines.record import Record, read_record, write_record
from assay.bot import measuring
from assay.bot.audits.recorded import newest, tallies
from assay.bot.event import FAULTS, damaged
from assay.bot.journal import BRANCH
from assay.bot.milestones.holdings import observe_capstone, proposals
from assay.bot.objects import Pull, Run
from assay.bot.perform import is_ours
from assay.bot.slash import entries
from assay.bot.slash.replies import read_marker
from assay.bot.slash.timing import minutes_of
from assay.bot.snapshot import (
    Acknowledgement,
    BaselineFacts,
    CommentFacts,
    EventFacts,
    PullFacts,
    Rival,
    Snapshot,
)

MAX_ARTIFACT_BYTES = 512 << 20
MAX_RIVALS = 2
"""Other publications in the plot. A private repository gives its assets by the API only, two calls for each publication,
so that there the plot shows the base and the head."""
CONFIGURATION = ".github/assay.yml"
MEASURING_EVENTS = ("pull_request", "workflow_dispatch")


class Repository(measuring.Repository, Protocol):
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
    def reader(self, wanted: Iterable[tuple[str, str]], entries: Iterable[str] = ...) -> ReadAt: ...
    def journal_list(self) -> list[str]: ...


History = Callable[[str], Iterable[str]]
ReadAt = Callable[[str, str], bytes | None]
"""(path, ref) -> content of a file; None when there is none."""


def event_facts(name: str, payload: Mapping[str, Any]) -> EventFacts:
    """The facts of a `workflow_run`, `pull_request` or `pull_request_target` event.

    Raises `InputError` for an event that `assay comment` does not handle.
    """
    if name in ("pull_request", "pull_request_target"):
        return _opened(payload)
    run = payload.get("workflow_run")
    if name != "workflow_run" or not isinstance(run, dict):
        raise InputError(
            f"assay comment handles workflow_run and pull_request_target events, not {name[:40]!r}: call it from a workflow "
            "with `on: workflow_run`."
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
    except FAULTS as error:
        raise damaged("workflow_run", error) from None


def _opened(payload: Mapping[str, Any]) -> EventFacts:
    try:
        head = str(payload["pull_request"]["head"]["sha"])
        return EventFacts(
            name="pull_request", action=str(payload.get("action", "")), head_sha=head, pull=int(payload["number"])
        )
    except FAULTS as error:
        raise damaged("pull_request", error) from None


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
    if facts.pull is not None:
        return _unmeasured(facts.pull, repository, ledger, common)
    opening = facts.action in ("requested", "in_progress")
    everything = repository.checks(facts.head_sha, check_name if opening else None)
    checks = [check for check in everything if check.name == check_name]
    check = measuring.own_check(checks, facts)
    if check is not None:
        common |= {"check_id": check.id, "check_completed": check.status == "completed"}
    common["check_runs"] = tuple(sorted({n for c in checks if (n := measuring.run_of(c.external_id)) is not None}))
    if opening:
        return [(Snapshot(**common), {})]
    listed = measuring.runs_of_head(repository, facts, everything)
    run = measuring.own_run(repository, facts, listed)
    if run is not None and run.event not in MEASURING_EVENTS:
        return []
    if run is not None and facts.command:
        run = replace(run, head_sha=facts.head_sha)  # GitHub names the commit of the workflow's file
    owner = (run.head_repository or "").partition("/")[0] if run is not None and not facts.command else ""
    pulls = repository.pulls_of_run(run, owner or None) if run is not None else []
    pulls = pulls or repository.pulls_for_head(facts.head_sha, owner or None)
    records: dict[str, Record] = {}
    journal = repository.journal_list()
    sent = measuring.dispatched(repository, journal, facts.head_sha)
    reported = {n for c in everything if (n := measuring.run_of(c.external_id)) is not None} | {r.id for r in sent}
    runs = {r.id: r for r in listed if r.event == "pull_request"} | {r.id: r for r in sent}
    measurements = measuring.measurements(repository, facts, run, runs, reported, store, max_bytes, records)
    if not pulls:
        common["acknowledgement"] = _voided(repository, facts, journal)
        return [(Snapshot(**common, measurements=measurements), records)]
    common["private"] = repository.private
    # Only apps have checks: the app of the check that the same workflow opened is who it comments as.
    viewer = f"{check.app}[bot]" if check is not None and check.app else repository.viewer_login()
    kinds = sorted({r.evidence.kind for r in records.values()})
    read = _reader(repository, facts, pulls, journal, kinds, common["now"])

    def entry(path: str) -> bytes | None:
        return read(path, BRANCH)

    accepted = entries.accepted(journal, entry, common["now"].date())
    audits = tallies(journal, entry, kinds)
    found = []
    for pull in pulls:
        conversation = repository.issue_comments(pull.number)
        comments = tuple(CommentFacts(id=c.id, body=c.body) for c in conversation if is_ours(c, viewer))
        merge_base = repository.merge_base(pull.base_ref, pull.head_sha)
        most = 0 if common["private"] else MAX_RIVALS
        baselines, rivals, problem = _baselines(ledger, pull.base_ref, kinds, history, merge_base, records, most)
        configuration, unreadable = _configuration(read, pull.base_ref)
        capstone, kept = observe_capstone(repository, ledger, pull.base_ref, pull.head_sha, records, read)
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
            audits=audits,
            acknowledgement=_acknowledgement(conversation, viewer, facts, entry, journal),
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


def _unmeasured(
    number: int, repository: Repository, ledger: Ledger, common: dict[str, Any]
) -> list[tuple[Snapshot, dict[str, Record]]]:
    """A pull request as its files and the publications show it, whether or not anything measures it; nothing is looked at
    any further where there is no `capstone.yml`."""
    pull = repository.pull(number)
    read = repository.reader(proposals(pull.base_ref, pull.head_sha))
    capstone, kept = observe_capstone(repository, ledger, pull.base_ref, pull.head_sha, {}, read)
    if capstone is None or pull.state != "open":
        return []
    viewer = repository.viewer_login()
    ours = tuple(CommentFacts(id=c.id, body=c.body) for c in repository.issue_comments(number) if is_ours(c, viewer))
    facts = PullFacts(number=number, head_sha=pull.head_sha, base_ref=pull.base_ref, fork=pull.fork, url=pull.html_url)
    return [(Snapshot(**common, pull=facts, comments=ours, capstone=capstone), kept)]


def save(snapshot: Snapshot, records: Mapping[str, Record], folder: Path) -> Path:
    """Write a snapshot and its evidence, so that `assay simulate` can replay the run. Returns the snapshot's path."""
    for digest, record in records.items():
        write_record(folder / "evidence" / digest, record.evidence, record.rows)
    path = folder / "snapshot.json"
    folder.mkdir(parents=True, exist_ok=True)
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


def _reader(
    repository: Repository,
    facts: EventFacts,
    pulls: Sequence[Pull],
    journal: list[str],
    kinds: list[str],
    now: datetime,
) -> ReadAt:
    """Everything that a report reads from the branches and from the journal, asked for at once."""
    files = [f for p in pulls for f in ((CONFIGURATION, p.base_ref), *proposals(p.base_ref, p.head_sha))]
    told = [*entries.holding(journal, now.date()), *newest(journal, kinds)]
    command = entries.path_of(journal, facts.command) if facts.command else None
    return repository.reader(files, [*told, command] if command is not None else told)


def _configuration(read: ReadAt, branch: str) -> tuple[str | None, str]:
    """The text of the base branch's assay.yml, and why it cannot be read."""
    try:
        data = read(CONFIGURATION, branch)
        return (data.decode("utf-8") if data is not None else None), ""
    except UnicodeDecodeError:
        return None, f"{CONFIGURATION} is not UTF-8 text: save it again."
    except InputError as error:
        return None, str(error)


def _acknowledgement(
    comments: Iterable[Any],
    viewer: str,
    facts: EventFacts,
    read: Callable[[str], bytes | None],
    journal: Sequence[str],
) -> Acknowledgement | None:
    """Our reply to the command that dispatched the run."""
    path = entries.path_of(journal, facts.command) if facts.command else None
    if path is None:
        return None
    entry = entries.dispatched(read(path), facts.command)
    for comment in comments:
        marker = read_marker(comment.body)
        if comment.author == viewer and marker is not None and marker[0] == facts.command:
            return Acknowledgement(id=comment.id, body=comment.body, verb=entry.verb, by=entry.by, pull=entry.pull)
    return None


def _voided(repository: Repository, facts: EventFacts, journal: Sequence[str]) -> Acknowledgement | None:
    """Our reply to a command whose head no open pull request has any more."""
    path = entries.path_of(journal, facts.command) if facts.command else None
    if path is None:
        return None
    read = repository.reader((), [path])
    conversation = repository.issue_comments(int(path.split("/")[1]))
    return _acknowledgement(conversation, repository.viewer_login(), facts, lambda p: read(p, BRANCH), journal)


def _baselines(
    ledger: Ledger,
    branch: str,
    kinds: list[str],
    history: History,
    merge_base: str,
    records: dict[str, Record],
    most: int,
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
                rivals += _rivals(ledger, ledger.publications(branch, kind), chosen.publication, records, most)
    except AssayError as error:
        return tuple(found), tuple(rivals), str(error)
    return tuple(found), tuple(rivals), ""


def _rivals(
    ledger: Ledger, publications: list[Publication], chosen: Publication, records: dict[str, Record], most: int
) -> list[Rival]:
    """The newest other publications of the branch, at most so many, for the Pareto plot."""
    others = sorted(
        (p for p in publications if p.created is not None and p.tag != chosen.tag),
        key=lambda p: str(p.created),
        reverse=True,
    )
    rivals = []
    for publication in others[:most]:
        record = ledger.fetch(publication)
        records[record.digest] = record
        subject = record.evidence.subject
        rivals.append(
            Rival(name=f"{subject.format or subject.name[:24]}, {publication.created:%-d %b}", digest=record.digest)
        )
    return rivals
