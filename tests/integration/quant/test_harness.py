from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from assay.baselines.errors import InputError
from assay.baselines.policy import Policy
from assay.baselines.record import Record
from assay.quant.evaluation import Outcome
from assay.quant.gating import preflight_of, stop_rule
from assay.quant.harness import Harness, HarnessOptions
from assay.quant.importers import import_evidence
from assay.quant.sampling import Sampling
from assay.quant.supplement import Base
from assay.quant.table import series_keys

Evaluate = Callable[..., Outcome]
Checkpoints = Callable[[str], Path]


def scores(record: Record, metric: str) -> dict[tuple[str, int], tuple[float, float]]:
    assert record.rows is not None
    return {
        (row["task"], row["doc_id"]): (row["score"], row["weight"])
        for row in record.rows.to_pylist()
        if row["metric"] == metric
    }


def flips(base: Record, head: Record) -> tuple[int, int]:
    before, after = scores(base, "acc_norm"), scores(head, "acc_norm")
    assert before.keys() == after.keys()
    broke = sum(before[key] > after[key] for key in before)
    return broke, sum(before[key] < after[key] for key in before)


@pytest.fixture(scope="module")
def reference(
    task_files: Path, checkpoints: Checkpoints, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """What lm-eval itself says, and the samples that it logs."""
    import lm_eval
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    out = tmp_path_factory.mktemp("lm_eval")
    tracker = EvaluationTracker(output_path=str(out))
    model = HFLM(pretrained=str(checkpoints("float32")), device="cpu", dtype="float32", batch_size=16)
    manager = TaskManager(include_path=str(task_files), include_defaults=False)
    results: dict[str, Any] = {}
    # One task at a time: together, lm-eval mixes the tasks in its batches, which changes the last bits.
    for task in ("hellaswag_cloze", "mmlu_cloze", "wikitext2_local"):
        found = lm_eval.simple_evaluate(model=model, tasks=[task], task_manager=manager, bootstrap_iters=0)
        samples = found.pop("samples")
        if not results:
            tracker.save_results_aggregated(results=found, samples=samples)
        tracker.save_results_samples(task_name=task, samples=samples[task])
        results |= found["results"]
    return out, results


def test_the_harness_agrees_with_lm_eval_in_every_bit(
    reference: tuple[Path, dict[str, Any]], evaluate: Evaluate, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    folder, results = reference
    record = evaluate(checkpoints("float32"), "hellaswag_cloze,mmlu_cloze,wikitext2_local", tmp_path / "r").record
    metrics = record.evidence.metrics
    for task in ("hellaswag_cloze", "mmlu_cloze"):
        for metric in ("acc", "acc_norm"):
            assert metrics[f"{task}/{metric}"].value == pytest.approx(results[task][f"{metric},none"], abs=1e-12)
    for metric in ("word_perplexity", "byte_perplexity"):
        assert metrics[f"wikitext2_local/{metric}"].value == pytest.approx(results["wikitext2_local"][f"{metric},none"])
    # Its samples files, imported, are the same examples with the same answers.
    imported = import_evidence(folder, tmp_path / "imported", provenance=record.evidence.provenance)
    ours, theirs = (dict(keyed(r)) for r in (record, imported))
    assert ours.keys() == theirs.keys()
    for key, row in ours.items():
        other = theirs[key]
        assert (row["score"], row["weight"], row["answer"]) == (other["score"], other["weight"], other["answer"])
        assert row["response"] == other["response"]


def keyed(record: Record) -> Any:
    assert record.rows is not None
    rows = record.rows.to_pylist()
    return [((row["task"], row["metric"], row["doc_id"], row["item"]), row) for row in rows]


def test_duplicate_questions_stay_apart(evaluate: Evaluate, checkpoints: Checkpoints, tmp_path: Path) -> None:
    record = evaluate(checkpoints("float32"), "mmlu_cloze", tmp_path / "r").record
    keys = series_keys(record.rows, occurrence=True)
    assert len(set(keys)) == len(keys) == 120
    assert len(set(series_keys(record.rows))) == 104


def test_quantization_changes_the_subject_and_not_the_protocol(
    evaluate: Evaluate, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    tasks = "hellaswag_cloze,mmlu_cloze"
    base, int8, int4, noise = (
        evaluate(checkpoints(kind), tasks, tmp_path / kind, weight_format=kind).record
        for kind in ("float32", "int8", "int4", "noise")
    )
    assert base.evidence.protocol == int4.evidence.protocol
    assert base.evidence.subject.digest != int4.evidence.subject.digest
    assert int4.evidence.subject.format == "int4"
    assert base.evidence.protocol["dtype"] == "float32"  # type: ignore[index]
    churn = [sum(flips(base, other)) for other in (int8, int4, noise)]
    assert churn[0] < churn[1] < churn[2]
    assert churn[2] > 10


def test_an_identical_checkpoint_answers_identically(
    evaluate: Evaluate, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(checkpoints("float32"), moved)
    first = evaluate(checkpoints("float32"), "hellaswag_cloze", tmp_path / "a", Sampling(examples=20)).record
    second = evaluate(moved, "hellaswag_cloze", tmp_path / "b", Sampling(examples=20)).record
    assert first.evidence.subject.digest == second.evidence.subject.digest
    assert first.rows.equals(second.rows)


def test_nan_weights_fail_and_name_the_example(evaluate: Evaluate, checkpoints: Checkpoints, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"task hellaswag_cloze: document \d+ got nan"):
        evaluate(checkpoints("nan"), "hellaswag_cloze", tmp_path / "r", Sampling(examples=20))
    with pytest.raises(InputError, match=r"task wikitext2_local: document \d+ got nan"):
        evaluate(checkpoints("nan"), "wikitext2_local", tmp_path / "r", Sampling(examples=2))


def test_a_checkpoint_that_lacks_tensors_is_not_filled_with_noise(
    evaluate: Evaluate, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    broken = tmp_path / "broken"
    shutil.copytree(checkpoints("float32"), broken)
    tensors = load_file(broken / "model.safetensors")
    del tensors["model.layers.0.mlp.down_proj.weight"]
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"lacks 1 tensors, first model\.layers\.0\.mlp\.down_proj\.weight"):
        evaluate(broken, "hellaswag_cloze", tmp_path / "r", Sampling(examples=5))


def write_task(folder: Path, name: str, base: Path, **changes: Any) -> Path:
    config = yaml.safe_load(base.read_text())
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({**config, "task": name, **changes}))
    return folder


def test_fewshot_prompts_depend_on_the_document_alone(
    evaluate: Evaluate, checkpoints: Checkpoints, task_files: Path, tmp_path: Path
) -> None:
    dev = str(task_files / "small" / "mmlu_dev.jsonl")
    data = {"data_files": {"validation": str(task_files / "small" / "mmlu_test.jsonl"), "dev": dev}}
    folder = write_task(tmp_path, "shots", task_files / "mmlu_cloze.yaml", dataset_kwargs=data, fewshot_split="dev")
    records = [
        evaluate(
            checkpoints("float32"), "shots", tmp_path / str(chunk), Sampling(examples=12, chunk=chunk),
            include_path=(folder,), num_fewshot=2, seed=seed,
        ).record
        for chunk, seed in ((5, 1234), (12, 1234), (12, 99))
    ]  # fmt: skip
    items = [record.rows.column("item").to_pylist() for record in records]
    assert items[0] == items[1]
    assert items[0] != items[2]
    assert records[0].evidence.protocol["task.shots.num_fewshot"] == 2  # type: ignore[index]
    assert records[0].rows.to_pylist()[0]["text"].startswith("Question:")


def test_generation_with_two_filters(
    evaluate: Evaluate, checkpoints: Checkpoints, task_files: Path, tmp_path: Path
) -> None:
    filters = [
        {"name": "strict", "filter": [{"function": "regex", "regex_pattern": "^ ?(a) "}, {"function": "take_first"}]},
        {
            "name": "flexible",
            "filter": [{"function": "regex", "regex_pattern": "(a|the|was)"}, {"function": "take_first"}],
        },
    ]
    config = yaml.safe_load((task_files / "hellaswag_cloze.yaml").read_text())
    del config["doc_to_choice"]
    config |= {
        "task": "story",
        "output_type": "generate_until",
        "doc_to_text": "Once upon a time there was",
        "doc_to_target": "a",
        "generation_kwargs": {"until": ["."], "max_gen_toks": 8, "do_sample": False},
        "filter_list": filters,
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    (tmp_path / "story.yaml").write_text(yaml.safe_dump(config))
    record = evaluate(
        checkpoints("float32"), "story", tmp_path / "r", Sampling(examples=3), include_path=(tmp_path,)
    ).record
    metrics = record.evidence.metrics
    assert metrics["story/exact_match@strict"].primary
    assert not metrics["story/exact_match@flexible"].primary
    assert metrics["story/exact_match@flexible"].n == 3
    # The prompt is the same three times: only the occurrence tells the examples apart.
    strict = [row for row in record.rows.to_pylist() if row["filter"] == "strict"]
    assert [row["occurrence"] for row in strict] == [0, 1, 2]
    assert record.evidence.protocol["task.story.filters"] == "strict, flexible"  # type: ignore[index]


def test_clusters_come_from_the_task(
    evaluate: Evaluate, checkpoints: Checkpoints, task_files: Path, tmp_path: Path
) -> None:
    folder = write_task(
        tmp_path, "grouped", task_files / "mmlu_cloze.yaml", metadata={"version": 1.0, "cluster": "subject"}
    )
    harness = Harness(str(checkpoints("float32")), HarnessOptions(("grouped",), (folder,)))
    assert not harness.prepare().tasks[0].growable
    record = evaluate(
        checkpoints("float32"), "grouped", tmp_path / "r", Sampling(examples=10), include_path=(folder,)
    ).record
    assert all(row["cluster"] for row in record.rows.to_pylist())


def test_the_protocol_says_what_shapes_the_scores(checkpoints: Checkpoints, task_files: Path, tmp_path: Path) -> None:
    def protocol(folder: Path = task_files, task: str = "hellaswag_cloze", **options: Any) -> dict[str, Any]:
        return dict(
            Harness(str(checkpoints("float32")), HarnessOptions((task,), (folder,), **options)).prepare().protocol
        )

    first = protocol()
    assert first["max_length"] == 512
    assert first["library.lm_eval"] == "0.4.13"
    assert first["chat_template"] == "none"
    for options in ({"batch_size": 8}, {"max_length": 256}, {"dtype": "bfloat16"}, {"seed": 5}):
        changed = protocol(**options)
        assert {key for key in first if first[key] != changed[key]} == set(options)
    config = "task.hellaswag_cloze.config"
    moved = write_task(tmp_path, "hellaswag_cloze", task_files / "hellaswag_cloze.yaml")
    assert protocol(moved)[config] == first[config]
    prompted = write_task(tmp_path, "hellaswag_cloze", task_files / "hellaswag_cloze.yaml", doc_to_text="Q: {{query}}")
    assert protocol(prompted)[config] != first[config]


def test_mistakes_are_named_before_the_model_loads(checkpoints: Checkpoints, task_files: Path, tmp_path: Path) -> None:
    def prepare(task: str, folder: Path = task_files, **options: Any) -> None:
        Harness(str(checkpoints("float32")), HarnessOptions((task,), (folder,), **options)).prepare()

    with pytest.raises(InputError, match="no chat template"):
        prepare("hellaswag_cloze", apply_chat_template=True)
    with pytest.raises(InputError, match=r"did you mean .*hellaswag"):
        prepare("helaswag")
    with pytest.raises(InputError, match="is not a folder"):
        prepare("hellaswag_cloze", tmp_path / "absent")
    folder = write_task(
        tmp_path,
        "lost",
        task_files / "hellaswag_cloze.yaml",
        dataset_kwargs={"data_files": {"validation": "/absent.jsonl"}},
    )
    with pytest.raises(InputError, match="task lost cannot be loaded"):
        prepare("lost", folder)
    folder = write_task(tmp_path, "lost", task_files / "hellaswag_cloze.yaml", metric_list=[{"metric": "f1"}])
    with pytest.raises(InputError, match="no metric with a score per example"):
        prepare("lost", folder)


def test_growth_stops_on_a_real_regression(
    evaluate: Evaluate, checkpoints: Checkpoints, task_files: Path, tmp_path: Path
) -> None:
    # "The capital" style questions are beyond this model; stories in which the right end is likelier are not.
    stories = tmp_path / "stories.jsonl"
    write_stories(stories)
    folder = write_task(
        tmp_path,
        "stories",
        task_files / "hellaswag_cloze.yaml",
        dataset_kwargs={"data_files": {"validation": str(stories)}},
    )
    options: dict[str, Any] = {"include_path": (folder,)}
    base = evaluate(checkpoints("float32"), "stories", tmp_path / "base", Sampling(cap=100), **options).record
    metric = base.evidence.metrics["stories/acc_norm"]
    assert metric.value > 0.9
    policy = Policy.model_validate({"threshold": 0.5, "margin": 1.0})
    sampling = Sampling(grow=True, chunk=25)
    destroyed = tmp_path / "destroyed"
    shutil.copytree(checkpoints("float32"), destroyed)
    destroy(destroyed / "model.safetensors")
    other = Harness(str(checkpoints("float32")), HarnessOptions(("stories",), (folder,)))
    outcome = evaluate(
        destroyed, "stories", tmp_path / "head", sampling,
        base=Base(base, other),
        decide=lambda plan: stop_rule(policy, base, plan.tasks),
        preflight=preflight_of(policy, base.evidence, sampling, base.evidence.provenance),
        **options,
    )  # fmt: skip
    n = outcome.record.evidence.metrics["stories/acc_norm"].n
    assert outcome.record.evidence.attributes["decided.stories"] is True
    assert n in (25, 50, 75, 100)
    # The same checkpoint goes on beyond what the base has, and its missing rows are measured.
    same = evaluate(
        checkpoints("float32"), "stories", tmp_path / "same", Sampling(grow=True, chunk=50, cap=150),
        base=Base(base, other), decide=lambda plan: stop_rule(policy, base, plan.tasks), **options,
    )  # fmt: skip
    assert same.supplement is not None
    together = pa.concat_tables([base.rows, same.supplement.rows])
    assert set(series_keys(same.record.rows, occurrence=True)) <= set(series_keys(together, occurrence=True))


def write_stories(path: Path) -> None:
    names = ["Tom", "Lily", "Ben", "Sue", "Max", "Mia", "Sam", "Anna", "Tim", "Amy"]
    things = [
        "ball",
        "dog",
        "cat",
        "car",
        "toy",
        "book",
        "cake",
        "hat",
        "tree",
        "bird",
        "box",
        "boat",
        "bed",
        "cup",
        "doll",
    ]
    documents = [
        {"query": f"Once upon a time, there was a little {who} named {name}. {name} loved to play with the", "label": number % 2,
         "choices": [f"{thing} in the park.", f"{thing} park the in."][:: 1 if number % 2 == 0 else -1]}
        for number, (who, name, thing) in enumerate((w, n, t) for w in ("boy", "girl") for n in names for t in things)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))


def destroy(path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    generator = torch.Generator().manual_seed(0)
    for name, tensor in tensors.items():
        if tensor.ndim == 2 and "embed" not in name:
            tensors[name] = tensor.std() * torch.randn(tensor.shape, generator=generator)
    path.unlink()
    save_file(tensors, path, metadata={"format": "pt"})


def test_perplexity_rises_with_noise(evaluate: Evaluate, checkpoints: Checkpoints, tmp_path: Path) -> None:
    base, noise = (
        evaluate(checkpoints(kind), "wikitext2_local", tmp_path / kind, latency=True).record
        for kind in ("float32", "noise")
    )
    before, after = (r.evidence.metrics["wikitext2_local/word_perplexity"] for r in (base, noise))
    assert after.value > before.value
    assert before.n == 6
    words = sum(weight for _, weight in scores(base, "word_perplexity").values())
    total = sum(score for score, _ in scores(base, "word_perplexity").values())
    assert before.value == pytest.approx(math.exp(-total / words))
    latency = base.evidence.metrics["latency"]
    assert latency.low is not None
    assert 0 < latency.low <= latency.value


def test_cut_prompts_are_counted_and_do_not_flood_the_log(
    evaluate: Evaluate, checkpoints: Checkpoints, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = evaluate(checkpoints("float32"), "mmlu_cloze", tmp_path / "a", Sampling(examples=10)).record
    cut = evaluate(checkpoints("float32"), "mmlu_cloze", tmp_path / "b", Sampling(examples=10), max_length=128).record
    assert "truncated.mmlu_cloze" not in whole.evidence.attributes
    # 10 questions of 4 choices, some of them longer than 128 tokens of a 512-word vocabulary.
    assert 4 <= cut.evidence.attributes["truncated.mmlu_cloze"] <= 40  # type: ignore[operator]
    assert "Combined length" not in caplog.text
    with pytest.raises(InputError, match="longer than 8 tokens: give a larger --max-length"):
        evaluate(checkpoints("float32"), "mmlu_cloze", tmp_path / "c", Sampling(examples=10), max_length=8)
