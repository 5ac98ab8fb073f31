"""What docs/compile.md says of declarations, options and limits is so."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import click

from assay.baselines.config import Configuration, parse_configuration
from assay.baselines.policy import Npu, model_limits
from assay.bot.cli import assay
from assay.npu_backend.declaration import PRECISIONS, Declaration

PAGE = (Path(__file__).parents[3] / "docs" / "compile.md").read_text()


def table(after: str) -> dict[str, list[str]]:
    """First column -> the others, of the first table after a heading."""
    lines = PAGE.split(after, 1)[1].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return {name.strip("`"): rest for first, *rest in rows for name in first.split(", ")}


def test_every_field_of_a_declaration() -> None:
    assert set(table("## A declaration")) == {f.name for f in fields(Declaration)} - {"name"}
    assert all(f"`{name}`" in table("## A declaration")["precision"][0] for name in PRECISIONS)


def test_every_limit_and_its_default() -> None:
    rows = table("## The gate")
    known = Npu.model_json_schema(by_alias=True)["properties"]
    assert set(rows) == set(known)
    for name, (default, _) in rows.items():
        value = known[name].get("default")
        assert default.strip("`") == ("" if value in (None, {}) else str(value)), name


def test_the_example_is_a_policy() -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    policy = parse_configuration(block.encode()).gate
    assert policy != Configuration().gate
    limits = model_limits(policy, "mobilenet-v3-small")
    assert (limits.cycles, limits.max_latency_ms, limits.min_share) == (0.5, 0.8, 0.99)


def test_every_option_is_one() -> None:
    command = assay.get_command(click.Context(assay), "compile")
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts}
    said = set(re.findall(r"`(--[a-z-]+)", PAGE)) | set(re.findall(r"assay compile [^\n`]*?(--[a-z-]+)", PAGE))
    assert said
    assert said <= known
