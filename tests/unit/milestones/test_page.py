"""docs/milestones.md shows what the product really prints, and names every word that a milestone can use."""

from __future__ import annotations

import re
import textwrap

from tests.unit.milestones.workbench import EXAMPLES, ROOT

from assay.bot.milestones.proposal import StopCondition
from assay.bot.milestones.vocabulary import Predicate

PAGE = (ROOT / "docs" / "milestones.md").read_text()
GOLDEN = ROOT / "tests" / "golden" / "milestones"


def between(start: str, end: str) -> str:
    return textwrap.dedent(PAGE.partition(start)[2].partition(end)[0]).strip()


def test_the_checklist_is_one_that_the_bot_writes() -> None:
    golden = "\n".join(
        (GOLDEN / f"{name}.md").read_text() for name in ("blocked-by-model", "scope-growth-without-reason")
    )
    bare = re.sub(r"\[([^\]]+)\]\(https[^)]*\)", r"\1", golden)
    shown = [line for line in between("<!-- checklist -->", "<!-- /checklist -->").splitlines() if line]
    assert len(shown) == 7
    assert [line for line in shown if line not in bare.splitlines()] == []


def test_the_findings_are_those_of_the_broad_example() -> None:
    real = (EXAMPLES / "broad" / "lint.txt").read_text().splitlines()
    shown = [line for line in PAGE.splitlines() if line.startswith("capstone.yml: ")]
    assert len(shown) == 8
    assert [line for line in shown if line not in real] == []
    assert f"| {len(real)} findings |" in PAGE


def test_every_word_is_explained() -> None:
    words = {name.replace("_", "-") for name in Predicate.model_fields} - {"says"}
    words |= {name.replace("_", "-") for name in StopCondition.model_fields}
    assert {w for w in words if f"| `{w}:" not in PAGE} == set()
