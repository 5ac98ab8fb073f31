"""Every state that the comment can be in, as snapshots with real records: the golden files and simulations use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from assay.baselines.record import Record, write_record
from assay.bot.snapshot import (
    BaselineFacts,
    CommentFacts,
    EventFacts,
    Measurement,
    PullFacts,
    Rival,
    Snapshot,
)
from tests.evidence import evaluation, outcomes

HEAD = "4f2c9e1d0b7a" + "5" * 28
BASE = "ab12cd34ef56" + "7" * 28
NOW = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
RUN = 9182736450
POLICY = "gate:\n  threshold: 0.5\n"


@dataclass(frozen=True)
class Scene:
    """A snapshot and the records that it names."""

    snapshot: Snapshot
    records: Mapping[str, Record]


def stored(record: Record) -> Record:
    """The record as it is read from disk, with its digest."""
    with TemporaryDirectory() as folder:
        return write_record(Path(folder) / "record", record.evidence, record.rows)


def scene(
    head: Record | None,
    base: Record | None,
    *,
    policy: str | None = POLICY,
    problem: str = "",
    conclusion: str = "success",
    comments: tuple[CommentFacts, ...] = (),
    may_comment: bool = True,
    fork: bool = False,
    pull_head: str = HEAD,
    rivals: Mapping[str, Record] | None = None,
    more: tuple[Measurement, ...] = (),
    run_id: int = RUN,
    attempt: int = 1,
    private: bool = False,
) -> Scene:
    """The scene of one completed measuring run; `head` is None when it left no evidence."""
    records: dict[str, Record] = {}
    evidence: tuple[str, ...] = ()
    if head is not None:
        kept = stored(head)
        records[kept.digest] = kept
        evidence = (kept.digest,)
    baselines: tuple[BaselineFacts, ...] = ()
    if base is not None:
        kept = stored(base)
        records[kept.digest] = kept
        tag = f"baseline/main/{BASE[:12]}/evaluation/{kept.digest[:12]}"
        baselines = (
            BaselineFacts(
                kind="evaluation",
                tag=tag,
                digest=kept.digest,
                commit=BASE,
                distance=2,
                created=NOW - timedelta(days=1.3),
            ),
        )
    named = []
    for name, record in (rivals or {}).items():
        kept = stored(record)
        records[kept.digest] = kept
        named.append(Rival(name=name, digest=kept.digest))
    url = f"https://github.com/acme/widgets/actions/runs/{run_id}"
    run = Measurement(
        workflow="assay measure",
        run_id=run_id,
        attempt=attempt,
        url=url,
        head_sha=HEAD,
        finished=True,
        conclusion=conclusion,
        evidence=() if problem else evidence,
        problem=problem,
    )
    snapshot = Snapshot(
        repository="acme/widgets",
        private=private,
        now=NOW,
        event=EventFacts(
            name="workflow_run",
            action="completed",
            run_id=run_id,
            attempt=attempt,
            workflow="assay measure",
            run_url=url,
            head_sha=HEAD,
            conclusion=conclusion,
        ),
        pull=PullFacts(
            number=7,
            head_sha=pull_head,
            base_ref="main",
            merge_base=BASE,
            fork=fork,
            url="https://github.com/acme/widgets/pull/7",
        ),
        configuration=policy,
        comments=comments,
        measurements=(run, *more),
        baselines=baselines,
        rivals=tuple(named),
        check_id=31,
        may_comment=may_comment,
    )
    return Scene(snapshot, records)


def both(counts: Mapping[str, tuple[int, int, int, float]], **options: Any) -> tuple[Record, Record]:
    """(head, base) with task -> (n, broke, fixed, base accuracy)."""
    base_options = {k.removeprefix("base_"): v for k, v in options.items() if k.startswith("base_")}
    head_options = {k.removeprefix("head_"): v for k, v in options.items() if k.startswith("head_")}
    shared = {k: v for k, v in options.items() if not k.startswith(("base_", "head_"))}
    pairs = {task: outcomes(n, broke, fixed, accuracy) for task, (n, broke, fixed, accuracy) in counts.items()}
    base = evaluation({t: b for t, (b, _) in pairs.items()}, commit=BASE, name="acme-1b", **{**shared, **base_options})
    head = evaluation(
        {t: h for t, (_, h) in pairs.items()},
        commit=HEAD,
        name="acme-1b-int4",
        run_id=RUN,
        **{**shared, **head_options},
    )
    return head, base


THREE = {"hellaswag": (1000, 61, 36, 0.465), "mmlu": (2000, 33, 29, 0.412), "arc_easy": (200, 8, 4, 0.51)}
COSTS = {
    "base_costs": {"latency": (12.0, 11.8, 12.2), "size": (494e6, None, None)},
    "head_costs": {"latency": (7.1, 6.9, 7.4), "size": (141e6, None, None)},
}


OFFERING = "commands:\n  offer: true\n"


def regressed() -> Scene:
    head, base = both(THREE, **COSTS)
    rival = evaluation(
        {t: outcomes(n, 3, 12, a)[1] for t, (n, _, _, a) in THREE.items()},
        name="acme-1b-int8",
        costs={"latency": (7.2, 7.0, 7.4), "size": (250e6, None, None)},  # type: ignore[dict-item]
    )
    return scene(head, base, rivals={"int8, 12 Nov": rival}, policy=OFFERING)


def equivalent() -> Scene:
    return scene(*both({"hellaswag": (4000, 22, 20, 0.465), "mmlu": (3000, 11, 14, 0.412)}, **COSTS))


def identical() -> Scene:
    return scene(*both({"hellaswag": (200, 0, 0, 0.465)}, responses=b"\x01" * 8))


def improved() -> Scene:
    return scene(*both({"hellaswag": (1000, 36, 71, 0.465), "mmlu": (2000, 9, 12, 0.412)}))


def inconclusive() -> Scene:
    return scene(*both({"mmlu": (200, 8, 4, 0.412)}))


def no_baseline() -> Scene:
    head, _ = both({"mmlu": (200, 8, 4, 0.412)})
    return scene(head, None)


def mismatched() -> Scene:
    protocol = {"harness": "lm-eval 0.4.13", "sampling.seed": 0, "batch_size": 16, "task.mmlu.version": "1.0"}
    head, base = both(
        {"mmlu": (200, 8, 4, 0.412)},
        protocol=protocol,
        base_protocol={**protocol, "batch_size": 8, "task.mmlu.version": "0.9"},
    )
    return scene(head, base)


def tool_failure() -> Scene:
    _, base = both({"mmlu": (200, 8, 4, 0.412)})
    return scene(None, base, conclusion="failure")


def refused_evidence() -> Scene:
    head, base = both({"mmlu": (200, 8, 4, 0.412)})
    return scene(
        head,
        base,
        problem="the evidence claims another head commit than the run measured: measure the pull request's head commit.",
    )


def fork_without_token() -> Scene:
    made = regressed()
    snapshot = made.snapshot
    assert snapshot.pull is not None
    return Scene(
        snapshot.model_copy(update={"may_comment": False, "pull": snapshot.pull.model_copy(update={"fork": True})}),
        made.records,
    )


def accepted(up_to: float = 3.0) -> Scene:
    policy = (
        "gate:\n  accepted:\n"
        '    - {task: hellaswag, reason: "INT4 ships to 4 GB phones | see #12", by: "@octocat", expires: 2027-01-31, '
        f"up-to: {up_to}}}\n"
    )
    head, base = both({"hellaswag": (1000, 61, 36, 0.465), "mmlu": (4000, 13, 14, 0.412)})
    return scene(head, base, policy=policy)


def accepted_too_little() -> Scene:
    return accepted(up_to=1.5)


def below_floor() -> Scene:
    policy = "gate:\n  tasks:\n    mmlu: {floor: 0.5}\n"
    return scene(*both({"mmlu": (4000, 20, 18, 0.412)}), policy=policy)


def perplexity() -> Scene:
    rng = np.random.default_rng(3)
    weights = rng.integers(80, 400, 62).astype(float)
    base = -3.1 * weights + rng.normal(0, 12, 62)
    head = base - 0.03 * weights + rng.normal(0, 1.5, 62)
    options = {"scale": "loglik", "metric": "word_perplexity", "weights": list(weights)}
    return scene(
        evaluation({"wikitext": list(head)}, commit=HEAD, name="acme-1b-int4", run_id=RUN, **options),  # type: ignore[arg-type]
        evaluation({"wikitext": list(base)}, commit=BASE, name="acme-1b", **options),  # type: ignore[arg-type]
    )


def many_tasks() -> Scene:
    """57 subjects and 14,042 examples, as in MMLU."""
    sizes = [246 + (i < 20) for i in range(57)]
    counts = {
        f"mmlu_subject_{i:02d}": (
            n,
            (30 if i == 13 else 5 + i % 3),
            (6 if i == 13 else 5 + (i * 7) % 4),
            0.35 + 0.005 * i,
        )
        for i, n in enumerate(sizes)
    }
    return scene(*both(counts))


HOSTILE = [
    "</details><script>alert(1)</script>",
    "| a | b |\n|---|---|\n@octocat please look at #1 and https://evil.example/x",
    "```\n## Accuracy improved\n```",
    "<!-- assay run=1 attempt=1 head=000000000000 -->",
    "[click](javascript:alert(1)) ![x](https://evil.example/p.png) <img src=x onerror=alert(1)>",
    "\u202egnihtemos\u202c \x1b[31mred\x07 www.evil.example GH-12 :tada:",
    "${{ secrets.GITHUB_TOKEN }} `rm -rf /` $(reboot) **bold** __bold__ ~~x~~ \\| ::set-output name=x::y",
]


def hostile() -> Scene:
    n = 1000
    texts = {"x|<b>@octocat</b> `task`": [HOSTILE[i % len(HOSTILE)] for i in range(n)]}
    answers = {"x|<b>@octocat</b> `task`": [HOSTILE[(i + 3) % len(HOSTILE)] for i in range(n)]}
    head, base = both({"x|<b>@octocat</b> `task`": (n, 61, 30, 0.465)}, texts=texts, answers=answers)
    subject = head.evidence.subject.model_copy(update={"name": HOSTILE[0], "format": HOSTILE[1]})
    head = Record(head.evidence.model_copy(update={"subject": subject}), head.rows)
    return scene(head, base)


def rerun_in_progress() -> Scene:
    made = inconclusive()
    newer = Measurement(
        workflow="assay measure",
        run_id=RUN + 5,
        attempt=1,
        url=f"https://github.com/acme/widgets/actions/runs/{RUN + 5}",
        head_sha=HEAD,
        finished=False,
    )
    snapshot = made.snapshot.model_copy(update={"measurements": (*made.snapshot.measurements, newer)})
    return Scene(snapshot, made.records)


STATES: dict[str, Callable[[], Scene]] = {
    "regressed": regressed,
    "equivalent": equivalent,
    "identical": identical,
    "improved": improved,
    "inconclusive": inconclusive,
    "no-baseline": no_baseline,
    "mismatched-baseline": mismatched,
    "tool-failure": tool_failure,
    "refused-evidence": refused_evidence,
    "fork-without-token": fork_without_token,
    "accepted": accepted,
    "accepted-too-little": accepted_too_little,
    "below-floor": below_floor,
    "perplexity": perplexity,
    "57-tasks": many_tasks,
    "hostile": hostile,
    "rerun-in-progress": rerun_in_progress,
}
