"""A program: its tensors and instructions, as exact JSON and as the printed form that people read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from assay.baselines.errors import InputError
from assay.npu_backend.isa import INSTRUCTIONS, Instruction, LoadTile, MatMul, StoreTile
from assay.npu_backend.tensor import Role, Space, Tensor

VERSION = 1
MEBIBYTE = 1 << 20
_MAX_BYTES = 256 * MEBIBYTE


@dataclass(frozen=True)
class Program:
    """Instructions in order, and the tensors that they name."""

    name: str
    tensors: Mapping[str, Tensor]
    instructions: tuple[Instruction, ...]
    symbols: Mapping[int, str] = field(default_factory=dict)
    """Sizes that stand for a dynamic dimension, for the printed form: size -> letter."""

    def of_role(self, role: Role) -> list[Tensor]:
        """Tensors of a role, in the order of the table."""
        return [tensor for tensor in self.tensors.values() if tensor.role == role]


def dump_program(program: Program) -> str:
    """Versioned JSON; `parse_program` gives the same program back."""
    document = {
        "version": VERSION,
        "name": program.name,
        "symbols": {str(size): letter for size, letter in program.symbols.items()},
        "tensors": [
            {"name": t.name, "shape": list(t.shape), "dtype": t.dtype, "role": t.role.value}
            | ({"storage": t.storage} if t.storage else {})
            for t in program.tensors.values()
        ],
        "instructions": [
            {"opcode": i.OPCODE, **{f.name: getattr(i, f.name) for f in fields(i)}} for i in program.instructions
        ],
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def parse_program(text: str, *, origin: str = "the program") -> Program:
    """Reads a program strictly.

    Raises `InputError` with one line for text that is no JSON, too large, of another version, or has unknown or missing
    fields or fields of another kind. It does not validate what the program does: `validation.validate` does.
    """
    if len(text) > _MAX_BYTES:
        raise InputError(f"{origin} is over {_MAX_BYTES // MEBIBYTE} MB: it was not written by assay compile.")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{origin} is no JSON ({error}): write it again with assay compile.") from None
    if not isinstance(document, dict) or document.get("version") != VERSION:
        found = document.get("version") if isinstance(document, dict) else None
        raise InputError(f"{origin} has version {found!r}; this assay reads version {VERSION}: compile it again.")
    try:
        tensors = [_tensor(entry) for entry in document["tensors"]]
        if len({t.name for t in tensors}) != len(tensors):
            raise InputError(f"{origin} has two tensors of one name: compile it again.")
        return Program(
            str(document["name"]),
            {t.name: t for t in tensors},
            tuple(_instruction(entry) for entry in document["instructions"]),
            {int(size): str(letter) for size, letter in document["symbols"].items()},
        )
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{origin} is damaged ({type(error).__name__}: {error}): compile it again.") from None


def _tensor(entry: Mapping[str, Any]) -> Tensor:
    if set(entry) - {"storage"} != {"name", "shape", "dtype", "role"} or not isinstance(entry["name"], str):
        raise InputError(f"a tensor has the fields {', '.join(sorted(entry))}: compile the program again.")
    return Tensor(entry["name"], tuple(entry["shape"]), entry["dtype"], Role(entry["role"]), entry.get("storage", ""))


def _instruction(entry: Mapping[str, Any]) -> Instruction:
    kind = INSTRUCTIONS.get(entry["opcode"])
    if kind is None:
        raise InputError(f"there is no instruction {str(entry['opcode'])[:40]!r} among the {len(INSTRUCTIONS)}.")
    names = {f.name for f in fields(kind)}
    if set(entry) - {"opcode"} != names:
        raise InputError(f"{kind.OPCODE} has the fields {', '.join(sorted(names))}, not {', '.join(sorted(entry))}.")
    return kind(**{name: _frozen(entry[name]) for name in names})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def print_program(program: Program, *, cycles: int | None = None, peak: int | None = None, capacity: int = 0) -> str:
    """The printed form, one line per instruction, in the specification's format.

    `cycles` and `peak` (bytes of VTCM) come from the simulator, `capacity` is the machine's VTCM in bytes.
    """
    lines = ["NPU_PROGRAM:"]
    producer: dict[str, str] = {}
    for instruction in program.instructions:
        lines.append("  " + _line(program, instruction, producer))
        producer[instruction.out] = instruction.OPCODE if not instruction.fused else producer[instruction.reads()[0]]
    if cycles is not None:
        lines.append(f"Estimated cycles: {cycles:,}")
    if peak is not None:
        lines.append(f"VTCM peak: {peak / MEBIBYTE:.1f} MB / {capacity // MEBIBYTE} MB capacity")
    return "\n".join(lines) + "\n"


def _line(program: Program, i: Instruction, producer: Mapping[str, str]) -> str:
    out = _shown(program, i.out)
    if isinstance(i, LoadTile):
        place = "VTCM " if program.tensors[i.source].space == Space.VTCM else ""
        return f"LOAD_TILE {place}{_boxed(program, i.source, i.ranges)} → VTCM {i.out}" + (
            " (in place)" if place else ""
        )
    if isinstance(i, StoreTile):
        kept = program.tensors[i.out].space == Space.VTCM
        target = f"{'VTCM' if kept else 'DRAM'} {_boxed(program, i.out, i.ranges)}"
        return f"STORE_TILE {i.source} → {target}" + (" (in place)" if kept else "")
    if isinstance(i, MatMul):
        more = "".join(f" + {name}" for name in (i.bias, i.accumulate) if name)
        turned = "ᵀ" if i.transpose_b else ""
        return f"MATMUL {_shown(program, i.a)} × {_shown(program, i.b)}{turned}{more} → {out}"
    reads = ", ".join(_shown(program, name) for name in i.reads())
    extra = ", ".join(f"{key}={_plain(value)}" for key, value in i.attributes().items() if value not in (None, (), ""))
    note = f"  (fused with {producer[i.reads()[0]]})" if i.fused else ""
    return f"{i.OPCODE} {reads} → {out}" + (f"  {extra}" if extra else "") + note


def _shown(program: Program, name: str) -> str:
    tensor = program.tensors[name]
    place = "VTCM " if tensor.space == Space.VTCM else ""
    return f"{place}{name}[{_sizes(program, tensor.shape)}]"


def _boxed(program: Program, name: str, ranges: Iterable[tuple[int, int]]) -> str:
    tensor = program.tensors[name]
    whole = all(box == (0, size) for box, size in zip(ranges, tensor.shape, strict=True))
    inside = _sizes(program, tensor.shape) if whole else ",".join(f"{start}:{stop}" for start, stop in ranges)
    return f"{name}[{inside}]"


def _sizes(program: Program, shape: Iterable[int]) -> str:
    return ",".join(program.symbols.get(size, str(size)) for size in shape)


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ",".join(_plain(item) for item in value[:6]) + (",…" if len(value) > 6 else "") + "]"
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
