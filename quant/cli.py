"""`assay evaluate` and `assay evidence import`."""

from __future__ import annotations

import importlib.util
import json
import os
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.baselines.errors import AssayError, InputError
from assay.baselines.naming import names
from assay.baselines.ranges import FiniteRange

if TYPE_CHECKING:
    from assay.baselines.policy import Policy
    from assay.baselines.record import Record
    from assay.quant.plan import Adapter

EXAMPLES = """
Examples:

\b
  # 1,000 seeded examples of two tasks that lm-eval knows
  assay evaluate --checkpoint ./checkpoint --tasks hellaswag,mmlu --examples 1000 --out evidence/head

\b
  # grow until decided against main's record, at most 4,000; measure what main's record lacks on main's checkpoint
  assay evaluate --checkpoint ./checkpoint --tasks hellaswag --base evidence/main \\
      --base-checkpoint owner/model --grow --cap 4000 --out evidence/head

\b
  # local task files, few-shot, bfloat16 on the second GPU
  assay evaluate --checkpoint ./checkpoint --include-path tasks/ --tasks my_task --num-fewshot 5 \\
      --dtype bfloat16 --device cuda:1 --out evidence/head

\b
  # any torch classifier: two functions of this repository
  assay evaluate --model models:int8_net --dataset data:validation --latency --out evidence/head

An interrupted run continues with the same command. Exit codes: 0 measured, 2 bad input, 3 a tool or service failed.
"""


@click.command("evaluate", epilog=EXAMPLES)
@click.option("--checkpoint", metavar="DIR|HUB-ID", help="Checkpoint to evaluate: a local folder or a hub id.")
@click.option("--revision", default="main", show_default=True, help="Branch, tag or commit of a hub id.")
@click.option(
    "--tasks",
    multiple=True,
    metavar="NAMES",
    help="lm-eval tasks, groups or task files; repeat, or separate by commas.",
)
@click.option(
    "--include-path",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Folder of local lm-eval task files; repeatable.",
)
@click.option(
    "--model", metavar="MODULE:FUNCTION", help="Instead of a checkpoint: a function that returns a torch classifier."
)
@click.option(
    "--dataset",
    metavar="MODULE:FUNCTION",
    help="With --model: a function that returns pairs (input, label), or (inputs, labels).",
)
@click.option("--task-name", default="", help="With --model: name of the task [default: the dataset function's name].")
@click.option(
    "--examples", "--limit", type=int, help="Examples per task, the head of a seeded permutation [default: all]."
)
@click.option(
    "--seed",
    type=click.IntRange(0, (1 << 64) - 1),
    default=1234,
    show_default=True,
    help="Seed of the permutation and of few-shot examples.",
)
@click.option("--grow", is_flag=True, help="Add chunks of examples until each task is decided against --base.")
@click.option(
    "--chunk", type=int, default=256, show_default=True, help="Examples per step: of growth, and of resuming."
)
@click.option("--cap", type=int, help="With --grow: the most examples per task [default: all].")
@click.option(
    "--base",
    type=click.Path(path_type=Path),
    metavar="RECORD",
    help="Main's record: checks the protocol first, and decides when --grow may stop.",
)
@click.option(
    "--base-checkpoint",
    metavar="DIR|HUB-ID",
    help="Main's checkpoint: examples that --base lacks are measured on it, into OUT.base.",
)
@click.option("--base-revision", default="main", show_default=True, help="Revision of a base hub id.")
@click.option(
    "--base-model", metavar="MODULE:FUNCTION", help="With --model: main's model, in place of --base-checkpoint."
)
@click.option("--num-fewshot", type=click.IntRange(0), help="Few-shot examples [default: the task's own].")
@click.option("--apply-chat-template", is_flag=True, help="Format prompts with the tokenizer's chat template.")
@click.option(
    "--batch-size", type=int, default=16, show_default=True, help="Sequences per forward pass; part of the protocol."
)
@click.option("--max-length", type=click.IntRange(1), help="Longest sequence in tokens [default: the model's].")
@click.option(
    "--dtype",
    type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
    default="auto",
    show_default=True,
    help="Activation type.",
)
@click.option("--device", help="Where to run: cpu, cuda, cuda:1 [default: cuda where there is one].")
@click.option(
    "--format",
    "weight_format",
    default="",
    help="Weight format to record, for example int4-g128 [default: read from the files].",
)
@click.option("--latency", is_flag=True, help="Also measure latency (and peak memory on CUDA).")
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="assay.yml with thresholds [default: .github/assay.yml where it exists].",
)
@click.option("--commit", help="Commit that is measured [default: ASSAY_HEAD_SHA, else git rev-parse HEAD].")
@click.option("--run-id", type=click.IntRange(1), envvar="GITHUB_RUN_ID", help="Workflow run [default: GITHUB_RUN_ID].")
@click.option(
    "--attempt",
    type=click.IntRange(1),
    envvar="GITHUB_RUN_ATTEMPT",
    help="Attempt of the run [default: GITHUB_RUN_ATTEMPT].",
)
@click.option("--resume/--fresh", default=True, show_default=True, help="Continue an interrupted run, or start over.")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Folder of the record that is written."
)
@click.option("--debug", is_flag=True, help="Print the traceback of an error, also of one in your own code.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def evaluate(**options: Any) -> None:
    """Measure a checkpoint or classifier, example by example, and write the evidence to a folder."""
    try:
        _evaluate(options)
    except AssayError:
        if options["debug"]:
            traceback.print_exc()
        raise


def _evaluate(options: Mapping[str, Any]) -> None:
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from assay.baselines.checkout import UNCOMMITTED, tell_uncommitted, top_of, uncommitted
    from assay.baselines.environment import capture
    from assay.baselines.record import read_record
    from assay.quant.evaluation import run_evaluation
    from assay.quant.gating import preflight_of, stop_rule
    from assay.quant.progress import Terminal
    from assay.quant.provenance import provenance_of
    from assay.quant.sampling import Sampling
    from assay.quant.summary import print_outcome
    from assay.quant.supplement import Base

    sampling = Sampling(options["seed"], options["examples"], options["grow"], options["chunk"], options["cap"])
    record = _base_record(options, read_record)
    adapter = _adapter(options, options["checkpoint"], options["model"])
    other = _other_side(options)
    policy = _policy(options["policy"])
    provenance = provenance_of(options["commit"], options["run_id"], options["attempt"])
    changed = uncommitted(top_of(Path())) if provenance.commit is not None else []
    tell_uncommitted("measurement", str(provenance.commit), changed)
    progress = Terminal()
    try:
        outcome = run_evaluation(
            adapter,
            sampling,
            options["out"],
            provenance=provenance,
            capture=capture,
            base=Base(record, other) if record is not None else None,
            decide=(lambda plan: stop_rule(policy, record, plan.tasks)) if record is not None else None,
            preflight=preflight_of(policy, record.evidence if record is not None else None, sampling, provenance),
            fresh=not options["resume"],
            progress=progress,
            attributes={UNCOMMITTED: len(changed)} if changed else None,
        )
    finally:
        progress.close()
    print_outcome(outcome, options["out"], sampling, as_json=options["as_json"])


@click.command(
    "import",
    epilog="""
Examples:

\b
  assay evidence import results/owner__model --out evidence/main
  assay evidence import logs/2026-11-30_task.eval --out evidence/head
  assay evidence import scores.csv --low 0 --high 10 --out evidence/head

How imported results were measured is unknown; assay gate says so and cannot check that both sides agree.
""",
)
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "source_format",
    type=click.Choice(["lm-eval", "inspect", "table"]),
    help="What wrote the source [default: by the files' names].",
)
@click.option("--name", default="", help="What was measured, for the report [default: from the files].")
@click.option("--low", type=FiniteRange(), help="Lowest score that an example can have, when scores are not 0/1.")
@click.option("--high", type=FiniteRange(), help="Highest score that an example can have.")
@click.option("--commit", help="Commit that was measured [default: ASSAY_HEAD_SHA, else git rev-parse HEAD].")
@click.option("--run-id", type=click.IntRange(1), envvar="GITHUB_RUN_ID", help="Workflow run [default: GITHUB_RUN_ID].")
@click.option(
    "--attempt",
    type=click.IntRange(1),
    envvar="GITHUB_RUN_ATTEMPT",
    help="Attempt of the run [default: GITHUB_RUN_ATTEMPT].",
)
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Folder of the record that is written."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def import_results(
    source: Path,
    source_format: Any,
    name: str,
    low: float | None,
    high: float | None,
    commit: str | None,
    run_id: int | None,
    attempt: int | None,
    out: Path,
    as_json: bool,
) -> None:
    """Turn results that you already have into evidence.

    SOURCE is a samples file of lm-eval or the folder of a model's results, an Inspect AI log (.eval or .json) or a
    folder of them, or a CSV, TSV or Parquet table with columns id and score (and optionally task, metric, weight,
    cluster, answer, text).
    """
    from assay.quant.importers import import_evidence
    from assay.quant.provenance import provenance_of
    from assay.quant.summary import metrics_document, print_record

    if (low is None) != (high is None):
        raise InputError("--low and --high belong together: give both, or neither for scores of 0 and 1.")
    bounds = (low, high) if low is not None and high is not None else None
    provenance = provenance_of(commit, run_id, attempt)
    record = import_evidence(source, out, provenance=provenance, source_format=source_format, name=name, bounds=bounds)
    if as_json:
        click.echo(
            json.dumps(
                {"folder": str(out), "digest": record.digest, "metrics": metrics_document(record.evidence)}, indent=1
            )
        )
        return
    print_record(record, out)


def _base_record(options: Mapping[str, Any], read: Any) -> Record | None:
    if options["base"] is None:
        for name in ("base_checkpoint", "base_model"):
            if options[name]:
                raise InputError(f"--{name.replace('_', '-')} fills gaps of a base record: give --base as well.")
        if options["grow"]:
            raise InputError("--grow needs something to decide against: give --base, or a fixed --examples.")
        return None
    record: Record = read(options["base"])
    return record


def _other_side(options: Mapping[str, Any]) -> Adapter | None:
    if options["base_checkpoint"] or options["base_model"]:
        return _adapter(
            {**options, "latency": False, "weight_format": "", "revision": options["base_revision"]},
            options["base_checkpoint"],
            options["base_model"],
        )
    return None


def _adapter(options: Mapping[str, Any], checkpoint: str | None, model: str | None) -> Adapter:
    if (checkpoint is None) == (model is None):
        raise InputError("say what to evaluate: --checkpoint with --tasks, or --model with --dataset.")
    if checkpoint is not None:
        if options["dataset"]:
            raise InputError("--dataset belongs to --model: give --tasks for a checkpoint.")
        require("lm_eval", "torch", "transformers")
        from assay.quant.harness import Harness, HarnessOptions

        return Harness(
            checkpoint,
            HarnessOptions(
                tasks=names(options["tasks"], "--tasks"),
                include_path=tuple(options["include_path"]),
                num_fewshot=options["num_fewshot"],
                batch_size=options["batch_size"],
                max_length=options["max_length"],
                dtype=options["dtype"],
                device=options["device"],
                apply_chat_template=options["apply_chat_template"],
                seed=options["seed"],
                revision=options["revision"],
                weight_format=options["weight_format"],
                latency=options["latency"],
            ),
        )
    if not options["dataset"]:
        raise InputError("--model needs --dataset: a function that returns pairs (input, label).")
    if options["tasks"]:
        raise InputError("--tasks belongs to --checkpoint: a classifier has the one task of its --dataset.")
    require("torch")
    from assay.quant.classifier import Classifier, ClassifierOptions

    assert model is not None
    return Classifier(
        ClassifierOptions(
            model=model,
            dataset=options["dataset"],
            batch_size=options["batch_size"],
            device=options["device"],
            seed=options["seed"],
            weight_format=options["weight_format"],
            task=options["task_name"],
            latency=options["latency"],
        )
    )


def require(*modules: str) -> None:
    """Raise `InputError` when a package of the `quant` extra is not installed."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise InputError(
                f"assay evaluate needs {name}, which is not installed: pip install 'assay-ci[quant]' (in a clone of assay: '.[quant]')."
            )


def _policy(path: Path | None) -> Policy:
    from assay.baselines.config import load_configuration
    from assay.baselines.policy import Policy

    default = Path(".github/assay.yml")
    if path is None and not default.is_file():
        return Policy()
    return load_configuration(path or default).gate
