"""What every reader of foreign results returns, and the checks that they share."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.baselines.errors import InputError
from assay.baselines.evidence import Scalar
from assay.baselines.record import MAX_ROWS
from assay.quant.plan import MetricPlan, Row, Scale, TaskPlan

MAX_FILE_BYTES = 4 << 30


@dataclass(frozen=True)
class Results:
    """Rows as a harness left them, and the tasks that they belong to."""

    format: str
    rows: list[Row]
    tasks: tuple[TaskPlan, ...]
    subject: str = ""
    facts: Mapping[str, Scalar] = field(default_factory=dict)


def judge_scale(
    scores: Sequence[float], bounds: tuple[float, float] | None, where: str
) -> tuple[Scale, float | None, float | None]:
    """Scale of a metric from its scores: binary when all are 0 or 1, else bounded by the declared range, else by [0, 1].

    Raises `InputError` when scores leave that range: a range taken from the scores of one side would not be the same
    on the other, and tests on bounded scores need one that was known before.
    """
    if bounds is None and all(score in (0.0, 1.0) for score in scores):
        return "binary", None, None
    low, high = bounds or (0.0, 1.0)
    worst = next((score for score in scores if not low <= score <= high), None)
    if worst is not None:
        told = "the declared range" if bounds else "[0, 1]"
        raise InputError(
            f"{where} has a score of {worst:g}, outside {told}: give the range that scores can have with --low and"
            " --high."
        )
    return "bounded", low, high


def number(value: Any, where: str) -> float:
    """A finite number, or `InputError`."""
    try:
        if isinstance(value, bool) or value is None:
            raise TypeError
        found = float(value)
    except (TypeError, ValueError):
        raise InputError(
            f"{where} is {str(value)[:40]!r}, not a number: correct it or leave the example out on both sides."
        ) from None
    if not math.isfinite(found):
        raise InputError(f"{where} is {found}: a failed example is not a score; measure it again.")
    return found


def tasks_of(rows: Sequence[Row], metrics: Mapping[str, Sequence[MetricPlan]]) -> tuple[TaskPlan, ...]:
    """The tasks of the rows, with the given metrics."""
    examples: dict[str, set[int]] = {}
    for row in rows:
        examples.setdefault(row.task, set()).add(row.doc_id)
    return tuple(TaskPlan(name, len(docs), tuple(metrics[name])) for name, docs in examples.items())


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of a JSON-lines file. Raises `InputError` with the line for anything else."""
    check_size(path)
    try:
        with path.open(encoding="utf-8") as lines:
            for count, line in enumerate(lines, 1):
                if count > MAX_ROWS:
                    raise InputError(f"{path} has more than {MAX_ROWS:,} lines: split it.")
                if line.strip():
                    yield count, parse_object(line, f"{path}, line {count},")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text: give the harness's own file, not a compressed or binary one.") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None


def parse_object(text: str | bytes, where: str) -> dict[str, Any]:
    """A JSON object, or `InputError`. NaN is let through here, so that its example can be named."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(
            f"{where} is not valid JSON: the file is truncated or of another format; fetch it again."
        ) from None
    if not isinstance(found, dict):
        raise InputError(f"{where} is JSON but not an object: is it the file of another tool?")
    return found


def check_size(path: Path) -> None:
    """Refuse a file that no memory would hold."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
    if size > MAX_FILE_BYTES:
        raise InputError(f"{path} is {size:,} bytes; assay reads at most {MAX_FILE_BYTES:,}: split it.")
    if size == 0:
        raise InputError(f"{path} is empty: was the evaluation interrupted?")
