"""A sample that grows until it is decided: against the published baseline, whose missing rows are measured in the same job."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest
from tests.loopback import Loopback
from tests.loopback.consumer import WRONG, Consumer, names

from assay.baselines.record import Record, read_record

PUBLISHED = 300
CHUNK = 100
CAP = 1000

MORE = '''

def _no_token():
    """No process that this code can read, from its own upwards, has the job's token in its environment."""
    import os

    pid = os.getpid()
    while pid > 1:
        process = Path("/proc") / str(pid)
        held = [v for v in (process / "environ").read_bytes().split(b"\\0") if b"=ghs_" in v]
        assert not held, f"{held[0].partition(b'=')[0]} of process {pid} has the token"
        pid = int(process.joinpath("stat").read_text().rpartition(")")[2].split()[1])
        if not os.access(f"/proc/{pid}/environ", os.R_OK):
            break
    assert not [name for name, value in os.environ.items() if "TOKEN" in name and value.startswith("ghs_")]


def watched():
    _no_token()
    return model()


def base_model():
    """What main has: its weights lie beside, under a name that pull requests leave alone."""
    return Table(set(json.loads((HERE / "main.json").read_text())["wrong"]), 1.0)
'''

GROW = f"""base: published
          grow: true
          chunk: {CHUNK}
          cap: {CAP}
          base-model: toy:base_model
"""


@pytest.fixture(scope="module")
def consumer(github: Loopback, tmp_path_factory: pytest.TempPathFactory) -> Consumer:
    """A repository whose pull requests grow their sample, and whose main published fewer rows than they may want."""
    made = Consumer(github, tmp_path_factory.mktemp("growth"))
    workflows = made.clone / ".github" / "workflows"
    measure, publish = workflows / "assay-measure.yml", workflows / "assay-publish.yml"
    measure.write_text(measure.read_text().replace("examples: 1000\n", GROW).replace("toy:model", "toy:watched"))
    publish.write_text(
        publish.read_text().replace("examples: 1000", f"examples: {PUBLISHED}").replace("toy:model", "toy:watched")
    )
    assert "grow: true" in measure.read_text()
    assert f"examples: {PUBLISHED}" in publish.read_text()
    toy = made.clone / "toy.py"
    toy.write_text(toy.read_text() + MORE)
    (made.clone / "main.json").write_text(json.dumps({"wrong": list(range(WRONG))}))
    made.git("add", "-A")
    made.git("commit", "-qm", "Grow until decided")
    made.repo.import_clone(made.clone)
    made.publish()
    return made


def left(consumer: Consumer, run: int, folder: Path) -> dict[str, Record]:
    """The records that a run uploaded, by their folder's name (`.` when there is one)."""
    [artifact] = [a for a in consumer.repo.artifacts.values() if a.run_id == run]
    with zipfile.ZipFile(io.BytesIO(artifact.data)) as archive:
        archive.extractall(folder)
    return {str(p.parent.relative_to(folder)): read_record(p.parent) for p in sorted(folder.rglob("evidence.json"))}


def examples(record: Record) -> int:
    assert record.rows is not None
    return len(set(record.rows.column("doc_id").to_pylist()))


def test_a_clear_loss_is_decided_early(consumer: Consumer, tmp_path: Path) -> None:
    number = consumer.pull("loss", broke=200)
    run = consumer.measure(number, opened=False)
    records = left(consumer, run, tmp_path)
    assert list(records) == ["."]  # main has all the rows that it took
    n = examples(records["."])
    assert n % CHUNK == 0
    assert n <= PUBLISHED < CAP
    assert records["."].evidence.attributes["sampling"] == "growing"
    consumer.report(run)
    comment = consumer.comment(number)
    assert names([comment]) == ["## ✗ Accuracy regressed on toy"]
    assert f"of {n:,}" in comment
    assert "nytime-valid confidence sequence" in comment
    assert consumer.checks(number) == [("assay", "completed", "failure")]


def test_rows_that_main_lacks_are_measured_in_the_same_job(consumer: Consumer, tmp_path: Path) -> None:
    number = consumer.pull("same", sharpness=2.0)
    run = consumer.measure(number, opened=False)
    records = left(consumer, run, tmp_path)
    assert sorted(records) == ["head", "head.base"]
    n = examples(records["head"])
    assert PUBLISHED < n <= CAP
    assert examples(records["head.base"]) == n - PUBLISHED
    [release] = consumer.repo.published("baseline/main/")
    base = json.loads(next(a.data for a in release.assets.values() if a.name == "evidence.json"))
    assert records["head.base"].evidence.subject.digest == base["subject"]["digest"]
    assert records["head.base"].evidence.attributes["supplement"] is True
    consumer.report(run)
    comment = consumer.comment(number)
    assert names([comment]) in (["## ✓ Accuracy is equivalent"], ["## ✓ Accuracy is not worse"])
    assert f"{n:,}" in comment
    assert consumer.checks(number) == [("assay", "completed", "success")]


def test_a_base_model_that_is_not_what_main_published(consumer: Consumer) -> None:
    """Somebody changes the stored weights of main in the pull request: the rows are not taken for main's."""
    consumer.git("checkout", "-q", "-B", "forged", "main")
    (consumer.clone / "main.json").write_text(json.dumps({"wrong": list(range(900))}))
    consumer.weights(sharpness=2.0)
    consumer.git("commit", "-qam", "Pretend that main is bad")
    consumer.git("checkout", "-q", "main")
    consumer.repo.import_clone(consumer.clone)
    number = consumer.repo.pull("forged")
    run = consumer.measure(number, expect=1, opened=False)
    consumer.report(run)
    assert names(consumer.comments(number)) == ["## ✗ The measurement failed"]
    assert consumer.checks(number) == [("assay", "completed", "failure")]
