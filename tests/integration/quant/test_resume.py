"""A real kill in the middle of a real evaluation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from assay.baselines.record import read_record

COMMAND = "from assay.quant.cli import evaluate; evaluate()"


def test_a_killed_evaluation_continues(checkpoints: Callable[[str], Path], task_files: Path, tmp_path: Path) -> None:
    arguments = [
        "--checkpoint", str(checkpoints("float32")), "--include-path", str(task_files),
        "--tasks", "hellaswag_cloze,mmlu_cloze", "--chunk", "4", "--batch-size", "4", "--device", "cpu", "--json",
    ]  # fmt: skip
    out = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-c", COMMAND, *arguments, "--out", str(out)], cwd=tmp_path)
    deadline = time.monotonic() + 240
    try:
        while len(chunks := list(out.glob(".partial/*/*.parquet"))) < 4:
            assert process.poll() is None, "the evaluation ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert not (out / "evidence.json").exists()
    # Whatever the kill hit, each chunk that is there is whole.
    assert all(pq.read_table(chunk).num_rows == 8 for chunk in chunks)

    def finish(folder: Path) -> dict[str, object]:
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *arguments, "--out", str(folder)],
            cwd=tmp_path, capture_output=True, text=True, check=True, env=os.environ,
        )  # fmt: skip
        found: dict[str, object] = json.loads(done.stdout)
        assert "continuing" in done.stderr or folder != out
        return found

    assert finish(out)["resumed"] >= 16  # type: ignore[operator]
    assert finish(tmp_path / "whole")["resumed"] == 0
    first, second = read_record(out), read_record(tmp_path / "whole")
    assert first.rows is not None
    assert first.rows.equals(second.rows)
    assert first.evidence.metrics == second.evidence.metrics
    assert not (out / ".partial").exists()
