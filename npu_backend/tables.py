"""The tables of the documentation, made from the registries that the compiler itself uses."""

from __future__ import annotations

from collections.abc import Iterable

import assay.npu_backend.rules  # noqa: F401 (registers the rules)
from assay.npu_backend.fusion import PASSES
from assay.npu_backend.isa import INSTRUCTIONS
from assay.npu_backend.lowering import RULES


def instructions() -> str:
    """Opcode, operands, functions, meaning."""
    rows = []
    for opcode, kind in INSTRUCTIONS.items():
        functions = ", ".join(getattr(kind, "FUNCTIONS", ()))
        meaning = " ".join((kind.__doc__ or "").split())
        rows.append((f"`{opcode}`", ", ".join(kind.OPERANDS), functions, meaning.replace("|", "\\|")))
    return _table(("instruction", "operands", "functions", "meaning"), rows)


def rules() -> str:
    """Operator, instructions, what stays on the host."""
    rows = []
    for op in sorted(RULES):
        found = RULES[op]
        given = ", ".join(f"`{opcode}`" for opcode in found.gives) or "none: the same tensor"
        rows.append((f"`{op}`", given, found.limits or "nothing"))
    return _table(("operator", "instructions", "left to the host"), rows)


def passes() -> str:
    """Pass and rewrite, in order."""
    return _table(("pass", "rewrite"), [(f"`{made.name}`", made.what) for made in PASSES])


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


TABLES = {"instructions": instructions, "rules": rules, "passes": passes}
"""Name of a table in the page -> what writes it."""
