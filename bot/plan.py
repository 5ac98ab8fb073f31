"""From a snapshot to operations: pure, so that every live run can be replayed from what it saw."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from assay.baselines.audit import advise
from assay.baselines.compare import compare
from assay.baselines.compare.protocol import ProtocolMismatchError
from assay.baselines.compare.verdict import Comparison, Conclusion, Overall, conclude, error_rank
from assay.baselines.config import Configuration, parse_configuration
from assay.baselines.errors import InputError
from assay.baselines.kernel import LEASE
from assay.baselines.pareto import Axis, Point
from assay.baselines.record import Record
from assay.bot import plot
from assay.bot.audits.words import about
from assay.bot.comment import BUDGET, CHECK_BUDGET, SUMMARY_BUDGET, Marker, overall, read_marker, render, title
from assay.bot.hosts import SERVER_URL
from assay.bot.milestones import checklist
from assay.bot.operations import (
    AppendJournal,
    CloseCheck,
    CreateComment,
    DeleteComment,
    OpenCheck,
    Operation,
    UpdateComment,
    WriteSummary,
)
from assay.bot.refusal import own_words
from assay.bot.sections import Baseline, Result, section_for
from assay.bot.slash.ending import ended
from assay.bot.slash.entries import as_policy
from assay.bot.snapshot import BaselineFacts, EventFacts, Measurement, Snapshot
from assay.bot.standing import standing
from assay.bot.text import unmarked

THIS = "this PR"


@dataclass(frozen=True)
class Plan:
    """The operations, and what the gate came to for the run that set them off."""

    operations: Sequence[Operation]
    overall: Overall | None = None
    conclusion: Conclusion | None = None
    exit_code: int = 0
    results: Sequence[Result] = ()


def plan(snapshot: Snapshot, records: Mapping[str, Record]) -> Plan:
    """What to do about a snapshot. `records` holds the evidence that it names, by digest."""
    event = snapshot.event
    if event.name == "workflow_run" and event.action in ("requested", "in_progress"):
        return _opening(snapshot)
    if event.name == "pull_request":
        return _opened(snapshot, records)
    if snapshot.pull is None:
        return _superseded(snapshot)
    configuration, problem = _configuration(snapshot)
    results = _results(snapshot, records, configuration, problem)
    milestones = checklist.block(snapshot, records, results)
    if not results:
        return Plan(_commenting(snapshot, results, configuration, milestones))
    operations: list[Operation] = []
    results = [replace(result, commands=configuration.commands.offer) for result in results]
    results, journal = _with_plots(results, snapshot, configuration)
    operations += journal
    operations += _commenting(snapshot, results, configuration, milestones)
    # A check is required by its name, and the newest of a name counts: it speaks for every run that reports under it.
    sharing = {event.run_id, *snapshot.check_runs}
    mine = [r for r in results if r.run_id in sharing] or results
    outcome = overall(mine)
    conclusion, exit_code = conclude(outcome, block_inconclusive=configuration.gate.on_inconclusive == "block")
    if not snapshot.check_elsewhere:
        operations.append(_closing(snapshot, mine, conclusion))
    operations += ended(snapshot, unmarked(title(mine)))
    summary = render(results, None, SUMMARY_BUDGET, flips=configuration.comment.flips)
    operations.append(WriteSummary(summary + _below(milestones)))
    return Plan(operations, outcome, conclusion, exit_code, results)


def together(found: Sequence[tuple[Snapshot, Mapping[str, Record]]]) -> list[tuple[Snapshot, Plan]]:
    """The plans of pull requests that share a head, each with its snapshot: the head has one check, which the worst of
    them closes, and the snapshots of the others say so."""
    planned = [(snapshot, plan(snapshot, records)) for snapshot, records in found]
    closing = [p for _, p in planned if any(isinstance(o, CloseCheck) for o in p.operations)]
    if len(closing) < 2:
        return planned
    worst = max(closing, key=lambda p: error_rank(p.overall) if p.overall is not None else -1)
    return [
        (snapshot, p)
        if p is worst
        else (
            snapshot.model_copy(update={"check_elsewhere": True}),
            replace(p, operations=[o for o in p.operations if not isinstance(o, CloseCheck)]),
        )
        for snapshot, p in planned
    ]


def own_id(event: EventFacts) -> str:
    """`external_id` of the check that belongs to an event: the command that dispatched the run, else the run itself."""
    return event.command or external_id(event.run_id, event.attempt)


def external_id(run_id: int | None, attempt: int | None) -> str:
    """How a check names the run that it belongs to."""
    return f"{run_id}-{attempt or 1}"


def _opening(snapshot: Snapshot) -> Plan:
    event = snapshot.event
    if snapshot.check_id is not None:
        return Plan([])
    return Plan([OpenCheck(snapshot.check_name, event.head_sha, own_id(event), event.run_url)])


def _opened(snapshot: Snapshot, records: Mapping[str, Record]) -> Plan:
    """A pull request was opened or pushed to: its checklist, which needs no run. A comment with results is left to the run
    that measures the new head."""
    measured = any((marker := read_marker(c.body)) is not None and marker.run for c in snapshot.comments)
    if measured or snapshot.event.action == "closed":
        return Plan([])
    return Plan(_commenting(snapshot, (), Configuration(), checklist.block(snapshot, records, ())))


def _superseded(snapshot: Snapshot) -> Plan:
    """No open pull request has this head any more: an open check is closed, and a verdict that was given stands."""
    event = snapshot.event
    if snapshot.check_id is None or snapshot.check_completed:
        return Plan([])
    close = CloseCheck(
        check_id=snapshot.check_id,
        name=snapshot.check_name,
        head_sha=event.head_sha,
        external_id=own_id(event),
        details_url=event.run_url,
        conclusion=Conclusion.NEUTRAL,
        title="Superseded: no open pull request has this commit as its head",
        summary="The pull request has a newer head, or is closed. The newer head has a check of its own.",
    )
    return Plan([close, *ended(snapshot, "")], None, Conclusion.NEUTRAL)


def _accepting(configuration: Configuration, snapshot: Snapshot) -> Configuration:
    """The configuration with what people accepted by a command, after what the policy itself accepts."""
    if not snapshot.accepted:
        return configuration
    accepted = [*configuration.gate.accepted, *as_policy(snapshot.accepted)]
    return configuration.model_copy(update={"gate": configuration.gate.model_copy(update={"accepted": accepted})})


def _configuration(snapshot: Snapshot) -> tuple[Configuration, str]:
    if snapshot.configuration_problem:
        return Configuration(), snapshot.configuration_problem
    try:
        return _accepting(parse_configuration((snapshot.configuration or "").encode()), snapshot), ""
    except InputError as error:
        return Configuration(), str(error)


def _results(
    snapshot: Snapshot, records: Mapping[str, Record], configuration: Configuration, problem: str
) -> list[Result]:
    """One result for each workflow and kind of evidence, from its newest valid run.

    A newer run that is unfinished is named, and one that ended without valid evidence has a result of its own.
    """
    results: list[Result] = []
    for workflow in sorted({m.workflow for m in snapshot.measurements}):
        runs = sorted((m for m in snapshot.measurements if m.workflow == workflow), key=lambda m: (m.run_id, m.attempt))
        finished = [m for m in runs if m.finished]
        chosen = next((m for m in reversed(finished) if m.evidence), finished[-1] if finished else None)
        if chosen is None:
            continue
        running = next((m.url for m in runs if not m.finished and m.run_id > chosen.run_id), "")
        found = _of_run(chosen, snapshot, records, configuration, problem)
        results += [replace(result, running=running) for result in found] if running else found
        if finished[-1] is not chosen:
            results += _of_run(finished[-1], snapshot, records, configuration, problem)
    return results


def _of_run(
    run: Measurement, snapshot: Snapshot, records: Mapping[str, Record], configuration: Configuration, problem: str
) -> list[Result]:
    if run.problem:
        return [_result(run, snapshot, Overall.INVALID, reason=f"The evidence was refused: {run.problem}")]
    if not run.evidence:
        return [_broken(run, snapshot)]
    if problem:
        return [
            _result(run, snapshot, Overall.INVALID, reason=f"The policy on {_base(snapshot)} cannot be read: {problem}")
        ]
    return [_judge(run, records[digest], snapshot, records, configuration) for digest in run.evidence]


def _broken(run: Measurement, snapshot: Snapshot) -> Result:
    ended = {"cancelled": "was cancelled", "timed_out": "timed out", "skipped": "was skipped"}.get(
        run.conclusion or "", "failed"
    )
    if run.conclusion == "success":
        ended = "finished"
    return _result(
        run,
        snapshot,
        Overall.BROKEN,
        reason=f"The measuring run {ended} without leaving evidence, so that nothing is known about this change; "
        "this is a fault of the tool or the machine, not a regression.",
    )


def _judge(
    run: Measurement, head: Record, snapshot: Snapshot, records: Mapping[str, Record], configuration: Configuration
) -> Result:
    try:
        section_for(head.evidence.kind)
    except InputError as error:
        return _result(run, snapshot, Overall.INVALID, reason=f"The evidence was refused: {own_words(error)}.")
    supplements = [r for d in run.supplements if (r := records[d]).evidence.kind == head.evidence.kind]
    beside = of_one_lease(head, supplements)
    facts = None if beside else next((b for b in snapshot.baselines if b.kind == head.evidence.kind), None)
    if snapshot.baseline_problem and facts is None and beside is None:
        return _result(
            run,
            snapshot,
            Overall.BROKEN,
            head=head,
            reason=f"The baseline could not be fetched: {snapshot.baseline_problem}",
        )
    if facts is None and beside is None:
        return _result(
            run,
            snapshot,
            Overall.NO_BASELINE,
            head=head,
            reason=f"Nothing is published for {_base(snapshot)} at the merge base or before it. "
            "Publish one by running actions/publish-baseline on a push to that branch; this pull request is then compared with it.",
        )
    try:
        base = beside if facts is None else supplemented(records[facts.digest], supplements)
        assert base is not None
        compared = compare(head, base, configuration.gate, snapshot.now.date(), some_tasks=run.asked)
    except ProtocolMismatchError as error:
        return _result(
            run,
            snapshot,
            Overall.MISMATCH,
            head=head,
            base=facts,
            records=records,
            beside=beside,
            reason=_sentence(error),
        )
    except InputError as error:
        return _result(
            run,
            snapshot,
            Overall.INVALID,
            kind=head.evidence.kind,
            reason=f"No verdict: {own_words(error)}.",
        )
    advised = advise(compared, head.evidence, snapshot.audits)
    comparison, audit = advised.comparison, about(advised)
    result = _result(
        run,
        snapshot,
        comparison.overall,
        head=head,
        base=facts,
        records=records,
        beside=beside,
        comparison=comparison,
    )
    return replace(result, audit=audit) if audit else result


def of_one_lease(head: Record, others: Sequence[Record]) -> Record | None:
    """The base that was measured together with the head, if there is one: it is the fairest that there can be."""
    lease = head.evidence.attributes.get(LEASE)
    return next((r for r in others if lease and r.evidence.attributes.get(LEASE) == lease), None)


def supplemented(base: Record, supplements: Sequence[Record]) -> Record:
    """The base with the rows that the head's job measured on the base checkpoint because they were missing.

    Raises `InputError` when a supplement is of another subject than the base, or was measured differently.
    """
    for extra in supplements:
        if extra.evidence.subject.digest != base.evidence.subject.digest:
            raise InputError(
                "the supplementary base rows were measured on another checkpoint than the published baseline: evaluate again."
            )
        if extra.evidence.protocol != base.evidence.protocol:
            raise InputError(
                "the supplementary base rows were measured differently from the published baseline: evaluate again."
            )
    tables = [r.rows for r in (base, *supplements) if r.rows is not None]
    if len(tables) < 2:
        return base
    try:
        rows = pa.concat_tables([t.unify_dictionaries() for t in tables], promote_options="default").combine_chunks()
    except pa.ArrowException as error:
        raise InputError(
            f"the supplementary base rows do not fit the baseline ({str(error)[:100]}): evaluate again."
        ) from None
    return Record(base.evidence, rows, base.digest)


def _result(
    run: Measurement,
    snapshot: Snapshot,
    outcome: Overall,
    *,
    head: Record | None = None,
    base: BaselineFacts | None = None,
    records: Mapping[str, Record] | None = None,
    beside: Record | None = None,
    comparison: Comparison | None = None,
    kind: str = "evaluation",
    reason: str = "",
) -> Result:
    base_record = records[base.digest] if base is not None and records is not None else beside
    baseline = None
    if base is not None:
        age = (snapshot.now - base.created).total_seconds() / 86400
        baseline = Baseline(base.tag, base.digest, base.commit, base.distance, max(age, 0.0))
    axes: tuple[Axis, Axis] | None = None
    points: list[Point] = []
    if head is not None and base_record is not None and comparison is not None:
        rivals = [(r.name, (records or {})[r.digest]) for r in snapshot.rivals]
        axes, points = standing((_base(snapshot), base_record), [(THIS, head), *rivals], snapshot.now.date())
    return Result(
        workflow=run.workflow,
        overall=outcome,
        kind=head.evidence.kind if head is not None else kind,
        run_id=run.run_id,
        attempt=run.attempt,
        url=run.url,
        head_sha=run.head_sha,
        comparison=comparison,
        head=head.evidence if head is not None else None,
        head_digest=head.digest if head is not None else "",
        base=base_record.evidence if base_record is not None else None,
        baseline=baseline,
        base_name=_base(snapshot),
        reason=reason,
        points=points,
        axes=axes,
        again=f"assay gate --repository {snapshot.repository} --base {base.tag} --head run/{run.run_id}"
        if base is not None and run.run_id
        else "",
    )


def _with_plots(
    results: Sequence[Result], snapshot: Snapshot, configuration: Configuration
) -> tuple[list[Result], list[Operation]]:
    shown: list[Result] = []
    operations: list[Operation] = []
    for result in results:
        if not configuration.comment.pareto:
            result = replace(result, points=(), axes=None)
        elif (
            result.points
            and result.axes
            and configuration.comment.image
            and snapshot.may_comment
            and _is_current(snapshot)
        ):
            data = plot.svg(result.points, result.axes, f"{result.axes[0].name} against {result.axes[1].name}").encode()
            path = f"plots/{hashlib.sha256(data).hexdigest()[:20]}.svg"
            url = image_url(snapshot, path)
            operations.append(AppendJournal(path, data, f"Plot for {result.head_sha[:12]}", url))
            result = replace(result, plot_url=url)
        shown.append(result)
    return shown, operations


def image_url(snapshot: Snapshot, path: str) -> str:
    """Where a comment can show a file of the journal branch: for private repositories as the reader, else raw."""
    if snapshot.private or snapshot.server_url != SERVER_URL:
        return f"{snapshot.server_url}/{snapshot.repository}/raw/assay-journal/{path}"
    return f"https://raw.githubusercontent.com/{snapshot.repository}/assay-journal/{path}"


def _is_current(snapshot: Snapshot) -> bool:
    """Whether the run that set us off measured the head that the pull request has now."""
    return snapshot.pull is not None and (
        not snapshot.event.head_sha or snapshot.pull.head_sha == snapshot.event.head_sha
    )


def _commenting(
    snapshot: Snapshot, results: Sequence[Result], configuration: Configuration, milestones: str
) -> list[Operation]:
    """One comment: the oldest of ours is rewritten, the others are duplicates of a race and go."""
    if snapshot.pull is None or not _is_current(snapshot) or not snapshot.may_comment:
        return []
    if not results and not milestones:
        return []
    run, attempt = max(((r.run_id or 0, r.attempt or 1) for r in results), default=(0, 1))
    marker = Marker(run, attempt, snapshot.pull.head_sha)
    below = _below(milestones)
    room = BUDGET - len(below.encode())
    above = render(results, marker, room, flips=configuration.comment.flips) if results else str(marker)
    body = above + below
    ours = sorted((c for c in snapshot.comments if read_marker(c.body)), key=lambda c: c.id)
    if not ours:
        return [CreateComment(snapshot.pull.number, body)]
    operations: list[Operation] = [] if ours[0].body == body else [UpdateComment(ours[0].id, body, ours[0].body)]
    return [*operations, *(DeleteComment(c.id) for c in ours[1:])]


def _below(milestones: str) -> str:
    """The block of milestones as it stands under the results."""
    return f"\n{milestones}" if milestones else ""


def _closing(snapshot: Snapshot, results: Sequence[Result], conclusion: Conclusion) -> CloseCheck:
    event = snapshot.event
    return CloseCheck(
        check_id=snapshot.check_id,
        name=snapshot.check_name,
        head_sha=event.head_sha or results[0].head_sha,
        external_id=own_id(event),
        details_url=event.run_url or results[0].url,
        conclusion=conclusion,
        title=unmarked(title(results))[:250],
        summary=render(results, None, CHECK_BUDGET),
    )


def _sentence(error: Exception) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]


def _base(snapshot: Snapshot) -> str:
    return snapshot.pull.base_ref if snapshot.pull is not None else "main"
