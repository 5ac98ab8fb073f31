"""Policy comes from the base branch, and what cannot be read or fetched is never a pass."""

from __future__ import annotations

import pytest
from tests.integration.bot.stage import Stage, headline
from tests.loopback.fixtures import ledger

from assay.baselines.ledger import Ledger, Publication
from assay.baselines.record import Record

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "anchors and aliases are not allowed"),
        ("gate:\n  treshold: 2\n", "unknown key 'gate.treshold'; did you mean 'threshold'?"),
        ("gate:\n  alpha: 7\n", "gate.alpha"),
        ("gate: [", "not plain YAML at line 1"),
        ("x" * 300_000, "the most that a configuration has"),
        (b"gate:\n  \xff\xfe\n", "not UTF-8"),
    ],
)
def test_bad_policy_on_the_base_branch(stage: Stage, text: str | bytes, words: str) -> None:
    run = stage.start()
    stage.react(run, "requested")
    stage.finish(run, broke=1, fixed=1)
    stage.repo.commit({".github/assay.yml": text})
    [answer] = stage.react(run)
    assert answer.plan.exit_code == 2
    assert stage.verdict(run) == ("completed", "failure")
    assert headline(stage.comment()) == "## ✗ The evidence cannot be used"
    shown = stage.comment().replace("&#95;", "_")
    assert "The policy on main cannot be read: .github/assay.yml" in shown
    assert words in shown


def test_a_folder_in_place_of_the_policy(stage: Stage) -> None:
    run = stage.measured(broke=1, fixed=1)
    stage.repo.commit({".github/assay.yml/x": "1"})
    [answer] = stage.react(run)
    assert answer.plan.exit_code == 2
    assert "is not a file" in stage.comment()
    assert stage.verdict(run) == ("completed", "failure")


def test_the_pull_request_cannot_bring_a_policy_of_its_own(stage: Stage) -> None:
    stage.repo.commit({".github/assay.yml": "gate:\n  threshold: 1\n  margin: 2\n"})
    lax = "gate:\n  threshold: 90\n  margin: 100\n"
    stage.head = stage.repo.commit({".github/assay.yml": lax}, branch="feature")
    stage.repo.synchronize(stage.number)
    run = stage.measured(broke=60)
    stage.react(run)
    assert headline(stage.comment()) == "## ✗ Accuracy regressed on mmlu"
    assert "over 1 point" in stage.comment()


def test_the_policy_of_the_branch_that_the_pull_request_goes_to(stage: Stage) -> None:
    stage.repo.commit({"x": "1"}, branch="release")
    stage.repo.commit({".github/assay.yml": "gate:\n  threshold: 90\n  margin: 100\n"}, branch="release")
    stage.publish(stage.base, "release")
    stage.repo.issues[stage.number].base_ref = "release"
    run = stage.measured(broke=60)
    stage.react(run)
    assert stage.verdict(run) == ("completed", "success")


def test_blocking_what_is_inconclusive(stage: Stage) -> None:
    run = stage.measured(broke=8, fixed=4)
    stage.react(run)
    assert stage.verdict(run) == ("completed", "neutral")
    stage.repo.commit({".github/assay.yml": "gate:\n  on-inconclusive: block\n"})
    [answer] = stage.react(run)
    assert stage.verdict(run) == ("completed", "action_required")
    assert answer.plan.exit_code == 1


def test_settings_of_the_comment(stage: Stage) -> None:
    run = stage.measured(broke=60)
    stage.repo.commit({".github/assay.yml": "comment:\n  flips: 3\n  pareto: false\n"})
    stage.react(run)
    assert stage.comment().count("\n| broke |") == 3
    assert "quadrantChart" not in stage.comment()
    assert stage.repo.sha("assay-journal") is None


def test_an_acceptance_covers_a_regression_until_it_expires(stage: Stage) -> None:
    run = stage.measured(broke=60)
    for day, state in (("2099-01-31", "success"), ("2020-01-31", "failure")):
        entry = f"{{task: mmlu, reason: ships anyway, by: ada, expires: {day}}}"
        stage.repo.commit({".github/assay.yml": f"gate:\n  accepted:\n    - {entry}\n"})
        stage.react(run)
        assert stage.verdict(run) == ("completed", state)


def test_a_baseline_whose_asset_was_exchanged(stage: Stage) -> None:
    run = stage.measured(broke=60)
    [release] = stage.repo.published("baseline/")
    rows = next(a for a in release.assets.values() if a.name == "rows.parquet")
    rows.data = rows.data[:-1] + b"X"
    [answer] = stage.react(run)
    assert headline(stage.comment()) == "## ✗ The measurement failed"
    assert "The baseline could not be fetched" in stage.comment()
    assert stage.verdict(run) == ("completed", "failure")
    assert answer.plan.exit_code == 3


def test_a_ledger_that_cannot_be_reached(stage: Stage) -> None:
    run = stage.measured(broke=1, fixed=1)
    stage.github.faults.add("status", path=r"/(git/matching-refs|releases)", times=1000)
    [answer] = stage.react(run)
    assert "The baseline could not be fetched" in stage.comment()
    assert stage.verdict(run) == ("completed", "failure")
    assert answer.plan.exit_code == 3
    stage.github.faults.clear()
    stage.react(run)
    assert headline(stage.comment()) == "## ✓ Accuracy is equivalent"
    assert stage.verdict(run) == ("completed", "success")


def test_the_nearest_ancestor_and_not_the_newest(stage: Stage) -> None:
    later = stage.repo.commit({"weights.txt": "9"})
    stage.publish(later, record=stage.record(later, head=False, n=399))
    run = stage.measured(broke=60)
    stage.react(run)
    assert stage.publication is not None
    assert stage.publication.tag in stage.comment()


def test_no_baseline(stage: Stage) -> None:
    for release in stage.repo.published("baseline/"):
        del stage.repo.releases[release.id]
        del stage.repo.refs[f"refs/tags/{release.tag}"]
    run = stage.measured(broke=60)
    stage.react(run)
    assert headline(stage.comment()) == "## – No baseline to compare with yet"
    assert stage.verdict(run) == ("completed", "neutral")


def test_another_ledger_of_the_same_kind(stage: Stage) -> None:
    """The bot asks nothing of a ledger but its protocol."""

    class Behind:
        """A ledger that stands in front of the release ledger."""

        def __init__(self, behind: Ledger) -> None:
            self.behind = behind

        def publish(self, *_: object, **__: object) -> Publication:
            raise AssertionError("a comment publishes nothing")

        def complete(self, publication: Publication) -> bool:
            return self.behind.complete(publication)

        def publications(self, branch: str, kind: str | None = None) -> list[Publication]:
            return self.behind.publications(branch, kind)

        def fetch(self, publication: Publication) -> Record:
            return self.behind.fetch(publication)

    run = stage.measured(broke=60)
    stage.react(run, shelf=Behind(ledger(stage.github, stage.scratch / "cache")))
    assert headline(stage.comment()) == "## ✗ Accuracy regressed on mmlu"
