"""The badge says the accuracy of its record, whatever the names in it are."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from tests.evidence import evaluation
from tests.states import HOSTILE

from assay.bot.badge import badge, badge_path


def said(picture: str | None) -> str:
    assert picture is not None
    return ET.fromstring(picture)[0].text or ""


def test_accuracy_over_all_tasks() -> None:
    assert (
        said(badge(evaluation({"a": [1] * 30 + [0] * 10, "b": [1] * 10 + [0] * 50}).evidence))
        == "accuracy: 40.0% ± 9.4"
    )


def test_perplexity_where_there_is_no_accuracy() -> None:
    record = evaluation({"w": [-300.0, -310.0]}, scale="loglik", metric="word_perplexity")
    metrics = {k: m.model_copy(update={"value": 21.337}) for k, m in record.evidence.metrics.items()}
    assert said(badge(record.evidence.model_copy(update={"metrics": metrics}))) == "word perplexity: 21.34"


def test_nothing_to_say() -> None:
    assert badge(evaluation({"a": [0.5, 0.5]}, scale="bounded", low=0.0, high=1.0).evidence) is None


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_metric_names(name: str) -> None:
    record = evaluation({"w": [-300.0, -310.0]}, scale="loglik", metric=name)
    picture = ET.fromstring(badge(record.evidence) or "")
    assert {e.tag.rpartition("}")[2] for e in picture.iter()} == {"svg", "title", "rect", "path", "g", "text"}


@pytest.mark.parametrize(
    ("branch", "path"),
    [
        ("main", "badges/main.svg"),
        ("release/1.x", "badges/release/1.x.svg"),
        ("../../etc", "badges/etc.svg"),
        ("/a//b", "badges/a/b.svg"),
    ],
)
def test_a_badge_stays_in_its_folder(branch: str, path: str) -> None:
    assert badge_path(branch) == path
