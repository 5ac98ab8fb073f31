"""Environment capture: hardware, driver, system and library versions, without importing any of the libraries."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

from assay.baselines.evidence import Environment

Run = Callable[[list[str]], str]


def capture(libraries: Iterable[str] = (), *, run: Run | None = None) -> Environment:
    """The environment of this process.

    `libraries` are distribution names; those not installed are left out. `run` executes a query command and returns its
    output, or "" when the command is absent or fails; it is a parameter so that a machine with a GPU can be described
    in a test on one without.
    """
    query = run or _run
    gpus = query(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    names, driver = _gpus(gpus)
    return Environment(
        hardware=", ".join(filter(None, [names, _cpu()])),
        driver=f"NVIDIA {driver}" if driver else "",
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        libraries={name: version for name in sorted(set(libraries)) if (version := _version(name))},
    )


def differences(base: Environment, head: Environment) -> list[str]:
    """What differs between two environments, one phrase each, for the report; empty strings are unknown, not different."""
    found = []
    for label in ("hardware", "driver", "system", "python"):
        before, after = getattr(base, label), getattr(head, label)
        if before and after and before != after:
            found.append(f"{label}: {before} → {after}")
    for name in sorted(set(base.libraries) | set(head.libraries)):
        before, after = base.libraries.get(name, ""), head.libraries.get(name, "")
        if before != after and base.libraries and head.libraries:
            found.append(f"{name}: {before or 'absent'} → {after or 'absent'}")
    return found


def _gpus(listing: str) -> tuple[str, str]:
    rows = [line.split(",") for line in listing.splitlines() if "," in line]
    names = [row[0].strip() for row in rows]
    counted = [f"{names.count(name)}x {name}" if names.count(name) > 1 else name for name in dict.fromkeys(names)]
    return ", ".join(counted), rows[0][1].strip() if rows else ""


def _cpu() -> str:
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{model} ({os.cpu_count()} CPUs)"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _run(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
