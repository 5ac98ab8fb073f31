"""Evidence and records: read strictly, written whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.evidence import evaluation, outcomes

from assay.baselines import record as record_module
from assay.baselines.content import digest_path
from assay.baselines.environment import capture, differences
from assay.baselines.errors import InputError
from assay.baselines.evidence import dump_evidence, parse_evidence
from assay.baselines.record import EVIDENCE_NAME, ROWS_NAME, read_record, write_atomically, write_record


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    base, _ = outcomes(40, 3, 2)
    made = evaluation({"t": base})
    write_record(tmp_path / "record", made.evidence, made.rows)
    return tmp_path / "record"


def document(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / EVIDENCE_NAME).read_bytes())
    return loaded


def rewrite(folder: Path, change: dict[str, Any]) -> None:
    (folder / EVIDENCE_NAME).write_text(json.dumps({**document(folder), **change}))


def test_round_trip(folder: Path) -> None:
    read = read_record(folder)
    assert read.rows is not None
    assert read.rows.num_rows == 40
    assert read_record(folder, expect=read.digest[:12]).evidence == read.evidence
    assert parse_evidence(dump_evidence(read.evidence)) == read.evidence


def test_other_digest_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="expected 000000000000"):
        read_record(folder, expect="0" * 12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"surprise": 1}, "surprise: Extra inputs"),
        ({"schema_version": 2}, "schema_version 2, and this assay reads 1"),
        ({"schema_version": None}, "schema_version None"),
        ({"schema_version": True}, "schema_version True"),
        ({"kind": "Evaluation!"}, "kind"),
        ({"metrics": {"t/acc": {"value": "0.5"}}}, "metrics.t/acc.value"),
        ({"provenance": {"commit": "main", "created": "2026-01-01T00:00:00Z"}}, "provenance.commit"),
    ],
)
def test_strange_documents_are_refused_in_one_line(folder: Path, change: dict[str, Any], words: str) -> None:
    rewrite(folder, change)
    with pytest.raises(InputError) as caught:
        read_record(folder)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"\xff\xfe",
        b'{"schema_version": NaN}',
        b'{"a": 1, "a": 2}',
        b"[" * 100_000,
        b"1" * 5000,
        b"null",
    ],
    ids=["empty", "truncated", "list", "string", "binary", "nan", "twice", "deep", "digits", "null"],
)
def test_no_document_at_all(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        parse_evidence(data)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=400))
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    with pytest.raises(InputError):
        parse_evidence(data)


def test_older_schema_goes_through_its_upgrade(folder: Path) -> None:
    old = {**document(folder), "schema_version": 0}
    old["what"] = old.pop("subject")

    def lift(found: dict[str, Any]) -> dict[str, Any]:
        rest = {k: v for k, v in found.items() if k != "what"}
        return {**rest, "subject": found["what"], "schema_version": 1}

    data = json.dumps(old).encode()
    assert parse_evidence(data, upgrades={0: lift}).subject.name == "model"
    with pytest.raises(InputError, match="schema_version 0"):
        parse_evidence(data)
    with pytest.raises(InputError, match="did not advance"):
        parse_evidence(data, upgrades={0: lambda found: found})


def test_truncated_table(folder: Path) -> None:
    path = folder / ROWS_NAME
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="truncated or changed"):
        read_record(folder)


def test_tampered_table(folder: Path) -> None:
    path = folder / ROWS_NAME
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="does not match its digest"):
        read_record(folder)


def test_missing_table(folder: Path) -> None:
    (folder / ROWS_NAME).unlink()
    with pytest.raises(InputError, match="is missing"):
        read_record(folder)


def with_table(folder: Path, data: bytes, rows: int) -> None:
    """Replace the table by bytes that the evidence vouches for: digests alone must not be enough."""
    (folder / ROWS_NAME).write_bytes(data)
    import hashlib

    rewrite(folder, {"table": {"sha256": hashlib.sha256(data).hexdigest(), "rows": rows, "bytes": len(data)}})


def test_table_that_is_no_parquet(folder: Path) -> None:
    with_table(folder, b"PAR1" + bytes(200) + b"PAR1", 40)
    with pytest.raises(InputError, match="not a readable Parquet file"):
        read_record(folder)


def test_row_count_must_agree(folder: Path) -> None:
    data = (folder / ROWS_NAME).read_bytes()
    with_table(folder, data, 41)
    with pytest.raises(InputError, match="40 rows where the evidence says 41"):
        read_record(folder)


def test_ten_million_rows_are_refused_before_reading(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "big.parquet"
    pq.write_table(pa.table({"score": pa.nulls(10_000_000, pa.float64())}), path)
    with_table(folder, path.read_bytes(), 10_000_000)
    with pytest.raises(InputError, match="at most 5,000,000"):
        read_record(folder)
    with_table(folder, path.read_bytes(), 40)  # a lie in the document helps nothing
    with pytest.raises(InputError, match="at most 5,000,000 rows"):
        read_record(folder)


def test_no_evidence_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no evidence at"):
        read_record(tmp_path / "nowhere")


def test_write_replaces_whole_and_leaves_nothing_behind(folder: Path) -> None:
    before = read_record(folder)
    base, _ = outcomes(10, 1, 0)
    made = evaluation({"u": base})
    write_record(folder, made.evidence, made.rows)
    assert read_record(folder).digest != before.digest
    assert sorted(p.name for p in folder.parent.iterdir()) == ["record"]


def test_a_failed_write_keeps_the_old_record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read_record(folder).digest
    made = evaluation({"u": [1, 0, 1]})
    monkeypatch.setattr(record_module, "MAX_ROWS", 2)
    with pytest.raises(InputError, match="more than a record holds"):
        write_record(folder, made.evidence, made.rows)
    monkeypatch.undo()
    assert read_record(folder).digest == before
    assert [p.name for p in folder.parent.iterdir()] == ["record"]


def test_atomic_write_replaces(tmp_path: Path) -> None:
    path = tmp_path / "a" / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_content_digest_sees_names_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "a").write_bytes(b"1")
    first = digest_path(tmp_path / "m")
    (tmp_path / "m" / ".cache").write_bytes(b"x")
    assert digest_path(tmp_path / "m") == first
    (tmp_path / "m" / "a").rename(tmp_path / "m" / "b")
    second = digest_path(tmp_path / "m")
    (tmp_path / "m" / "b").write_bytes(b"2")
    assert len({first, second, digest_path(tmp_path / "m")}) == 3
    with pytest.raises(InputError, match="does not exist"):
        digest_path(tmp_path / "n")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no files"):
        digest_path(tmp_path / "empty")


def test_environment_names_gpus_and_differences() -> None:
    two = capture(["numpy", "not-a-package"], run=lambda _: "NVIDIA H200, 580.1\nNVIDIA H200, 580.1\n")
    assert two.hardware.startswith("2x NVIDIA H200, ")
    assert two.driver == "NVIDIA 580.1"
    assert set(two.libraries) == {"numpy"}
    none = capture(["numpy"], run=lambda _: "")
    assert none.driver == ""
    found = differences(none, two)
    assert [f.split(":")[0] for f in found] == ["hardware"]
    assert differences(two, two) == []
