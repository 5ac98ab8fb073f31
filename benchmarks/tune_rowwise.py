"""Finds the fastest mapping of every declared row on this GPU and writes `kernels/rowwise/tuned.json`.

python -m benchmarks.tune_rowwise [--out FILE] [--operators softmax,rmsnorm,...]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from assay.baselines.errors import ServiceError
from assay.kernels.cuda.program import cubin
from assay.kernels.rowwise import hopper
from assay.kernels.rowwise.mapping import TUNED, Mapping, candidates, ranked, rule, tuned_text
from assay.kernels.suite import timing

OPERATORS = ("softmax", "rmsnorm", "layernorm", "add_rmsnorm", "add_layernorm")
WIDTHS = tuple(1024 << power for power in range(8))
BYTES = 1 << 29
ROUNDS = 8
FINALISTS, FINAL_ROUNDS = 12, 40
RANKED = 5
"""Mappings of the first look that are tried with every ranking of cache lines."""


def main() -> None:
    """Builds all candidates in parallel, times them interleaved with a copy, keeps the fastest of each row."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=TUNED)
    parser.add_argument("--operators", default=",".join(OPERATORS))
    parser.add_argument("--widths", default=",".join(map(str, WIDTHS)), help="powers of two")
    chosen = parser.parse_args()
    operators = [name for name in chosen.operators.split(",") if name]
    widths = [int(width) for width in chosen.widths.split(",") if width]
    began = time.perf_counter()
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda job: _build(*job), _jobs(operators, widths)))
    print(f"built in {time.perf_counter() - began:.0f} s", flush=True)
    winners = kept(TUNED)
    for operator in operators:
        for dtype in (torch.bfloat16, torch.float32):
            for columns in widths:
                mapping, share = fastest(operator, columns, dtype)
                winners[operator, dtype.itemsize, columns] = (mapping, share)
                print(f"{operator} {columns} {dtype}: {share:.3f} {mapping}", flush=True)
                lines = [(*key, *winner) for key, winner in sorted(winners.items(), key=lambda item: _place(item[0]))]
                chosen.out.write_text(tuned_text(torch.cuda.get_device_name(), lines), encoding="utf-8")
    print(f"done in {time.perf_counter() - began:.0f} s", flush=True)


Row = tuple[str, int, int]
"""Operator, bytes of an element, elements of a row."""


def kept(file: Path) -> dict[Row, tuple[Mapping, float]]:
    """The winners of an earlier run: those that are not tuned again stay."""
    entries = json.loads(file.read_text(encoding="utf-8"))["mappings"] if file.is_file() else []
    return {
        (entry["operator"], entry["itemsize"], entry["columns"]): (Mapping(**entry["mapping"]), entry["copy"])
        for entry in entries
    }


def _place(row: Row) -> tuple[int, int, int]:
    return (OPERATORS.index(row[0]), *row[1:])


def fastest(operator: str, columns: int, dtype: torch.dtype) -> tuple[Mapping, float]:
    """The mapping with the shortest median time, and its share of copy bandwidth.

    All candidates are timed a few times with ordinary cache lines, the best of them with every ranking of lines, and the
    best of those again, so that luck in the first look does not decide.
    A mapping that cannot be launched, or whose result differs from the untuned one's, is said and left out.
    """
    rows = BYTES // (columns * dtype.itemsize)
    x, residual = (torch.randn(rows, columns, device="cuda", dtype=torch.float32).to(dtype) for _ in range(2))
    weight, bias = torch.randn(columns, device="cuda").to(dtype), torch.randn(columns, device="cuda").to(dtype)
    target = torch.empty_like(x)
    inputs = (x, residual, weight, bias)
    expected = _result(_call(operator, *inputs, rule(columns, 16 // dtype.itemsize)))
    copy: list[Callable[[], Any]] = [lambda: target.copy_(x)]

    def runnable(mappings: Iterable[Mapping]) -> dict[Mapping, list[Callable[[], Any]]]:
        """The mappings that launch here and give the expected result."""
        found: dict[Mapping, list[Callable[[], Any]]] = {}
        for mapping in mappings:
            call = _call(operator, *inputs, mapping)
            try:
                agrees = torch.allclose(_result(call), expected, atol=0.03, rtol=0.03)
            except ServiceError as error:
                print(f"left out: {operator} {columns} {dtype} {mapping}: {error}", flush=True)
                continue
            if agrees:
                found[mapping] = [call]
            else:
                print(f"left out: {operator} {columns} {dtype} {mapping}: another result", flush=True)
        return found

    first = runnable(candidates(operator, columns, dtype.itemsize))
    best = _best(first, ROUNDS, columns, RANKED)
    with ThreadPoolExecutor(16) as pool:
        variants = [each for mapping in best for each in ranked(operator, mapping)]
        list(pool.map(lambda mapping: _build(operator, dtype.itemsize, columns, mapping), variants))
    second = runnable(variants)
    finalists = _best(second, ROUNDS, columns + 1, FINALISTS)
    named = {str(number): second[mapping] for number, mapping in enumerate(finalists)}
    times = timing.interleaved({"copy": copy, **named}, FINAL_ROUNDS, seed=columns + 2)
    copied = timing.median(times.pop("copy"))
    winner = min(times, key=lambda name: timing.median(times[name]))
    traffic = 2 if operator.startswith("add") else 1
    return finalists[int(winner)], traffic * copied / timing.median(times[winner])


def _best(calls: dict[Mapping, list[Callable[[], Any]]], rounds: int, seed: int, count: int) -> list[Mapping]:
    """The `count` mappings with the shortest median times."""
    named = dict(zip(map(str, range(len(calls))), calls, strict=True))
    times = timing.interleaved({name: calls[mapping] for name, mapping in named.items()}, rounds, seed)
    return [named[name] for name in sorted(times, key=lambda name: timing.median(times[name]))[:count]]


def _result(call: Callable[[], Any]) -> torch.Tensor:
    """What a call computes, of some of its rows."""
    found = call()
    y: torch.Tensor = found[0] if isinstance(found, tuple) else found
    return y[:: max(1, y.shape[0] // 64)].float()


def _call(
    operator: str, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, mapping: Mapping
) -> Callable[[], Any]:
    if operator == "softmax":
        return lambda: hopper.softmax(x, mapping=mapping)
    return lambda: hopper.norm(
        operator.removeprefix("add_"),
        x,
        weight,
        bias if "layer" in operator else None,
        residual=residual if operator.startswith("add") else None,
        mapping=mapping,
    )


def _jobs(operators: list[str], widths: list[int]) -> list[tuple[str, int, int, Mapping]]:
    return [
        (operator, itemsize, columns, mapping)
        for operator in operators
        for itemsize in (2, 4)
        for columns in widths
        for mapping in candidates(operator, columns, itemsize)
    ]


def _build(operator: str, itemsize: int, columns: int, mapping: Mapping) -> None:
    switches = hopper.switches(
        columns,
        mapping,
        residual=operator.startswith("add"),
        weight=operator != "softmax",
        bias="layer" in operator,
    )
    cubin(hopper.build(operator.removeprefix("add_"), itemsize == 2, mapping, switches))


if __name__ == "__main__":
    main()
