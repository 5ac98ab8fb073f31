"""Bytes per example of stored evidence, against lm-eval's own samples files of the same evaluation.

`python -m benchmarks.storage [--data DIR] [--examples N] [--out FILE]` evaluates a real 260K-parameter LLaMA on
HellaSwag and MMLU questions and on WikiText-2 pages twice: with assay, and with lm-eval logging its samples. The samples
are counted as lm-eval writes them and compressed with gzip, which is what one would do to keep them. Both hold every
example's scores; lm-eval's also hold the documents and all responses in full, assay's a digest of the response and the
first 160 characters of the text.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / ".." / "shared" / "data"
TASKS = ("hellaswag_cloze", "mmlu_cloze", "wikitext2_local")


def measure(data: Path, examples: int, work: Path) -> list[dict[str, Any]]:
    """One row per task: examples, and bytes per example in each form."""
    from assay.baselines.environment import capture
    from assay.baselines.evidence import Provenance
    from assay.quant.evaluation import run_evaluation
    from assay.quant.harness import Harness, HarnessOptions
    from assay.quant.sampling import Sampling
    from assay.quant.tasks import write_local_tasks

    model, files = data / "models" / "stories260k", work / "tasks"
    write_local_tasks(data / "eval", files, subjects=[])
    rows = []
    for task in TASKS:
        adapter = Harness(str(model), HarnessOptions((task,), (files,), device="cpu"))
        outcome = run_evaluation(
            adapter,
            Sampling(examples=examples),
            work / task,
            provenance=Provenance(created=datetime.now(UTC)),
            capture=capture,
        )
        table = outcome.record.rows
        assert table is not None
        indices = sorted(set(table.column("doc_id").to_pylist()))
        samples = lm_eval_samples(model, files, task, indices, work / "lm_eval")
        stored = sum(path.stat().st_size for path in (work / task).iterdir())
        packed = len(gzip.compress(samples.read_bytes(), 9))
        rows.append(
            {
                "task": task,
                "examples": len(indices),
                "assay": stored / len(indices),
                "assay_rows": (work / task / "rows.parquet").stat().st_size / len(indices),
                "lm_eval": samples.stat().st_size / len(indices),
                "lm_eval_gzip": packed / len(indices),
            }
        )
    return rows


def lm_eval_samples(model: Path, files: Path, task: str, indices: list[int], out: Path) -> Path:
    """The samples file that lm-eval logs for these documents."""
    import lm_eval
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    tracker = EvaluationTracker(output_path=str(out / task))
    found = lm_eval.simple_evaluate(
        model=HFLM(pretrained=str(model), device="cpu", dtype="float32", batch_size=16),
        tasks=[task],
        samples={task: indices},
        task_manager=TaskManager(include_path=str(files), include_defaults=False),
        bootstrap_iters=0,
        evaluation_tracker=tracker,
    )
    samples = found.pop("samples")
    tracker.save_results_aggregated(results=found, samples=samples)
    tracker.save_results_samples(task_name=task, samples=samples[task])
    return next((out / task).rglob("samples_*.jsonl"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder with eval/ and models/stories260k")
    parser.add_argument("--examples", type=int, default=300)
    parser.add_argument("--out", type=Path, help="also write the figures as JSON")
    options = parser.parse_args()
    if not (options.data / "eval").is_dir():
        sys.exit(f"{options.data} has no eval/ folder: give --data.")
    with tempfile.TemporaryDirectory() as work:
        rows = measure(options.data.resolve(), options.examples, Path(work))
    print("Bytes per example")
    print("| task | examples | lm-eval samples | gzip -9 | assay | ratio | ratio to gzip |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        print(
            f"| {row['task']} | {row['examples']:,} | {row['lm_eval']:,.0f} | {row['lm_eval_gzip']:,.0f} |"
            f" {row['assay']:,.0f} | {row['lm_eval'] / row['assay']:.1f} | {row['lm_eval_gzip'] / row['assay']:.1f} |"
        )
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"examples": options.examples, "tasks": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
