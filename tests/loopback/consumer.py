"""A consumer's repository: a model, the documented workflows, and folders whose names are ours too.

Its workflows are those of `docs/workflows`, with the consumer's own model and an environment that already has assay. They
run under act with `acme/assay` mapped to an export of this working tree, as `uses: acme/assay/actions/gate@v1` would be.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from . import act, events
from .server import Loopback
from .state import FORK_TOKEN, Repository, job_token

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = 1000
WRONG = 400

TOY = '''
"""A classifier that answers each example as its weights say: a real torch module, whose flips can be chosen."""
import json
import re
from pathlib import Path

import torch

HERE = Path(__file__).parent


class Table(torch.nn.Module):
    def __init__(self, wrong, sharpness):
        super().__init__()
        labels = torch.arange(EXAMPLES) % 4
        answers = (labels + torch.tensor([i in wrong for i in range(EXAMPLES)])) % 4
        self.logits = torch.nn.Embedding.from_pretrained(torch.nn.functional.one_hot(answers, 4).float() * sharpness)

    def forward(self, x):
        return self.logits(x.long())


def model():
    weights = json.loads((HERE / "weights.json").read_text())
    if weights.get("crash"):
        raise RuntimeError("the weights are broken")
    return Table(set(weights["wrong"]), weights.get("sharpness", 1.0))


def examples():
    return torch.arange(EXAMPLES), torch.arange(EXAMPLES) % 4
'''

COMMAND = {"actions": "write", "checks": "write", "contents": "write", "issues": "write", "pull_requests": "write"}
REPORT = {"actions": "read", "checks": "write", "contents": "write", "pull_requests": "write"}


class Consumer:
    """The repository `acme/widgets`, its clone on this machine, and its runs."""

    def __init__(self, github: Loopback, folder: Path, *, environment: Path | None = Path(sys.prefix)) -> None:
        self.github = github
        self.folder = folder
        self.clone = folder / "widgets"
        self.engine = folder / "assay"
        act.export(ROOT, self.engine)
        self._write(environment)
        self.git("init", "-q", "-b", "main")
        self.git("add", "-A")
        self.git("commit", "-qm", "Begin")
        self.repo: Repository = github.repo("acme/widgets")
        self.repo.import_clone(self.clone)

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=ada", "-c", "user.email=ada@example.invalid", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", "-C", str(self.clone), *identity, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def _write(self, environment: Path | None) -> None:
        workflows = self.clone / ".github" / "workflows"
        workflows.mkdir(parents=True)
        for path in sorted((ROOT / "docs" / "workflows").glob("*.yml")):
            text = path.read_text().replace("checkpoint: ./checkpoint", "model: toy:model")
            text = text.replace("tasks: hellaswag,mmlu", "dataset: toy:examples\n          task-name: toy")
            text = re.sub(r"tasks: \$\{\{ steps.*", "dataset: toy:examples\n          task-name: toy", text)
            text = text.replace("examples: 4000 #", "examples: 1000 #")
            if environment is not None:
                text = text.replace(
                    "          model: toy", f"          environment: {environment}\n          model: toy"
                )
                text = re.sub(
                    r"(actions/verify@v1\n        with:\n)", rf"\1          environment: {environment}\n", text
                )
                for action in ("comment", "publish-baseline", "command", "audit", "drift", "prune"):
                    step = f"- uses: acme/assay/actions/{action}@v1"
                    text = text.replace(step, f"{step}\n        with:\n          environment: {environment}")
            (workflows / path.name).write_text(text)
        (self.clone / "toy.py").write_text(TOY.replace("EXAMPLES", str(EXAMPLES)))
        for name in (
            "kernels",
            "bot",
            "baselines",
            "quant",
            "assay",
        ):  # names that are ours too, and must not be taken for ours
            (self.clone / name).mkdir()
            (self.clone / name / "__init__.py").write_text("raise ImportError('the consumer owns this package')\n")
        self.weights()

    def weights(self, broke: int = 0, fixed: int = 0, **more: object) -> None:
        """Write the weights: the first 400 examples wrong, less `fixed`, plus `broke` others."""
        wrong = [*range(fixed, WRONG), *range(WRONG, WRONG + broke)]
        (self.clone / "weights.json").write_text(json.dumps({"wrong": wrong, **more}))

    def branch(self, name: str, broke: int = 0, fixed: int = 0, *, start: str = "main", **more: object) -> str:
        """A branch with one commit of other weights; returns its SHA."""
        self.git("checkout", "-q", "-B", name, start)
        self.weights(broke, fixed, **more)
        self.git("commit", "-q", "--allow-empty", "-am", f"Change weights: {name}")
        sha = self.git("rev-parse", "HEAD")
        self.git("checkout", "-q", "main")
        self.repo.import_clone(self.clone)
        return sha

    def pull(self, name: str, broke: int = 0, fixed: int = 0, *, fork: str | None = None, **more: object) -> int:
        """A pull request from a new branch (of a fork)."""
        base = str(more.pop("base", "main"))
        sha = self.branch(name, broke, fixed, **more)  # type: ignore[arg-type]
        if fork is None:
            return self.repo.pull(name, base=base)
        source = self.github.repo(fork) if fork in self.repo.world.repositories else self.repo.fork(fork)
        source.move(f"refs/heads/{name}", sha)
        self.repo.refs.pop(f"refs/heads/{name}")
        return self.repo.pull(name, fork=source, base=base, author=fork.split("/")[0])

    def publish(self, *, expect: int = 0) -> act.Ran:
        """What a push to main runs."""
        run = self.repo.start_run(self.repo.refs["refs/heads/main"], event="push", name="assay publish")
        ran = self._act(
            "push", events.push(self.github, self.repo), "assay-publish.yml", run, job_token(contents="write")
        )
        assert ran.exit_code == expect, ran.log
        return ran

    def night(self, *, expect: int = 0) -> act.Ran:
        """What the schedule runs, on main's commit."""
        run = self.repo.start_run(self.repo.refs["refs/heads/main"], event="schedule", name="assay nightly")
        token = job_token(contents="write", issues="write", pull_requests="read")
        ran = self._act("schedule", events.schedule(self.github, self.repo), "assay-nightly.yml", run, token)
        assert ran.exit_code == expect, ran.log
        return ran

    def measure(
        self, number: int, *, expect: int = 0, run: int | None = None, attempt: int = 1, opened: bool = True
    ) -> int:
        """What a pull request runs; returns the run's id. Unless `opened`, the report that opens the check is left out."""
        issue = self.repo.issues[number]
        assert issue.head is not None
        fork = issue.head[0] != self.repo.full_name
        if run is None:
            source = self.repo.world.repositories[issue.head[0]]
            run = self.repo.start_run(
                issue.head_sha,
                branch=issue.head[1],
                name="assay measure",
                path=".github/workflows/assay-measure.yml",
                head_repository=source,
            )
        else:
            self.repo.runs[run].attempt, self.repo.runs[run].status = attempt, "in_progress"
        if opened:
            self.report(run, "requested")
        event = events.pull_request(self.github, self.repo, number)
        token = FORK_TOKEN if fork else job_token(contents="read")
        ran = self._act("pull_request", event, "assay-measure.yml", run, token, attempt)
        assert ran.exit_code == expect, ran.log
        self.repo.finish_run(run, "success" if expect == 0 else "failure")
        return run

    def report(self, run: int, action: str = "completed", *, expect: int = 0, **permissions: str) -> act.Ran:
        """What `workflow_run` runs, on main's commit."""
        event = events.workflow_run(self.github, self.repo, run, action)
        token = job_token(**{**REPORT, **permissions})
        ran = self._act("workflow_run", event, "assay-report.yml", run + 500_000, token)
        assert ran.exit_code == expect, ran.log
        return ran

    def say(self, number: int, body: str, author: str = "acme", *, expect: int = 0) -> act.Ran:
        """What a new comment runs: the command workflow, on main's commit."""
        comment = self.repo.comment(number, body, author=author)
        event = events.issue_comment(self.github, self.repo, comment)
        run = self.repo.start_run(self.repo.refs["refs/heads/main"], event="issue_comment", name="assay command")
        ran = self._act("issue_comment", event, "assay-command.yml", run, job_token(**COMMAND))
        assert ran.exit_code == expect, ran.log
        return ran

    def run_dispatched(self, *, expect: int = 0) -> int:
        """What the newest dispatch runs; returns the run's id."""
        sent = self.repo.dispatches[-1]
        run = int(sent["run"])
        self.repo.runs[run].status = "in_progress"
        self.report(run, "requested")
        event = events.workflow_dispatch(self.github, self.repo, sent["inputs"])
        token = job_token(contents="read", checks="read", pull_requests="read")
        ran = self._act("workflow_dispatch", event, sent["workflow"], run, token)
        assert ran.exit_code == expect, ran.log
        self.repo.finish_run(run, "success" if expect == 0 else "failure")
        return run

    def reactions(self, number: int) -> list[str]:
        """Reactions on the newest comment that is not ours."""
        theirs = [c for c in self.repo.comments_on(number) if not c.author.endswith("[bot]")]
        return [r["content"] for r in theirs[-1].reactions]

    def replies(self, number: int) -> list[str]:
        """Our replies to commands, oldest first."""
        return [c.body for c in self.repo.comments_on(number) if c.body.startswith("<!-- assay command=")]

    def _act(
        self, name: str, event: dict[str, object], workflow: str, run: int, token: object, attempt: int = 1
    ) -> act.Ran:
        return act.run(
            self.clone,
            name,
            event,
            github=self.github,
            repository="acme/widgets",
            token=self.github.token(token),  # type: ignore[arg-type]
            actions={"acme/assay": self.engine},
            workflow=f".github/workflows/{workflow}",
            run_id=run,
            attempt=attempt,
            env={
                "OMP_NUM_THREADS": "1",
                "ASSAY_CACHE": str(self.folder / "cache"),
                "RUNNER_TOOL_CACHE": str(self.folder / "tools"),
            },
        )

    # -- what people see -----------------------------------------------------------------------------------------------

    def comments(self, number: int) -> list[str]:
        return [c.body for c in self.repo.comments_on(number) if c.body.startswith("<!-- assay run=")]

    def comment(self, number: int) -> str:
        """The one comment."""
        [body] = self.comments(number)
        return body

    def checks(self, number: int) -> list[tuple[str, str, str | None]]:
        """(name, status, conclusion) of the head's checks, newest last."""
        head = self.repo.issues[number].head_sha
        return [(c.name, c.status, c.conclusion) for c in self.repo.checks.values() if c.head_sha == head]


def names(texts: Iterable[str]) -> list[str]:
    """The headlines of comments, for assertions that print well."""
    return [next(line for line in text.splitlines() if line.startswith("## ")) for text in texts]
