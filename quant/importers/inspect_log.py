"""Logs of Inspect AI: `.eval` (a ZIP of JSON files, usually compressed with Zstandard) and `.json`.

Read without the inspect_ai package. Python's zipfile knows Zstandard from 3.14 on, so the members are unpacked with
Arrow's codec here.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from assay.baselines.errors import InputError
from assay.baselines.evaluation import item_key, preview, response_key
from assay.baselines.evidence import Scalar
from assay.quant.importers.results import Results, check_size, judge_scale, number, parse_object, tasks_of
from assay.quant.plan import MetricPlan, Row

_ZSTANDARD = 93
_MEMBER_LIMIT = 256 << 20
_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}

Document = tuple[dict[str, Any], Iterator[dict[str, Any]]]


def read(source: Path, bounds: tuple[float, float] | None = None) -> Results:
    """Rows of a log, or of all logs in a folder (one per task).

    A sample of several epochs is one row with the mean of its scores. Letters are scores as Inspect counts them: C 1,
    I and N 0, P 0.5.
    """
    files = sorted([*source.glob("*.eval"), *source.glob("*.json")]) if source.is_dir() else [source]
    rows: list[Row] = []
    metrics: dict[str, list[MetricPlan]] = {}
    facts: dict[str, Scalar] = {}
    models: dict[str, Path] = {}
    for path in files:
        header, samples = _open(path)
        task, model = _identify(header, path)
        if task in metrics:
            raise InputError(f"{source} has two logs of task {task}: give the log itself.")
        models.setdefault(model, path)
        found, plans = _read_samples(task, samples, path, bounds)
        rows += found
        metrics[task] = plans
        facts |= {f"inspect.{task}.packages": str(header["eval"].get("packages", ""))[:200]}
    if len(models) > 1:
        raise InputError(
            f"{source} has logs of different models ({', '.join(list(models)[:3])}): give the logs of one."
        )
    return Results("inspect log", rows, tasks_of(rows, metrics), next(iter(models), ""), facts)


def _identify(header: Mapping[str, Any], path: Path) -> tuple[str, str]:
    facts = header.get("eval")
    if not isinstance(facts, Mapping) or "task" not in facts or "status" not in header:
        raise InputError(f"{path} is not an Inspect AI log: it has no 'eval' and 'status'.")
    if header["status"] != "success":
        raise InputError(
            f"{path} has status {str(header['status'])[:20]!r}: the evaluation did not finish; run it again."
        )
    return str(facts["task"]), str(facts.get("model", ""))


def _read_samples(
    task: str, samples: Iterator[dict[str, Any]], path: Path, bounds: tuple[float, float] | None
) -> tuple[list[Row], list[MetricPlan]]:
    epochs: dict[str, list[dict[str, Any]]] = {}
    seen: set[tuple[str, int]] = set()
    for sample in samples:
        identity, epoch = str(sample.get("id")), int(sample.get("epoch", 1))
        if (identity, epoch) in seen:
            raise InputError(f"{path} has sample {identity[:60]} twice in epoch {epoch}: give its samples unique ids.")
        seen.add((identity, epoch))
        if sample.get("error"):
            raise InputError(
                f"{path}: sample {identity[:60]} failed: an error is not a score; run the evaluation again."
            )
        epochs.setdefault(identity, []).append(sample)
    if not epochs:
        raise InputError(f"{path} has no samples: was it written with --no-log-samples?")
    names = list(
        dict.fromkeys(name for group in epochs.values() for sample in group for name in sample.get("scores") or {})
    )
    if not names:
        raise InputError(f"{path} has no scores: run `inspect score` on it first.")
    rows = [
        _row(task, name, doc_id, group, path)
        for doc_id, (_, group) in enumerate(sorted(epochs.items()))
        for name in names
    ]
    plans = []
    for index, name in enumerate(names):
        scores = [row.score for row in rows if row.metric == name]
        scale, low, high = judge_scale(scores, bounds, f"{path}: scorer {name}")
        plans.append(MetricPlan(name, scale=scale, low=low, high=high, primary=index == 0))
    return rows, plans


def _row(task: str, name: str, doc_id: int, epochs: list[dict[str, Any]], path: Path) -> Row:
    scores, answers, outputs = [], [], []
    first = epochs[0]
    for sample in epochs:
        score = (sample.get("scores") or {}).get(name)
        where = f"{path}: sample {str(first.get('id'))[:60]}, scorer {name},"
        if not isinstance(score, Mapping) or "value" not in score:
            raise InputError(f"{where} has no score: all samples must have one.")
        scores.append(_value(score["value"], where))
        answers.append(score.get("answer"))
        output = sample.get("output")
        outputs.append(output.get("completion") if isinstance(output, Mapping) else None)
    answer = answers[0] if answers[0] is not None else outputs[0]
    return Row(
        task,
        name,
        "none",
        # The id names the example, as Inspect does, and its content guards against another data set with the same ids.
        item_key([str(first.get("id")), _content(first.get("input"))], first.get("target")),
        doc_id,
        sum(scores) / len(scores),
        response=response_key(outputs),
        answer=preview(str(answer)) if answer is not None else None,
        text=preview(f"{first.get('id')}: {_text(first.get('input'))}"),
    )


def _value(value: Any, where: str) -> float:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        known = _LETTERS.get(value, _WORDS.get(value.lower()))
        if known is not None:
            return known
    if isinstance(value, Mapping | list):
        raise InputError(f"{where} has several values: assay compares one number per sample; choose a scorer with one.")
    return number(value, f"{where} value")


def _content(given: Any) -> Any:
    """An input without what differs from run to run: messages carry random ids."""
    if not isinstance(given, list):
        return given
    return [
        [message.get("role"), message.get("content")] if isinstance(message, Mapping) else message for message in given
    ]


def _text(given: Any) -> str:
    if isinstance(given, str):
        return given
    messages = given if isinstance(given, list) else []
    users = [
        message.get("content") for message in messages if isinstance(message, Mapping) and message.get("role") == "user"
    ]
    return users[-1] if users and isinstance(users[-1], str) else ""


def _open(path: Path) -> Document:
    check_size(path)
    with path.open("rb") as stream:
        start = stream.read(4)
    if start == b"PK\x03\x04":
        return _open_zip(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is neither a ZIP nor JSON: give a log that Inspect AI wrote.") from None
    document = parse_object(text, str(path))
    samples = document.get("samples") or []
    if not isinstance(samples, list) or not all(isinstance(sample, dict) for sample in samples):
        raise InputError(f"{path}: 'samples' is not a list of objects: is it an Inspect AI log?")
    return document, iter(samples)


def _open_zip(path: Path) -> Document:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: info for info in archive.infolist()}
    except (zipfile.BadZipFile, OSError, struct.error):
        raise InputError(f"{path} is a truncated ZIP: fetch it again.") from None
    if "header.json" not in members:
        raise InputError(f"{path} has no header.json: the evaluation did not finish; run it again.")
    header = parse_object(_member(path, members["header.json"]), f"{path}: header.json")
    names = sorted(name for name in members if name.startswith("samples/") and name.endswith(".json"))
    return header, (parse_object(_member(path, members[name]), f"{path}: {name}") for name in names)


def _member(path: Path, info: zipfile.ZipInfo) -> bytes:
    """Content of a member, whatever its compression, at most 256 MiB."""
    where = f"{path}: {info.filename[:80]}"
    if info.file_size > _MEMBER_LIMIT:
        raise InputError(
            f"{where} is {info.file_size:,} bytes; a sample has at most {_MEMBER_LIMIT:,}: log without attachments."
        )
    try:
        if info.compress_type != _ZSTANDARD:
            with zipfile.ZipFile(path) as archive, archive.open(info) as member:
                data = member.read(info.file_size + 1)
        else:
            data = pa.CompressedInputStream(pa.BufferReader(_raw(path, info)), "zstd").read(info.file_size + 1)
    except (zipfile.BadZipFile, pa.ArrowException, OSError, struct.error, NotImplementedError, RuntimeError, EOFError):
        raise InputError(f"{where} cannot be unpacked: the log is truncated or damaged; fetch it again.") from None
    if len(data) != info.file_size:
        raise InputError(f"{where} has another size than the archive says: the log is damaged; fetch it again.")
    return bytes(data)


def _raw(path: Path, info: zipfile.ZipInfo) -> bytes:
    """The compressed bytes: a local header of 30 bytes, the name, an extra field, then the data (PKWARE APPNOTE 4.3.7)."""
    with path.open("rb") as stream:
        stream.seek(info.header_offset)
        name, extra = struct.unpack("<HH", stream.read(30)[26:30])
        stream.seek(name + extra, 1)
        return stream.read(info.compress_size)
