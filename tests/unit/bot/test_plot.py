"""The Pareto plot: what it says is so, and no name or number can break out of it."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.baselines.pareto import ACCURACY, COSTS, Point, Value
from assay.bot.plot import mermaid, sentence, svg

LATENCY, MEMORY, SIZE = COSTS
HOSTILE = [
    '"]\n  "forged": [0.99, 0.99]',
    "</svg><script>alert(1)</script>",
    "]]>&amp;<!-- -->",
    "%%{init: {'theme':'dark'}}%%",
    "click A href javascript:alert(1)",
    "\x1b[31m\u202e\x00",
    "x" * 5000,
    "",
]


def point(name: str, accuracy: float, cost: float, half: float = 0.0, spread: float = 0.0) -> Point:
    return Point(name, (Value(accuracy, accuracy - half, accuracy + half), Value(cost, cost - spread, cost + spread)))


def test_nothing_is_drawn_of_one_point() -> None:
    assert mermaid([point("main", 0.5, 10)], (ACCURACY, LATENCY)) == ""
    assert sentence([point("this PR", 0.5, 10)], (ACCURACY, LATENCY), "this PR") == ""


def test_better_is_up_and_to_the_right() -> None:
    chart = mermaid([point("main", 0.50, 10), point("this PR", 0.60, 5)], (ACCURACY, LATENCY))
    places = {name: (float(x), float(y)) for name, x, y in re.findall(r'"([^"]+)": \[([\d.]+), ([\d.]+)\]', chart)}
    assert places["this PR"] == (0.88, 0.88)
    assert places["main"] == (0.12, 0.12)
    assert 'x-axis "slower" --> "faster"' in chart


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_stays_one_label(name: str) -> None:
    points = [point(name, 0.5, 10), point("this PR", 0.6, 5)]
    lines = mermaid(points, (ACCURACY, SIZE)).splitlines()
    assert len(lines) == 5
    assert all(re.fullmatch(r'  "[^"\[\]{}<>%&]*": \[\d\.\d\d, \d\.\d\d\]', line) for line in lines[3:])
    picture = ET.fromstring(svg(points, (ACCURACY, SIZE), name.replace("\x00", "").replace("\x1b", "")))
    tags = {element.tag.rpartition("}")[2] for element in picture.iter()}
    assert tags <= {"svg", "title", "rect", "text", "line", "path", "polyline", "g", "circle"}


def test_the_sentence_claims_no_more_than_the_intervals() -> None:
    axes = (ACCURACY, LATENCY)
    main, better = point("main", 0.5, 10), point("this PR", 0.6, 5)
    assert sentence([main, better], axes, "this PR") == "This PR is on the frontier and dominates main."
    assert sentence([main, better], axes, "main") == "Main is dominated by this PR (more accurate and faster)."
    unclear = point("this PR", 0.51, 9.9, half=0.05, spread=1.0)
    assert "on the frontier: within the intervals" in sentence([main, unclear], axes, "this PR")
    faster = point("this PR", 0.49, 5, half=0.02)
    assert "on the frontier" in sentence([main, faster], axes, "main")  # below main's own score is not as good
    measured = point("main", 0.5, 10, half=0.02)
    assert (
        sentence([measured, faster], axes, "main")
        == "Main is dominated by this PR (faster and as accurate within the interval)."
    )
    assert sentence([main], axes, "nobody") == ""


def test_intervals_and_frontier_are_drawn() -> None:
    points = [point("main", 0.5, 10, 0.01, 0.2), point("int8", 0.47, 6, 0.01, 0.2), point("bad", 0.3, 12, 0.01, 0.2)]
    picture = ET.fromstring(svg(points, (ACCURACY, LATENCY), "accuracy against latency"))
    circles = [e for e in picture.iter() if e.tag.endswith("circle")]
    assert len(circles) == 3
    assert sum(e.get("fill") == "#1a7f37" for e in circles) == 2
    xs = {e.get("cx"): e.get("fill") for e in circles}
    assert len(xs) == 3
    text = "".join(picture.itertext())
    assert "0.500 (0.490 to 0.510), 10 ms (9.8 to 10.2)" in text


numbers = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), numbers), min_size=2, max_size=6))
def test_any_finite_numbers_can_be_drawn(values: list[tuple[float, float]]) -> None:
    points = [point(f"p{i}", accuracy, cost) for i, (accuracy, cost) in enumerate(values)]
    for axis in COSTS:
        picture = ET.fromstring(svg(points, (ACCURACY, axis), "t"))
        for element in picture.iter():
            for key in ("x", "y", "cx", "cy", "x1", "x2", "y1", "y2"):
                if element.get(key) is not None:
                    assert -1e4 < float(element.get(key)) < 1e4  # type: ignore[arg-type]
        assert "nan" not in mermaid(points, (ACCURACY, axis))
        assert "inf" not in mermaid(points, (ACCURACY, axis))
