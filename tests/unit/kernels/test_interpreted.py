"""The Triton kernels compute what they should, on a CPU, by Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "interpreted.py"
LIMITS = {"softmax": 2e-6, "forward": 2e-5, "sum": 0.0, "backward": 2e-3, "attention": 2e-6}


@pytest.fixture(scope="module")
def gaps() -> dict[str, float]:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("family", list(LIMITS))
def test_within_the_tolerance_of_its_family(gaps: dict[str, float], family: str) -> None:
    some = {name: gap for name, gap in gaps.items() if name.split("-")[0] == family}
    assert len(some) >= 8
    wrong = {name: gap for name, gap in some.items() if not gap <= LIMITS[family]}
    assert not wrong
