"""GitHub Actions in one repository: workflow runs, their artifacts, and starting and stopping them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from github import GithubException

from assay.baselines.errors import ServiceError
from assay.baselines.ledger.service import speaking
from assay.bot.archive import download, unpack
from assay.bot.objects import Artifact, Run, Started, artifact_of, run_of
from assay.bot.rest import Rest


class WorkflowRuns:
    """Workflow runs of the repository that `rest` speaks with; failures are those of `assay.bot.github`."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._run: Run | None = None

    def remember_run(self, run: Any) -> None:
        """Take what an event tells of a workflow run as known; one that lacks something is asked for when it is needed."""
        try:
            self._run = run_of(run)
        except (AttributeError, KeyError, TypeError, ValueError):
            self._run = None

    def workflow_runs(
        self,
        head_sha: str | None = None,
        event: str | None = None,
        status: str | None = None,
        since: datetime | None = None,
    ) -> list[Run]:
        """Workflow runs, newest first, filtered as given; `since` is when they were created at the earliest."""
        created = f">={since.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if since is not None else None
        wanted = {"head_sha": head_sha, "event": event, "status": status, "created": created}
        parameters = {key: value for key, value in wanted.items() if value is not None}
        items = self._rest.pages("/actions/runs", "list workflow runs", parameters, "workflow_runs")
        return [run_of(item) for item in items]

    def known_run(self, run_id: int | None) -> Run | None:
        """A run that an event told of; None when none did. No request."""
        return self._run if self._run is not None and self._run.id == run_id else None

    def run(self, run_id: int) -> Run:
        """One workflow run, as of its latest attempt."""
        return run_of(self._rest.get(f"/actions/runs/{run_id}", f"read workflow run {run_id}"))

    def artifacts(self, run_id: int) -> list[Artifact]:
        """The artifacts of a workflow run."""
        items = self._rest.pages(
            f"/actions/runs/{run_id}/artifacts", f"list artifacts of run {run_id}", None, "artifacts"
        )
        return [artifact_of(item) for item in items]

    def download_artifact(self, artifact_id: int, folder: Path, max_bytes: int = 1 << 30) -> list[str]:
        """Download an artifact and unpack it into `folder`, which is replaced whole; returns the names inside.

        The archive is untrusted: `InputError` when it is larger than `max_bytes` packed or unpacked, has names outside
        the folder, links, duplicates or too many entries. Nothing is left in `folder` then.
        """
        path = f"/actions/artifacts/{artifact_id}/zip"
        with speaking(f"download artifact {artifact_id}"):
            packed = download(self._rest.source(path), Path(folder), max_bytes)
        try:
            return unpack(packed, Path(folder), max_bytes, origin=f"artifact {artifact_id}")
        finally:
            packed.unlink(missing_ok=True)

    def workflow_files(self, ref: str) -> list[str]:
        """Names of the workflow files at a branch; empty when there are none."""
        with speaking(f"list the workflows of {ref[:40]}"):
            try:
                data = self._rest.read("/contents/.github/workflows", {"ref": ref})
            except GithubException as error:
                if error.status == 404:
                    return []
                raise
            return sorted(str(item["name"]) for item in data if item.get("type") == "file")

    def dispatch(self, workflow: str, ref: str, inputs: dict[str, str]) -> Started | None:
        """Start a workflow with `workflow_dispatch`; the run, where GitHub says which one it started.

        Raises `ReplyLost` when it may have been started.
        """
        body = {"ref": ref, "inputs": inputs, "return_run_details": True}
        path = f"/actions/workflows/{quote(workflow, safe='')}/dispatches"
        try:
            data = self._rest.send("POST", path, body, f"dispatch {workflow}", once=True)
        except ServiceError as error:
            if "return_run_details" not in str(error):
                raise
            del body["return_run_details"]  # an Enterprise Server that does not know it yet refuses it by name
            data = self._rest.send("POST", path, body, f"dispatch {workflow}", once=True)
        if not isinstance(data, dict) or "workflow_run_id" not in data:
            return None
        return Started(int(data["workflow_run_id"]), str(data.get("html_url") or ""))

    def cancel_run(self, run_id: int) -> None:
        """Ask a run to stop; one that has stopped already is no error."""
        try:
            self._rest.send("POST", f"/actions/runs/{run_id}/cancel", None, f"cancel run {run_id}")
        except ServiceError as error:
            if " 409 " not in str(error):
                raise

    def rerun(self, run_id: int) -> None:
        """Run a finished run again, as its next attempt."""
        self._rest.send("POST", f"/actions/runs/{run_id}/rerun", None, f"run {run_id} again", once=True)
