"""The tasks of lm-eval: found by name, loaded, and described by what shapes their prompts."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from assay.baselines.errors import AssayError, InputError, ServiceError
from assay.quant.sampling import permutation

_CHANCE_DOCS = 1000
_NOT_PROMPT = {
    "task", "task_alias", "tag", "group", "custom_dataset", "dataset_path", "dataset_kwargs", "metric_list", "num_fewshot", "metadata",
    "should_decontaminate", "doc_to_decontamination_query", "unsafe_code",
}  # fmt: skip


def load_tasks(names: Sequence[str], include_path: Sequence[Path]) -> dict[str, Any]:
    """lm-eval tasks by name, group, tag, pattern or YAML file; groups are flattened to their tasks.

    The harness's own 10,000 task files are indexed only when a name is not found under `include_path`. Raises
    `InputError` for unknown names (with the nearest known ones) and unreadable data, `ServiceError` for data that must
    be downloaded and cannot be.
    """
    from lm_eval.tasks import TaskManager

    for folder in include_path:
        if not folder.is_dir():
            raise InputError(f"--include-path {folder} is not a folder: give the folder of the task files.")
    manager = TaskManager(include_path=[str(folder) for folder in include_path], include_defaults=False)
    if any(not _known(name, manager) for name in names):
        manager = TaskManager(include_path=[str(folder) for folder in include_path] or None)
    wanted: list[str] = []
    for name in names:
        found = (
            [name]
            if name in manager.task_index or _is_file(name)
            else [str(match) for match in manager.match_tasks([name])]
        )
        if not found:
            near = difflib.get_close_matches(name, manager.all_tasks, n=3)
            hint = (
                f"did you mean {' or '.join(near)}?"
                if near
                else "see `lm-eval ls tasks`, or give --include-path for local task files."
            )
            raise InputError(f"there is no task {name}: {hint}")
        wanted += found
    tasks: dict[str, Any] = {}
    for name in dict.fromkeys(wanted):
        try:
            tasks.update(manager.load([name])["tasks"])
        except Exception as error:
            raise _task_failure(error, name) from error
    return tasks


def config_digest(config: Any) -> str:
    """12 hex digits that change with anything in a task's configuration that shapes its prompts or its scoring.

    Where the data lies does not count (the examples' own keys tell), nor do Python functions, whose identity is not
    stable; a task that changes one is expected to change its version.
    """
    facts = {key: _stable(value) for key, value in vars(config).items() if key not in _NOT_PROMPT and value is not None}
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _stable(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if callable(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _stable(part) for key, part in value.items() if part is not None}
    if isinstance(value, list | tuple):
        return [_stable(part) for part in value]
    return value


def _known(name: str, manager: Any) -> bool:
    return name in manager.task_index or _is_file(name) or bool(manager.match_tasks([name]))


def _is_file(name: str) -> bool:
    return name.endswith((".yaml", ".yml")) and Path(name).is_file()


def _task_failure(error: Exception, name: str) -> AssayError:
    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    offline = (
        isinstance(error, ConnectionError)
        or "offline" in reason.lower()
        or "reach" in reason.lower()
        or "resolve" in reason.lower()
    )
    if offline:
        return ServiceError(
            f"the data of task {name} could not be downloaded ({reason}): check the connection, or use a local task"
            " file."
        )
    return InputError(f"task {name} cannot be loaded ({reason}): check its YAML and the paths in it.")


def chance_of(task: Any, docs: Any, seed: int, name: str) -> float:
    """Mean share of right choices, over at most 1,000 documents."""
    shares = []
    for index in permutation(seed, name, len(docs))[:_CHANCE_DOCS].tolist():
        doc = docs[index]
        choices = task.doc_to_choice(doc)
        target = task.doc_to_target(doc)
        right = len(target) if isinstance(target, list) and not task.multiple_input else 1
        shares.append(right / max(len(choices), 1))
    return sum(shares) / len(shares)


def cluster_field(task: Any) -> str | None:
    """The field of a document that names its group of dependent examples: `cluster` in the task's metadata."""
    facts = task.get_config("metadata")
    return str(facts["cluster"]) if isinstance(facts, Mapping) and facts.get("cluster") else None
