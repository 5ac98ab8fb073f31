"""A pull request that makes a model wider and sends an operator to the host: the documented workflows under act."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from tests.loopback import Loopback, events
from tests.loopback.consumer import Consumer, names
from tests.loopback.state import job_token

NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(512, WIDTH), nn.Linear(WIDTH, 8)

    def forward(self, x):
        return self.down(ACTIVATION)
"""
MODELS = """
import torch
from net import Net  # each checkout its own
from assay.npu_backend.declaration import Declaration

net = Declaration("net", Net, lambda: torch.randn(4, 512))
"""


def pull(github: Loopback, tmp_path: Path, width: str, activation: str) -> tuple[Consumer, int, Any, str]:
    """A pull request that changes the model, after its workflow has run: (consumer, number, what act did, base)."""
    consumer = Consumer(github, tmp_path)
    workflow = consumer.clone / ".github" / "workflows" / "assay-npu.yml"
    workflow.write_text(
        workflow.read_text().replace("file: models.py", f"file: models.py\n          environment: {sys.prefix}")
    )
    (consumer.clone / "models.py").write_text(MODELS)
    net = consumer.clone / "net.py"
    net.write_text(NET.replace("WIDTH", "1024").replace("ACTIVATION", "self.up(x).relu()"))
    consumer.git("add", "-A")
    consumer.git("commit", "-qm", "Declare a model")
    base = consumer.git("rev-parse", "HEAD")
    consumer.git("checkout", "-q", "-b", "changed")
    net.write_text(NET.replace("WIDTH", width).replace("ACTIVATION", activation))
    consumer.git("commit", "-qam", "Change it")
    consumer.git("checkout", "-q", "main")
    consumer.repo.import_clone(consumer.clone)
    number = consumer.repo.pull("changed", base="main")
    run = consumer.repo.start_run(
        consumer.repo.issues[number].head_sha,
        branch="changed",
        name="assay npu",
        path=".github/workflows/assay-npu.yml",
    )
    consumer.report(run, "requested")
    event = events.pull_request(consumer.github, consumer.repo, number)
    ran = consumer._act("pull_request", event, "assay-npu.yml", run, job_token(contents="read"))
    consumer.repo.finish_run(run, "success" if ran.exit_code == 0 else "failure")
    consumer.report(run)
    return consumer, number, ran, base


def test_wider_model_is_blocked(github: Loopback, tmp_path: Path) -> None:
    consumer, number, ran, base = pull(github, tmp_path, "1536", "self.up(x).sort(1).values")
    assert ran.exit_code == 0, ran.log
    comment = consumer.comment(number)
    assert names([comment]) == ["## ✗ aten.sort.default fell back to the host on net, and slower on net"]
    assert re.search(r"\| net \| [\d,]+ → [\d,]+ \(\+[\d.]+%\)<br>[\d.]+ ms → [\d.]+ ms \(\+[\d.]+%\) \|", comment), (
        comment
    )
    assert "`aten.sort.default` on the host now, 1 time: there is no rule for it" in comment
    assert f"against `{base[:12]}`" in comment
    assert "| up addmm |" in comment
    assert "Base and head by one compiler in one run" in comment
    assert consumer.checks(number)[-1] == ("assay", "completed", "failure")
    assert {a.name for a in consumer.repo.artifacts.values()} == {"assay-npu", "npu-report"}


def test_a_model_that_compiles_no_longer_is_told_with_its_line(github: Loopback, tmp_path: Path) -> None:
    """The only model fails, so that the step does; its evidence is kept all the same."""
    consumer, number, ran, _ = pull(github, tmp_path, "1024", "self.up(x).reshape(3, -1)")
    assert ran.exit_code == 1, ran.log
    comment = consumer.comment(number)
    assert names([comment]) == ["## ✗ Does not compile on net"]
    assert "(net.py:11)" in comment
    assert "A model that does not compile has no cost" in comment
    assert consumer.checks(number)[-1] == ("assay", "completed", "failure")
    assert {a.name for a in consumer.repo.artifacts.values()} == {"assay-npu", "npu-report"}
