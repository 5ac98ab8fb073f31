"""How a row is spread over threads: the mapping of the CUDA C++ row-wise kernels, decided from the shape alone.

Rows in 16-byte loads take the mapping that was fastest on an H200 (`tuned.json`, written by `make tune-rowwise`); every
other row takes a rule.
"""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

LIMIT = 131_072
"""Longest row, in elements."""
TUNED = Path(__file__).parent / "tuned.json"
_LOAD_BYTES = 16


@dataclass(frozen=True)
class Mapping:
    """Threads and loads of one row. `cluster` blocks share a row; without, a block holds threads / threads_per_row."""

    vector: int
    """Elements of one load."""
    loads: int
    """Loads of each thread."""
    threads: int
    threads_per_row: int
    cluster: int = 1
    prefetch: int = 0
    """Rows that a staying block has on their way; 0: a block does one row and ends."""
    resident: int = 0
    """Where a staying block keeps its part of weight and bias: 1 in registers, 2 in shared memory, 0 nowhere."""
    min_blocks: int = 1
    """Blocks that must fit on a multiprocessor together: it caps the registers of a thread."""
    reread: int = 0
    """Loads in flight of a thread whose row is read again from the caches to be scaled; 0: it waits in registers."""
    read: int = 0
    """Rank of the row's lines in the second-level cache: 0 ordinary, 1 first to leave, 2 last to leave."""
    write: int = 0
    """The same of the result's lines."""
    pinned: int = 0
    """1: lines of weight and bias are the last to leave."""

    @property
    def columns(self) -> int:
        """Longest row that this mapping covers."""
        return self.vector * self.loads * self.threads_per_row * self.cluster

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.threads // self.threads_per_row

    def slots(self, inputs: int, parameters: int) -> int:
        """16-byte-or-less vectors of dynamic shared memory of a block with `inputs` tensors and `parameters` vectors."""
        kept = parameters if self.resident == 2 else 0
        return self.loads * self.threads * (self.prefetch * inputs + kept)


def vector_width(columns: int, itemsize: int, alignment: int) -> int:
    """Elements of the widest load that the row's length and the alignment (bytes, of addresses and strides) allow."""
    width = _LOAD_BYTES // itemsize
    while width > 1 and (columns % width or alignment % (width * itemsize)):
        width //= 2
    return width


def choose(operator: str, columns: int, itemsize: int, vector: int) -> Mapping:
    """The mapping for rows of `columns` elements of `itemsize` bytes in loads of `vector` elements.

    `operator`: `softmax`, `rmsnorm`, `layernorm`, `add_rmsnorm` or `add_layernorm`.
    """
    if vector * itemsize == _LOAD_BYTES:
        power = 1 << max(columns - 1, 1).bit_length()
        found = _tuned().get((operator, itemsize, power))
        if found is not None:
            return found
    return rule(columns, vector)


def rule(columns: int, vector: int) -> Mapping:
    """The mapping without measurements: few loads a thread, then more threads, then a cluster, then more loads."""
    loads_of_row = -(-columns // vector)
    loads = 4 if loads_of_row > 64 else max(1, -(-loads_of_row // 32))
    threads = 1
    while threads * loads < loads_of_row:
        threads *= 2
    if threads <= 512:
        return Mapping(vector, loads, max(threads, 128), max(threads, 8))
    cluster = min(8, threads // 512)
    while cluster * 512 * loads < loads_of_row:
        loads *= 2
    return Mapping(vector, loads, 512, 512, cluster)


def candidates(operator: str, columns: int, itemsize: int) -> list[Mapping]:
    """Mappings that the tuner tries for a power-of-two row: those that fit registers (64 K) and shared memory (227 KB)."""
    vector = _LOAD_BYTES // itemsize
    found = []
    for loads in (1, 2, 4, 8, 16):
        for cluster in (1, 2, 4, 8, 16):
            per_row, rest = divmod(columns // vector, loads * cluster)
            if not rest and 16 <= per_row <= 1024 and (cluster == 1 or per_row >= 256):
                found += _spread(operator, Mapping(vector, loads, max(128, per_row), per_row, cluster), itemsize)
    for narrow in (vector // 2, vector // 4):
        for loads in (2, 4, 8):
            per_row, rest = divmod(columns // narrow, loads)
            if not rest and 16 <= per_row <= 512:
                base = Mapping(narrow, loads, max(128, per_row), per_row)
                found += [mapping for mapping in _spread(operator, base, itemsize) if not mapping.prefetch]
    return found


def _spread(operator: str, base: Mapping, itemsize: int) -> list[Mapping]:
    """A mapping with every way of waiting and storing, each with few and with many blocks on a multiprocessor."""
    inputs = 2 if operator.startswith("add") else 1
    parameters = {"softmax": 0, "rmsnorm": 1, "layernorm": 2}[operator.removeprefix("add_")]
    wide = base.vector * itemsize == _LOAD_BYTES
    words = max(1, base.vector * itemsize // 4) * base.loads
    found = []
    for prefetch, resident, reread in _WAITING:
        kept = parameters if resident == 1 else 0
        mapping = replace(base, prefetch=prefetch, resident=resident, reread=reread)
        shared = base.vector * itemsize * mapping.slots(inputs, parameters)
        if (
            (resident and not parameters)
            or shared > 225_000
            or (prefetch and base.columns * itemsize < 32_768 * min(prefetch, 2))
            or (base.cluster > 1 and not prefetch and not reread)
            or (reread and (not wide or reread > base.loads))
            or (base.loads == 16 and inputs == 2 and not reread)
        ):
            continue
        held = (reread * 4 if reread else words) * inputs
        most = min(65_536 // (max(24, 20 + held + words * kept) * base.threads), 2_048 // base.threads)
        few = min(65_536 // (max(40, 56 + held + words * kept) * base.threads), 2_048 // base.threads)
        fitting = 225_000 // shared if shared else 32
        found += [
            replace(mapping, min_blocks=blocks)
            for blocks in sorted({max(1, min(few, fitting)), max(1, min(2 * few, most, fitting))})
        ]
    return found


def ranked(operator: str, mapping: Mapping) -> list[Mapping]:
    """A mapping with every way of ranking its lines in the second-level cache that the tuner tries."""
    pinned = (0, 1) if operator != "softmax" else (0,)
    return [replace(mapping, read=read, write=write, pinned=pin) for read, write in _RANKS for pin in pinned]


_RANKS = ((0, 0), (1, 0), (1, 1), (1, 2), (0, 1), (0, 2))
"""(read, write)"""
_WAITING = (
    (0, 0, 0),
    *((0, 0, together) for together in (1, 2, 4, 8)),
    *((prefetch, resident, 0) for prefetch in (1, 2, 3) for resident in (0, 1, 2)),
)
"""(prefetch, resident, reread): where a row and its parameters wait."""


@functools.cache
def _tuned() -> dict[tuple[str, int, int], Mapping]:
    entries: list[dict[str, Any]] = json.loads(TUNED.read_text(encoding="utf-8"))["mappings"]
    return {(entry["operator"], entry["itemsize"], entry["columns"]): Mapping(**entry["mapping"]) for entry in entries}


def tuned_text(device: str, measured: list[tuple[str, int, int, Mapping, float]]) -> str:
    """The contents of `tuned.json`: (operator, itemsize, columns, mapping, share of copy bandwidth) of each winner."""
    lines = [
        json.dumps(
            {
                "operator": operator,
                "itemsize": itemsize,
                "columns": columns,
                "copy": round(share, 3),
                "mapping": asdict(m),
            }
        )
        for operator, itemsize, columns, m, share in measured
    ]
    body = ",\n  ".join(lines)
    return f'{{"device": {json.dumps(device)}, "mappings": [\n  {body}\n]}}\n'
