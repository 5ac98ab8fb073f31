"""What it costs to start: CPU seconds of `assay ... --help` in fresh processes, beside Python alone and PyGithub alone.

`python -m benchmarks.startup [--repeat N] [--out FILE]` prints a table of medians. A hosted runner pays this for every
comment; the bot's own part must not exceed what its one large dependency costs anyway.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ASSAY = [sys.executable, "-m", "assay.bot.cli"]
COMMANDS: dict[str, list[str]] = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "python -c 'import github'": [sys.executable, "-c", "import github"],
    "assay --help": [*ASSAY, "--help"],
    "assay comment --help": [*ASSAY, "comment", "--help"],
    "assay gate --help": [*ASSAY, "gate", "--help"],
    "assay evaluate --help": [*ASSAY, "evaluate", "--help"],
}
LIMIT_S = 0.4
"""What `assay comment --help` may cost, in CPU seconds."""


def cpu_seconds(command: Sequence[str]) -> float:
    """User and system time of one fresh process. Raises `CalledProcessError` when it fails."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, usage = os.wait4(process.pid, 0)
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command, stderr=said)
    return usage.ru_utime + usage.ru_stime


def measure(repeat: int) -> dict[str, float]:
    """Median CPU seconds of each command. One round warms the file cache; then the commands take turns, so that a busy
    moment of the machine is shared by all."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(repeat + 1):
        for name, command in COMMANDS.items():
            seconds = cpu_seconds(command)
            if turn:
                times[name].append(seconds)
    return {name: statistics.median(seen) for name, seen in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    medians = measure(arguments.repeat)
    bare = medians["python -c pass"]
    print(f"{'command':<28} {'CPU s':>7} {'less Python':>12}")
    for name, seconds in medians.items():
        print(f"{name:<28} {seconds:>7.3f} {seconds - bare:>12.3f}")
    verdict = "within" if medians["assay comment --help"] < LIMIT_S else "OVER"
    print(f"\nassay comment --help is {verdict} its limit of {LIMIT_S} s")
    if arguments.out is not None:
        document = {
            "repeat": arguments.repeat,
            "limit_s": LIMIT_S,
            "python": platform.python_version(),
            "cpu_seconds": {name: round(seconds, 4) for name, seconds in medians.items()},
        }
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(document, indent=1) + "\n")
    if verdict == "OVER":
        sys.exit(1)


if __name__ == "__main__":
    main()
