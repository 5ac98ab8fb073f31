"""The built wheel is the whole product."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("baselines", "kernels", "quant", "npu_backend", "bot")


def test_wheel_contains_every_module_and_template(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)  # the wheel is built from the sdist, so both are complete
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        f"assay/{path.relative_to(ROOT).as_posix()}"
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in {".py", ".j2", ".yaml", ".json"} and "__pycache__" not in path.parts
    }
    assert len(wanted) > 50
    assert wanted <= names
    assert not [n for n in names if n.startswith(("tests/", "demo/", "bot/", "src/"))]
