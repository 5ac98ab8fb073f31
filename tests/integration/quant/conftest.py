"""A real 260K-parameter LLaMA, its quantized and broken copies, and small slices of real evaluation data."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# Read by the libraries when they are imported: keep their caches and bars out of the way.
# One thread: the model is tiny, and threads that wait for each other on a busy machine make it ten times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_DATASETS_CACHE", tempfile.mkdtemp(prefix="assay-datasets-"))

import pytest

from assay.baselines.environment import capture
from assay.baselines.evidence import Provenance
from assay.quant.evaluation import Outcome, run_evaluation
from assay.quant.harness import Harness, HarnessOptions
from assay.quant.sampling import Sampling
from assay.quant.tasks import write_local_tasks

DATA = Path(__file__).resolve().parents[3] / ".." / "shared" / "data"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


@pytest.fixture(scope="session")
def data() -> Path:
    if not (DATA / "eval").is_dir():
        pytest.skip("../shared/data is not here")
    return DATA


@pytest.fixture(scope="session")
def task_files(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Task files over 60 HellaSwag questions, 60 MMLU questions (8 pairs of exact duplicates among them) and 6 short pages."""
    folder = tmp_path_factory.mktemp("tasks")
    small = folder / "small"
    small.mkdir()
    write_lines(small / "hellaswag_val.jsonl", lines(data / "eval" / "hellaswag_val.jsonl")[:60])
    questions = lines(data / "eval" / "mmlu_test.jsonl")
    texts = [json.dumps(question, sort_keys=True) for question in questions]
    first: dict[str, int] = {}
    twins = []
    for number, text in enumerate(texts):
        if text in first and len(twins) < 16:
            twins += [first[text], number]
        first.setdefault(text, number)
    short = [number for number in range(0, len(questions), 90) if number not in twins and len(texts[number]) < 600]
    write_lines(small / "mmlu_test.jsonl", [questions[number] for number in [*twins, *short[: 60 - len(twins)]]])
    write_lines(small / "mmlu_dev.jsonl", lines(data / "eval" / "mmlu_dev.jsonl"))
    pages = [{"page": page["page"][:1500]} for page in lines(data / "eval" / "wikitext2_test.jsonl")[:6]]
    write_lines(small / "wikitext2_test.jsonl", pages)
    write_local_tasks(small, folder, subjects=[])
    return folder


def write_lines(path: Path, documents: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")


@pytest.fixture(scope="session")
def checkpoints(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The model as `float32`, rounded to nearest in `int8` and `int4` (per output channel), with `noise`, with one `nan`."""
    root = tmp_path_factory.mktemp("checkpoints")

    def make(kind: str) -> Path:
        source = data / "models" / "stories260k"
        folder = root / kind
        if not folder.exists():
            shutil.copytree(source, folder)
            folder.chmod(0o755)
            if kind != "float32":
                rewrite(folder / "model.safetensors", kind)
        return folder

    return make


def rewrite(path: Path, kind: str) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    generator = torch.Generator().manual_seed(0)
    for name, tensor in tensors.items():
        if tensor.ndim != 2 or "embed" in name:
            continue
        if kind == "noise":
            tensors[name] = tensor + 0.2 * tensor.std() * torch.randn(tensor.shape, generator=generator)
        elif kind == "nan":
            tensors[name] = tensor.clone()
            tensors[name][0, 0] = float("nan")
            break
        else:
            levels = {"int8": 127, "int4": 7}[kind]
            scale = tensor.abs().amax(dim=1, keepdim=True) / levels
            tensors[name] = (tensor / scale).round().clamp(-levels, levels) * scale
    path.unlink()
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.fixture
def evaluate(task_files: Path) -> Callable[..., Outcome]:
    """Evaluate a checkpoint on local tasks and return the outcome."""

    def start(checkpoint: Path, tasks: str, out: Path, sampling: Sampling | None = None, **options: Any) -> Outcome:
        runner = {key: options.pop(key) for key in ("base", "decide", "preflight") if key in options}
        include = options.pop("include_path", (task_files,))
        harness = Harness(str(checkpoint), HarnessOptions(tuple(tasks.split(",")), include, **options))
        return run_evaluation(
            harness,
            sampling or Sampling(),
            out,
            provenance=Provenance(created=datetime.now(UTC)),
            capture=capture,
            **runner,
        )

    return start
