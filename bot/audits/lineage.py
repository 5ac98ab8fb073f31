"""A branch's newest publication, compared with earlier ones that were measured the same way."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from assay.baselines.audit import Tally, advise
from assay.baselines.compare import compare
from assay.baselines.compare.protocol import ProtocolMismatchError
from assay.baselines.errors import InputError
from assay.baselines.ledger import Ledger, Publication
from assay.baselines.policy import Policy
from assay.baselines.record import Record
from assay.bot.audits.words import about
from assay.bot.sections import Baseline, Result


def results_of(
    ledger: Ledger, branch: str, kind: str, window: int, policy: Policy, tallies: Iterable[Tally] = ()
) -> list[Result]:
    """The newest publication against the last one before it of another commit, and against the oldest of the newest
    `window`, where these are two. Publications that cannot be compared with it are passed over; empty when none can."""
    dated = [p for p in ledger.publications(branch, kind) if p.created is not None]
    if not dated:
        return []
    newest, *earlier = sorted(dated, key=lambda p: (str(p.created), p.tag), reverse=True)[:window]
    head = ledger.fetch(newest)
    others = [p for p in earlier if p.sha12 != newest.sha12]
    previous = _first(ledger, newest, head, others, policy, tallies, "the publication before")
    oldest = _first(ledger, newest, head, others[::-1], policy, tallies, "the oldest of the window")
    found = [r for r in (previous, oldest) if r is not None]
    same = (
        len(found) == 2 and found[0].baseline and found[1].baseline and found[0].baseline.tag == found[1].baseline.tag
    )
    return found[:1] if same else found


def _first(
    ledger: Ledger,
    newest: Publication,
    head: Record,
    candidates: list[Publication],
    policy: Policy,
    tallies: Iterable[Tally],
    name: str,
) -> Result | None:
    """The comparison with the first candidate that allows one."""
    now = datetime.now(UTC)
    for publication in candidates:
        try:
            base = ledger.fetch(publication)
            compared = compare(head, base, policy, now.date())
        except (ProtocolMismatchError, InputError):
            continue
        advised = advise(compared, head.evidence, tallies)
        created = publication.created or base.evidence.provenance.created
        return Result(
            workflow=f"against {name}",
            overall=advised.comparison.overall,
            kind=head.evidence.kind,
            head_sha=head.evidence.provenance.commit or "",
            comparison=advised.comparison,
            head=head.evidence,
            head_digest=head.digest,
            base=base.evidence,
            baseline=Baseline(
                publication.tag, base.digest, base.evidence.provenance.commit or "", None,
                max((now - created).total_seconds() / 86400, 0.0),
            ),
            base_name=name,
            head_name="the newest",
            audit=about(advised),
            again=f"assay baseline diff {publication.tag} {newest.tag}",
        )  # fmt: skip
    return None
