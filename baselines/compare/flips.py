"""The examples whose answer changed, those that say most first."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from assay.baselines.compare.pairing import IntArray
from assay.baselines.compare.verdict import MAX_FLIPS, Flip

Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]


def list_flips(
    base: pa.Table, head: pa.Table, base_rows: IntArray, head_rows: IntArray, broke: Flags, limit: int = MAX_FLIPS
) -> list[Flip]:
    """At most `limit` broken and `limit` fixed examples out of the given pairs of rows, of which `broke` says which broke.

    Ordered by how sure both models were (the smaller of the two margins, largest first): a flip between two confident
    answers is a change of the model, one between two near ties is noise.
    """
    flips: list[Flip] = []
    sureness = np.minimum(_margins(base, base_rows), _margins(head, head_rows))
    for wanted in (True, False):
        chosen = np.flatnonzero(broke == wanted)
        chosen = chosen[np.argsort(-sureness[chosen], kind="stable")][:limit]
        flips += _read(base, head, base_rows[chosen], head_rows[chosen], wanted)
    return flips


def _margins(table: pa.Table, rows: IntArray) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = table.column("margin").take(pa.array(rows)).to_numpy().astype(np.float64)
    sureness: np.ndarray[tuple[int], np.dtype[np.float64]] = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    return sureness


def _read(base: pa.Table, head: pa.Table, base_rows: IntArray, head_rows: IntArray, broke: bool) -> list[Flip]:
    columns = ["task", "doc_id", "occurrence", "item", "text", "answer", "margin"]
    left = base.select(columns).take(pa.array(base_rows)).to_pylist()
    right = head.select(columns).take(pa.array(head_rows)).to_pylist()
    return [
        Flip(
            task=b["task"],
            broke=broke,
            example=f"#{h['doc_id']}" if h["doc_id"] is not None else h["item"].hex()[:12],
            text=h["text"] or b["text"] or "",
            base_answer=b["answer"] or "",
            base_margin=b["margin"],
            head_answer=h["answer"] or "",
            head_margin=h["margin"],
        )
        for b, h in zip(left, right, strict=True)
    ]
