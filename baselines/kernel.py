"""Evidence of kind `kernel`: the rows of a benchmark, its names, and why a time is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from assay.baselines.errors import InputError

KIND = "kernel"
MAX_CASES = 1_000
MAX_BLOCKS = 100_000
"""Of one arm on one case: far more than any interval needs, and few enough to be resampled."""
LATENCY = "latency/"
"""Metric of each timed case: `latency/<case>`, microseconds per launch."""
CONTRACT = "contract."
"""Attribute of each case of the contract: true or false."""
REFUSED = "refused."
"""Attribute of a case whose time is refused: one of `REFUSALS`."""
LEASE = "lease"
"""Attribute that base and head of one run share: only then are their blocks pairs."""
STANDS_STILL = "arms_stand_still"
"""Attribute: whether every arm was seen to stand still while another was timed."""
NORM = "norm."
"""Attribute of each timed case: norm of the reference's result on the same inputs."""

BUSY = "busy"
"""The one refusal that accuses nobody: it voids the time."""
REFUSALS = {
    "wrong-output": "a launch of a timed block gave a wrong output, although the contract had passed",
    "input-mutated": "a timed launch changed an input that it does not declare to write",
    "other-inputs": "some timed blocks had other inputs than the base's, from the same seed",
    "late-work": "work went on after its time had been taken",
    "patched": "a function that measures or judges was exchanged",
    "clock": "the times that the kernel's process reported do not fit the coordinator's clock",
    BUSY: "others held the processor, so that its clock cannot be told from a slowed one",
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
    for column in SCHEMA:
        if not column.nullable and table.column(column.name).null_count:
            raise InputError(f"{origin}: column {column.name!r} has nulls: measure again.")
    seconds = column_numpy(table, "seconds")
    if not (np.isfinite(seconds) & (seconds > 0)).all():
        raise InputError(f"{origin}: a time is not a positive number: measure again.")
    return table


def column_numpy(table: pa.Table, name: str) -> np.ndarray[Any, Any]:
    """A numeric column as one NumPy array."""
    array: np.ndarray[Any, Any] = table.column(name).combine_chunks().to_numpy(zero_copy_only=False)
    return array


@dataclass(frozen=True)
class Series:
    """The blocks of one arm on one case."""

    seconds: dict[int, float] = field(default_factory=dict)
    """Block -> seconds per launch."""
    rounds: dict[int, int] = field(default_factory=dict)
    """Block -> the round of fresh processes that it belongs to."""


def series_of(table: pa.Table) -> dict[tuple[str, str], Series]:
    """(case, arm) -> its blocks. Raises `InputError` when a block occurs twice, and over the limits on cases and blocks."""
    found: dict[tuple[str, str], Series] = {}
    columns = (table.column(name).to_pylist() for name in ("case", "arm", "block", "round", "seconds"))
    for case, arm, block, turn, seconds in zip(*columns, strict=True):
        series = found.get((case, arm))
        if series is None:
            if len(found) >= 3 * MAX_CASES:
                raise InputError(f"the table has over {MAX_CASES:,} cases: measure fewer at a time.")
            series = found[case, arm] = Series()
        if block in series.seconds:
            raise InputError(f"block {block} of {case[:60]} occurs twice: measure again.")
        if len(series.seconds) >= MAX_BLOCKS:
            raise InputError(f"{case[:60]} has over {MAX_BLOCKS:,} blocks: measure fewer.")
        series.seconds[block], series.rounds[block] = seconds, turn
    return found
