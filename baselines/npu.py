"""Evidence of kind `npu`: what a model compiles to, as exact counts, and its rows, one for each layer and host operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from assay.baselines.errors import InputError

KIND = "npu"
CYCLES = "cycles/"
"""Metric of each compiled model: `cycles/<model>`; so are the other names below."""
LATENCY = "latency/"
"""Estimated, in ms, on a machine that has a clock."""
READ, WRITTEN = "dram-read/", "dram-written/"
VTCM = "vtcm-peak/"
SHARE = "npu-share/"
"""Share of multiply-accumulates on the NPU, a proportion."""
MACS = "macs/"
HOST = "host-operators/"
FAILED = "failed."
"""Attribute of a model that did not compile: why."""
UNSTABLE = "unstable."
"""Attribute of a model whose two compilations differ: how."""
COMPILER = "assay NPU compiler"
"""Name among the environment's libraries: the digest of the compiler's sources."""
LAYER_ROW, HOST_ROW = "layer", "host"
MAX_TEXT = 400

SCHEMA = pa.schema(
    [
        pa.field("model", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("op", pa.string(), nullable=False),
        pa.field("line", pa.string(), nullable=False),
        pa.field("why", pa.string(), nullable=False),
        pa.field("unit", pa.string(), nullable=False),
        pa.field("cycles", pa.int64(), nullable=False),
        pa.field("read_bytes", pa.int64(), nullable=False),
        pa.field("written_bytes", pa.int64(), nullable=False),
        pa.field("macs", pa.int64(), nullable=False),
        pa.field("instructions", pa.int64(), nullable=False),
    ]
)
"""One row per layer (`kind` layer) and per operator on the host (`kind` host, with `why`). Cycles of a model's layers add up to
its cycles. `unit` is the unit that works most for the layer."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    model: str
    kind: str
    path: str
    op: str
    line: str = ""
    why: str = ""
    unit: str = ""
    cycles: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    macs: int = 0
    instructions: int = 0

    @property
    def label(self) -> str:
        """Module path and operator: what a layer is matched by."""
        return f"{self.path} {self.op}" if self.path else self.op


def table(rows: list[Row]) -> pa.Table:
    """Rows as they are kept."""
    columns = {name: [getattr(row, name) for row in rows] for name in SCHEMA.names}
    return pa.table({f.name: pa.array(columns[f.name], type=f.type) for f in SCHEMA}, schema=SCHEMA)


def rows_of(found: pa.Table | None, origin: str) -> Iterator[Row]:
    """The rows of a record. Raises `InputError` for other columns, nulls and counts below zero."""
    if found is None:
        raise InputError(f"{origin} has no table of layers, which a compiled model needs: compile again.")
    if sorted(found.column_names) != sorted(SCHEMA.names):
        raise InputError(f"{origin}: the table has unknown columns: it was written by another version; compile again.")
    try:
        cast = found.select(SCHEMA.names).cast(SCHEMA)
        cast.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise InputError(
            f"{origin}: a column has the wrong type ({' '.join(str(error).split())[:120]}): compile again."
        ) from None
    for column in SCHEMA:
        if cast.column(column.name).null_count:
            raise InputError(f"{origin}: column {column.name!r} has nulls: compile again.")
    columns = [cast.column(name).to_pylist() for name in SCHEMA.names]
    for values in zip(*columns, strict=True):
        row = Row(*values)
        if row.kind not in (LAYER_ROW, HOST_ROW) or min(row.cycles, row.read_bytes, row.written_bytes, row.macs) < 0:
            raise InputError(f"{origin}: a row is no layer and no host operator, or counts below zero: compile again.")
        yield row
