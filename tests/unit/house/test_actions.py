"""Action inputs, their environment variables and the command's options say the same thing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from assay.bot.cli import assay

ROOT = Path(__file__).parents[3]
ACTIONS = sorted((ROOT / "actions").glob("*/action.yml"))
COMMANDS = {
    "evaluate": ["evaluate"],
    "bench-kernels": ["bench"],
    "compile-npu": ["compile"],
    "gate": ["gate"],
    "comment": ["comment"],
    "publish-baseline": ["baseline", "publish"],
    "command": ["command", "answer"],
    "verify": ["command", "verify"],
    "audit": ["audit"],
    "drift": ["drift"],
    "prune": ["baseline", "prune"],
}
OWN = {"environment", "github-token", "artifact", "report-artifact", "retention-days", "base-branch"}
"""Inputs of the action itself: where assay is installed, the token, the upload, and `base: published`."""


def command_of(names: list[str]) -> click.Command:
    command: click.Command = assay
    context = click.Context(assay)
    for name in names:
        assert isinstance(command, click.Group)
        found = command.get_command(context, name)
        assert found is not None
        command = found
    return command


def load(path: Path) -> dict:  # type: ignore[type-arg]
    document: dict = yaml.safe_load(path.read_text())  # type: ignore[type-arg]
    return document


@pytest.mark.parametrize("name", COMMANDS)
def test_inputs_are_options(name: str) -> None:
    action = load(ROOT / "actions" / name / "action.yml")
    command = command_of(COMMANDS[name])
    options = {o.removeprefix("--"): p for p in command.params for o in p.opts if o.startswith("--")}
    arguments = {p.name for p in command.params if isinstance(p, click.Argument)}
    for key in set(action["inputs"]) - (OWN - set(options)):
        assert key in options or key.replace("-", "_") in arguments or key in OWN, f"{name}: input {key} is no option"
    steps = action["runs"]["steps"]
    [run] = [s for s in steps if "run" in s]
    variables = {v for v in run["env"].values() if "inputs." in str(v)}
    for key in action["inputs"]:
        if key not in {"artifact", "report-artifact", "retention-days"}:
            assert any(f"inputs.{key} " in v or f"inputs.{key} }}}}" in v for v in variables), (
                f"{name}: {key} reaches no step"
            )
    listed = set(re.findall(r"for name in ([^;]+);", run["run"])[0].split()) | set(
        " ".join(re.findall(r"for name in ([^;]+);", run["run"])).split()
    )
    for key in listed:
        assert key in action["inputs"], f"{name}: the step passes {key}, which is no input"
        assert key in options, f"{name}: the step passes --{key}, which is no option"
        assert f"INPUT_{key.upper().replace('-', '_')}" in run["env"]
    for key, value in action["inputs"].items():
        is_flag = key in options and getattr(options[key], "is_flag", False)
        assert is_flag == (value.get("default") in ("true", "false")), f"{name}: {key} is a flag on one side only"


@pytest.mark.parametrize("path", ACTIONS, ids=lambda p: p.parent.name)
def test_no_expression_inside_a_script(path: Path) -> None:
    for step in load(path)["runs"]["steps"]:
        assert "${{" not in step.get("run", ""), f"{path}: an expression in a script is an injection"


@pytest.mark.parametrize("path", ACTIONS, ids=lambda p: p.parent.name)
def test_every_input_is_described(path: Path) -> None:
    for key, value in load(path)["inputs"].items():
        assert value["description"], key
        assert key == key.lower()
        assert "_" not in key


def tool(name: str) -> str:
    found = Path(sys.executable).parent / name
    return (
        str(found)
        if found.exists()
        else shutil.which(name) or pytest.fail(f"{name} is not installed: run `make setup`")
    )


def test_actionlint_finds_nothing() -> None:
    done = subprocess.run([tool("actionlint"), "-no-color"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_zizmor_finds_nothing_that_is_not_justified_in_place() -> None:
    targets = [".github/workflows", "actions", "docs/workflows"]
    command = [tool("zizmor"), "--offline", "--no-progress", *[t for t in targets if (ROOT / t).exists()]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_third_party_actions_are_pinned() -> None:
    files = [*ACTIONS, *(ROOT / ".github" / "workflows").glob("*.yml")]
    for path in files:
        for uses in re.findall(r"uses: (\S+)", path.read_text()):
            assert uses.startswith("./") or re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", uses), f"{path}: {uses}"
