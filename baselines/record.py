"""Records: evidence with its table, written atomically and read strictly."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assay.baselines.errors import InputError, cannot_write
from assay.baselines.evidence import MAX_JSON_BYTES, Evidence, TableRef, digest_of, dump_evidence, parse_evidence

EVIDENCE_NAME = "evidence.json"
ROWS_NAME = "rows.parquet"
MAX_ROWS = 5_000_000
MAX_TABLE_BYTES = 1 << 30
MAX_DECODED_BYTES = 2 << 30
PARTIAL_NAME = ".partial"
"""Where an interrupted evaluation keeps its finished chunks, inside the folder of its record."""
_OURS = {EVIDENCE_NAME, ROWS_NAME, PARTIAL_NAME}


@dataclass(frozen=True)
class Record:
    """Evidence, its rows (None when the kind has none), and the digest that names both."""

    evidence: Evidence
    rows: pa.Table | None
    digest: str = field(default="")


def write_record(folder: Path, evidence: Evidence, rows: pa.Table | None) -> Record:
    """Write a record so that a reader sees all of it or none of it; an existing record is replaced whole.

    Returns the record as it will be read, with its digest. Raises `InputError` for a table that could not be read back,
    for a folder that cannot be written, and for one that holds anything else than a record: replacing it would lose it.
    """
    folder = Path(folder)
    _refuse_foreign(folder)
    try:
        return _write_record(folder, evidence, rows)
    except OSError as error:
        raise cannot_write(folder, error) from None


def check_folder(folder: Path) -> None:
    """Raises what `write_record` would, before anything is measured; nothing is created."""
    folder = Path(folder)
    check_writable(folder)
    _refuse_foreign(folder)


def check_writable(path: Path) -> None:
    """Raises `InputError` or `ServiceError` for a path that cannot be written, as far as that is known beforehand.

    Nothing is created: a file without a name is opened in the nearest folder that exists.
    """
    if path.name in ("", ".."):
        raise InputError(f"{path} cannot be replaced: give a new path, with a name of its own.")
    try:
        with suppress(FileNotFoundError):
            path.lstat()  # of a name that is too long, or below a file, this is told here
        above = next(folder for folder in path.absolute().parents if folder.exists())
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        raise cannot_write(path, error) from None


def _refuse_foreign(folder: Path) -> None:
    try:
        others = sorted(entry.name for entry in folder.iterdir() if entry.name not in _OURS)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"cannot write a record to {folder}: {error.strerror}; give a new folder.") from None
    if others:
        raise InputError(
            f"{folder} holds other things than a record ({others[0][:60]!r}): give a new folder, so that nothing of yours is replaced."
        )
    if _is_another_document(folder / EVIDENCE_NAME):
        raise InputError(
            f"{folder} holds an {EVIDENCE_NAME} that assay has not written: give a new folder, so that nothing of yours is replaced."
        )


def _is_another_document(path: Path) -> bool:
    """Whether it is JSON, and not evidence of any version. What is damaged may be evidence that was cut short."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            return True
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return False
    except (OSError, ValueError, RecursionError):
        return False
    return not (isinstance(found, dict) and {"schema_version", "kind"} <= found.keys())


def _write_record(folder: Path, evidence: Evidence, rows: pa.Table | None) -> Record:
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name[:100]}.", dir=folder.parent))
    try:
        if rows is not None:
            if rows.num_rows > MAX_ROWS:
                raise InputError(
                    f"{rows.num_rows:,} rows are more than a record holds ({MAX_ROWS:,}): split the evaluation."
                )
            _write_parquet(staging / ROWS_NAME, rows)
            data = (staging / ROWS_NAME).read_bytes()
            evidence = evidence.model_copy(
                update={"table": TableRef(sha256=digest_of(data), rows=rows.num_rows, bytes=len(data))}
            )
        else:
            evidence = evidence.model_copy(update={"table": None})
        document = dump_evidence(evidence)
        if len(document) > MAX_JSON_BYTES:
            raise InputError(
                f"the evidence document is {len(document):,} bytes, over {MAX_JSON_BYTES:,}: record fewer metrics."
            )
        _write_file(staging / EVIDENCE_NAME, document)
        _replace_folder(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Record(evidence, rows, digest_of(document))


def read_record(folder: Path, *, expect: str | None = None) -> Record:
    """Read a record and verify its digests.

    `expect` is a full digest or a prefix of one. Raises `InputError` for anything missing, truncated, tampered with or
    over the limits (rows, bytes, decoded bytes); nothing is read past the check that refuses it.
    """
    evidence, digest = read_evidence(folder, expect=expect)
    if evidence.table is None:
        return Record(evidence, None, digest)
    return Record(evidence, read_rows(Path(folder) / ROWS_NAME, evidence.table), digest)


def read_evidence(folder: Path, *, expect: str | None = None) -> tuple[Evidence, str]:
    """The evidence document alone, and its digest."""
    path = Path(folder) / EVIDENCE_NAME
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{path} is no regular file: give the folder that assay wrote.")
        if found.st_size > MAX_JSON_BYTES:
            raise InputError(f"{path} is {found.st_size:,} bytes; evidence has at most {MAX_JSON_BYTES:,}.")
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(
            f"no evidence at {folder}: there is no {EVIDENCE_NAME} in it; give the folder that assay wrote."
        ) from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
    digest = digest_of(data)
    if expect is not None and not digest.startswith(expect.removeprefix("sha256:")):
        raise InputError(
            f"{path} has digest {digest[:12]}, expected {expect[:19]}: it was changed or is another record; fetch it again."
        )
    return parse_evidence(data, origin=str(path)), digest


def read_rows(path: Path, ref: TableRef) -> pa.Table:
    """The table that `ref` names, after its size, digest, row count and decoded size were checked."""
    if ref.rows > MAX_ROWS:
        raise InputError(f"{path} declares {ref.rows:,} rows; assay reads at most {MAX_ROWS:,}: split the evaluation.")
    try:
        size = path.stat().st_size if path.is_file() else -1
    except OSError:
        size = -1
    if size < 0:
        raise InputError(f"{path} is missing, and the evidence beside it names a table: fetch or measure it again.")
    if size != ref.bytes or size > MAX_TABLE_BYTES:
        raise InputError(
            f"{path} is {size:,} bytes where the evidence says {ref.bytes:,}: it is truncated or changed; fetch it again."
        )
    hasher = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                hasher.update(block)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
    if hasher.hexdigest() != ref.sha256:
        raise InputError(
            f"{path} does not match its digest {ref.sha256[:12]}: it was changed; fetch or measure it again."
        )
    return read_parquet(path, rows=ref.rows)


def read_parquet(path: Path, *, rows: int | None = None, columns: list[str] | None = None) -> pa.Table:
    """A Parquet file within the limits. Raises `InputError` when it is not one or is larger than it may be.

    Limits hold for what the file decodes to, which is counted before it is decoded: a few bytes of run lengths stand
    for millions of rows, and one page of a dictionary for a gigabyte of text. `rows` is how many a record's table must
    have; columns that nest are refused there.
    """
    try:
        with pq.ParquetFile(path) as file:
            metadata, wanted = file.metadata, file.schema_arrow
            found = metadata.num_rows
            decoded = _fixed_bytes(metadata)
            if found > MAX_ROWS or decoded > MAX_DECODED_BYTES:
                raise _too_large(path, found, decoded)
            if rows is not None and found != rows:
                raise InputError(
                    f"{path} has {found:,} rows where the evidence says {rows:,}: fetch or measure it again."
                )
            leaves = [metadata.schema.column(i) for i in range(metadata.num_columns)]
            if rows is not None and any(leaf.max_repetition_level or "." in leaf.path for leaf in leaves):
                raise InputError(f"{path} is not a readable Parquet file (a column nests): fetch or measure it again.")
        strings = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY" and "." not in leaf.path]
        with pq.ParquetFile(path, read_dictionary=strings) as file:
            table = file.read(columns=columns)
        decoded += sum(_text_bytes(table.column(i)) for i in range(table.num_columns))
        if decoded > MAX_DECODED_BYTES:
            raise _too_large(path, found, decoded)
        if columns is not None:
            wanted = pa.schema([wanted.field(name) for name in table.column_names])
        return table.cast(wanted)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"{path} is not a readable Parquet file ({reason}): fetch or measure it again.") from None


def _too_large(path: Path, rows: int, decoded: int) -> InputError:
    return InputError(
        f"{path} has {rows:,} rows ({decoded:,} bytes decoded); assay reads at most {MAX_ROWS:,} rows: split it."
    )


_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 8}
"""Bytes of a value in memory by its physical type; for text its place, without the text."""


def _fixed_bytes(metadata: pq.FileMetaData) -> int:
    """What the values of a file take in memory, without texts, from its footer."""
    total = 0
    for j in range(metadata.num_columns):
        leaf = metadata.schema.column(j)
        width = _WIDTHS.get(leaf.physical_type, leaf.length or 0)
        total += width * sum(metadata.row_group(i).column(j).num_values for i in range(metadata.num_row_groups))
    return total


def _text_bytes(column: pa.ChunkedArray) -> int:
    """What the texts of a column take once each row has its own, 0 for columns that hold none."""
    if not pa.types.is_dictionary(column.type):
        return 0
    total = 0
    for chunk in column.chunks:
        lengths = pc.fill_null(pc.binary_length(chunk.dictionary), 0)
        total += pc.sum(pc.cast(lengths.take(chunk.indices), pa.int64())).as_py() or 0
    return total


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    A link keeps pointing at its file, and what is no regular file (`/dev/stdout`, a pipe) is written to, not replaced.
    Raises `InputError` or `ServiceError` when it cannot be written.
    """
    try:
        path = Path(os.path.realpath(path))
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(data)
        else:
            _replace_file(path, data)
    except OSError as error:
        raise cannot_write(path, error) from None


def _replace_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name may be as long as the file system takes; the temporary one beside it must not be longer.
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    os.close(handle)
    try:
        _write_file(Path(name), data)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def _write_parquet(path: Path, rows: pa.Table) -> None:
    pq.write_table(rows, path, compression="zstd", compression_level=9, use_dictionary=True, write_statistics=False)
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def _write_file(path: Path, data: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _replace_folder(staging: Path, folder: Path) -> None:
    """Move `staging` to `folder`. Renaming cannot replace a full folder, so an older one is moved aside first."""
    staging.chmod(0o755)
    if not folder.exists():
        staging.rename(folder)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name[:100]}.old.", dir=folder.parent))
    folder.rename(aside / "record")
    try:
        staging.rename(folder)
    except OSError:
        (aside / "record").rename(folder)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
