"""Reports for other machines and the page for people: valid whatever the evidence holds, and true in every state."""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.evidence import evaluation, outcomes
from tests.states import HOSTILE, STATES

from assay.baselines.compare import compare
from assay.baselines.compare.verdict import Conclusion, Overall, conclude
from assay.baselines.policy import Policy
from assay.bot.comment import BUDGET, SUMMARY_BUDGET, render, title
from assay.bot.page import to_html
from assay.bot.plan import plan
from assay.bot.report import to_json, to_junit
from assay.bot.sections import Result

TODAY = date(2026, 11, 30)
Counts = dict[str, tuple[int, int, int, float]]


def result(counts: Counts, policy: dict[str, Any] | None = None, **options: Any) -> Result:
    pairs = {task: outcomes(*c) for task, c in counts.items()}
    head = evaluation({t: h for t, (_, h) in pairs.items()}, **options)
    base = evaluation({t: b for t, (b, _) in pairs.items()}, **options)
    comparison = compare(head, base, Policy.model_validate({"at-chance": "warn", **(policy or {})}), TODAY)
    return Result("gate", comparison.overall, comparison=comparison, head=head.evidence, base=base.evidence)


def junit(found: Result, *, block: bool = False) -> dict[str, ET.Element]:
    root = ET.fromstring(to_junit(found, block_inconclusive=block))
    suite = root[0]
    cases = {case.get("name", ""): case for case in suite}
    assert suite.get("tests") == str(len(cases))
    for kind in ("failure", "skipped", "error"):
        count = sum(case.find(kind) is not None for case in cases.values())
        assert suite.get({"failure": "failures", "skipped": "skipped", "error": "errors"}[kind]) == str(count)
    return cases


ALL: Counts = {
    "down": (1000, 80, 20, 0.5),
    "up": (1000, 20, 80, 0.5),
    "same": (8000, 9, 9, 0.5),
    "few": (200, 8, 4, 0.5),
}


def test_junit_has_a_case_for_each_hypothesis() -> None:
    cases = junit(result(ALL))
    assert set(cases) == {"down/acc", "up/acc", "same/acc", "few/acc", "pool"}
    assert cases["down/acc"].find("failure") is not None
    assert cases["few/acc"].find("skipped") is not None
    assert cases["same/acc"].find("system-out") is not None
    assert junit(result(ALL), block=True)["few/acc"].find("failure") is not None


def test_p_is_that_of_the_direction_that_is_claimed() -> None:
    found = result({"up": (1000, 20, 80, 0.5)}, {"pool": {"enabled": False}})
    words = junit(found)["up/acc"].findtext("system-out") or ""
    assert "improved" in words
    assert re.search(r"p = \d\.\d+e-\d+", words)


def test_an_accepted_regression_is_no_failure() -> None:
    accepted = {"accepted": [{"task": "down", "reason": "known", "by": "me", "expires": "2026-12-01"}]}
    case = junit(result({"down": (1000, 80, 20, 0.5)}, accepted))["down/acc"]
    assert case.find("failure") is None
    assert "accepted until 2026-12-01" in (case.findtext("system-out") or "")


def test_no_comparison_is_an_error_and_not_a_pass() -> None:
    found = Result("gate", Overall.MISMATCH, reason="batch_size \x00 is 8 & 16")
    [case] = junit(found).values()
    error = case.find("error")
    assert error is not None
    assert error.get("type") == "mismatch"
    assert error.get("message") == "batch_size \ufffd is 8 & 16"


@pytest.mark.parametrize("name", [*HOSTILE, "\x00\x01\x1f\ufffe", "]]>", "a/b@c", "😀" * 100, " "])
def test_hostile_names_in_every_report(name: str) -> None:
    found = result({f"{name} t": (1000, 80, 20, 0.5), f"{name} u": (200, 8, 4, 0.5)})
    junit(found)
    document = json.loads(to_json(found, Conclusion.FAILURE, 1))
    assert {f["task"] for f in document["findings"]} == {f"{name} t", f"{name} u", "pool"}
    page = to_html(render([found], None, SUMMARY_BUDGET), title([found]))
    assert not re.search(
        r"<(script|img|iframe|svg|style>.*<style)|javascript:alert\(1\)[\"']|<a ", page.split("<body>")[1]
    )


def test_json_is_whole_and_finite() -> None:
    found = result(ALL)
    conclusion, code = conclude(found.overall, block_inconclusive=False)
    document = json.loads(to_json(found, conclusion, code), parse_constant=lambda token: pytest.fail(token))
    assert (document["overall"], document["conclusion"], document["exit_code"]) == ("regressed", "failure", 1)
    assert {f["task"]: f["state"] for f in document["findings"] if not f["pooled"]} == {
        "down": "regressed",
        "up": "improved",
        "same": "equivalent",
        "few": "inconclusive",
    }
    assert document["broke"] == 117
    assert sum(not flip["broke"] for flip in document["flips"]) == document["fixed"] == 113


@pytest.mark.parametrize("state", STATES)
def test_pages_of_all_states_stand_alone(state: str) -> None:
    made = STATES[state]()
    for found in plan(made.snapshot, made.records).results:
        page = to_html(render([found], None), title([found]), "<svg><title>plot</title>\n\n</svg>")
        body = page.split("<body>")[1]
        assert "quadrantChart" not in body
        assert not re.search(r"<(script|img)", body)
        for tag in ("details", "table", "main"):
            assert body.count(f"<{tag}>") == body.count(f"</{tag}>")


# -- what is said is so ----------------------------------------------------------------------------------------------


def accepted(*tasks: str) -> dict[str, Any]:
    return {"accepted": [{"task": t, "reason": "known", "by": "me", "expires": "2026-12-01"} for t in tasks]}


@pytest.mark.parametrize(
    ("counts", "policy", "said"),
    [
        ({"t": (1000, 80, 20, 0.5)}, accepted("t"), "✓ Accuracy regressed, and that was accepted"),
        (
            {"t": (1000, 80, 20, 0.5), "u": (9000, 9, 9, 0.5)},
            accepted("t"),
            "✓ Accuracy is equivalent, apart from what was accepted",
        ),
        (
            {"t": (1000, 80, 20, 0.5), "u": (1000, 20, 80, 0.5)},
            accepted("t"),
            "✓ Accuracy improved on 1 of 2 tasks, apart from what was accepted",
        ),
        (
            {"t": (1000, 80, 20, 0.5), "u": (200, 8, 4, 0.5)},
            accepted("t"),
            "? Inconclusive on 1 of 2 tasks: these examples cannot tell, apart from what was accepted",
        ),
        ({"t": (4000, 9, 9, 0.4)}, {"tasks": {"t": {"floor": 0.5}}}, "✗ Accuracy is below its floor on t"),
        ({"t": (4000, 300, 9, 0.4)}, {"tasks": {"t": {"floor": 0.5}}}, "✗ Accuracy regressed on t"),
        (
            {"t": (1000, 80, 20, 0.5), "u": (9000, 9, 9, 0.5)},
            {"groups": {"a": {"tasks": ["t", "u"]}, "b": {"tasks": ["t"]}}},
            "✗ Accuracy regressed on 1 of 2 tasks, and pooled",
        ),
    ],
)
def test_first_lines(counts: Counts, policy: dict[str, Any], said: str) -> None:
    assert title([result(counts, policy)]) == said


def test_a_score_near_its_floor_asks_for_what_would_show_it() -> None:
    found = result({"t": (1000, 10, 10, 0.45)}, {"tasks": {"t": {"floor": 0.46}}})
    body = render([found], None)
    assert found.overall is Overall.INCONCLUSIVE
    assert "under its floor of 0.460; about 16,000 examples would decide" in body
    assert "did not show equivalence" not in body


def test_units_of_the_column_are_those_of_its_rows() -> None:
    points = render([result(ALL)], None)
    assert "| change, points (95% interval) |" in points
    weights = [100.0 + i for i in range(60)]
    loglik = {"scale": "loglik", "metric": "word_perplexity", "weights": weights, "chance": None}
    base = evaluation({"p": [-3 * w for w in weights]}, **loglik)
    head = evaluation({"p": [-3.1 * w - i for i, w in enumerate(weights)]}, **loglik)
    comparison = compare(head, base, Policy(), TODAY)
    relative = render([Result("gate", comparison.overall, comparison=comparison)], None)
    assert "| change (95% interval) |" in relative
    assert "points" not in relative.split("<details>")[0]


@pytest.mark.parametrize(("margin", "said"), [(1.0, "1.0"), (0.25, "0.25"), (0.55, "0.55"), (2.5, "2.5")])
def test_a_margin_is_not_rounded_away(margin: float, said: str) -> None:
    body = render([result({"t": (60_000, 5, 5, 0.5)}, {"margin": margin, "threshold": 0.1})], None)
    assert f"equivalent within {said} |" in body


def test_flips_and_churn_count_an_example_once() -> None:
    counts: Counts = {"t": (1000, 80, 20, 0.5), "u": (1000, 0, 0, 0.5)}
    once = render([result(counts)], None)
    twice = render([result(counts, {"groups": {"a": {"tasks": ["*"]}, "b": {"tasks": ["t"]}}})], None)
    assert "80 examples broke, 20 fixed: net −60, 5.0% changed" in once
    assert "80 examples broke, 20 fixed: net −60, 5.0% changed" in twice


def test_the_pool_counts_its_own_members() -> None:
    counts: Counts = {"t": (1000, 80, 20, 0.5), "u": (9000, 9, 9, 0.5), "v": (9000, 9, 9, 0.5)}
    body = render([result(counts, accepted("t"))], None)
    assert "all\u00a02\u00a0pooled\u00a0·\u00a018,000" in body


def test_exact_p_is_not_claimed_for_clusters_or_growing_samples() -> None:
    counts: Counts = {"t": (1000, 90, 10, 0.5)}
    assert "Exact two-sided p" in render([result(counts)], None)
    grouped = result(counts, clusters=[str(i // 2) for i in range(1000)])
    growing = result(counts, attributes={"sampling": "growing"})
    for found in (grouped, growing):
        assert found.overall is Overall.REGRESSED
        assert "Exact two-sided p" not in render([found], None)


def test_families_are_counted_apart() -> None:
    weights = [100.0] * 60
    both = []
    for shift in (0.0, 0.001):
        accuracy = evaluation({"a": outcomes(60, 2, 2)[0], "b": outcomes(60, 2, 2)[1]})
        perplexity = evaluation(
            {"p": [-300.0 - shift * i for i in range(60)]}, scale="loglik", metric="ppl", weights=weights, chance=None
        )
        assert accuracy.rows is not None
        import pyarrow as pa

        metrics = {**accuracy.evidence.metrics, **perplexity.evidence.metrics}
        rows = pa.concat_tables([accuracy.rows, perplexity.rows]).unify_dictionaries()
        both.append(type(accuracy)(accuracy.evidence.model_copy(update={"metrics": metrics}), rows))
    comparison = compare(both[1], both[0], Policy.model_validate({"at-chance": "warn"}), TODAY)
    assert comparison.hypotheses == {"all, accuracy": 3, "all, perplexity": 1}


@pytest.mark.parametrize("budget", [BUDGET, 20_000, 3_000])
def test_wide_text_never_costs_the_verdict(budget: int) -> None:
    wide = "𝔘" * 300
    found = result(
        {f"{wide}{i}": (60, 30 if i % 2 else 2, 2, 0.5) for i in range(120)}, accepted(*(f"x{i}" for i in range(50)))
    )
    body = render([found], None, budget)
    assert len(body.encode()) <= budget
    assert body.startswith(f"## {title([found])}\n")
    assert "✗ Accuracy regressed on 60 of 120 tasks, and pooled" in body


def test_the_summary_has_all_rows() -> None:
    found = result({f"t{i}": (60, 2, 2, 0.5) for i in range(300)})
    summary = render([found], None, SUMMARY_BUDGET)
    assert all(f"| t{i}\u00a0" in summary for i in range(300))
    assert "did not fit" not in summary


@pytest.mark.parametrize("n", [200, 1000, 2000, 3000, 7000, 60_000])
@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.7, 1.5])
def test_a_drop_of_the_threshold_is_not_over_it(n: int, threshold: float) -> None:
    """Means and percentages are rounded in the last bits; 5 of 1,000 are half a point all the same."""
    exactly = n * threshold / 100
    if abs(exactly - round(exactly)) > 1e-9:
        pytest.skip("no whole number of examples is exactly the threshold")
    policy = {"threshold": threshold, "margin": 90, "pool": {"enabled": False}}
    at, above = round(exactly), round(exactly) + 1
    for accuracy in (0.3, 0.5, 0.7, 0.9):
        assert result({"t": (n, at, 0, accuracy)}, policy).overall is Overall.EQUIVALENT
        assert result({"t": (n, above, 0, accuracy)}, policy).overall is not Overall.IMPROVED
    if above >= 4:
        assert result({"t": (n, above, 0, 0.5)}, policy).overall is Overall.REGRESSED


def test_a_growing_sample_claims_no_power_of_a_fixed_one() -> None:
    found = result({"t": (400, 6, 6, 0.5)}, attributes={"sampling": "growing"})
    body = render([found], None)
    assert found.overall is Overall.INCONCLUSIVE
    assert "They can show" not in body
    assert "would decide, as often as not." in body


def test_an_accepted_rise_of_perplexity_is_no_drop() -> None:
    weights = [100.0 + i for i in range(60)]
    loglik = {"scale": "loglik", "metric": "ppl", "weights": weights, "chance": None}
    base = evaluation({"p": [-3 * w for w in weights]}, **loglik)
    head = evaluation({"p": [-3.05 * w - i % 3 for i, w in enumerate(weights)]}, **loglik)
    policy = Policy.model_validate(accepted("p"))
    comparison = compare(head, base, policy, TODAY)
    body = render([Result("gate", comparison.overall, comparison=comparison)], None)
    assert body.startswith("## ✓ Perplexity regressed, and that was accepted")
    assert "Accepted: p, a rise of 5." in body
