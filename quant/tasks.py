"""lm-eval task files for evaluation data that lies on this machine as JSON lines.

Choices are scored as continuations of the question (cloze form) and compared by log-likelihood per character. Small
models are at chance when they have to name a letter, which no gate can see a loss through; they are above it here.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from assay.baselines.errors import InputError
from assay.baselines.naming import names
from assay.baselines.record import write_atomically

HELLASWAG = "hellaswag_cloze"
MMLU = "mmlu_cloze"
WIKITEXT = "wikitext2_local"
_SPLIT = "validation"


def write_local_tasks(data_dir: Path, out_dir: Path, subjects: Sequence[str] | None = None) -> list[str]:
    """Write task files for the data in `data_dir` to `out_dir`, and return the tasks' names.

    `hellaswag_val.jsonl` (query, choices, label) becomes `hellaswag_cloze`; `mmlu_test.jsonl` (subject, question,
    choices, answer) becomes `mmlu_cloze` over all subjects and `mmlu_cloze_<subject>` for each of `subjects` (all when
    None), with few-shot examples from `mmlu_dev.jsonl`; `wikitext2_test.jsonl` (page) becomes `wikitext2_local`.
    Raises `InputError` when none of the files is there, or a subject is not in the data.
    """
    data_dir, out_dir = Path(data_dir).resolve(), Path(out_dir).resolve()
    names: list[str] = []
    if (path := data_dir / "hellaswag_val.jsonl").is_file():
        names.append(write_cloze_task(out_dir, HELLASWAG, path, text="{{query}}", choices="choices", target="label"))
    if (path := data_dir / "mmlu_test.jsonl").is_file():
        names += _write_mmlu(path, data_dir / "mmlu_dev.jsonl", out_dir, subjects)
    if (path := data_dir / "wikitext2_test.jsonl").is_file():
        names.append(write_perplexity_task(out_dir, WIKITEXT, path, field="page"))
    if not names:
        raise InputError(
            f"{data_dir} has none of hellaswag_val.jsonl, mmlu_test.jsonl, wikitext2_test.jsonl: give the folder of the"
            " data."
        )
    return names


def write_cloze_task(
    out_dir: Path,
    name: str,
    data: Path,
    *,
    text: str,
    choices: str,
    target: str,
    fewshot: Path | None = None,
) -> str:
    """A multiple-choice task whose choices continue the question. `text`, `choices` and `target` are field names or
    templates, as lm-eval's `doc_to_text`, `doc_to_choice` and `doc_to_target`."""
    files = {_SPLIT: str(data), **({"dev": str(fewshot)} if fewshot else {})}
    config: dict[str, Any] = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": files},
        "validation_split": _SPLIT,
        "output_type": "multiple_choice",
        "doc_to_text": text,
        "doc_to_choice": choices,
        "doc_to_target": target,
        "metric_list": [
            {"metric": metric, "aggregation": "mean", "higher_is_better": True} for metric in ("acc", "acc_norm")
        ],
        "metadata": {"version": 1.0},
    }
    if fewshot:
        config |= {"fewshot_split": "dev", "fewshot_config": {"sampler": "first_n"}}
    return _write(out_dir, name, config)


def write_perplexity_task(out_dir: Path, name: str, data: Path, *, field: str) -> str:
    """A perplexity task: the log-likelihood of each whole document in windows of the model's length."""
    return _write(
        out_dir,
        name,
        {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {_SPLIT: str(data)}},
            "validation_split": _SPLIT,
            "output_type": "loglikelihood_rolling",
            "doc_to_text": "",
            "doc_to_target": "{{" + field + "}}",
            "metric_list": [
                {"metric": "word_perplexity", "aggregation": "weighted_perplexity", "higher_is_better": False},
                {"metric": "byte_perplexity", "aggregation": "weighted_perplexity", "higher_is_better": False},
            ],
            "metadata": {"version": 1.0},
        },
    )


def _write_mmlu(test: Path, dev: Path, out_dir: Path, subjects: Sequence[str] | None) -> list[str]:
    form: dict[str, Any] = {"text": "Question: {{question}}\nAnswer:", "choices": "choices", "target": "answer"}
    names = [write_cloze_task(out_dir, MMLU, test, **form)]
    questions, examples = _by_subject(test), _by_subject(dev) if dev.is_file() else {}
    for subject in subjects if subjects is not None else sorted(questions):
        if subject not in questions:
            raise InputError(f"{test} has no subject {subject}: it has {', '.join(sorted(questions)[:5])}, ...")
        path = out_dir / "data" / f"{MMLU}_{subject}.jsonl"
        write_atomically(path, "".join(questions[subject]).encode())
        fewshot = None
        if subject in examples:
            fewshot = out_dir / "data" / f"{MMLU}_{subject}_dev.jsonl"
            write_atomically(fewshot, "".join(examples[subject]).encode())
        names.append(write_cloze_task(out_dir, f"{MMLU}_{subject}", path, fewshot=fewshot, **form))
    return names


def _by_subject(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                subject = str(json.loads(line)["subject"])
            except (ValueError, KeyError, TypeError):
                raise InputError(
                    f"{path}, line {number}, is not a JSON object with a subject: copy the file again."
                ) from None
            found.setdefault(subject, []).append(line if line.endswith("\n") else line + "\n")
    return found


def _write(out_dir: Path, name: str, config: dict[str, Any]) -> str:
    write_atomically(out_dir / f"{name}.yaml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True).encode())
    return name


def main() -> None:
    """`python -m assay.quant.tasks DATA OUT [--subjects a,b]`: write the task files and print the tasks' names."""
    parser = argparse.ArgumentParser(description="Write lm-eval task files for evaluation data on this machine.")
    parser.add_argument(
        "data", type=Path, help="folder with hellaswag_val.jsonl, mmlu_test.jsonl, wikitext2_test.jsonl"
    )
    parser.add_argument("out", type=Path, help="folder of the task files, for assay evaluate --include-path")
    parser.add_argument("--subjects", help="MMLU subjects that get a task of their own, by commas [default: all]")
    options = parser.parse_args()
    try:
        subjects = None if options.subjects is None else names([options.subjects], "--subjects")
        print("\n".join(write_local_tasks(options.data, options.out, subjects)))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
