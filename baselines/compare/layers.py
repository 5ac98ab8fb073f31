"""Which layers of a compiled model changed, came or went between two records, and which operators on the host."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from assay.baselines.compare.verdict import PartChange
from assay.baselines.npu import HOST_ROW, LAYER_ROW, MAX_TEXT, Row


@dataclass
class _Sum:
    value: float = 0.0
    """Cycles of a layer, or how often an operator runs on the host."""
    moved: float = 0.0
    detail: str = ""


def changed_parts(base: Iterable[Row], head: Iterable[Row], models: Collection[str]) -> list[PartChange]:
    """Parts of `models` whose cycles, DRAM traffic or number differ.

    Layers are matched by module path and operator, host operators by name. Host operators come first, then layers, the largest
    change of cycles first.
    """
    before, after = _summed(base, models), _summed(head, models)
    found = []
    for key in dict.fromkeys([*after, *before]):
        then, now = before.get(key), after.get(key)
        if then is not None and now is not None and (then.value, then.moved) == (now.value, now.moved):
            continue
        model, kind, label = key
        layer = kind == LAYER_ROW
        found.append(
            PartChange(
                task=model,
                part=label,
                kind=kind,
                base=then.value if then is not None else None,
                head=now.value if now is not None else None,
                base_bytes=then.moved if then is not None and layer else None,
                head_bytes=now.moved if now is not None and layer else None,
                detail=(now or then or _Sum()).detail,
            )
        )
    return sorted(found, key=lambda p: (p.kind != HOST_ROW, -abs((p.head or 0) - (p.base or 0)), p.task, p.part))


def _summed(rows: Iterable[Row], models: Collection[str]) -> dict[tuple[str, str, str], _Sum]:
    found: dict[tuple[str, str, str], _Sum] = {}
    for row in rows:
        if row.model not in models:
            continue
        host = row.kind == HOST_ROW
        one = found.setdefault((row.model, row.kind, row.op if host else row.label), _Sum())
        one.value += 1 if host else row.cycles
        one.moved += row.read_bytes + row.written_bytes
        where = ", at ".join(part for part in (row.why, row.path or row.line.partition(": ")[0]) if part)
        one.detail = one.detail or (where if host else row.line)[:MAX_TEXT]
    return found
