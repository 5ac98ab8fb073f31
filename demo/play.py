"""Play three pull requests against a published baseline, with the commands that a workflow runs.

`python -m demo.play [FOLDER]` writes the comments as Markdown and as pages into FOLDER (default: demo-output).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape

ROOT = Path(__file__).parents[1]
SEED = "1"
console = Console(highlight=False, width=110)


class Story:
    """The folder of the demonstration: a git repository, its ledger, and the comments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.repository = self.folder / "repository"
        self.ledger = self.folder / "baselines"
        self.environment = {**os.environ, "COLUMNS": "130", "ASSAY_DEMO": str(self.folder), "PYTHONPATH": str(ROOT)}
        if console.is_terminal:
            self.environment["FORCE_COLOR"] = "1"
        for name in list(self.environment):
            if name.startswith(("GITHUB_", "ASSAY_LEDGER", "ASSAY_HEAD")):
                del self.environment[name]

    def assay(self, *arguments: str, cwd: Path | None = None, expect: int = 0) -> str:
        """Run one `assay` command as a user would, show it, and check its exit code."""
        shown = re.sub(
            r"\b([0-9a-f]{7})[0-9a-f]{33}\b", r"\1", shlex.join(a.replace(f"{self.folder}/", "") for a in arguments)
        )
        console.print(f"[dim]$[/] [bold]assay[/] {escape(shown)}", soft_wrap=True)
        done = subprocess.run(
            [sys.executable, "-m", "assay.bot.cli", *arguments],
            cwd=cwd or ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != expect:
            sys.exit(f"assay {shown} exited {done.returncode}, expected {expect}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=demo", "-c", "user.email=demo@example.invalid", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=self.repository, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self, message: str, weights: str) -> str:
        """A commit that changes which weights the repository ships; returns its SHA."""
        (self.repository / "WEIGHTS").write_text(weights + "\n")
        self.git("add", "WEIGHTS")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def evaluate(self, name: str, model: str, commit: str, weights: str, examples: int | None = None) -> str:
        """Measure one version of the classifier; returns the record's folder."""
        out = str(self.folder / "evidence" / name)
        arguments = ["evaluate", "--model", f"demo.digits:{model}", "--dataset", "demo.digits:held_out"]
        arguments += ["--task-name", "digits", "--seed", SEED, "--commit", commit, "--format", weights, "--out", out]
        if examples is not None:
            arguments += ["--examples", str(examples)]
        self.assay(*arguments)
        return out

    def gate(self, name: str, head: str, expect: int) -> dict[str, object]:
        """Compare with the nearest baseline, write the comment, and show it as the terminal does."""
        place = ["--head", head, "--ledger", str(self.ledger)]
        pages = ["--markdown", str(self.folder / f"{name}.md"), "--html", str(self.folder / f"{name}.html")]
        sys.stdout.write(self.assay("gate", *place, *pages, cwd=self.repository, expect=expect))
        sys.stdout.flush()
        document: dict[str, object] = json.loads(
            subprocess.run(
                [sys.executable, "-m", "assay.bot.cli", "gate", *place, "--json"],
                cwd=self.repository,
                env=self.environment,
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            ).stdout
        )
        return document


def expect(document: dict[str, object], wanted: str) -> None:
    """Stop unless the verdict is the one that the story tells."""
    if document["overall"] != wanted:
        sys.exit(
            f"expected {wanted}, and the gate says {document['overall']}: the demonstration does not hold on this machine."
        )


def chapter(text: str) -> None:
    console.print()
    console.rule(f"[bold]{text}", align="left")


def play(folder: Path) -> None:
    """The whole story. Exits non-zero when a verdict is not the one that is told."""
    started = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    story = Story(folder)
    story.repository.mkdir(parents=True)
    story.git("init", "-q", "-b", "main")

    chapter("main: train a classifier of handwritten digits, measure it, publish the baseline")
    trained = subprocess.run(
        [sys.executable, "-c", "from demo.digits import train; train()"], cwd=ROOT, env=story.environment, check=False
    )
    if trained.returncode != 0:
        sys.exit("training failed")
    base = story.commit("Ship float32 weights", "float32")
    record = story.evaluate("main", "float32", base, "float32")
    console.print(
        story.assay("baseline", "publish", record, "--branch", "main", "--ledger", str(story.ledger)).rstrip(),
        markup=False,
    )

    chapter("pull request 1: INT8 weights, one scale per channel")
    story.git("checkout", "-q", "-b", "int8", "main")
    head = story.evaluate("int8", "int8", story.commit("Round weights to INT8", "int8"), "int8")
    expect(story.gate("1-int8", head, 0), "equivalent")

    chapter("pull request 2: naive INT4 weights, one scale for everything")
    story.git("checkout", "-q", "-b", "int4", "main")
    head = story.evaluate("int4", "naive_int4", story.commit("Round weights to INT4", "int4"), "int4")
    expect(story.gate("2-naive-int4", head, 1), "regressed")

    chapter("pull request 3: a third of the weights pruned, measured on 200 images")
    story.git("checkout", "-q", "-b", "pruned", "main")
    commit = story.commit("Prune the smallest weights", "pruned")
    head = story.evaluate("pruned-200", "pruned", commit, "float32, pruned", examples=200)
    document = story.gate("3-pruned-200-images", head, 0)
    expect(document, "inconclusive")
    needed = int(document["findings"][0]["needed"])  # type: ignore[index]
    console.print(f"\nIt asks for {needed} images, so that is what it gets:")
    head = story.evaluate(f"pruned-{needed}", "pruned", commit, "float32, pruned", examples=needed)
    expect(story.gate("3-pruned-as-many-as-asked", head, 1), "regressed")

    console.print()
    console.rule(f"[bold green]done in {time.monotonic() - started:.0f} s; open these", align="left")
    shown = Path(os.path.relpath(folder)) if folder.resolve().is_relative_to(Path.cwd()) else folder
    for page in sorted(folder.glob("*.html")):
        console.print(f"  {shown / page.name}", markup=False)
    console.print(f"The same as Markdown lies beside them; the baseline is in {shown / 'baselines'}.", markup=False)


if __name__ == "__main__":
    play(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("demo-output"))
