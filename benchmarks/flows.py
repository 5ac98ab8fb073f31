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

from click.testing import CliRunner
from tests.loopback import Entry, Loopback, events, job_token

from assay.bot.cli import assay

REPOSITORY = "acme/widgets"
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
    """Of these, other than GET."""
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
        workflow = {POLICY: "gate:\n  threshold: 0.5\n", ".github/workflows/assay-run.yml": "on: workflow_dispatch\n"}
        make(scratch, 1)
        self.costs = costs
        self.bases = [self.repo.commit({"weights.txt": str(i), **workflow}) for i in range(max(1, published))]
        self.head = self.repo.commit({"weights.txt": "head"}, branch="feature")
        self.number = self.repo.pull("feature")
        self.log: dict[str, list[Entry]] = {}
        for base in self.bases[:published]:
            self.publish(base)

    def record(self, name: str, commit: str, run_id: int | None = None) -> Path:
        """The base's or head's record, as if measured at a commit by a run."""
        from assay.baselines.evidence import Metric
        from assay.baselines.record import read_record, write_record

        record = read_record(self.scratch / name)
        evidence = record.evidence
        provenance = evidence.provenance.model_copy(update={"commit": commit, "run_id": run_id})
        metrics = dict(evidence.metrics)
        if self.costs:
            metrics["size"] = Metric(value=COSTS[name]["size"][0], unit="bytes", direction="lower")
        folder = self.scratch / f"{name}-{commit[:12]}-{run_id}"
        write_record(folder, evidence.model_copy(update={"provenance": provenance, "metrics": metrics}), record.rows)
        return folder

    def publish(self, commit: str) -> None:
        """What `assay baseline publish` leaves, without its pauses between writes."""
        from assay.baselines.ledger.release import ReleaseLedger
        from assay.baselines.record import read_record
        from assay.bot.github import GitHub, connect

        folder = self.record("base", commit)
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
    log: dict[str, list[Entry]] = {}
    with world(published=3) as here:
        log["publish a baseline"] = here.log[f"publish the baseline of {here.bases[-1]}"]
        here.repo.start_run(here.head, branch="feature", name="lint", path=".github/workflows/lint.yml",
                            status="completed", conclusion="success")  # fmt: skip
        run = here.start()
        here.report("measuring began: open the check", run, "requested")
        here.finish(run)
        here.report("report, first comment, with plot", run, "completed")
        run = here.start()
        here.report("again", run, "requested")
        here.finish(run)
        here.report("report, comment rewritten", run, "completed")
        here.report("report, nothing new", run, "completed")
        here.say("/assay status", "/assay status")
        here.say("/assay evaluate", "/assay evaluate mmlu")
        log |= here.log
    with world(costs=False) as here:
        run = here.start()
        here.report("again", run, "requested")
        here.finish(run)
        here.report("report, first comment", run, "completed")
        log["report, first comment"] = here.log["report, first comment"]
    with world(published=0) as here:
        run = here.start()
        here.report("again", run, "requested")
        here.finish(run)
        here.report("report, no baseline", run, "completed")
        log["report, no baseline"] = here.log["report, no baseline"]
    return {flow: entries for flow, entries in log.items() if flow in ORDER}


ORDER = (
    "measuring began: open the check",
    "report, first comment",
    "report, first comment, with plot",
    "report, comment rewritten",
    "report, nothing new",
    "report, no baseline",
    "/assay status",
    "/assay evaluate",
    "publish a baseline",
)


def costs(log: dict[str, list[Entry]]) -> list[Cost]:
    """The table, in a fixed order."""
    found = []
    for flow in ORDER:
        calls = [e for e in log[flow] if is_call(e)]
        writes = [e for e in calls if e.method != "GET"]
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
