"""A consumer's kernels as files: an honest one, and some whose module cheats when it is imported or called."""

from __future__ import annotations

from pathlib import Path

DECLARATION = """
import torch
from assay.kernels.declaration import Declaration, Tolerance
from ours import kernel, bytes_moved

def inputs(case, generator, device):
    return {"x": torch.randn(case["n"], generator=generator, device=device)}

double = Declaration(
    name="double", kernel=kernel, inputs=inputs, reference=lambda x: 2 * x,
    tolerances={"float32": Tolerance(1e-6, 1e-6)}, cases={"n64k": {"n": 65536, "dtype": "float32"}},
    contract_cases={"odd": {"n": 61, "dtype": "float32"}, "empty": {"n": 0, "dtype": "float32"}},
    bytes=bytes_moved, flops=lambda case: case["n"], configuration={"unrolled": False},
)
"""

HONEST = """
def bytes_moved(case): return 8 * case["n"]

def kernel(x): return x * 2
"""

PRINTS_FOR_EVER = """
def bytes_moved(case): return 8 * case["n"]

def kernel(x):
    while True:
        print("x" * 100_000)
"""

SLOW = """
def bytes_moved(case): return 8 * case["n"]

def kernel(x):
    for _ in range(12):
        y = x * 2
    return y
"""

WRONG_ON_ODD = """
def bytes_moved(case): return 8 * case["n"]

def kernel(x): return x * 2 if x.numel() % 2 == 0 else x * 3
"""

ROOFLINE = HONEST.replace("8 *", "8_000_000 *")

PATCHES_THE_CLOCK = (
    """
import time
time.perf_counter_ns = lambda: 0
"""
    + HONEST
)

# HONEST with the byte model of the file below.
HONEST_WITH_FEW_BYTES = """
def bytes_moved(case): return 8

def kernel(x): return x * 2
"""

# Collection is off only while the clock runs. What was put off is done when inputs are drawn again to check a launch.
PUTS_WORK_OFF = """
import gc
import random
import torch

def bytes_moved(case): return 8 * case["n"]

pending = []
real = random.Random.getrandbits

def getrandbits(self, bits):
    while pending:
        x, y = pending.pop()
        y.copy_(x * 2)
    return real(self, bits)

random.Random.getrandbits = getrandbits

def kernel(x):
    if gc.isenabled() or x.numel() < 1000:
        return x * 2
    y = torch.empty_like(x)
    pending.append((x, y))
    return y
"""

DRAWS_LESS_LATER = DECLARATION.replace(
    'torch.randn(case["n"],', 'torch.randn(case["n"] if generator.initial_seed() < 1 << 32 else case["n"] // 2,'
)

STARTS_A_SESSION = """
import subprocess
from pathlib import Path

def bytes_moved(case): return 8 * case["n"]

made = subprocess.Popen(["sleep", "600"], start_new_session=True)
Path("started").open("a").write(f"{made.pid}\\n")

def kernel(x): return x * 2
"""

SLOWS_THE_CLOCK = """
import gc
import time
import torch
from assay.kernels.bench.stopwatch import HostStopwatch

# So few that the roofline, which a busy machine lowers, does not speak before the clock does.
def bytes_moved(case): return 8

[watch] = [o for o in gc.get_objects() if isinstance(o, HostStopwatch)]
real = time.perf_counter_ns
watch._clock = lambda: real() // 2

def kernel(x): return x * 2
"""

GIVES_NO_TIME = """
import gc
from assay.kernels.bench.stopwatch import HostStopwatch

def bytes_moved(case): return 8 * case["n"]

[watch] = [o for o in gc.get_objects() if isinstance(o, HostStopwatch)]
watch._clock = lambda: float("nan")

def kernel(x): return x * 2
"""

KEEPS_OTHERS_BUSY = """
import threading
import time
from pathlib import Path

def bytes_moved(case): return 8

# Load for as long as the process lives, whoever's turn it is, and a diary of when it ran.
diary = Path("diary").open("w")

def burn():
    while True:
        diary.write(f"{time.monotonic()}\\n")
        diary.flush()
        sum(range(20_000))

threading.Thread(target=burn, daemon=True).start()

def kernel(x): return x * 2
"""

WRITES_TO_THE_PIPE = """
import json, os, stat, struct, sys

def bytes_moved(case): return 8 * case["n"]

calls = 0

def kernel(x):
    global calls
    calls += 1
    if calls == 40:  # within a block
        forged = json.dumps({"seconds": 1e-9}).encode()
        for name in os.listdir("/proc/self/fd"):
            try:
                if int(name) > 2 and os.readlink(f"/proc/self/fd/{name}").startswith("pipe:"):
                    os.write(int(name), struct.pack(">I", len(forged)) + forged)
            except OSError:
                pass
    return x * 2
"""

EXITS = """
import os, sys

def bytes_moved(case): return 8 * case["n"]

def kernel(x):
    print("an illegal address\\nwas read", file=sys.stderr, flush=True)
    os._exit(7)
"""

HANGS = """
import time

def bytes_moved(case): return 8 * case["n"]

def kernel(x): time.sleep(60)
"""


def checkout(folder: Path, ours: str, declaration: str = "") -> Path:
    """A folder with the declaration and the consumer's module."""
    folder.mkdir(parents=True)
    (folder / "bench.py").write_text(declaration or DECLARATION)
    (folder / "ours.py").write_text(ours)
    return folder
