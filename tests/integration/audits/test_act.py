"""Several nights of a consumer's repository: act runs the documented nightly workflow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.loopback import Loopback, act
from tests.loopback.consumer import Consumer
from tests.loopback.state import Issue

TURNS = '''

def steady():
    return model()


def moody():
    """Every second measurement has lost 60 answers: a machine that cannot be trusted."""
    turns = Path(json.loads((HERE / "weights.json").read_text()).get("turns", "none"))
    made = model()
    if turns.parent.is_dir() and turns.parent != Path("."):
        count = len(turns.read_text()) if turns.exists() else 0
        turns.write_text("x" * (count + 1))
        if count % 2:
            wrong = set(json.loads((HERE / "weights.json").read_text())["wrong"]) | set(range(900, 960))
            made = Table(wrong, 1.0)
    return made
'''


@pytest.fixture(scope="module")
def github(github_description: str | None) -> Iterator[Loopback]:
    with Loopback() as server:
        yield server


@pytest.fixture(scope="module")
def consumer(github: Loopback, tmp_path_factory: pytest.TempPathFactory) -> Consumer:
    assert act.binary() is not None, "these tests need act: `make setup` installs it"
    made = Consumer(github, tmp_path_factory.mktemp("nights"))
    nightly = made.clone / ".github" / "workflows" / "assay-nightly.yml"
    nightly.write_text(nightly.read_text().replace("toy:model", "toy:moody"))
    toy = made.clone / "toy.py"
    toy.write_text(toy.read_text() + TURNS)
    made.git("add", "-A")
    made.git("commit", "-qm", "Measure every night")
    made.repo.import_clone(made.clone)
    return made


def push(consumer: Consumer, broke: int = 0, **more: object) -> None:
    """A push to main of other weights."""
    consumer.weights(broke, **more)
    consumer.git("commit", "-qam", f"Lose {broke} {more or ''}")
    consumer.repo.import_clone(consumer.clone)


def issues(consumer: Consumer) -> list[Issue]:
    return [i for i in consumer.repo.issues.values() if "assay-drift" in i.labels]


def test_nights(consumer: Consumer, tmp_path: Path) -> None:
    """A false alarm, a drop of main, and its recovery; what old baselines are kept."""
    push(consumer, sharpness=1.0, turns=str(tmp_path / "turns"))
    first = consumer.night()
    assert "1 in 1 night (" in first.summary
    assert issues(consumer) == []
    assert len(consumer.repo.published("baseline/main/")) == 1

    push(consumer, broke=90)
    second = consumer.night()
    assert "1 in 2 nights" in second.summary
    [issue] = issues(consumer)
    assert issue.state == "open"
    assert issue.title == "main drifted: Accuracy regressed on toy"
    assert "lost 9.0 points" in issue.body
    assert "no retention policy is given" in second.log
    [old] = {r.tag for r in consumer.repo.published("baseline/main/")} - {
        r.tag for r in consumer.repo.published(f"baseline/main/{consumer.git('rev-parse', 'main')[:12]}/")
    }

    (consumer.clone / ".github" / "assay.yml").write_text("retention: {keep: 2}\n")
    consumer.git("add", "-A")
    push(consumer)
    third = consumer.night()
    assert "1 in 3 nights" in third.summary
    [issue] = issues(consumer)
    assert (issue.state, issue.title.split(":")[0]) == ("closed", "main has recovered")
    assert f"removed  {old}  (beyond the newest 2)" in third.log
    assert len(consumer.repo.published("baseline/main/")) == 2
