from __future__ import annotations

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.baselines.errors import InputError
from assay.baselines.evaluation import check_rows
from assay.baselines.evidence import Provenance
from assay.baselines.record import Record, read_record
from assay.quant.importers import import_evidence


def load(source: Path, **options: Any) -> Record:
    return import_evidence(
        source, source.parent / "record", provenance=Provenance(created=datetime.now(UTC)), **options
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


# Tables


def test_csv_of_id_and_score(tmp_path: Path) -> None:
    record = load(write(tmp_path / "scores.csv", "id,score\n007,1\n7,0\nx,1\n"))
    metric = record.evidence.metrics["table/score"]
    assert (metric.value, metric.n, metric.scale, metric.primary) == (pytest.approx(2 / 3), 3, "binary", True)
    assert record.evidence.protocol == "undeclared"
    assert record.evidence.subject.digest == "undeclared"
    assert len({row["item"] for row in record.rows.to_pylist()}) == 3
    assert read_record(tmp_path / "record").digest == record.digest


def test_the_same_ids_pair_across_formats_and_orders(tmp_path: Path) -> None:
    base = load(write(tmp_path / "a.csv", "id,score\na,1\nb,0\n"))
    pq.write_table(pa.table({"score": [0.0, 1.0], "id": ["b", "a"]}), tmp_path / "b.parquet")
    head = load(tmp_path / "b.parquet")
    assert set(base.rows.column("item").to_pylist()) == set(head.rows.column("item").to_pylist())


def test_all_columns(tmp_path: Path) -> None:
    text = (
        'task,metric,id,score,cluster,answer,text\nt,f1,1,0.5,p1,yes,"a,'
        ' b"\nt,f1,2,0.25,p1,no,\nt,em,1,1,p1,,\nt,em,2,0,p1,,\n'
    )
    record = load(write(tmp_path / "scores.csv", text))
    assert {name: m.scale for name, m in record.evidence.metrics.items()} == {"t/f1": "bounded", "t/em": "binary"}
    assert record.evidence.metrics["t/f1"].primary
    assert not record.evidence.metrics["t/em"].primary
    first = record.rows.to_pylist()[0]
    assert (first["cluster"], first["answer"], first["text"]) == ("p1", "yes", "1: a, b")


def test_weights_make_log_likelihoods(tmp_path: Path) -> None:
    record = load(write(tmp_path / "scores.tsv", "id\tscore\tweight\na\t-20\t10\nb\t-60\t30\n"))
    metric = record.evidence.metrics["table/score"]
    assert metric.scale == "loglik"
    assert metric.value == pytest.approx(2.718281828**2)


def test_scores_outside_zero_and_one_need_declared_bounds(tmp_path: Path) -> None:
    path = write(tmp_path / "scores.csv", "id,score\na,7\nb,3\n")
    with pytest.raises(InputError, match="--low and --high"):
        load(path)
    metric = load(path, bounds=(0.0, 10.0)).evidence.metrics["table/score"]
    assert (metric.scale, metric.low, metric.high) == ("bounded", 0.0, 10.0)
    with pytest.raises(InputError, match="the declared range"):
        load(path, bounds=(0.0, 5.0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("id,score\n", "no rows"),
        ("name,score\na,1\n", "no column 'id'"),
        ("id,value\na,1\n", "no column 'score'"),
        ("id,score\na,1\na,0\n", "occurs twice"),
        ("id,score\na,nan\n", "nan"),
        ("id,score\na,inf\n", "inf"),
        ("id,score\na,\nb,1\n", "not a number"),
        ("id,score\na,right\n", "not a number"),
        ("id,score\n,1\n", "id is missing"),
        ("id,score,score\na,1,1\n", "twice"),
        ("id,score\na,1,2,3\n", "not a readable table"),
        ("id,score,weight\na,-1,0\n", "weight is 0"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(write(tmp_path / "scores.csv", text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["scores.csv", "scores.parquet", "scores.jsonl", "log.eval", "log.json"])
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(min_size=1, max_size=300))
def test_junk_is_one_clear_line(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    try:
        record = load(path)
    except InputError as error:
        told = str(error)
    else:
        told = ""
        check_rows(record.rows, "record")
    assert "\n" not in told


def test_unknown_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="no known ending"):
        load(write(tmp_path / "scores.txt", "id,score\na,1\n"))
    with pytest.raises(InputError, match=r"no samples_\*\.jsonl"):
        load(tmp_path)
    assert load(write(tmp_path / "scores.dat", "id,score\na,1\n"), source_format="table").rows.num_rows == 1


# lm-eval samples


def sample(doc_id: int, **changes: Any) -> dict[str, Any]:
    return {
        "doc_id": doc_id,
        "doc": {},
        "target": "1",
        "arguments": {
            "gen_args_0": {"arg_0": f"Question {doc_id}", "arg_1": " a"},
            "gen_args_1": {"arg_0": f"Question {doc_id}", "arg_1": " bb"},
        },
        "resps": [[["-2.5", "False"]], [["-3.0", "True"]]],
        "filtered_resps": [["-2.5", "False"], ["-3.0", "True"]],
        "filter": "none",
        "metrics": ["acc", "acc_norm"],
        "acc": 0.0,
        "acc_norm": 1.0,
        **changes,
    }


def samples(path: Path, *entries: dict[str, Any]) -> Path:
    return write(path, "".join(json.dumps(entry) + "\n" for entry in entries))


def test_lm_eval_samples(tmp_path: Path) -> None:
    path = samples(tmp_path / "samples_arc_easy_2026-11-30T10-00-00.123456.jsonl", sample(1), sample(0))
    write(
        tmp_path / "results_2026-11-30T10-00-00.123456.json",
        json.dumps({"config": {"model": "hf", "model_args": "pretrained=owner/model,dtype=float32", "batch_size": 4}}),
    )
    record = load(tmp_path)
    assert record.evidence.subject.name == "owner/model"
    assert record.evidence.attributes["lm_eval.batch_size"] == 4
    metric = record.evidence.metrics["arc_easy/acc_norm"]
    assert (metric.n, metric.value, metric.chance, metric.primary) == (2, 1.0, 0.5, True)
    first = record.rows.to_pylist()[0]
    assert (first["doc_id"], first["answer"], first["margin"], first["text"]) == (0, "A", 0.5, "Question 0")
    assert load(path).rows.equals(record.rows)


def test_duplicate_questions_are_numbered(tmp_path: Path) -> None:
    same = sample(0)["arguments"]
    record = load(samples(tmp_path / "samples_t.jsonl", sample(0), sample(1, arguments=same)))
    assert record.rows.column("occurrence").to_pylist() == [0, 0, 1, 1]


def test_two_filters(tmp_path: Path) -> None:
    text = {
        "resps": [["the answer is 4"]],
        "metrics": ["exact_match"],
        "arguments": {"gen_args_0": {"arg_0": "2+2?", "arg_1": {"until": ["."]}}},
    }
    strict = sample(0, filter="strict", filtered_resps=["[invalid]"], exact_match=0.0, **text)
    flexible = sample(0, filter="flexible", filtered_resps=["4"], exact_match=1.0, **text)
    record = load(samples(tmp_path / "samples_t.jsonl", strict, flexible))
    assert {name: m.value for name, m in record.evidence.metrics.items()} == {
        "t/exact_match@strict": 0.0,
        "t/exact_match@flexible": 1.0,
    }
    assert {row["answer"] for row in record.rows.to_pylist()} == {"[invalid]", "4"}


def test_perplexity_samples(tmp_path: Path) -> None:
    entry = sample(
        0,
        resps=[["-40.0"]],
        filtered_resps=["-40.0"],
        metrics=["word_perplexity"],
        word_perplexity=[-40.0, 20],
        arguments={"gen_args_0": {"arg_0": "a page"}},
    )
    metric = load(samples(tmp_path / "samples_wiki.jsonl", entry)).evidence.metrics["wiki/word_perplexity"]
    assert (metric.scale, metric.value) == ("loglik", pytest.approx(2.718281828**2))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([sample(0), sample(0)], "repeats document 0"),
        ([sample(0, acc=float("nan"))], "nan"),
        ([sample(0, resps=[[["nan", "False"]], [["-3.0", "True"]]])], "document 0 got nan"),
        ([sample(0, acc=0.5)], "0 or 1"),
        ([sample("zero")], "not a whole number"),  # type: ignore[arg-type]
        ([sample(0, metrics=["f1"], f1=[0, 1])], "no metric with a score per example"),
        ([{k: v for k, v in sample(0).items() if k != "resps"}], "no 'resps'"),
        ([sample(0), sample(1, metrics=["acc"], arguments=5)], "not laid out"),
    ],
)
def test_bad_samples(tmp_path: Path, entries: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(samples(tmp_path / "samples_t.jsonl", *entries))


def test_a_truncated_samples_file_names_its_line(tmp_path: Path) -> None:
    path = samples(tmp_path / "samples_t.jsonl", sample(0), sample(1))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="line 2, is not valid JSON"):
        load(path)


def test_samples_of_two_models_are_refused(tmp_path: Path) -> None:
    for model in ("a", "b"):
        (tmp_path / model).mkdir()
        samples(tmp_path / model / "samples_t_2026-11-30T10-00-00.jsonl", sample(0))
    with pytest.raises(InputError, match="folder of one model"):
        load(tmp_path)


# Inspect AI logs (tests/integration/quant reads logs that the real package wrote)


def log(status: str = "success", **changes: Any) -> dict[str, Any]:
    return {
        "version": 2,
        "status": status,
        "eval": {"task": "add", "model": "m"},
        "samples": [scored("a", "C"), scored("b", "I")],
        **changes,
    }


def scored(identity: str, value: Any, **changes: Any) -> dict[str, Any]:
    return {
        "id": identity,
        "epoch": 1,
        "input": "?",
        "target": "!",
        "scores": {"match": {"value": value, "answer": "4"}},
        **changes,
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [("C", 1.0), ("I", 0.0), ("P", 0.5), ("N", 0.0), (True, 1.0), (0.75, 0.75), ("0.5", 0.5), ("yes", 1.0)],
)
def test_inspect_values(tmp_path: Path, value: Any, expected: float) -> None:
    record = load(write(tmp_path / "log.json", json.dumps(log(samples=[scored("a", value)]))))
    assert record.evidence.metrics["add/match"].value == expected


def test_epochs_are_averaged(tmp_path: Path) -> None:
    entries = [scored("a", "C"), scored("a", "I", epoch=2), scored("b", "C"), scored("b", "C", epoch=2)]
    record = load(write(tmp_path / "log.json", json.dumps(log(samples=entries))))
    metric = record.evidence.metrics["add/match"]
    assert (metric.n, metric.value, metric.scale) == (2, 0.75, "bounded")


def test_message_ids_do_not_change_the_example(tmp_path: Path) -> None:
    def read(identity: str) -> bytes:
        entry = scored("a", "C", input=[{"id": identity, "role": "user", "content": "What is 2+2?"}])
        record = load(write(tmp_path / f"{identity}.json", json.dumps(log(samples=[entry]))))
        assert record.rows.to_pylist()[0]["text"] == "a: What is 2+2?"
        found: bytes = record.rows.to_pylist()[0]["item"]
        return found

    assert read("x1") == read("y2")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (log(status="error"), "status 'error'"),
        (log(status="started"), "status 'started'"),
        (log(samples=[]), "no samples"),
        (log(samples=[scored("a", "C"), scored("a", "C")]), "twice in epoch"),
        (log(samples=[scored("a", "C", error={"message": "x"})]), "sample a failed"),
        (log(samples=[scored("a", "C", scores={})]), "no scores"),
        (log(samples=[scored("a", "C"), scored("b", "C", scores={})]), "has no score"),
        (log(samples=[scored("a", {"x": 1})]), "several values"),
        (log(samples=[scored("a", float("nan"))]), "nan"),
        (log(samples=[scored("a", "maybe")]), "not a number"),
        (log(samples=[scored("a", 7)]), "--low and --high"),
        ({"a": 1}, "not an Inspect AI log"),
        ([1], "not an object"),
    ],
)
def test_bad_logs(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(write(tmp_path / "log.json", json.dumps(document)))


def archive(path: Path, members: dict[str, Any], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as target:
        for name, content in members.items():
            target.writestr(name, content if isinstance(content, bytes) else json.dumps(content))
    return path


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_eval_archives(tmp_path: Path, compression: int) -> None:
    header = {key: value for key, value in log().items() if key != "samples"}
    members = {
        "header.json": header,
        "samples/a_epoch_1.json": scored("a", "C"),
        "samples/b_epoch_1.json": scored("b", "I"),
    }
    record = load(archive(tmp_path / "log.eval", members, compression))
    plain = load(write(tmp_path / "log.json", json.dumps(log())))
    assert record.rows.equals(plain.rows)


def test_bad_archives(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no header\.json"):
        load(archive(tmp_path / "log.eval", {"_journal/start.json": {}}))
    whole = archive(tmp_path / "log.eval", {"header.json": log()})
    whole.write_bytes(whole.read_bytes()[:60])
    with pytest.raises(InputError, match="truncated ZIP"):
        load(whole)


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = archive(tmp_path / "log.eval", {"header.json": b" " * (300 << 20)})
    assert path.stat().st_size < 1 << 20
    with pytest.raises(InputError, match="a sample has at most"):
        load(path)


def test_a_folder_of_two_models_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    write(folder / "a.json", json.dumps(log()))
    write(folder / "b.json", json.dumps(log(eval={"task": "other", "model": "n"})))
    with pytest.raises(InputError, match="different models"):
        load(folder)
