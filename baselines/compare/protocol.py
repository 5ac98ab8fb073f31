"""Whether two measurements were made the same way, and if not, in which field they differ."""

from __future__ import annotations

from collections.abc import Collection

from assay.baselines.errors import InputError
from assay.baselines.evidence import UNDECLARED, Evidence, Scalar

TASK_PREFIX = "task."


class ProtocolMismatchError(InputError):
    """Base and head were measured differently; the message names the fields."""

    def __init__(self, differences: list[tuple[str, str, str]]) -> None:
        self.differences = differences
        listed = "; ".join(f"{field} is {base} in base and {head} in head" for field, base, head in differences[:4])
        more = f"; and {len(differences) - 4} more" if len(differences) > 4 else ""
        super().__init__(f"base and head were measured differently: {listed}{more}. Measure both the same way.")


def protocol_differences(base: Evidence, head: Evidence, tasks: Collection[str]) -> list[tuple[str, str, str]]:
    """(field, base value, head value) of every field that differs; facts of tasks outside `tasks` do not count.

    Facts of a task are named `task.<name>.<fact>`. Nothing differs when either side is undeclared: then nothing is known.
    """
    if base.protocol == UNDECLARED or head.protocol == UNDECLARED:
        return []
    assert isinstance(base.protocol, dict)
    assert isinstance(head.protocol, dict)
    found = []
    for field in sorted(set(base.protocol) | set(head.protocol)):
        if field.startswith(TASK_PREFIX) and not _of_tasks(field, tasks):
            continue
        before, after = base.protocol.get(field), head.protocol.get(field)
        if type(before) is not type(after) or before != after:
            found.append((field, _show(before), _show(after)))
    return found


def check_protocol(base: Evidence, head: Evidence, tasks: Collection[str]) -> None:
    """Raise `ProtocolMismatchError` unless the protocols agree on the compared tasks."""
    differences = protocol_differences(base, head, tasks)
    if differences:
        raise ProtocolMismatchError(differences)


def _of_tasks(field: str, tasks: Collection[str]) -> bool:
    rest = field.removeprefix(TASK_PREFIX)
    return any(rest.startswith(f"{task}.") for task in tasks)


def _show(value: Scalar) -> str:
    return "not declared" if value is None else repr(value)[:120]
