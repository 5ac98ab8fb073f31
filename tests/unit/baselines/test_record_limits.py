"""Small files that stand for large tables: refused before they take the memory that they ask for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.evidence import evaluation

from assay.baselines.errors import InputError
from assay.baselines.evidence import TableRef, digest_of, dump_evidence
from assay.baselines.record import (
    EVIDENCE_NAME,
    ROWS_NAME,
    check_folder,
    check_writable,
    read_parquet,
    read_record,
    write_record,
)

ROOT = Path(__file__).parents[3]


def forged(folder: Path, rows: pa.Table, **options: Any) -> Path:
    """A record around a table as another writer may have written it, all of its digests right."""
    folder.mkdir()
    pq.write_table(rows, folder / ROWS_NAME, compression="zstd", **options)
    data = (folder / ROWS_NAME).read_bytes()
    evidence = evaluation({"t": [1, 0]}).evidence
    ref = TableRef(sha256=digest_of(data), rows=rows.num_rows, bytes=len(data))
    (folder / EVIDENCE_NAME).write_bytes(dump_evidence(evidence.model_copy(update={"table": ref})))
    return folder


def repeated(value: pa.Array, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), value)


def test_a_text_repeated_by_a_dictionary(tmp_path: Path) -> None:
    """100 kB of text 40,000 times over: 4 GB out of a file of less than 2 MB, refused within 1 GB."""
    table = pa.table({"text": repeated(pa.array(["x" * 100_000]), 40_000)})
    folder = forged(tmp_path / "bomb", table, store_schema=False)
    assert (folder / ROWS_NAME).stat().st_size < 2_000_000
    script = (
        "import re, resource, sys; from pathlib import Path; from assay.baselines.record import read_record\n"
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
        "try: read_record(Path(sys.argv[1]))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
        # Not ru_maxrss: a child starts with the peak of the process that forked it.
        "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True, cwd=ROOT, timeout=120
    )
    said, peak = done.stdout.strip().splitlines()
    assert said.startswith("InputError")
    assert "bytes decoded" in said
    assert int(peak) < 1_000_000  # in kB


@pytest.mark.parametrize("store_schema", [True, False])
def test_wide_values_of_fixed_size(store_schema: bool, tmp_path: Path) -> None:
    value = pa.array([b"x" * 100_000], pa.binary(100_000))
    table = pa.table({"item": repeated(value, 30_000)})
    folder = forged(tmp_path / "bomb", table, store_schema=store_schema)
    with pytest.raises(InputError):
        read_record(folder)


def test_many_columns_of_run_lengths(tmp_path: Path) -> None:
    zeros = pa.array([0] * 1_000_000, pa.int64())
    folder = forged(tmp_path / "bomb", pa.table({f"c{i}": zeros for i in range(300)}))
    assert (folder / ROWS_NAME).stat().st_size < 2_000_000
    with pytest.raises(InputError, match="bytes decoded"):
        read_record(folder)


@pytest.mark.parametrize("value", [[["a", "b"]], [{"a": 1}]])
def test_nested_columns_are_no_table_of_a_record(value: list[Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a column nests"):
        read_record(forged(tmp_path / "nested", pa.table({"text": value})))


def test_a_column_twice(tmp_path: Path) -> None:
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    path = tmp_path / "twice.parquet"
    pq.write_table(table, path)
    assert read_parquet(path).equals(table)


def test_types_come_back_as_they_were_written(tmp_path: Path) -> None:
    made = evaluation({"a": [1, 0, 1], "b": [0, 1, 1]}, clusters=["x", "y", "x"], responses=b"\x01" * 8)
    written = write_record(tmp_path / "record", made.evidence, made.rows)
    read = read_record(tmp_path / "record", expect=written.digest)
    assert read.rows is not None
    assert made.rows is not None
    assert read.rows.schema.equals(made.rows.schema)
    assert read.rows.to_pylist() == made.rows.to_pylist()
    large = pa.table({"id": pa.array(["a", None, "c"], pa.large_string()), "score": [1.0, 0.0, 1.0]})
    pq.write_table(large, tmp_path / "large.parquet")
    assert read_parquet(tmp_path / "large.parquet").equals(large)
    assert read_parquet(tmp_path / "large.parquet", columns=["score"]).equals(large.select(["score"]))
    empty = large.slice(0, 0)
    pq.write_table(empty, tmp_path / "empty.parquet")
    assert read_parquet(tmp_path / "empty.parquet").equals(empty)


def test_where_a_record_can_be_written_is_known_beforehand(tmp_path: Path) -> None:
    check_folder(tmp_path / "not" / "yet" / "there")
    check_writable(Path("relative"))
    record = evaluation({"t": [1, 0]})
    write_record(tmp_path / "record", record.evidence, record.rows)
    check_folder(tmp_path / "record")  # is replaced
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "evidence.json").write_text('{"case": 3}')
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "evidence.json").write_text('{"schema_ver')
    check_folder(tmp_path / "cut")  # of a record that was damaged
    refused = {
        tmp_path / "mine": "'thesis.tex'",
        tmp_path / "theirs": "that assay has not written",
        tmp_path / "file": "Not a directory",
        tmp_path / "file" / "below": "Not a directory",
        tmp_path / ("n" * 300): "File name too long",
        Path(): "a name of its own",
        Path("/"): "a name of its own",
        Path("new/.."): "a name of its own",
        Path("/proc/nothing"): "/proc/nothing",  # nobody can write there, root included
    }
    for folder, words in refused.items():
        with pytest.raises(InputError, match=words):
            check_folder(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut", "file", "mine", "record", "theirs"]
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
