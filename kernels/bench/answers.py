"""Answers of a worker, taken apart strictly: what they describe comes from a process that runs the user's code."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from assay.baselines.errors import ServiceError
from assay.kernels.bench.timed import Checkout
from assay.kernels.bench.wire import WireError, number
from assay.kernels.declaration import MOST_CASES

_CASE = {"parameters": str, "dtype": str, "tolerance": str, "inputs": str, "bytes": float, "flops": float}


@dataclass(frozen=True)
class Contract:
    """What one worker said about one kernel's contract."""

    results: list[list[Any]]
    """Rows of case, passed, relative error, largest error, reason."""
    first_seconds: dict[str, float]
    norms: dict[str, float]
    source: str


def checkout_of(arm: str, versions: dict[str, Any], found: dict[str, Any]) -> Checkout:
    """The description of a checkout. Raises `ServiceError` when the answer has another form."""
    described: dict[str, Any] = {}
    try:
        for kernel in _list(found.get("kernels")):
            cases = _mapping(kernel.get("cases"))
            for case in cases.values():
                if {name: type(value) for name, value in _mapping(case).items()} != _CASE:
                    raise WireError("described a case in another form")
                if not all(math.isfinite(case[name]) and case[name] >= 0 for name in ("bytes", "flops")):
                    raise WireError("has a byte or operation model that is no number")
            described[_text(kernel.get("name"))] = {
                "cases": cases,
                "configuration": _mapping(kernel.get("configuration")),
            }
        return Checkout(described, number(found, "import_seconds"), number(found, "setup_seconds"), versions)
    except WireError as error:
        raise ServiceError(f"the {arm} worker {error}.") from None


def contract_of(arm: str, found: dict[str, Any]) -> Contract:
    """The results of a contract. Raises `ServiceError` when the answer has another form."""
    try:
        results = _list(found.get("results"))
        for row in results:
            case, passed, relative, largest, reason = row if isinstance(row, list) and len(row) == 5 else [None] * 5
            if not (isinstance(case, str) and isinstance(passed, bool) and isinstance(reason, str)):
                raise WireError("answered with a contract in another form")
            if not all(isinstance(x, float) for x in (relative, largest)):
                raise WireError("answered with an error that is no number")
        return Contract(results, _numbers(found, "first_seconds"), _numbers(found, "norms"), _text(found.get("source")))
    except WireError as error:
        raise ServiceError(f"the {arm} worker {error}.") from None


def _numbers(found: dict[str, Any], key: str) -> dict[str, float]:
    values = _mapping(found.get(key))
    return {_text(name): number(values, name) for name in values}


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > MOST_CASES:
        raise WireError("answered with no list")
    return value


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > MOST_CASES:
        raise WireError("answered with no mapping")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise WireError("answered with no short text")
    return value
