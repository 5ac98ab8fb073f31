"""The whole evidence set of this laboratory's kernels in one call.

python -m assay.kernels.suite --out DIR [--only STAGE,...] [--quick]

Writes `results.json` after every stage, and evidence of kind `kernel` for every kernel and peer at the end. A stage that
was written before is not repeated, so a run that was cut short goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from assay.baselines.errors import AssayError, InputError, ServiceError, cannot_write
from assay.baselines.naming import names
from assay.kernels.suite import sources, stages, warm

STAGES = (
    "machine-code",
    "ceilings",
    "contract",
    "compile",
    "attention",
    "rowwise",
    "traffic",
    "backward",
    "ablations",
    "overheads",
)
NEEDS_NO_GPU = frozenset({"machine-code"})


def main() -> None:
    """Runs the stages that are asked for and not there yet."""
    parser = argparse.ArgumentParser(prog="python -m assay.kernels.suite", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of results.json and the evidence")
    parser.add_argument("--only", default=",".join(STAGES), help=f"stages, of {', '.join(STAGES)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds: to try the suite, not to publish")
    chosen = parser.parse_args()
    try:
        run(chosen.out, names([chosen.only], "--only"), quick=chosen.quick)
    except AssayError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def run(out: Path, wanted: Iterable[str], *, quick: bool = False) -> None:
    """Stages in their fixed order; raises `InputError` for a name that is none, and without a Hopper GPU."""
    asked = list(wanted)
    for name in asked:
        if name not in STAGES:
            raise InputError(f"there is no stage {name!r}: choose from {', '.join(STAGES)}.")
    if not set(asked) <= NEEDS_NO_GPU and not (
        torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
    ):
        raise InputError(
            "the kernels are for Hopper (compute capability 9.0), and there is none: use --only machine-code."
        )
    path = out / "results.json"
    now = sources.digests()
    try:
        out.mkdir(parents=True, exist_ok=True)
        results: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {"sources": now}
    except OSError as error:
        raise cannot_write(out, error) from None
    except ValueError:
        raise InputError(f"{path} is damaged: give another --out, or delete it to begin anew.") from None
    moved = sources.changed(results.get("sources", {}), now)
    if moved:
        raise InputError(f"{path} was begun with another {moved[0]}: give another --out, or delete it to begin anew.")
    results.setdefault("command", f"python -m assay.kernels.suite --out {out.name}")
    if quick:
        stages.ROUNDS.update({name: max(5, rounds // 10) for name, rounds in stages.ROUNDS.items()})
        results["quick"] = True
    if torch.cuda.is_available():
        results["environment"] = _environment()
    began = time.perf_counter()

    def say(line: str) -> None:
        print(f"[{time.perf_counter() - began:5.0f} s] {line}", file=sys.stderr, flush=True)

    contract = results.get("contract", {})
    steps: dict[str, Callable[[], Any]] = {
        "machine-code": lambda: stages.machine_code(say),
        "ceilings": lambda: stages.ceilings(say),
        "contract": lambda: stages.contract_results(say),
        "compile": lambda: warm.everything(say),
        "rowwise": lambda: list(stages.rowwise_times(say, contract)),
        "attention": lambda: list(stages.attention_times(say, contract)),
        "backward": lambda: list(stages.backward_times(say, contract)),
        "ablations": lambda: list(stages.ablation_times(say, contract)),
        "overheads": lambda: stages.overheads(say),
        "traffic": lambda: stages.traffic(say),
    }
    failed: list[str] = []
    for name in STAGES:
        if name not in asked:
            continue
        if name in results:
            say(f"{name}: kept from before")
            continue
        try:
            results[name] = steps[name]()
        except (
            Exception
        ) as error:  # the other stages' results are worth keeping; the next run takes this stage up again
            failed.append(name)
            say(f"{name} stopped: {type(error).__name__}: {str(error)[:300]}")
            traceback.print_exc()
            continue
        if name == "contract":
            contract.update(results[name])
        _write(path, results)
    if torch.cuda.is_available() and "ceilings" in results:
        from assay.kernels.suite.records import write_records

        written = write_records(results, out / "evidence")
        say(f"{written} records of evidence in {out / 'evidence'}")
        _write(path, results)
    if failed:
        raise ServiceError(f"not every stage came through ({', '.join(failed)}); run the same command again.")


def _environment() -> dict[str, Any]:
    import triton

    from assay.baselines.environment import capture

    found = capture()
    cudnn: Any = torch.backends.cudnn.version
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": found.driver,
        "versions": [
            f"torch {torch.__version__}",
            f"triton {triton.__version__}",
            f"cuDNN {cudnn()}",
            f"Python {found.python}",
        ],
    }


def _write(path: Path, results: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(results, indent=1), encoding="utf-8")
    partial.replace(path)


if __name__ == "__main__":
    main()
