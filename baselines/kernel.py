"""Evidence of kind `kernel`: the rows of a benchmark, its names, and why a time is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from assay.baselines.errors import InputError

KIND = "kernel"
LATENCY = "latency/"
"""Metric of each timed case: `latency/<case>`, microseconds per launch."""
CONTRACT = "contract."
"""Attribute of each case of the contract: true or false."""
REFUSED = "refused."
"""Attribute of a case whose time is refused: one of `REFUSALS`."""
LEASE = "lease"
"""Attribute that base and head of one run share: only then are their blocks pairs."""
NORM = "norm."
"""Attribute of each timed case: norm of the reference's result on the same inputs."""

REFUSALS = {
    "wrong-output": "a launch of a timed block gave a wrong output, although the contract had passed",
    "input-mutated": "a timed launch changed an input that it does not declare to write",
    "late-work": "work went on after its time had been taken",
    "patched": "a function that measures or judges was exchanged",
    "clock": "the times that the kernel's process reported do not fit the coordinator's clock",
    "roofline": "it claims to be faster than this machine can move its bytes or do its operations",
    "pipe": "it wrote to the pipe of the results",
}
"""Code -> what it means, in our words: evidence carries the code alone."""

SCHEMA = pa.schema(
    [
        pa.field("case", pa.string(), nullable=False),
        pa.field("block", pa.int32(), nullable=False),
        pa.field("round", pa.int32(), nullable=False),
        pa.field("arm", pa.string(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("launches", pa.int32(), nullable=False),
        pa.field("wall", pa.float64(), nullable=False),
        pa.field("clock_mhz", pa.float64()),
        pa.field("throttled", pa.bool_()),
    ]
)
"""One row per block and arm. Blocks are numbered over all rounds; each `round` had processes of its own. `seconds` is per
launch by the worker's clock, `wall` of the whole block by the coordinator's; `position` is the arm's turn within the block;
clock and throttle state are null where nothing tells."""


def check_rows(rows: pa.Table | None, origin: str) -> pa.Table:
    """The table cast to `SCHEMA`. Raises `InputError` for other columns, nulls, and times that are not positive."""
    if rows is None:
        raise InputError(f"{origin} has no table of blocks, which a kernel needs: measure again.")
    if sorted(rows.column_names) != sorted(SCHEMA.names):
        raise InputError(f"{origin}: the table has unknown columns: it was written by another version; measure again.")
    try:
        table = rows.select(SCHEMA.names).cast(SCHEMA)
        table.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise InputError(
            f"{origin}: a column has the wrong type ({' '.join(str(error).split())[:120]}): measure again."
        ) from None
    for field in SCHEMA:
        if not field.nullable and table.column(field.name).null_count:
            raise InputError(f"{origin}: column {field.name!r} has nulls: measure again.")
    seconds = column_numpy(table, "seconds")
    if not (np.isfinite(seconds) & (seconds > 0)).all():
        raise InputError(f"{origin}: a time is not a positive number: measure again.")
    return table


def column_numpy(table: pa.Table, name: str) -> np.ndarray[Any, Any]:
    """A numeric column as one NumPy array."""
    array: np.ndarray[Any, Any] = table.column(name).combine_chunks().to_numpy(zero_copy_only=False)
    return array


def rounds_of(table: pa.Table, case: str, arm: str) -> dict[int, int]:
    """Block -> its round, for an arm on a case."""
    columns = (table.column(c).to_pylist() for c in ("case", "block", "arm", "round"))
    return {block: turn for name, block, who, turn in zip(*columns, strict=True) if name == case and who == arm}


def times_of(table: pa.Table, case: str, arm: str) -> dict[int, float]:
    """Block -> seconds per launch of an arm on a case. Raises `InputError` when a block occurs twice."""
    found: dict[int, float] = {}
    for name, block, who, seconds in zip(
        *(table.column(c).to_pylist() for c in ("case", "block", "arm", "seconds")), strict=True
    ):
        if name == case and who == arm and found.setdefault(block, seconds) is not seconds:
            raise InputError(f"block {block} of {case[:60]} occurs twice: measure again.")
    return found
