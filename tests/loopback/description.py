"""GitHub's published OpenAPI description, against which every reply of the loopback is held.

It comes from npm (`@octokit/openapi`, pinned in tests/package.json). Without it nothing is validated, and `available`
says why, so that a suite can say so.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

TESTS = Path(__file__).resolve().parent.parent
DOCUMENT = TESTS / "node_modules/@octokit/openapi/generated/api.github.com.json"
EXAMPLES = TESTS / "node_modules/@octokit/webhooks-examples/api.github.com/index.json"
COMMON_REFUSALS = {401, 403, 404, 409, 410, 422, 429, 500, 502, 503, 504}
"""Statuses that GitHub documents for all of its API, though not at every operation."""
ASIDE = {"example", "examples", "description", "x-github", "externalDocs"}


def install(timeout: float = 240.0) -> str | None:
    """Install the pinned packages when they are absent. Returns why they are not there, or None when they are."""
    if DOCUMENT.exists() and EXAMPLES.exists():
        return None
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed"
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return f"npm ci took over {timeout:.0f} s"
    if done.returncode != 0 or not DOCUMENT.exists():
        return f"npm ci failed: {(done.stderr.strip().splitlines() or ['no output'])[-1][:160]}"
    return None


class Description:
    """The description, compiled as it is needed."""

    def __init__(self, path: Path = DOCUMENT) -> None:
        self._document = json.loads(path.read_bytes())
        self._validators: dict[tuple[str, str, str], Draft202012Validator | None] = {}

    def faults(self, method: str, template: str, status: int, body: Any) -> list[str]:
        """What is wrong with a reply; empty when it is as GitHub describes."""
        operation = self._document["paths"].get(template, {}).get(method.lower())
        if operation is None:
            return [f"{method} {template} is not an operation of GitHub"]
        here = f"{method} {template} -> {status}"
        if status == 304 or (status in COMMON_REFUSALS and str(status) not in operation["responses"]):
            return [] if isinstance(body, dict) and "message" in body else [f"{here}: an error without a message"]
        if str(status) not in operation["responses"]:
            return [f"{here}: GitHub declares {', '.join(operation['responses'])}"]
        key = (method, template, str(status))
        if key not in self._validators:
            self._validators[key] = self._validator(operation["responses"][str(status)])
        validator = self._validators[key]
        if validator is None:
            refusal = status >= 400 and isinstance(body, dict) and "message" in body  # described without its body
            return [] if body is None or refusal else [f"{here}: a body where GitHub sends none"]
        problems = sorted(validator.iter_errors(body), key=lambda problem: len(problem.absolute_path))
        return [f"{here}: {problem.json_path}: {problem.message[:300]}" for problem in problems[:5]]

    def _validator(self, response: dict[str, Any]) -> Draft202012Validator | None:
        if "$ref" in response:
            response = self._at(response["$ref"])
        content = response.get("content") or {}
        if "application/json" not in content:
            return None
        return Draft202012Validator(_modern(content["application/json"]["schema"]), registry=self._registry)

    @cached_property
    def _registry(self) -> Registry[Any]:
        return Registry(retrieve=self._retrieve)

    @cache  # noqa: B019 - one description lives as long as the process
    def _retrieve(self, uri: str) -> Resource[Any]:
        return Resource.from_contents(_modern(self._at(uri.removeprefix("urn:github:"))), DRAFT202012)

    def _at(self, pointer: str) -> Any:
        found = self._document
        for part in pointer.removeprefix("#").strip("/").split("/"):
            found = found[part]
        return found


def _modern(schema: Any) -> Any:
    """OpenAPI 3.0 as JSON Schema 2020-12: `nullable` becomes a choice, references become resources of their own."""
    if isinstance(schema, list):
        return [_modern(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {}
    for key, value in schema.items():
        if key == "properties":
            found[key] = {name: _modern(inner) for name, inner in value.items()}
        elif key == "$ref":
            found[key] = "urn:github:" + value.removeprefix("#")
        elif key not in ASIDE and key not in {"nullable", "discriminator"}:
            found[key] = _modern(value) if key not in {"enum", "required", "default", "const"} else value
    return {"anyOf": [found, {"type": "null"}]} if schema.get("nullable") else found


@cache
def description() -> Description | None:
    """The installed description, or None."""
    return Description() if DOCUMENT.exists() else None
