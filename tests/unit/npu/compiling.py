"""What tests of `assay compile` share: the command, and a worker's answer in this process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from assay.bot.cli import assay
from assay.npu_backend.worker import answer

DECLARED = "import torch, os\nfrom torch import nn\nfrom assay.npu_backend.declaration import Declaration\n"


def invoke(*arguments: object, catch_exceptions: bool = True) -> Result:
    return CliRunner().invoke(assay, ["compile", *map(str, arguments)], catch_exceptions=catch_exceptions)


def worker_answer(root: Path, **options: Any) -> dict[str, Any]:
    """What a worker would answer, in this process."""
    request = {"root": str(root), "file": "models.py", "names": [], "optional": False, "torchvision": [], "hf": []}
    request |= {"dtype": "float32", "precision": "", "training": False, "options": options, "out": str(root / "work")}
    before = list(sys.path)
    try:
        return answer(request, lambda line: None)
    finally:
        sys.path[:] = before


def alive(process: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet is dead all the same."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
