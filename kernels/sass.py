"""What the compiler made of a kernel: registers, spills and instructions, read from machine code with no GPU at hand.

Triton's wheel carries `cuobjdump` and `nvdisasm`; NVRTC and Triton both compile for a GPU that is not there. So what a
kernel claims (tensor cores in use, 16-byte loads, nothing spilled) can be checked on any machine, at every commit.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.baselines.errors import InputError, ServiceError

ARCHITECTURE = 90
_SECONDS = 120
_INSTRUCTION = re.compile(
    r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[0-9T]+\s+)?([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)", re.MULTILINE
)
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)")


@dataclass(frozen=True)
class Disassembly:
    """Counts over one kernel's machine code."""

    registers: int
    """Per thread at entry; a kernel that reallocates (setmaxnreg) holds more or fewer after that."""
    stack_bytes: int
    """Local memory per thread; more than 0 means that something was spilled or indexed at run time."""
    shared_bytes: int
    """Static shared memory per block."""
    instructions: Mapping[str, int]
    """Full mnemonics with their counts, for example `LDG.E.128`."""

    def count(self, prefix: str) -> int:
        """Instructions whose mnemonic is `prefix` or continues it after a dot."""
        return sum(n for name, n in self.instructions.items() if name == prefix or name.startswith(prefix + "."))

    @property
    def spills(self) -> int:
        """Loads and stores of local memory."""
        return self.count("LDL") + self.count("STL")

    def width(self, family: str) -> dict[int, int]:
        """Accesses of a family (`LDG`, `STG`, `LDGSTS`) by width in bits."""
        found: Counter[int] = Counter()
        for name, n in self.instructions.items():
            parts = name.split(".")
            if parts[0] == family:
                wide = [int(part) for part in parts if part in ("64", "128")]
                found[wide[0] if wide else 32] += n
        return dict(sorted(found.items()))

    def attributes(self) -> dict[str, int]:
        """The numbers that go into the evidence."""
        named = {
            "hgmma": "HGMMA",
            "hmma": "HMMA",
            "ldl": "LDL",
            "stl": "STL",
            "tma_loads": "UTMALDG",
            "tma_stores": "UTMASTG",
        }
        found = {"registers": self.registers, "stack_bytes": self.stack_bytes}
        found |= {key: self.count(prefix) for key, prefix in named.items()}
        found["loads_128_bit"] = self.width("LDG").get(128, 0) + self.width("LDGSTS").get(128, 0)
        found["stores_128_bit"] = self.width("STG").get(128, 0)
        return found


def disassemble(cubin: bytes) -> Disassembly:
    """Counts of a cubin with one kernel. Raises `InputError` for bytes that are no cubin of one kernel."""
    if not cubin.startswith(b"\x7fELF"):
        raise InputError("this is no cubin: it does not start as an ELF file.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        usage = _USAGE.findall(_run("cuobjdump", "-res-usage", str(path)))
        listing = _run("nvdisasm", "-c", str(path))
    if len(usage) != 1:
        raise InputError(f"this cubin holds {len(usage)} kernels: disassemble one at a time.")
    registers, stack, shared = map(int, usage[0])
    return Disassembly(registers, stack, shared, dict(Counter(_INSTRUCTION.findall(listing))))


def triton_cubin(
    kernel: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any],
    *,
    warps: int = 4,
    stages: int = 3,
    aligned: bool = True,
    architecture: int = ARCHITECTURE,
) -> bytes:
    """Machine code of a `triton.jit` kernel for a GPU that need not be there.

    `signature`: argument -> type (`*bf16`, `i32`, ...), in order, without the constants. `aligned`: pointers and
    integers are multiples of 16, as they are for ordinary shapes; without this, loads are not vectorised.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = dict(signature) | dict.fromkeys(constants, "constexpr")
    ordered = {name: types[name] for name in kernel.arg_names}
    attributes = {}
    if aligned:
        attributes = {
            (place,): [["tt.divisibility", 16]]
            for place, (_, kind) in enumerate(ordered.items())
            if kind.startswith(("*", "i"))
        }
    values = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, ordered, values, attributes)
    target = GPUTarget("cuda", architecture, 32)
    compiled = triton.compile(source, target=target, options={"num_warps": warps, "num_stages": stages})
    return bytes(compiled.asm["cubin"])


def _run(tool: str, *arguments: str) -> str:
    path = _tool(tool)
    try:
        done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceError(f"{tool} did not run: {error}.") from error
    if done.returncode:
        raise InputError(f"{tool} does not read this file: {done.stderr.strip()[:200] or done.returncode}.")
    return done.stdout


def _tool(name: str) -> str:
    """Path of a disassembler: triton's own copy, or else the one on the PATH."""
    import shutil

    try:
        import triton

        own = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
        if own.is_file():
            return str(own)
    except ImportError:
        pass
    found = shutil.which(name)
    if found is None:
        raise InputError(f"{name} was not found: install triton, whose wheel carries it.")
    return found
