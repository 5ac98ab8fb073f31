"""What flows cost: GitHub API calls of each, by the request log of a loopback GitHub, and events planned per second.

`python -m benchmarks.flows [--out FILE] [--calls]` runs the real commands (`assay comment`, `assay command answer`, `assay
baseline publish`) in this process against `tests/loopback`. A call is a request to the API or its upload host; what
storage serves after a redirect is counted apart. `--calls` lists each. Planning is `plan()` on the scenes of
`tests/states.py`, the ones that the golden comments show.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from click.testing import CliRunner
from tests.loopback import Entry, Loopback, events, job_token

from assay.bot.cli import assay

REPOSITORY = "acme/widgets"
ROOT = Path(__file__).resolve().parents[1]
JOB = job_token(contents="write", pull_requests="write", issues="write", checks="write", actions="write")
POLICY = ".github/assay.yml"
COSTS = {"base": {"size": (494e6, None, None)}, "head": {"size": (141e6, None, None)}}


@dataclass(frozen=True)
class Cost:
    """One flow's requests."""

    flow: str
    calls: int
    """To the API and its upload host."""
    writes: int
    """Of these, what changes something: other than GET and than queries by GraphQL."""
    downloads: int
    """Served by storage."""


class World:
    """A repository with a published baseline and a pull request of 57 tasks and 14,042 examples."""

    def __init__(
        self, github: Loopback, scratch: Path, *, published: int = 1, costs: bool = True, private: bool = False
    ) -> None:
        from benchmarks.compare import make

        self.github, self.scratch = github, scratch
        self.repo = github.repo(REPOSITORY, private=private)
        self.repo.permissions["octocat"] = "write"
        dispatched = ("assay-run.yml", "assay-publish.yml", "assay-bench.yml")
        workflow = {f".github/workflows/{name}": "on: workflow_dispatch\n" for name in dispatched}
        workflow[POLICY] = "gate:\n  threshold: 0.5\n"
        make(scratch, 1)
        self.costs = costs
        self.bases = [self.repo.commit({"weights.txt": str(i), **workflow}) for i in range(max(1, published))]
        self.head = self.repo.commit({"weights.txt": "head"}, branch="feature")
        self.number = self.repo.pull("feature")
        self.log: dict[str, list[Entry]] = {}
        for base in self.bases[:published]:
            self.publish(base)

    def record(self, name: str, commit: str, run_id: int | None = None, *, worse: bool = False) -> Path:
        """The base's or head's record, as if measured at a commit by a run; `worse` with every tenth answer wrong."""
        from assay.baselines.evidence import Metric
        from assay.baselines.record import read_record, write_record

        record = read_record(self.scratch / name)
        evidence = record.evidence
        provenance = evidence.provenance.model_copy(update={"commit": commit, "run_id": run_id})
        metrics = dict(evidence.metrics)
        if self.costs:
            metrics["size"] = Metric(value=COSTS[name]["size"][0], unit="bytes", direction="lower")
        folder = self.scratch / f"{name}-{commit[:12]}-{run_id}"
        rows = record.rows
        if worse and rows is not None:
            scores = [0.0 if i % 10 == 0 else score for i, score in enumerate(rows["score"].to_pylist())]
            column = pa.array(scores, rows["score"].type)
            rows = rows.set_column(rows.column_names.index("score"), rows.schema.field("score"), column)
        write_record(folder, evidence.model_copy(update={"provenance": provenance, "metrics": metrics}), rows)
        return folder

    def measured(self, flow: str, opening: str = "opening") -> int:
        """A run of the pull request from its beginning to its report, which is the flow."""
        run = self.start()
        self.report(opening, run, "requested")
        self.finish(run)
        self.report(flow, run, "completed")
        return run

    def unpublished(self) -> str:
        """A further commit of main."""
        return self.repo.commit({"weights.txt": f"again {len(self.repo.releases)}"})

    def publish(self, commit: str, *, worse: bool = False) -> None:
        """What `assay baseline publish` leaves, without its pauses between writes."""
        from assay.baselines.ledger.release import ReleaseLedger
        from assay.baselines.record import read_record
        from assay.bot.github import GitHub, connect

        folder = self.record("base", commit, worse=worse)
        connection = connect(self.github.token(JOB), self.github.url, seconds_between_writes=None)
        ledger = ReleaseLedger(GitHub(connection, REPOSITORY).repository, self.scratch / "publisher")
        ledger.publish(read_record(folder), "main", folder=folder)

    def accept(self, count: int) -> None:
        """So many accepted regressions in the journal, each a file of its own."""
        expires = f"{datetime.now(UTC).date() + timedelta(days=30)}"
        files = {}
        for i in range(count):
            identifier = str(uuid.UUID(int=i))
            entry = {"schema_version": 1, "id": identifier, "task": f"mmlu_{i}", "metric": "", "reason": "on purpose", "up_to": "",
                     "by": "octocat", "expires": expires, "pull": self.number, "created": datetime.now(UTC).isoformat()}  # fmt: skip
            files[f"accepted/{expires}/{identifier}.json"] = json.dumps(entry)
        self.repo.commit(files, branch="assay-journal", parents=())

    def start(self) -> int:
        return self.repo.start_run(
            self.head, branch="feature", name="assay measure", path=".github/workflows/assay-measure.yml"
        )

    def finish(self, run: int) -> None:
        self.repo.upload(run, "assay-evaluation", self.record("head", self.head, run))
        self.repo.finish_run(run)

    def report(self, flow: str, run: int, action: str) -> None:
        self.event(flow, "workflow_run", events.workflow_run(self.github, self.repo, run, action), ["comment"])

    def say(self, flow: str, line: str) -> None:
        comment = self.repo.comment(self.number, line, author="octocat")
        payload = events.issue_comment(self.github, self.repo, comment)
        self.event(flow, "issue_comment", payload, ["command", "answer"])

    def event(self, flow: str, name: str, payload: Any, command: list[str]) -> None:
        path = self.scratch / "event.json"
        path.write_text(json.dumps(payload))
        self.run(flow, [*command, "--event", str(path), "--event-name", name])

    def run(self, flow: str, arguments: list[str]) -> None:
        """One command with the token of a job, and an empty cache as on a fresh runner."""
        options = ["--repository", REPOSITORY, "--github-token", self.github.token(JOB), "--api-url", self.github.url]
        before = len(self.github.log)
        with tempfile.TemporaryDirectory() as cache:
            done = CliRunner().invoke(
                assay,
                [*arguments, *options, "--server-url", self.github.web],
                env={"ASSAY_CACHE": cache, "GITHUB_STEP_SUMMARY": None, "GITHUB_OUTPUT": None},
            )
        if done.exit_code != 0:
            raise AssertionError(f"{flow}: exit code {done.exit_code}: {done.output}") from done.exception
        self.log[flow] = self.github.log[before:]


@contextmanager
def world(**options: Any) -> Iterator[World]:
    """A world of its own, without validation of replies, which would be most of the time."""
    with Loopback(validate=False) as github, tempfile.TemporaryDirectory() as folder:
        yield World(github, Path(folder), **options)


def is_call(entry: Entry) -> bool:
    """Whether a request went to the API; storage and people's pages are not."""
    return entry.path.startswith(("/repos/", "/user", "/api/"))


def flows() -> dict[str, list[Entry]]:
    """Every flow's requests, in order."""
    log = reports()
    for flow in ("private", "accepted"):
        with world(published=2, private=flow == "private") as here:
            here.accept(20)
            here.measured(f"report, 20 accepted regressions{', private' if flow == 'private' else ''}")
            log |= here.log
    log |= conversation() | nights()
    with world(published=1, costs=False) as here:
        here.repo.commit({"capstone.yml": (ROOT / "docs/examples/registration/capstone.yml").read_text()})
        here.measured("report, with milestones")
        here.say("/assay milestones", "/assay milestones")
        log |= here.log
    return {flow: log[flow] for flow in ORDER}


def reports() -> dict[str, list[Entry]]:
    """What a pull request costs."""
    with world(published=2) as here:
        here.run(
            "publish a baseline",
            ["baseline", "publish", str(here.record("base", here.unpublished())), "--branch", "main"],
        )
        here.repo.start_run(here.head, branch="feature", name="lint", path=".github/workflows/lint.yml",
                            status="completed", conclusion="success")  # fmt: skip
        run = here.measured("report, first comment, with plot", opening="measuring began: open the check")
        run = here.measured("report, comment rewritten")
        here.report("report, nothing new", run, "completed")
        log = here.log
    for flow, options in (("report, first comment", {"costs": False}), ("report, no baseline", {"published": 0})):
        with world(**options) as here:
            here.measured(flow)
            log |= here.log
    return log


def conversation() -> dict[str, list[Entry]]:
    """What commands cost, after a report."""
    expires = f"{datetime.now(UTC).date() + timedelta(days=30)}"
    with world(published=1, costs=False) as here:
        here.accept(20)
        here.measured("again")
        for line in ("help", "status", "gate", "rerun", "baseline show", "evaluate mmlu_1"):
            here.say(f"/assay {line.removesuffix(' mmlu_1')}", f"/assay {line}")
        here.say("/assay accept", f'/assay accept mmlu_1 reason="on purpose" expires={expires}')
        run = int(here.repo.dispatches[-1]["run"])
        here.report("a command's run began", run, "requested")
        here.say("/assay cancel", "/assay cancel")
        here.finish(run)
        here.report("a command's run ended", run, "completed")
        here.say("/assay baseline refresh", "/assay baseline refresh")
        return here.log


def nights() -> dict[str, list[Entry]]:
    """What the nightly workflow costs: publishing is the same as after a push."""
    with world(published=3, costs=False) as here:
        tip = here.bases[-1]
        for night in range(4):
            pair = [str(here.record("base", tip, run)) for run in (2 * night, 2 * night + 1)]
            here.run("audit", ["audit", "--first", pair[0], "--second", pair[1], "--branch", "main"])
        here.run("drift, none", ["drift", "--branch", "main"])
        here.run("prune", ["baseline", "prune", "--yes", "--keep", "2"])
        here.publish(here.unpublished(), worse=True)
        here.run("drift, found", ["drift", "--branch", "main"])
        here.run("publish", ["baseline", "publish", str(here.record("base", here.unpublished())), "--branch", "main"])
        night = [e for step in ("publish", "audit", "drift, none", "prune") for e in here.log[step]]
        return here.log | {"a whole night": night}


ORDER = (
    "measuring began: open the check",
    "report, first comment",
    "report, first comment, with plot",
    "report, comment rewritten",
    "report, nothing new",
    "report, no baseline",
    "report, 20 accepted regressions",
    "report, 20 accepted regressions, private",
    "report, with milestones",
    "/assay help",
    "/assay status",
    "/assay evaluate",
    "a command's run began",
    "a command's run ended",
    "/assay accept",
    "/assay gate",
    "/assay milestones",
    "/assay baseline show",
    "/assay baseline refresh",
    "/assay cancel",
    "/assay rerun",
    "publish a baseline",
    "audit",
    "drift, none",
    "drift, found",
    "prune",
    "a whole night",
)
"""Rows of commands hold the reports that they ask for."""


def costs(log: dict[str, list[Entry]]) -> list[Cost]:
    """The table, in a fixed order."""
    found = []
    for flow in ORDER:
        calls = [e for e in log[flow] if is_call(e)]
        writes = [e for e in calls if e.method != "GET" and e.path != "/api/graphql"]
        found.append(Cost(flow, len(calls), len(writes), len(log[flow]) - len(calls)))
    return found


def planned(seconds: float = 2.0) -> list[dict[str, Any]]:
    """Events planned per second of CPU, for every golden scene."""
    from tests.states import STATES

    from assay.bot.plan import plan

    rows = []
    for name, make in STATES.items():
        scene = make()
        rows.append({"scene": name, "per_second": _rate(lambda s=scene: plan(s.snapshot, s.records), seconds)})
    return rows


def _rate(call: Callable[[], Any], seconds: float) -> float:
    call()
    times, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        call()
        times += 1
    return times / (time.process_time() - start)


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the results as JSON")
    parser.add_argument("--calls", action="store_true", help="list every request")
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU seconds for each scene that is planned")
    options = parser.parse_args()
    log = flows()
    if options.calls:
        for flow in ORDER:
            print(flow)
            for entry in log[flow]:
                print(f"  {entry.status} {entry.method:6} {entry.path} {entry.query}")
    table = costs(log)
    print(f"{'flow':38} {'calls':>5} {'writes':>6} {'downloads':>9}")
    for row in table:
        print(f"{row.flow:38} {row.calls:5} {row.writes:6} {row.downloads:9}")
    rows = planned(options.seconds) if options.seconds > 0 else []
    for scene in rows:
        print(f"{scene['scene']:38} {scene['per_second']:7.1f} /s")
    if options.out is not None:
        document = {
            "environment": {"python": platform.python_version(), "cpus": os.cpu_count()},
            "calls": [vars(row) for row in table],
            "planned": rows,
        }
        options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    run()
