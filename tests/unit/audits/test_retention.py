"""What a retention policy removes, and what it never does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.baselines.errors import InputError
from assay.baselines.ledger import Publication
from assay.bot.audits.retention import choose, needed_by
from assay.bot.objects import Pull

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)


def publication(i: int, age: float | None, kind: str = "evaluation") -> Publication:
    created = NOW - timedelta(days=age) if age is not None else None
    return Publication("main", f"{i:012x}", kind, f"{i:012x}", created)


def removed(publications: list[Publication], **rule: object) -> list[str]:
    needed = rule.pop("needed", {})
    return [c.publication.sha12 for c in choose(publications, needed, NOW, **rule) if c.remove]  # type: ignore[arg-type]


FIVE = [publication(i, 10.0 * i) for i in range(5)]


def test_count() -> None:
    assert removed(FIVE, keep=3) == [p.sha12 for p in FIVE[3:]]


def test_what_a_milestone_links_to_is_kept() -> None:
    assert removed(FIVE, keep=1, linked={FIVE[3].tag}) == [p.sha12 for p in (FIVE[1], FIVE[2], FIVE[4])]


def test_age() -> None:
    assert removed(FIVE, max_age=timedelta(days=25)) == [p.sha12 for p in FIVE[3:]]


def test_what_either_rule_keeps_is_kept() -> None:
    assert removed(FIVE, keep=2, max_age=timedelta(days=35)) == [FIVE[4].sha12]
    assert removed(FIVE, keep=5, max_age=timedelta(0)) == []


def test_the_newest_of_each_kind_stays() -> None:
    old = publication(9, 900, "kernel-bench")
    assert removed([*FIVE, old], max_age=timedelta(0)) == [p.sha12 for p in FIVE[1:]]


def test_what_is_needed_stays_and_says_by_whom() -> None:
    choices = choose(FIVE, {FIVE[4].tag: [7, 3]}, NOW, keep=1)
    assert choices[4].remove is False
    assert choices[4].why == "needed by 2 open pull requests (#3, #7)"


def test_unknown_age_is_kept() -> None:
    assert removed([FIVE[0], publication(8, None)], keep=1, max_age=timedelta(0)) == []


def test_a_policy_is_asked_for() -> None:
    with pytest.raises(InputError, match="--keep N, --max-age DAYS"):
        choose(FIVE, {}, NOW)


@settings(deadline=None, max_examples=60)
@given(
    ages=st.lists(st.one_of(st.none(), st.floats(0, 400)), min_size=1, max_size=12),
    keep=st.one_of(st.none(), st.integers(1, 6)),
    days=st.one_of(st.none(), st.integers(0, 300)),
    data=st.data(),
)
def test_never_the_newest_nor_what_is_needed(
    ages: list[float | None], keep: int | None, days: int | None, data: st.DataObject
) -> None:
    if keep is None and days is None:
        keep = 1
    found = [publication(i, age) for i, age in enumerate(ages)]
    needed = {p.tag: [1] for p in data.draw(st.lists(st.sampled_from(found)))}
    choices = choose(found, needed, NOW, keep=keep, max_age=timedelta(days=days) if days is not None else None)
    assert sorted(c.publication.tag for c in choices) == sorted(p.tag for p in found)
    gone = [c.publication for c in choices if c.remove]
    stays = [c.publication for c in choices if not c.remove]
    assert not {p.tag for p in gone} & needed.keys()
    dated = [p for p in found if p.created is not None]
    if dated:
        newest = max(dated, key=lambda p: str(p.created))
        assert newest.created in [p.created for p in stays]
    assert len(stays) >= min(keep or 1, len(found))


def pull(number: int, base: str = "main") -> Pull:
    return Pull(
        number=number, state="open", title="", author="ada", draft=False, head_sha=f"{number:040x}", head_ref="feature",
        head_repository="acme/widgets", base_sha="", base_ref=base, base_repository="acme/widgets", html_url="",
    )  # fmt: skip


def test_an_open_pull_request_needs_the_publication_nearest_to_its_merge_base() -> None:
    commits = [p.sha12 + "0" * 28 for p in FIVE]
    at = {f"{7:040x}": 1, f"{8:040x}": 3}

    def history(sha: str) -> list[str]:
        return commits[commits.index(sha) :]

    published = [FIVE[0], FIVE[2], FIVE[3]]
    found = needed_by([pull(7), pull(8), pull(9, "other")], published, lambda _, head: commits[at[head]], history)
    assert found == {FIVE[2].tag: [7], FIVE[3].tag: [8]}


def test_a_pull_request_without_common_history_needs_nothing() -> None:
    def unrelated(base: str, head: str) -> str:
        raise InputError("no common history")

    assert needed_by([pull(7)], FIVE, unrelated, lambda sha: [sha]) == {}
