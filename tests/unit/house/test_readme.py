"""What the README says is so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from assay.baselines.config import Configuration
from assay.baselines.stats.power import detection_power, exact_examples_to_detect

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()


def test_workflows_are_those_of_the_documentation() -> None:
    shown = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(name: .*?)```", README, re.DOTALL)]
    files = [
        yaml.safe_load((ROOT / "docs" / "workflows" / f"assay-{n}.yml").read_text()) for n in ("measure", "report")
    ]
    assert shown == files
    for block in re.findall(r"permissions:\n((?:  .*\n)+)", README):
        assert all("#" in line for line in block.splitlines()), "permissions are commented line by line"


def test_configuration_table_has_every_key_and_its_default() -> None:
    rows = {
        m[1]: m[2]
        for m in re.finditer(r"^\| `((?:gate|comment|commands|retention)\.[a-z-]+)` \| (.*?) \|", README, re.MULTILINE)
    }
    schema = Configuration.model_json_schema(by_alias=True)["$defs"]
    wanted = {f"gate.{key}" for key in schema["Policy"]["properties"]}
    wanted |= {f"commands.{key}" for key in schema["CommandSettings"]["properties"]}
    wanted |= {f"comment.{key}" for key in schema["CommentSettings"]["properties"]}
    wanted |= {f"retention.{key}" for key in schema["RetentionSettings"]["properties"]}
    assert set(rows) == wanted
    defaults = json.loads(Configuration().model_dump_json(by_alias=True))
    for name, shown in rows.items():
        part, key = name.split(".")
        value = defaults[part][key]
        if isinstance(value, (int, float, str, bool)):
            assert shown.strip("`") == (str(value).lower() if isinstance(value, bool) else str(value)), name


def test_figures_of_the_threshold_section() -> None:
    assert round(100 * detection_power(200, 0.06, 0.02)) == 30
    assert "30% of the time" in README
    one, two = exact_examples_to_detect(0.06, 0.02), exact_examples_to_detect(0.06, 0.02, test="exact")
    assert 0.8 <= detection_power(926, 0.06, 0.02) < 0.82
    assert abs(one / 926 - 1) < 0.03
    assert "it takes 926 to find it 80% of the time" in README
    assert 1.33 < two / one < 1.4
    assert "would need over a third more examples" in README


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if not target.startswith(("http", "mailto")):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
