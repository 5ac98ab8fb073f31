"""Each word of the vocabulary in each of its states, and what holds for all of them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.milestones.workbench import (
    ALL,
    CASES,
    FUNCTIONAL,
    LIBRARY,
    PASSED,
    REPORT,
    SHAPES,
    WITHOUT,
    attention,
    kernel,
    latencies,
    ours,
    shelf,
)

from assay.baselines.evidence import Environment
from assay.baselines.record import Record
from assay.bot.milestones.contest import Pairing, Rank
from assay.bot.milestones.predicates import Blocked, Met, Open, Outcome, judge
from assay.bot.milestones.proposal import Capstone
from assay.bot.milestones.shelf import Shelf, Verdict, headings, lacking
from assay.bot.milestones.vocabulary import Predicate

CAPSTONE = attention()


def ask(text: str, *records: Record, on: Shelf | None = None, capstone: Capstone = CAPSTONE) -> Outcome:
    predicate = Predicate.model_validate(yaml.safe_load(text))
    return judge(predicate, capstone, on if on is not None else shelf(*records))


CONTRACT = "contract-passed: {kind: kernel, subject: online-softmax}"
MODEL = 'model-agrees: {kind: kernel, subject: online-softmax, measured: "traffic/{shape}", predicted: "traffic/{shape}", within-percent: 5}'
LOSING = 'losing-regions-listed: {kind: kernel, subject: online-softmax, metric: "latency/{shape}", baseline: attention-library}'
ABLATION = "ablation: {kind: kernel, subject: online-softmax, pairs: [online-softmax]}"
RECORDED = "environment-recorded: {kind: kernel, subject: attention-library, fields: [hardware, driver]}"
FAST = "evidence: {kind: kernel, subject: online-softmax, metric: latency/s512, at-most: 46}"
NO_LIST: dict[str, Any] = {"attributes": {}}
PART = kernel("online-softmax", {f"traffic/{s}": 268.4 for s in SHAPES[:3]})

STATES = {
    "contract passed": (CONTRACT, [ours()], Met, "all 4 cases"),
    "contract of nothing": (CONTRACT, [LIBRARY], Open, "no kernel evidence of online-softmax with a contract yet"),
    "contract failed": (CONTRACT, [ours(contract={**PASSED, "tail": False})], Blocked, "failed on tail"),
    "contract unchecked": (CONTRACT, [ours(contract={"random": True, "tail": True})], Open, "extreme, all-masked"),
    "some cases": ("contract-passed: {kind: kernel, cases: [tail]}", [ours(contract={"tail": True})], Met, "the one case"),
    "the newest counts": (CONTRACT, [ours(), ours(contract={**PASSED, "tail": False}, day=9)], Blocked, "tail"),
    "an older failure is past": (CONTRACT, [ours(), ours(contract={**PASSED, "tail": False}, day=1)], Met, "passed"),
    "model agrees": (MODEL, [ours()], Met, "within 2.5% on all 4"),
    "model disagrees": (MODEL, [ours(traffic=(268.4, 268.4, 200.0, 268.4))], Blocked, "traffic/s2048 is 25.5% below the model's 268.4"),
    "model on the edge": (MODEL, [ours(traffic=(268.4, 268.4, 268.4, 268.4 * 1.05))], Met, "5.0%"),
    "model without measurement": (MODEL, [LIBRARY], Open, "yet"),
    "model of three shapes": (MODEL, [kernel("online-softmax", {f"traffic/{s}": 268.4 for s in SHAPES[:3]})], Open, "traffic/s4096"),
    "an older whole sweep counts": (MODEL, [ours(), kernel("online-softmax", {"traffic/s512": 9.0}, day=9)], Met, "all 4"),
    "a part of a sweep beside others": (MODEL, [PART, kernel("online-softmax", {"latency": 1.0}, day=9)], Open, "number for traffic/s4096"),
    "losses listed": (LOSING, [LIBRARY, ours()], Met, "3 losing shapes of 4"),
    "losses hidden": (LOSING, [LIBRARY, ours(attributes={"losing_regions": "s1024"})], Blocked, "s2048, s4096"),
    "losses unsaid": (LOSING, [LIBRARY, ours(**NO_LIST)], Open, "no attribute losing_regions"),
    "one side only": (LOSING, [ours()], Open, "both sides"),
    "sweep with a hole": (LOSING, [kernel("attention-library", {"latency/s512": 50.0}), ours()], Open, "lacks s1024"),
    "other protocol": (LOSING, [LIBRARY, ours(protocol={"timer": "wall", "clock": "locked"})], Blocked, "measured differently (timer)"),
    "other hardware": (LOSING, [LIBRARY, ours(environment=Environment(hardware="NVIDIA B200"))], Blocked, "different hardware"),
    "ablation": (ABLATION, [WITHOUT, ours()], Met, "1 controlled pair"),
    "ablation with one side": (ABLATION, [ours()], Open, "online-softmax alone"),
    "ablation of two things": (ABLATION, [WITHOUT, ours(configuration={"online-softmax": True, "block": 64})], Open, "alone"),
    "ablation on another machine": (ABLATION, [WITHOUT, ours(environment=Environment(hardware="B200"))], Open, "alone"),
    "environment": (RECORDED, [LIBRARY], Met, ""),
    "no driver": (RECORDED, [kernel("attention-library", environment=Environment(hardware="H200"))], Blocked, "driver"),
    "no evidence": (RECORDED, [], Open, "yet"),
    "bound held": (FAST, [ours()], Met, "45"),
    "bound broken": (FAST.replace("46", "43.9"), [ours()], Blocked, "45 us, asked for at most 43.9"),
    "interval across the bound": (FAST.replace("46", "45.5"), [ours()], Open, "44 to 46"),
    "at least": ("evidence: {kind: kernel, metric: latency/s512, at-least: 60}", [LIBRARY], Blocked, "at least 60"),
    "within a number": ("evidence: {kind: kernel, metric: latency/s4096, within: {of: 250, percent: 5}}", [LIBRARY], Met, "260"),
    "far from a number": ("evidence: {kind: kernel, metric: latency/s4096, within: {of: 200, percent: 5}}", [LIBRARY], Blocked, "within 5% of 200"),
    "near nothing": ("evidence: {kind: kernel, metric: latency/s4096, within: {of: spee, percent: 5}}", [LIBRARY], Open, "no number spee"),
    "exists": ("evidence: {kind: kernel, subject: 'attention-*'}", [LIBRARY], Met, ""),
    "another kind": ("evidence: {kind: npu}", [LIBRARY], Open, "no npu evidence yet"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "records", "state", "reason"), [pytest.param(*s, id=name) for name, s in STATES.items()]
)
def test_states(text: str, records: list[Record], state: type[Outcome], reason: str) -> None:
    found = ask(text, *records)
    assert type(found) is state, found
    assert reason in found.reason
    if state is Met:
        assert found.links
    linked = {link.label for link in found.links}
    assert linked <= {f"kernel {r.digest[:12]}" for r in records}


def test_both_sides_may_be_in_one_evidence() -> None:
    text = 'losing-regions-listed: {kind: kernel, metric: "latency/{shape}", baseline-metric: "library/{shape}"}'
    both = {**latencies(1.0, 1.0, 3.0, 1.0), **latencies(2.0, 2.0, 2.0, 2.0, name="library")}
    assert isinstance(ask(text, kernel("k", both, attributes={"losing_regions": "none"})), Blocked)
    assert isinstance(ask(text, kernel("k", both, attributes={"losing_regions": "s2048"})), Met)


def test_files() -> None:
    text = "file: {path: report.md, contains-headings: [Losing regions, limitations]}"
    assert isinstance(ask(text, on=Shelf()), Open)
    assert isinstance(ask(text, on=Shelf(files={"report.md": None})), Open)
    lacks = ask(text, on=Shelf(files={"report.md": ("Losing  Regions",)}))
    assert isinstance(lacks, Open)
    assert "limitations" in lacks.reason
    found = ask(text, on=Shelf(files={"report.md": REPORT}, files_at="https://x.test/blob/1/"))
    assert isinstance(found, Met)
    assert found.links[0].target == "https://x.test/blob/1/report.md"


@pytest.mark.parametrize(
    ("overall", "state"),
    [("equivalent", Met), ("improved", Blocked), ("regressed", Blocked), ("inconclusive", Open), ("no-baseline", Open)],
)
def test_gates(overall: str, state: type[Outcome]) -> None:
    on = Shelf(verdicts={"evaluation": Verdict(overall, "https://x.test/run/1")})
    found = ask("gate: {verdict: equivalent}", on=on)
    assert type(found) is state
    assert found.links[0].target == "https://x.test/run/1"
    either = ask("gate: {verdict: [equivalent, improved]}", on=on)
    assert isinstance(either, Met) == (overall in ("equivalent", "improved"))
    assert isinstance(ask("gate: {kind: npu, verdict: improved}", on=on), Open)


def test_a_prediction_of_nothing_is_met_by_nothing() -> None:
    text = "model-agrees: {kind: kernel, measured: spills, predicted: 0, within-percent: 5}"
    assert isinstance(ask(text, kernel("k", {"spills": 0.0})), Met)
    assert isinstance(ask(text, kernel("k", {"spills": 1.0})), Blocked)


def test_no_shape_declared_is_open_and_not_met() -> None:
    bare = CAPSTONE.model_copy(update={"input_family": CAPSTONE.input_family.model_copy(update={"shapes": []})})
    for text in (MODEL, LOSING, 'evidence: {kind: kernel, metric: "latency/{shape}", at-most: 1000}'):
        assert isinstance(ask(text, *ALL, capstone=bare), Open), text


def test_headings_are_those_of_the_page() -> None:
    text = "# Results #\n\n```sh\n# no heading\n```\n~~~\n## nor this\n~~~\n   ###   Losing\tregions\n#hashtag\n    # code\n"
    assert headings(text) == ("Results", "Losing\tregions")
    assert lacking(["losing regions", "Limitations"], headings(text)) == ["Limitations"]


numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3))


@settings(deadline=None, max_examples=100)
@given(
    a=numbers,
    b=numbers,
    wide_a=st.floats(0, 1e3),
    wide_b=st.floats(0, 1e3),
    direction=st.sampled_from(["higher", "lower"]),
)
def test_a_contest_is_symmetric(a: float, b: float, wide_a: float, wide_b: float, direction: str) -> None:
    """Whoever wins, the other loses; turning the direction turns the result; overlapping intervals tell nothing."""
    one = kernel("k", {"m": (a, a - wide_a, a + wide_a)}, direction=direction).evidence.metrics["m"]
    other = kernel("k", {"m": (b, b - wide_b, b + wide_b)}, direction=direction).evidence.metrics["m"]
    turned = {Rank.WINS: Rank.LOSES, Rank.LOSES: Rank.WINS, Rank.SAME: Rank.SAME}
    rank = Pairing("s", one, other).rank
    assert Pairing("s", other, one).rank is turned[rank]
    overlap = a - wide_a <= b + wide_b and b - wide_b <= a + wide_a
    assert (rank is Rank.SAME) == overlap
    if rank is Rank.WINS:
        assert (a < b) == (direction == "lower")
        assert Pairing("s", one, other).behind_percent <= 0


@settings(deadline=None, max_examples=60)
@given(passed=st.dictionaries(st.sampled_from([*CASES, "other"]), st.booleans()), extra=st.booleans())
def test_a_contract_is_met_by_all_cases_and_nothing_less(passed: dict[str, bool], extra: bool) -> None:
    records = [kernel("online-softmax", {"x": 1.0}, contract=passed), *([FUNCTIONAL] if extra else [])]
    found = ask(CONTRACT, *records)
    assert isinstance(found, Met) == all(passed.get(case) for case in CASES)
    assert isinstance(found, Blocked) == any(passed.get(case) is False for case in CASES)


@settings(deadline=None, max_examples=60)
@given(measured=st.floats(0.1, 1e6), predicted=st.floats(0.1, 1e6), within=st.floats(0.01, 100))
def test_model_agreement_is_the_relative_difference(measured: float, predicted: float, within: float) -> None:
    text = yaml.safe_dump(
        {"model-agrees": {"kind": "kernel", "measured": "m", "predicted": predicted, "within-percent": within}}
    )
    found = ask(text, kernel("k", {"m": measured}))
    off = 100 * abs(measured - predicted) / predicted
    if abs(off - within) > 1e-6:
        assert isinstance(found, Met) == (off < within)
