"""lm-eval as adapter: any of its tasks or a local task file, on a Hugging Face checkpoint.

It uses the harness's tasks and its model class and not its `simple_evaluate`, for three reasons. That function collects
information on the machine anew at every call (about 0.8 s a chunk on two cores), walks through the whole data set
for every selection, and draws few-shot examples from one stream, so that the prompt of a document would depend on which
documents came before it. Here the stream is seeded per document. The response cache of the harness is never used: it is
not keyed by model.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from assay.baselines.errors import AssayError, InputError, ServiceError
from assay.baselines.evidence import Metric, Scalar, Subject
from assay.quant.catalogue import chance_of, cluster_field, config_digest, load_tasks
from assay.quant.checkpoint import Checkpoint, locate, read_config
from assay.quant.plan import Plan, Row, TaskPlan
from assay.quant.samples import check_finite, example_rows, plain, plan_metrics
from assay.quant.sampling import SEED
from assay.quant.weights import DTYPES, default_dtype, default_max_length, load_model, open_checkpoint

LIBRARIES = ("lm_eval", "transformers", "torch", "tokenizers", "datasets", "numpy")
_COMPARED_LIBRARIES = ("lm_eval", "transformers", "torch")


@dataclass(frozen=True)
class HarnessOptions:
    """How lm-eval is to measure. All of it is protocol, except the device."""

    tasks: tuple[str, ...]
    include_path: tuple[Path, ...] = ()
    num_fewshot: int | None = None
    batch_size: int = 16
    max_length: int | None = None
    dtype: str = "auto"
    device: str | None = None
    apply_chat_template: bool = False
    seed: int = SEED
    revision: str = "main"
    weight_format: str = ""
    latency: bool = False


class Harness:
    """An `Adapter` over lm-eval."""

    def __init__(self, checkpoint: str, options: HarnessOptions) -> None:
        """`checkpoint` is a local folder or a hub id. Nothing is read before `prepare`."""
        if options.batch_size < 1:
            raise InputError(f"--batch-size is {options.batch_size}: give a number of sequences, at least 1.")
        if options.dtype not in DTYPES:
            raise InputError(f"--dtype {options.dtype} is unknown: give one of {', '.join(DTYPES)}.")
        if not options.tasks:
            raise InputError("no task was named: give --tasks, for example --tasks hellaswag,mmlu.")
        self._name = checkpoint
        self._options = options
        self._tasks: dict[str, Any] = {}
        self._docs: dict[str, Any] = {}
        self._plans: dict[str, TaskPlan] = {}
        self._checkpoint: Checkpoint | None = None
        self._tokenizer: Any = None
        self._dtype = ""
        self._max_length = 0
        self._model: Any = None
        self._truncated: dict[str, int] = {}

    def prepare(self) -> Plan:
        checkpoint = self._checkpoint = locate(
            self._name, revision=self._options.revision, weight_format=self._options.weight_format
        )
        config, self._tokenizer = open_checkpoint(checkpoint.folder)
        self._dtype = self._options.dtype if self._options.dtype != "auto" else default_dtype(config, checkpoint)
        self._max_length = self._options.max_length or default_max_length(config, self._tokenizer)
        self._tasks = load_tasks(self._options.tasks, self._options.include_path)
        notes: list[str] = []
        protocol = self._protocol()
        for name, task in self._tasks.items():
            plan, facts = self._plan_task(name, task, notes)
            self._plans[name] = plan
            protocol.update({f"task.{name}.{fact}": value for fact, value in facts.items()})
        subject = Subject(
            name=checkpoint.name,
            digest=checkpoint.digest,
            format=checkpoint.format,
            backend="transformers",
            configuration={
                "architecture": str((read_config(checkpoint.folder).get("architectures") or [""])[0]),
                "weight_bytes": checkpoint.weight_bytes,
                "revision": self._options.revision,
            },
        )
        return Plan(subject, protocol, tuple(self._plans.values()), LIBRARIES, tuple(notes))

    def measure(self, task: str, indices: Sequence[int]) -> list[Row]:
        model = self._loaded()
        job, docs, plan = self._tasks[task], self._docs[task], self._plans[task]
        # Ascending, as the harness wants its selections: unsorted ones mislabel documents.
        order = sorted(indices)
        requests = {index: self._requests(job, docs[index], index) for index in order}
        instances = [request for index in order for request in requests[index]]
        self._answer(model, instances, task)
        job._instances = instances
        job.apply_filters()
        grouping = cluster_field(job)
        rows: list[Row] = []
        for index in order:
            mine, doc = requests[index], docs[index]
            responses = [plain(request.resps) for request in mine]
            check_finite(responses, task, index)
            filters = list(mine[0].filtered_resps)
            filtered = {name: [plain(request.filtered_resps[name]) for request in mine] for name in filters}
            values = {
                name: job.process_results(doc, [request.filtered_resps[name] for request in mine]) for name in filters
            }
            rows += example_rows(
                task=task,
                doc_id=index,
                arguments=[request.args for request in mine],
                target=job.doc_to_target(doc),
                responses=responses,
                filtered=filtered,
                values=values,
                metrics=plan.metrics,
                choices=_choices(job, doc),
                text=_text(job, doc, mine),
                cluster=None if grouping is None else str(doc[grouping]),
            )
        return rows

    def measures(self) -> dict[str, Metric]:
        assert self._checkpoint is not None
        found = {"size": Metric(value=float(self._checkpoint.weight_bytes), unit="bytes", direction="lower")}
        if self._options.latency:
            from assay.quant.latency import measure_forward, peak_memory

            found["latency"] = measure_forward(self._loaded().model, self._max_length)
            found.update(peak_memory(str(self._loaded().device)))
        return found

    def facts(self) -> dict[str, Scalar]:
        """`truncated.<task>`: requests that were longer than the model and lost their beginning, where there were any."""
        return {f"truncated.{task}": count for task, count in sorted(self._truncated.items()) if count}

    def close(self) -> None:
        if self._model is not None:
            self._model = None
            import gc

            import torch

            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _protocol(self) -> dict[str, Scalar]:
        options = self._options
        template = getattr(self._tokenizer, "chat_template", None)
        if options.apply_chat_template and not template:
            raise InputError(
                f"{self._name} has no chat template: leave out --apply-chat-template, or add one to its tokenizer."
            )
        return {
            "harness": "lm-eval",
            "dtype": self._dtype,
            "batch_size": options.batch_size,
            "max_length": self._max_length,
            "seed": options.seed,
            "fewshot_seeding": "per document",
            "chat_template": _digest(template) if options.apply_chat_template else "none",
            **{f"library.{name}": metadata.version(name) for name in _COMPARED_LIBRARIES},
        }

    def _plan_task(self, name: str, task: Any, notes: list[str]) -> tuple[TaskPlan, dict[str, Scalar]]:
        options = self._options
        pinned = task.get_config("num_fewshot")
        if options.num_fewshot is not None and pinned == 0:
            notes.append(f"{name} fixes zero few-shot examples; --num-fewshot does not change it")
        elif options.num_fewshot is not None or pinned is None:
            task.set_config(key="num_fewshot", value=options.num_fewshot or 0)
        docs = self._docs[name] = task.eval_docs
        output_type = str(task.OUTPUT_TYPE)
        filters = [str(ensemble.name) for ensemble in task._filters]
        lower = [metric for metric, higher in task.higher_is_better().items() if higher is False]
        chance = chance_of(task, docs, options.seed, name) if output_type == "multiple_choice" else None
        metrics, skipped = plan_metrics(
            list(task.aggregation()), filters, output_type=output_type, chance=chance, lower_is_better=lower
        )
        if not metrics:
            raise InputError(
                f"task {name} has no metric with a score per example ({', '.join(skipped) or 'none at all'}): add acc"
                " or exact_match to its metric_list."
            )
        if skipped:
            notes.append(f"{name}: {', '.join(skipped)} has no score per example and is left out")
        facts: dict[str, Scalar] = {
            "version": str(task.VERSION),
            "num_fewshot": int(task.get_config("num_fewshot") or 0),
            "output_type": output_type,
            "filters": ", ".join(filters),
            "config": config_digest(task.config),
            "examples": len(docs),
        }
        return TaskPlan(name, len(docs), metrics, clustered=cluster_field(task) is not None), facts

    def _requests(self, task: Any, doc: Mapping[str, Any], index: int) -> list[Any]:
        chat = self._options.apply_chat_template
        template = self._loaded().apply_chat_template if chat else None
        task.set_fewshot_seed(seed=self._options.seed + index)
        context = task.fewshot_context(
            doc,
            num_fewshot=int(task.get_config("num_fewshot") or 0),
            system_instruction=None,
            apply_chat_template=chat,
            fewshot_as_multiturn=chat,
            chat_template=template,
            gen_prefix=task.doc_to_prefix(doc),
        )
        made = task.construct_requests(
            doc=doc,
            ctx=context,
            metadata=(task.config.task, index, task.config.repeats),
            apply_chat_template=chat,
            chat_template=template,
        )
        return sorted(made, key=lambda request: int(request.idx)) if isinstance(made, list) else [made]

    def _answer(self, model: Any, instances: list[Any], task: str) -> None:
        kinds: dict[str, list[Any]] = {}
        for instance in instances:
            kinds.setdefault(str(instance.request_type), []).extend([instance] * int(instance.repeats or 1))
        for kind, requests in kinds.items():
            try:
                with _counting_truncations() as truncated:
                    responses = getattr(model, kind)(requests, disable_tqdm=True)
                self._truncated[task] = self._truncated.get(task, 0) + truncated.count
            except AssayError:
                raise
            except Exception as error:
                raise _model_failure(error, task, self._options.batch_size, self._max_length) from error
            for request, response in zip(requests, responses, strict=True):
                request.resps.append(response)

    def _loaded(self) -> Any:
        if self._model is None:
            assert self._checkpoint is not None
            self._model = load_model(
                self._checkpoint.folder,
                self._tokenizer,
                dtype=self._dtype,
                max_length=self._max_length,
                batch_size=self._options.batch_size,
                device=self._options.device,
                seed=self._options.seed,
            )
        return self._model


def _choices(task: Any, doc: Mapping[str, Any]) -> list[str] | None:
    if task.OUTPUT_TYPE != "multiple_choice":
        return None
    return [str(choice) for choice in task.doc_to_choice(doc)]


def _text(task: Any, doc: Mapping[str, Any], requests: Sequence[Any]) -> str:
    """What people recognise the example by: its question without few-shot examples, or the document itself."""
    if task.OUTPUT_TYPE == "loglikelihood_rolling":
        return str(requests[0].args[0])
    text = task.doc_to_text(doc)
    return text if isinstance(text, str) else str(requests[0].args[0])


class _Truncations(logging.Filter):
    """Counts the harness's warnings of prompts that were cut, and keeps them out of the log: one line for each floods it."""

    count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        cut = str(record.msg).startswith(("Combined length of context", "Left truncation applied"))
        self.count += cut
        return not cut


@contextlib.contextmanager
def _counting_truncations() -> Iterator[_Truncations]:
    logger, counter = logging.getLogger("lm_eval.models.huggingface"), _Truncations()
    logger.addFilter(counter)
    try:
        yield counter
    finally:
        logger.removeFilter(counter)


def _digest(text: object) -> str:
    return hashlib.sha256(json.dumps(text, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _model_failure(error: Exception, task: str, batch_size: int, max_length: int) -> AssayError:
    if isinstance(error, AssertionError) and not str(error):
        # The harness asserts, without a message, that a continuation fits into the model.
        return InputError(
            f"task {task} has an answer that is longer than {max_length} tokens: give a larger --max-length."
        )
    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if "out of memory" in reason.lower():
        return ServiceError(
            f"out of memory in task {task} at batch size {batch_size}: give a smaller --batch-size or --max-length."
        )
    return InputError(f"the model failed in task {task} ({reason}): try --batch-size 1 and --debug for the traceback.")
