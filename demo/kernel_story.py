"""Play three pull requests that change a kernel: a faster one, a slower one, and one that is faster and wrong.

`python -m demo.kernel_story [FOLDER]` writes the comments as Markdown and as pages into FOLDER (default: demo-output/kernels).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

from demo.play import ROOT, Story, chapter, console, expect

KERNELS = Path(__file__).parent / "kernels"
BLOCKS = "30"
MARGIN = "10"
"""Percent. Wide, so that the story is the same on a laptop that does other things meanwhile."""

FUSED = """import torch


def softmax(x):
    return torch.softmax(x, -1)
"""
SLOWER = """import torch


def softmax(x):
    if not x.numel():
        return torch.empty_like(x)
    top = x.max(-1, keepdim=True).values
    total = (x - top).exp().sum(-1, keepdim=True)
    return (x - top).exp().div(total)
"""
WRONG = """import torch


def softmax(x):
    out = torch.empty_like(x)
    even = x.shape[-1] // 8 * 8  # eight columns at a time; who has 61?
    torch.softmax(x[:, :even], -1, out=out[:, :even])
    return out
"""


class Kernels(Story):
    """The folder of this demonstration."""

    def propose(self, name: str, text: str, message: str) -> str:
        """A branch with one commit that changes the kernel; returns its SHA."""
        self.git("checkout", "-q", "-b", name, "main")
        (self.repository / "softmax.py").write_text(text)
        self.git("commit", "-q", "-am", message)
        return self.git("rev-parse", "HEAD")

    def bench(self, name: str) -> Path:
        """Time the working tree against its merge base with main."""
        out = self.folder / "evidence" / name
        arguments = [
            "bench",
            "bench.py",
            "--base",
            "main",
            "--blocks",
            BLOCKS,
            "--rounds",
            "1",
            "--margin",
            MARGIN,
            "--memory-mb",
            "32",
        ]
        arguments += ["--out", str(out)]
        self.assay(*arguments, cwd=self.repository)
        return out

    def verdict(self, name: str, evidence: Path, code: int, wanted: str) -> None:
        """Compare, write the comment, and print it."""
        page = self.folder / f"{name}.md"
        arguments = ["gate", "--base", f"{evidence}.base", "--head", str(evidence), "--markdown", str(page)]
        arguments += ["--html", str(page.with_suffix(".html")), "--json"]
        document = json.loads(self.assay(*arguments, cwd=self.repository, expect=code))
        console.print(page.read_text().split("<details>")[0].rstrip(), markup=False)
        expect(document, wanted)


def play(folder: Path) -> None:
    """The whole story. Exits non-zero when a verdict is not the one that is told."""
    started = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    story = Kernels(folder)
    story.repository.mkdir(parents=True)
    story.git("init", "-q", "-b", "main")
    for path in KERNELS.glob("*.py"):
        shutil.copy(path, story.repository)
    story.git("add", "-A")
    story.git("commit", "-q", "-m", "A row softmax")

    chapter("pull request 1: one fused pass in place of four")
    story.propose("fused", FUSED, "Fuse the softmax")
    story.verdict("1-fused", story.bench("fused"), 0, "improved")

    chapter("pull request 2: recompute the exponentials")
    story.propose("recompute", SLOWER, "Keep no exponentials")
    story.verdict("2-recompute", story.bench("recompute"), 1, "regressed")

    chapter("pull request 3: eight columns at a time")
    story.propose("vector", WRONG, "Vectorise the softmax")
    story.verdict("3-vector", story.bench("vector"), 1, "regressed")

    console.print()
    console.rule(f"[bold green]done in {time.monotonic() - started:.0f} s; open these", align="left")
    shown = Path(os.path.relpath(folder)) if folder.resolve().is_relative_to(Path.cwd()) else folder
    for page in sorted(folder.glob("*.html")):
        console.print(f"  {shown / page.name}", markup=False)


if __name__ == "__main__":
    play(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "demo-output" / "kernels")
