from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from assay.baselines.errors import InputError
from assay.baselines.evaluation import column_numpy
from assay.baselines.record import read_record
from assay.quant.evaluation import Outcome
from assay.quant.partial import FOLDER
from assay.quant.progress import Silent
from assay.quant.sampling import Sampling, permutation
from assay.quant.supplement import Base
from assay.quant.table import series_keys

Run = Callable[..., Outcome]


def docs(table: pa.Table, task: str = "t") -> list[int]:
    rows = [
        (t, d)
        for t, d, m in zip(*(table.column(c).to_pylist() for c in ("task", "doc_id", "metric")), strict=True)
        if m != "acc"
    ]
    return [doc for name, doc in rows if name == task]


def test_a_fixed_sample_is_the_head_of_the_permutation(arithmetic: Any, run: Run, tmp_path: Path) -> None:
    outcome = run(arithmetic(), Sampling(examples=30, chunk=8), tmp_path / "r")
    assert docs(outcome.record.rows) == permutation(1234, "t", 100)[:30].tolist()
    metric = outcome.record.evidence.metrics["t/acc_norm"]
    assert metric.n == 30
    assert metric.value == pytest.approx(sum(i % 3 != 0 for i in permutation(1234, "t", 100)[:30]) / 30)
    assert outcome.record.evidence.metrics["size"].value == 10
    assert outcome.record.evidence.attributes["sampling"] == "fixed"
    assert outcome.record.evidence.attributes["examples.t"] == 30
    assert outcome.record.evidence.attributes["truncated.t"] == 3
    assert outcome.record.evidence.protocol == {"batch_size": 1, "sampling.seed": 1234}
    assert read_record(tmp_path / "r").digest == outcome.record.digest


@pytest.mark.parametrize("name", ["r", "r.base"])
def test_nothing_is_measured_for_a_folder_that_is_in_use(name: str, arithmetic: Any, run: Run, tmp_path: Path) -> None:
    adapter = arithmetic()
    base = Base(run(arithmetic(), Sampling(examples=3), tmp_path / "base").record)
    (tmp_path / name).mkdir()
    (tmp_path / name / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds other things than a record \('notes.txt'\)"):
        run(adapter, Sampling(examples=3), tmp_path / "r", base=base)
    assert adapter.asked == []
    assert [path.name for path in (tmp_path / name).iterdir()] == ["notes.txt"]


def test_the_rows_do_not_depend_on_the_chunk(arithmetic: Any, run: Run, tmp_path: Path) -> None:
    tables = [
        run(arithmetic(twins=5), Sampling(chunk=chunk), tmp_path / str(chunk)).record.rows for chunk in (1, 7, 1000)
    ]
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])


def test_duplicates_of_a_small_sample_are_numbered_as_in_a_large_one(arithmetic: Any, run: Run, tmp_path: Path) -> None:
    large = run(arithmetic(twins=2), Sampling(), tmp_path / "large").record.rows
    small = run(arithmetic(twins=2), Sampling(examples=37), tmp_path / "small").record.rows
    assert set(series_keys(small, occurrence=True)) <= set(series_keys(large, occurrence=True))
    assert len(set(series_keys(large, occurrence=True))) == large.num_rows
    assert column_numpy(large, "occurrence").max() == 1


def test_perplexity_is_weighted(arithmetic: Any, run: Run, tmp_path: Path) -> None:
    record = run(arithmetic(sizes={"p": 10}, loglik=("p",)), Sampling(), tmp_path / "r").record
    assert record.evidence.metrics["p/word_perplexity"].value == pytest.approx(math.exp(2))


def test_a_growing_sample_stops_when_decided(arithmetic: Any, run: Run, tmp_path: Path) -> None:
    seen: list[int] = []

    def decide(evidence: Any, rows: pa.Table, extra: pa.Table) -> set[str]:
        seen.append(len(docs(rows)))
        assert evidence.metrics["t/acc"].n == len(docs(rows))
        assert extra.num_rows == 0
        return {"t"} if len(docs(rows)) >= 40 else set()

    adapter = arithmetic(sizes={"t": 100, "p": 50}, loglik=("p",))
    outcome = run(adapter, Sampling(grow=True, chunk=20, cap=90), tmp_path / "r", decide=lambda plan: decide)
    assert seen == [20, 40]
    assert docs(outcome.record.rows) == permutation(1234, "t", 100)[:40].tolist()
    # Perplexity has no bound that a sequential test could use: it goes to the cap whatever was decided.
    assert len(docs(outcome.record.rows, "p")) == 50
    assert outcome.record.evidence.attributes["decided.t"] is True
    assert outcome.record.evidence.attributes["sampling"] == "growing"


def test_an_undecided_sample_grows_to_the_cap(arithmetic: Any, run: Run, tmp_path: Path) -> None:
    outcome = run(
        arithmetic(), Sampling(grow=True, chunk=20, cap=70), tmp_path / "r", decide=lambda plan: lambda *a: set()
    )
    assert len(docs(outcome.record.rows)) == 70


@pytest.mark.parametrize("error", [KeyboardInterrupt(), InputError("the model failed")])
def test_an_interrupted_run_continues(arithmetic: Any, run: Run, tmp_path: Path, error: BaseException) -> None:
    out = tmp_path / "r"
    with pytest.raises(type(error)):
        run(arithmetic(break_after=40, error=error), Sampling(chunk=20), out)
    assert not (out / "evidence.json").exists()
    again = arithmetic()
    outcome = run(again, Sampling(chunk=20), out)
    assert outcome.resumed == 40
    assert len(again.asked) == 60
    assert not (out / FOLDER).exists()
    assert outcome.record.rows.equals(run(arithmetic(), Sampling(), tmp_path / "whole").record.rows)


@pytest.mark.parametrize("change", [{"name": "other"}, {"protocol": {"batch_size": 2}}, {"sizes": {"t": 99}}])
def test_another_subject_or_protocol_starts_over(
    arithmetic: Any, run: Run, tmp_path: Path, change: dict[str, Any]
) -> None:
    out = tmp_path / "r"
    with pytest.raises(KeyboardInterrupt):
        run(arithmetic(break_after=40, error=KeyboardInterrupt()), Sampling(chunk=20), out)
    again = arithmetic(**change)
    assert run(again, Sampling(chunk=20), out).resumed == 0
    assert len(again.asked) == sum(again.sizes.values())


def test_an_interrupted_run_says_what_is_kept_and_stays_an_interruption(
    arithmetic: Any, run: Run, tmp_path: Path
) -> None:
    """So that the command ends with the code of its signal, and a shell loop around it ends too."""
    notes: list[str] = []

    class Noted(Silent):
        def note(self, line: str) -> None:
            notes.append(line)

    with pytest.raises(KeyboardInterrupt):
        run(arithmetic(break_after=40, error=KeyboardInterrupt()), Sampling(chunk=20), tmp_path / "r", progress=Noted())
    assert notes[-1] == f"80 rows are kept in {tmp_path / 'r'}: run the same command again to continue."


def test_fresh_forgets(arithmetic: Any, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "r"
    with pytest.raises(KeyboardInterrupt):
        run(arithmetic(break_after=40, error=KeyboardInterrupt()), Sampling(chunk=20), out)
    assert run(arithmetic(), Sampling(chunk=20), out, fresh=True).resumed == 0


def test_a_damaged_chunk_is_measured_again(arithmetic: Any, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "r"
    with pytest.raises(KeyboardInterrupt):
        run(arithmetic(break_after=40, error=KeyboardInterrupt()), Sampling(chunk=20), out)
    chunk = next((out / FOLDER).rglob("*.parquet"))
    chunk.write_bytes(chunk.read_bytes()[:100])
    again = arithmetic()
    assert run(again, Sampling(chunk=20), out).resumed == 20
    assert len(again.asked) == 80


def test_more_examples_reuse_the_record(arithmetic: Any, run: Run, tmp_path: Path) -> None:
    run(arithmetic(twins=2), Sampling(examples=30), tmp_path / "r")
    again = arithmetic(twins=2)
    outcome = run(again, Sampling(examples=50), tmp_path / "r")
    assert len(again.asked) == 20
    assert outcome.record.rows.equals(run(arithmetic(twins=2), Sampling(examples=50), tmp_path / "whole").record.rows)
    other = arithmetic(name="other")
    run(other, Sampling(examples=50), tmp_path / "r")
    assert len(other.asked) == 50


def test_missing_base_rows_are_measured_for_exactly_the_examples(arithmetic: Any, run: Run, tmp_path: Path) -> None:
    whole = run(arithmetic(name="base", twins=2), Sampling(examples=60), tmp_path / "whole").record
    base = run(arithmetic(name="base", twins=2), Sampling(examples=25), tmp_path / "base").record
    other = arithmetic(name="base", twins=2)
    head = arithmetic(name="head", twins=2, right=lambda i: i % 4 != 0)
    outcome = run(head, Sampling(examples=60), tmp_path / "head", base=Base(base, other))
    assert outcome.supplement is not None
    assert len(other.asked) == 35
    assert other.closed == 1
    assert outcome.supplement.evidence.attributes["supplement"] is True
    assert outcome.supplement.evidence.subject == base.evidence.subject
    assert outcome.supplement.evidence.protocol == base.evidence.protocol
    together = pa.concat_tables([base.rows, outcome.supplement.rows])
    assert sorted(series_keys(together, occurrence=True)) == sorted(series_keys(whole.rows, occurrence=True))
    assert read_record(tmp_path / "head.base").digest == outcome.supplement.digest


def test_a_base_that_lacks_nothing_is_not_measured(arithmetic: Any, run: Run, tmp_path: Path) -> None:
    base = run(arithmetic(name="base"), Sampling(), tmp_path / "base").record
    other = arithmetic(name="base")
    outcome = run(arithmetic(name="head"), Sampling(examples=60), tmp_path / "head", base=Base(base, other))
    assert outcome.supplement is None
    assert other.asked == []


def test_a_base_that_lacks_rows_is_refused_without_its_checkpoint(arithmetic: Any, run: Run, tmp_path: Path) -> None:
    base = run(arithmetic(name="base"), Sampling(examples=20), tmp_path / "base").record
    head = arithmetic(name="head")
    with pytest.raises(InputError, match=r"lacks 40 examples .* --base-checkpoint"):
        run(head, Sampling(examples=60), tmp_path / "head", base=Base(base))
    assert head.asked == []
    # A growing sample is refused only when it gets there: 20 of its first 40 examples, with two metrics each.
    with pytest.raises(InputError, match=r"lacks 40 rows .* --base-checkpoint"):
        run(
            head,
            Sampling(grow=True, chunk=40),
            tmp_path / "head",
            base=Base(base),
            decide=lambda plan: lambda *a: set(),
        )
    assert len(head.asked) == 40


def test_another_base_checkpoint_is_refused(arithmetic: Any, run: Run, tmp_path: Path) -> None:
    base = run(arithmetic(name="base"), Sampling(examples=20), tmp_path / "base").record
    with pytest.raises(InputError, match="--base-checkpoint has digest"):
        run(
            arithmetic(name="head"), Sampling(examples=60), tmp_path / "head", base=Base(base, arithmetic(name="third"))
        )


def test_preflight_runs_before_anything_is_measured(arithmetic: Any, run: Run, tmp_path: Path) -> None:
    def refuse(plan: Any) -> list[str]:
        raise InputError("cannot work")

    adapter = arithmetic()
    with pytest.raises(InputError, match="cannot work"):
        run(adapter, Sampling(), tmp_path / "r", preflight=refuse)
    assert adapter.asked == []


def test_a_harness_that_loses_rows_is_refused(arithmetic: Any, run: Run, tmp_path: Path) -> None:
    class Losing(arithmetic):  # type: ignore[misc]
        def measure(self, task: str, indices: Any) -> Any:
            return super().measure(task, indices)[:-1]

    with pytest.raises(InputError, match="other rows than asked for"):
        run(Losing(), Sampling(), tmp_path / "r")


def test_nan_scores_are_refused(arithmetic: Any, run: Run, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not finite"):
        run(arithmetic(right=lambda i: float("nan")), Sampling(), tmp_path / "r")
    assert not (tmp_path / "r" / "evidence.json").exists()
