# ruff: noqa: E501 - one bad artefact a line
"""Artefacts come from code that anyone may have written: what cannot be used closes the check and says nothing of its own."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.integration.bot.stage import N, Stage, headline

from assay.baselines.evidence import digest_of
from assay.baselines.record import Record, write_record

CANARY = "canary7f3e"

Files = dict[str, bytes]


class Artifact:
    """A good record of this head and run, whose every free text is a canary, as files that a test then spoils."""

    def __init__(self, stage: Stage, run: int) -> None:
        self.stage, self.run = stage, run
        record = stage.record(stage.head, broke=60, run_id=run, texts={"mmlu": [f"{CANARY} {i}" for i in range(N)]})
        evidence = record.evidence
        evidence = evidence.model_copy(
            update={
                "subject": evidence.subject.model_copy(
                    update={"name": f"{CANARY}-name", "format": f"{CANARY}-format", "digest": f"sha256:{CANARY}",
                            "backend": CANARY, "configuration": {f"{CANARY}-key": CANARY}}
                ),
                "environment": evidence.environment.model_copy(
                    update={"hardware": f"{CANARY} GPU", "driver": CANARY, "libraries": {CANARY: CANARY}}
                ),
                "provenance": evidence.provenance.model_copy(update={"workflow": CANARY}),
                "attributes": {f"{CANARY}-fact": CANARY},
            }
        )  # fmt: skip
        self.record = Record(evidence, record.rows)
        self.answers = CANARY

    def files(self, record: Record | None = None) -> Files:
        folder = self.stage.written(record or self.record)
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    def with_rows(self, change: Callable[[pa.Table], pa.Table]) -> Files:
        """The record with other rows, its digests right."""
        assert self.record.rows is not None
        return self.files(Record(self.record.evidence, change(self.record.rows)))

    def with_document(self, change: Callable[[dict[str, Any]], object]) -> Files:
        files = self.files()
        document = json.loads(files["evidence.json"])
        change(document)
        return {**files, "evidence.json": json.dumps(document).encode()}

    def with_table(self, data: bytes, **ref: Any) -> Files:
        """The document with another table, of which it gives the right size and digest."""
        table = {"sha256": digest_of(data), "bytes": len(data)} | ref
        return self.with_document(lambda d: d["table"].update(table)) | {"rows.parquet": data}


def column(name: str, change: Callable[[list[Any]], list[Any]]) -> Callable[[pa.Table], pa.Table]:
    def replace(rows: pa.Table) -> pa.Table:
        field = rows.schema.field(name)
        values = pa.array(change(rows.column(name).to_pylist()), type=field.type)
        return rows.set_column(rows.schema.get_field_index(name), field, values)

    return replace


def packed(files: Files, *, symlink: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        if symlink:
            info = zipfile.ZipInfo(symlink)
            info.external_attr = 0o120777 << 16
            archive.writestr(info, "/etc/passwd")
    return out.getvalue()


def many_rows(_: Artifact) -> bytes:
    """Ten million rows in a small file."""
    out = io.BytesIO()
    pq.write_table(pa.table({CANARY: pa.array(np.zeros(10_000_000, np.int8))}), out, compression="zstd")
    return out.getvalue()


def bomb(_: Artifact) -> bytes:
    out = io.BytesIO()
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("evidence.json", "w") as f,
    ):
        for _ in range(48):
            f.write(b"\0" * (1 << 20))
    return out.getvalue()


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


TABLE = "rows.parquet"
BAD: dict[str, tuple[Callable[[Artifact], Files | bytes], str]] = {
    "truncated table": (lambda a: (f := a.files()) | {TABLE: f[TABLE][:-100]}, "truncated or changed"),
    "tampered table": (lambda a: (f := a.files()) | {TABLE: f[TABLE][:500] + b"X" + f[TABLE][501:]}, "does not match the digest"),
    "wrong digest": (lambda a: a.with_document(lambda d: d["table"].update(sha256="0" * 64)), "does not match the digest"),
    "no Parquet at all": (lambda a: a.with_table(CANARY.encode() * 99), "not a readable Parquet file"),
    "table missing": (lambda a: {"evidence.json": a.files()["evidence.json"]}, "rows.parquet is missing"),
    "fewer rows than said": (lambda a: a.with_document(lambda d: d["table"].update(rows=N + 7)), "has 400 rows where evidence.json says 407"),
    "ten million rows": (lambda a: a.with_table(many_rows(a), rows=10_000_000), "10,000,000 rows"),
    "ten million rows, undeclared": (lambda a: a.with_table(many_rows(a)), "10,000,000 rows"),
    "duplicate ids": (lambda a: a.with_rows(column("item", lambda v: [v[0], *v[:-1]])), "duplicate example ids"),
    "NaN scores": (lambda a: a.with_rows(column("score", lambda v: [float("nan"), *v[1:]])), "1 of 400 scores are not finite"),
    "scores of another scale": (lambda a: a.with_rows(column("score", lambda v: [7.0, *v[1:]])), "other than 0 and 1"),
    "unknown column": (lambda a: a.with_rows(lambda t: t.append_column(CANARY, t.column("score"))), "other columns"),
    "column of another type": (lambda a: a.with_rows(lambda t: t.set_column(t.schema.get_field_index("score"), "score", pa.array([CANARY] * N))), "wrong type"),
    "examples that the base lacks": (lambda a: a.with_rows(column("item", lambda v: [bytes(b ^ 255 for b in i) for i in v[:9]] + v[9:])), "examples are in head and not in base"),
    "another task": (lambda a: a.with_rows(column("task", lambda v: [CANARY] * len(v))), "share no task"),
    "no table": (lambda a: a.with_document(lambda d: d.update(table=None)), "no table of examples"),
    "NaN in the document": (lambda a: a.files() | {"evidence.json": a.files()["evidence.json"].replace(b'"value": 0.', b'"value": NaN, "x": 0.')}, "not valid JSON"),
    "unknown schema_version": (lambda a: a.with_document(lambda d: d.update(schema_version=99)), "schema_version 99"),
    "schema_version of text": (lambda a: a.with_document(lambda d: d.update(schema_version=CANARY)), "unknown schema_version"),
    "unknown field": (lambda a: a.with_document(lambda d: d.update({CANARY: CANARY})), "fields or values"),
    "unknown field inside": (lambda a: a.with_document(lambda d: d["subject"].update({CANARY: CANARY})), "fields or values"),
    "unknown kind": (lambda a: a.with_document(lambda d: d.update(kind=CANARY)), "a kind that this assay does not know"),
    "kind that is no kind": (lambda a: a.with_document(lambda d: d.update(kind=f"../{CANARY}")), "fields or values"),
    "a list": (lambda a: a.files() | {"evidence.json": json.dumps([CANARY]).encode()}, "not an object"),
    "no JSON": (lambda a: a.files() | {"evidence.json": CANARY.encode()}, "not valid JSON"),
    "deep JSON": (lambda a: a.files() | {"evidence.json": nested(100_000)}, "nested too deeply"),
    "huge document": (lambda a: a.files() | {"evidence.json": CANARY.encode() * 500_000}, "over 4,194,304 bytes"),
    "head SHA of another commit": (lambda a: a.with_document(lambda d: d["provenance"].update(commit=a.stage.base)), "claims another head commit"),
    "no head SHA": (lambda a: a.with_document(lambda d: d["provenance"].update(commit=None)), "claims another head commit"),
    "another run": (lambda a: a.with_document(lambda d: d["provenance"].update(run_id=a.run - 1)), "names another run"),
    "two records of one kind": (lambda a: {f"{n}/{name}": data for n in "ab" for name, data in a.files().items()}, "two records of one kind"),
    "no evidence": (lambda a: {f"{CANARY}.txt": CANARY.encode()}, "without evidence"),
    "empty": (lambda a: packed({}), "without evidence"),
    "folders too deep": (lambda a: {f"{CANARY}/2/3/4/5/6/{name}": data for name, data in a.files().items()}, "without evidence"),
    "many records": (lambda a: {f"{n}/{name}": data for n in range(9) for name, data in a.with_document(lambda d: d["attributes"].update(supplement=True)).items()}, "more than 8 records"),
    "many files": (lambda a: {f"{CANARY}{n}": b"" for n in range(2001)}, "2,001 files"),
    "no zip": (lambda a: CANARY.encode() * 50, "not a readable zip"),
    "path outside": (lambda a: packed(a.files() | {f"../{CANARY}": b"x"}), "outside its folder"),
    "absolute path": (lambda a: packed(a.files() | {f"/tmp/{CANARY}": b"x"}), "outside its folder"),
    "drive path": (lambda a: packed(a.files() | {f"C:\\{CANARY}": b"x"}), "outside its folder"),
    "symlink": (lambda a: packed(a.files(), symlink=f"{CANARY}.parquet"), "a link"),
    "zip bomb": (bomb, "is over 33,554,432 bytes"),
    "huge": (lambda a: packed({"x": np.random.default_rng(0).bytes(34 << 20)}), "is over 33,554,432 bytes"),
    "supplement of another checkpoint": (
        lambda a: {f"head/{n}": d for n, d in a.files().items()}
        | {f"head.base/{n}": d for n, d in a.with_document(lambda d: d["attributes"].update(supplement=True)).items()},
        "do not belong to this baseline",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_artefact(stage: Stage, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    spoil, words = BAD[name]
    run = stage.start()
    stage.react(run, "requested")
    stage.repo.upload(run, "assay-evaluation", spoil(Artifact(stage, run)))
    stage.repo.finish_run(run)
    [answer] = stage.react(run, max_bytes=32 << 20)
    assert answer.plan.exit_code == 2
    assert stage.verdict(run) == ("completed", "failure")
    assert headline(stage.comment()) == "## ✗ The evidence cannot be used"
    assert words in stage.comment()
    assert words in (stage.check(run).summary or "")
    assert words in "".join(stage.summary)
    assert CANARY not in stage.everything()
    assert not [path for path in stage.scratch.rglob(f"*{CANARY}*") if "turn" not in str(path)]
    for line in capfd.readouterr().err.splitlines():
        assert line.startswith("assay: ")  # no line of it can be a command to the runner


def test_the_canaries_are_where_a_good_artefact_shows_them(stage: Stage) -> None:
    """Otherwise their absence above would mean nothing."""
    run = stage.start()
    stage.repo.upload(run, "assay-evaluation", Artifact(stage, run).files())
    stage.repo.finish_run(run)
    stage.react(run)
    assert headline(stage.comment()) == "## ✗ Accuracy regressed on mmlu"
    for text in (f"{CANARY}-name", f"{CANARY}-format", f"{CANARY} GPU", f"{CANARY} 1"):
        assert text in stage.comment()


def test_too_many_artefacts(stage: Stage) -> None:
    run = stage.start()
    for i in range(9):
        stage.repo.upload(run, f"assay-{CANARY}-{i}", Artifact(stage, run).files())
    stage.repo.finish_run(run)
    stage.react(run)
    assert "9 artefacts of assay, over 8" in stage.comment()
    assert CANARY not in stage.everything()
    assert not stage.github.requests("GET", "/zip$")


def test_bad_evidence_beside_good_evidence_of_another_workflow(stage: Stage) -> None:
    stage.react(stage.measured("assay nightly", broke=1, fixed=1))
    run = stage.start()
    stage.repo.upload(run, "assay-evaluation", b"no zip")
    stage.repo.finish_run(run)
    stage.react(run)
    assert "assay nightly: Accuracy is equivalent" in stage.comment()
    assert "assay measure: The evidence cannot be used" in stage.comment()


def test_a_valid_older_run_stands_while_the_newest_is_refused(stage: Stage) -> None:
    good = stage.measured(broke=1, fixed=1)
    stage.react(good)
    bad = stage.start()
    stage.react(bad, "requested")
    stage.repo.upload(bad, "assay-evaluation", b"no zip")
    stage.repo.finish_run(bad)
    stage.react(bad)
    assert stage.verdict(bad) == ("completed", "failure")
    assert "equivalent" in stage.comment()
    assert "not a readable zip" in stage.comment()


def test_artefacts_that_are_not_ours_are_not_downloaded(stage: Stage) -> None:
    run = stage.measured(broke=60)
    stage.repo.upload(run, "coverage", b"no zip")
    stage.react(run)
    assert headline(stage.comment()) == "## ✗ Accuracy regressed on mmlu"


def test_the_newest_artefact_of_a_name_counts(stage: Stage) -> None:
    """A re-run leaves the artefacts of earlier attempts where they are."""
    run = stage.measured(broke=60)
    stage.react(run)
    stage.repo.runs[run].attempt = 2
    stage.finish(run, broke=1, fixed=1)
    stage.react(run)
    assert headline(stage.comment()) == "## ✓ Accuracy is equivalent"
    assert stage.verdict(run) == ("completed", "failure")  # attempt 1
    assert stage.check(run, 2).conclusion == "success"


def test_write_record_refuses_what_could_not_be_read_back(tmp_path: Path, stage: Stage) -> None:
    record = stage.record(stage.head)
    rows = pa.table({"x": pa.nulls(5_000_001, pa.int8())})
    with pytest.raises(Exception, match="split the evaluation"):
        write_record(tmp_path / "r", record.evidence, rows)
