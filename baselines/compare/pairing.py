"""Pairing the rows of two evaluations example by example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from assay.baselines.errors import InputError
from assay.baselines.evaluation import column_numpy

IntArray = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Series:
    """The rows of one record that a set of (task, metric, filter) series selects, as plain columns."""

    codes: IntArray
    """Series number of each row."""
    positions: IntArray
    """Row number in the record's table."""
    items: np.ndarray[Any, np.dtype[np.uint64]]
    """(rows, 2): the 16 key bytes as two words."""
    occurrences: IntArray


@dataclass(frozen=True)
class Pairs:
    """Rows of base and head that belong together, ordered by series."""

    codes: IntArray
    base: IntArray
    head: IntArray
    missing_in_base: dict[int, int]
    missing_in_head: dict[int, int]
    """Series number -> examples that only the other side has."""


SeriesName = tuple[str, str, str]


def series_names(table: pa.Table) -> dict[SeriesName, int]:
    """The distinct (task, metric, filter) of a table with their row counts."""
    combined, names = _combined_codes(table)
    counts = np.bincount(combined, minlength=len(names))
    return {name: int(count) for name, count in zip(names, counts, strict=True) if count}


def select(table: pa.Table, wanted: dict[SeriesName, int]) -> Series:
    """The rows whose series is in `wanted` (name -> number)."""
    combined, names = _combined_codes(table)
    numbers = np.array([wanted.get(name, -1) for name in names], dtype=np.int64)
    codes = numbers[combined] if len(names) else np.empty(0, np.int64)
    positions = np.flatnonzero(codes >= 0)
    return Series(
        codes[positions],
        positions,
        _item_words(table)[positions],
        column_numpy(table, "occurrence").astype(np.int64)[positions],
    )


def pair(base: Series, head: Series, names: dict[int, SeriesName]) -> Pairs:
    """Join two selections on (series, item, occurrence).

    One sort of both sides together: equal neighbours from different sides are a pair, equal neighbours from one side
    are a duplicate (`InputError`), and what is left over is missing on the other side.
    """
    split = len(base.codes)
    codes = np.concatenate([base.codes, head.codes])
    if _same_order(base, head):
        _refuse_duplicates_in(base, names)
        order = np.argsort(base.codes, kind="stable")
        return Pairs(base.codes[order], base.positions[order], head.positions[order], {}, {})
    items = np.concatenate([base.items, head.items])
    occurrences = np.concatenate([base.occurrences, head.occurrences])
    side = np.repeat(np.array([0, 1], dtype=np.int8), [split, len(head.codes)])
    order = np.lexsort((side, occurrences, items[:, 1], items[:, 0], codes))
    codes, items, occurrences, side = codes[order], items[order], occurrences[order], side[order]
    same = (codes[1:] == codes[:-1]) & (items[1:] == items[:-1]).all(axis=1) & (occurrences[1:] == occurrences[:-1])
    double = same & (side[1:] == side[:-1])
    if double.any():
        first = int(np.flatnonzero(double)[0])
        _raise_duplicate(names[int(codes[first])], int(double.sum()), "base" if side[first] == 0 else "head")
    paired = np.zeros(len(codes), dtype=bool)
    paired[:-1] |= same
    paired[1:] |= same
    firsts = np.flatnonzero(same)
    positions = np.concatenate([base.positions, head.positions])[order]
    return Pairs(
        codes[firsts],
        positions[firsts],
        positions[firsts + 1],
        _count(codes[~paired & (side == 1)]),
        _count(codes[~paired & (side == 0)]),
    )


def _same_order(base: Series, head: Series) -> bool:
    return (
        len(base.codes) == len(head.codes)
        and np.array_equal(base.codes, head.codes)
        and np.array_equal(base.occurrences, head.occurrences)
        and np.array_equal(base.items, head.items)
    )


def _refuse_duplicates_in(series: Series, names: dict[int, SeriesName]) -> None:
    order = np.lexsort((series.occurrences, series.items[:, 1], series.items[:, 0], series.codes))
    codes, items, occurrences = series.codes[order], series.items[order], series.occurrences[order]
    same = (codes[1:] == codes[:-1]) & (items[1:] == items[:-1]).all(axis=1) & (occurrences[1:] == occurrences[:-1])
    if same.any():
        _raise_duplicate(names[int(codes[int(np.flatnonzero(same)[0])])], int(same.sum()), "both base and head")


def _raise_duplicate(name: SeriesName, count: int, side: str) -> None:
    raise InputError(
        f"{side} has {count:,} duplicate example ids, the first in {name[0]} ({name[1]}): each example must occur once; "
        "number exact duplicates by occurrence, or remove them."
    )


def _count(codes: IntArray) -> dict[int, int]:
    values, counts = np.unique(codes, return_counts=True)
    return {int(value): int(count) for value, count in zip(values, counts, strict=True)}


def _combined_codes(table: pa.Table) -> tuple[IntArray, list[SeriesName]]:
    """One number per row for its (task, metric, filter), and the name of each number."""
    combined = np.zeros(table.num_rows, dtype=np.int64)
    names: list[tuple[str, ...]] = [()]
    for column in ("task", "metric", "filter"):
        codes, values = dictionary_codes(table, column)
        combined = combined * max(len(values), 1) + codes
        names = [(*name, value) for name in names for value in values]
        # Keep the numbering dense, so that 57 tasks x 10 metrics x filters never multiplies out.
        present, combined = np.unique(combined, return_inverse=True)
        names = [names[int(number)] for number in present]
    return combined, [(name[0], name[1], name[2]) for name in names]


def dictionary_codes(table: pa.Table, column: str) -> tuple[IntArray, list[str]]:
    """Codes (-1 for null) and values of a dictionary column."""
    array = table.column(column).unify_dictionaries().combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], type=array.type)
    codes = array.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    values = array.dictionary.to_pylist()
    if len(set(values)) == len(values) and None not in values:
        return codes, values
    # A foreign writer may have put a value twice, or null, among the values: one name must be one code.
    once = {value: i for i, value in enumerate(dict.fromkeys(v for v in values if v is not None))}
    lookup = np.array([*(once.get(value, -1) for value in values), -1], dtype=np.int64)
    return lookup[codes], list(once)


def _item_words(table: pa.Table) -> np.ndarray[Any, np.dtype[np.uint64]]:
    array = table.column("item").combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], type=array.type)
    if not len(array):
        return np.empty((0, 2), np.uint64)
    stop = array.offset + len(array)
    return np.frombuffer(array.buffers()[1], dtype=np.uint64, count=2 * stop).reshape(-1, 2)[array.offset :]
