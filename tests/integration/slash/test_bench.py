"""`/assay bench` from the comment to the reply: act runs the documented workflows, on a CPU and with two kernels to choose from."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.integration.kernels import cheats
from tests.loopback import Loopback
from tests.loopback.consumer import Consumer, names
from tests.loopback.consumer_fixtures import act_is_there, github

__all__ = ["act_is_there", "github"]

TWO = cheats.DECLARATION + 'triple = __import__("dataclasses").replace(double, name="triple")\n'
HERE = {
    "device: cuda": f"device: cpu\n          blocks: 12\n          rounds: 1\n          environment: {sys.prefix}",
    "margin: 1\n": "margin: 50\n",
    "base: origin/": "base: refs/loopback/heads/",  # where the stand-in for checkout has the branches of origin
}
"""What the documented workflow says -> what it says on this machine."""


def consumer_of(github: Loopback, folder: Path) -> Consumer:
    """A repository whose main declares two kernels, and whose bench workflow runs here."""
    consumer = Consumer(github, folder)
    workflow = consumer.clone / ".github" / "workflows" / "assay-bench.yml"
    text = workflow.read_text()
    for documented, ours in HERE.items():
        assert documented in text
        text = text.replace(documented, ours)
    workflow.write_text(text)
    (consumer.clone / "bench.py").write_text(TWO)
    (consumer.clone / "ours.py").write_text(cheats.HONEST)
    consumer.git("add", "-A")
    consumer.git("commit", "-qm", "Declare two kernels")
    consumer.repo.import_clone(consumer.clone)
    return consumer


def test_bench_is_acknowledged_pinned_timed_and_reported(github: Loopback, tmp_path: Path) -> None:
    consumer = consumer_of(github, tmp_path)
    base = consumer.git("rev-parse", "HEAD")
    consumer.git("checkout", "-q", "-b", "slower")
    (consumer.clone / "ours.py").write_text(cheats.SLOW)
    consumer.git("commit", "-qam", "Do it twelve times")
    consumer.git("checkout", "-q", "main")
    consumer.repo.import_clone(consumer.clone)
    number = consumer.repo.pull("slower", base="main")
    head = consumer.repo.issues[number].head_sha

    consumer.say(number, "/assay bench double")
    [reply] = consumer.replies(number)
    assert "Started `bench kernels=double` at" in reply
    assert consumer.reactions(number) == ["eyes", "rocket"]
    [sent] = consumer.repo.dispatches
    assert (sent["workflow"], sent["inputs"]["head"]) == ("assay-bench.yml", head)
    pinned = [(c.name, c.status, c.external_id) for c in consumer.repo.checks.values() if c.head_sha == head]
    assert pinned == [("assay/bench", "in_progress", sent["inputs"]["id"])]

    run = consumer.run_dispatched()
    consumer.report(run)
    comment = consumer.comment(number)
    assert names([comment]) == ["## ✗ Slower on n64k"]  # one kernel was asked for, so that its case has its own name
    assert f"against `{base[:12]}`" in comment
    assert "Base and head in one lease" in comment
    assert consumer.checks(number) == [("assay/bench", "completed", "failure")]
    [reply] = consumer.replies(number)
    assert "ended: ✗ Slower on n64k" in reply
