"""The rows of an evaluation: one row per example and metric, whatever harness produced them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from assay.baselines.errors import InputError

KIND = "evaluation"
TEXT_LIMIT = 160

SCHEMA = pa.schema(
    [
        pa.field("task", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("metric", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("filter", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("item", pa.binary(16), nullable=False),
        pa.field("occurrence", pa.int32(), nullable=False),
        pa.field("doc_id", pa.int64()),
        pa.field("score", pa.float64(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("cluster", pa.dictionary(pa.int32(), pa.string())),
        pa.field("response", pa.binary(8)),
        pa.field("answer", pa.string()),
        pa.field("margin", pa.float32()),
        pa.field("text", pa.string()),
    ]
)
"""Columns of an evaluation table.

`item` names the example by content (`item_key`), `occurrence` tells apart exact duplicates (MMLU's test set has 105),
`doc_id` is the harness's own number, for people. `score` is 0/1, a bounded score, or a log-likelihood in nats;
`weight` is 1, or the words or tokens of a document. `response` digests what the model returned, so that bit-identical
answers can be told from equal scores. `answer`, `margin` (nats between the best answer and the next) and `text` are for
the list of changed examples.
"""


def item_key(arguments: Any, target: Any) -> bytes:
    """16 bytes that name an example by all of its arguments and its target (JSON values), stable across processes."""
    hasher = hashlib.sha256()
    for part in (arguments, target):
        encoded = part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode()
        hasher.update(len(encoded).to_bytes(8, "big"))
        hasher.update(encoded)
    return hasher.digest()[:16]


def response_key(response: Any) -> bytes:
    """8 bytes that differ when the model's raw response differs in any bit (`repr` of a float is exact)."""
    return hashlib.sha256(repr(response).encode("utf-8", "surrogatepass")).digest()[:8]


def metric_key(task: str, metric: str, filter_name: str = "none") -> str:
    """Key of a series in `Evidence.metrics`: `task/metric`, with `@filter` when the harness filtered the responses."""
    return f"{task}/{metric}" if filter_name in ("", "none") else f"{task}/{metric}@{filter_name}"


def number_occurrences(keys: Iterable[bytes]) -> list[int]:
    """0 for the first row with a key, 1 for the second, and so on, in the order given."""
    seen: dict[bytes, int] = {}
    numbers = []
    for key in keys:
        number = seen.get(key, 0)
        seen[key] = number + 1
        numbers.append(number)
    return numbers


def preview(text: str) -> str:
    """The start of an example's text on one line, at most `TEXT_LIMIT` characters."""
    line = " ".join(text[: 4 * TEXT_LIMIT].split())
    return line if len(line) <= TEXT_LIMIT else line[: TEXT_LIMIT - 1].rstrip() + "…"


def check_rows(rows: pa.Table | None, origin: str) -> pa.Table:
    """The table cast to `SCHEMA`.

    Raises `InputError` for missing or unknown columns, nulls where none may be, and non-finite scores or weights: a
    model that answers NaN has failed, it has not scored badly.
    """
    if rows is None:
        raise InputError(f"{origin} has no table of examples, which an evaluation needs: evaluate again.")
    names = set(SCHEMA.names)
    unknown = sorted(set(rows.column_names) - names)
    missing = sorted(names - set(rows.column_names))
    if unknown or missing or len(rows.column_names) != len(names):
        detail = (
            f"unknown column {unknown[0][:60]!r}"
            if unknown
            else f"no column {missing[0]!r}"
            if missing
            else "a column twice"
        )
        raise InputError(f"{origin}: the table has {detail}: it was written by another version; evaluate again.")
    try:
        table = rows.select(SCHEMA.names).cast(SCHEMA)
        table.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise InputError(
            f"{origin}: a column has the wrong type ({' '.join(str(error).split())[:120]}): evaluate again."
        ) from None
    for field in SCHEMA:
        if not field.nullable and _has_nulls(table.column(field.name)):
            raise InputError(f"{origin}: column {field.name!r} has nulls: evaluate again.")
    scores, weights = column_numpy(table, "score"), column_numpy(table, "weight")
    bad = ~np.isfinite(scores)
    if bad.any():
        raise InputError(
            f"{origin}: {int(bad.sum()):,} of {len(scores):,} scores are not finite numbers: the model or harness failed; "
            "a failure is not a score."
        )
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise InputError(f"{origin}: a weight is not a positive number: evaluate again.")
    return table


def _has_nulls(column: pa.ChunkedArray) -> bool:
    """Whether a value is missing: no index, or an index of a null among the values of a dictionary."""
    if column.null_count:
        return True
    return pa.types.is_dictionary(column.type) and any(
        chunk.dictionary.null_count and chunk.dictionary_decode().null_count for chunk in column.chunks
    )


def column_numpy(table: pa.Table, name: str) -> np.ndarray[Any, Any]:
    """A numeric column as one NumPy array."""
    array: np.ndarray[Any, Any] = table.column(name).combine_chunks().to_numpy(zero_copy_only=False)
    return array


def finite(value: float, what: str) -> float:
    """`value`, or an `InputError` that names what is not finite."""
    if not math.isfinite(value):
        raise InputError(f"{what} is {value}: the model or harness failed; a failure is not a score.")
    return value
