"""A pull request that makes a kernel slower, from the push to the comment: the documented workflows under act, on a CPU."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.integration.kernels import cheats
from tests.loopback import Loopback, events
from tests.loopback.consumer import Consumer, names
from tests.loopback.state import job_token


def test_slower_kernel_is_blocked(github: Loopback, tmp_path: Path) -> None:
    consumer = Consumer(github, tmp_path)
    workflow = consumer.clone / ".github" / "workflows" / "assay-kernels.yml"
    text = workflow.read_text().replace(
        "device: cuda", f"blocks: 12\n          rounds: 1\n          environment: {sys.prefix}"
    )
    workflow.write_text(text.replace("margin: 1\n", "margin: 50\n"))
    (consumer.clone / "bench.py").write_text(cheats.DECLARATION)
    (consumer.clone / "ours.py").write_text(cheats.HONEST)
    consumer.git("add", "-A")
    consumer.git("commit", "-qm", "Declare a kernel")
    base = consumer.git("rev-parse", "HEAD")
    consumer.git("checkout", "-q", "-b", "slower")
    (consumer.clone / "ours.py").write_text(cheats.SLOW)
    consumer.git("commit", "-qam", "Do it twelve times")
    consumer.git("checkout", "-q", "main")
    consumer.repo.import_clone(consumer.clone)
    number = consumer.repo.pull("slower", base="main")
    head = consumer.repo.issues[number].head_sha
    run = consumer.repo.start_run(
        head, branch="slower", name="assay kernels", path=".github/workflows/assay-kernels.yml"
    )
    consumer.report(run, "requested")
    event = events.pull_request(consumer.github, consumer.repo, number)
    ran = consumer._act("pull_request", event, "assay-kernels.yml", run, job_token(contents="read"))
    assert ran.exit_code == 0, ran.log
    consumer.repo.finish_run(run, "success")
    consumer.report(run)
    comment = consumer.comment(number)
    assert names([comment]) == ["## ✗ Slower on n64k"]
    assert f"against `{base[:12]}`" in comment
    assert "Base and head in one lease" in comment
    assert consumer.checks(number)[-1] == ("assay", "completed", "failure")
