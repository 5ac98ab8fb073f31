"""Models of torchvision and of Hugging Face configurations, at random weights, against eager PyTorch.

`python -m assay.npu_backend.conformance_models --out table.json` runs all of them and continues where an earlier run stopped.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from assay.baselines.errors import InputError
from assay.npu_backend.partition import HostPart, NpuPart, Plan
from assay.npu_backend.register_backend import Report

Arguments = dict[str, Any]
SIZE = 64
"""Rows of an image; a model that needs others says so in `OTHER`. Columns are more, so that the two are not confused."""
OTHER = {"inception_v3": 96, "maxvit_t": 224, "vit_h_14": 56}
SQUARE = re.compile(r"^(vit_|maxvit)")
"""Models that take square images of the size that they were built for."""


@dataclass(frozen=True)
class Comparison:
    """A model in simulation beside eager PyTorch."""

    error: float
    """Largest difference of a result, over the largest value."""
    graphs: int
    partitions: int
    """Programs, over all graphs."""
    macs: int
    share: float
    """Of the multiply-accumulates, on the NPU."""
    fallbacks: dict[str, int]
    """Operator on the host -> nodes."""


def macs_of(made: Plan) -> tuple[int, int]:
    """Multiply-accumulates on the NPU and altogether, by PyTorch's own formulas (half of its count of operations).

    What is computed once, as weights are loaded, is in neither.
    """

    def value(node: fx.Node) -> Any:
        return made.values.get(node)

    def count(node: fx.Node) -> int:
        formula = flop_registry.get(getattr(node.target, "overloadpacket", None))
        if formula is None:
            return 0
        args, kwargs = fx.map_arg((node.args, node.kwargs), value)
        return int(formula(*args, **kwargs, out_val=value(node))) // 2

    npu = sum(count(node) for part in made.parts if isinstance(part, NpuPart) for node in part.nodes)
    host = [part.node for part in made.parts if isinstance(part, HostPart) and part.node not in made.constant]
    return npu, npu + sum(count(node) for node in host)


def compare(model: nn.Module, arguments: Arguments, *, backward: bool = False) -> Comparison:
    """Runs a model in eager PyTorch and in `mode="simulate"`, on the same seed, and its backward when asked.

    The model's own training flag decides; its buffers are compared as well. Raises `InputError` when results differ in number.
    """
    state = {name: value.clone() for name, value in model.state_dict().items()}
    want = _run(model, model, arguments, backward)
    _restore(model, state)
    report = Report()
    torch._dynamo.reset()
    options: Any = {"mode": "simulate", "report": report}
    got = _run(torch.compile(model, backend="mock_npu", options=options), model, arguments, backward)
    _restore(model, state)
    if len(got) != len(want):
        raise InputError(f"{len(got)} results instead of {len(want)}.")
    plans = [made for graph in report.graphs for made in graph.plans.values()]
    counts = [macs_of(made) for made in plans]
    npu, total = sum(count[0] for count in counts), sum(count[1] for count in counts)
    fallbacks: dict[str, int] = {}
    for entry in report.fallbacks:
        fallbacks[entry.op] = fallbacks.get(entry.op, 0) + 1
    error = max((_error(a, b) for a, b in zip(got, want, strict=True)), default=0.0)
    return Comparison(error, len(report.graphs), len(report.programs), total, npu / total if total else 0.0, fallbacks)


def _restore(model: nn.Module, state: dict[str, torch.Tensor]) -> None:
    """Puts values back that a run has changed."""
    with torch.no_grad():
        for name, value in model.state_dict().items():
            value.copy_(state[name])


def _run(call: Callable[..., Any], model: nn.Module, arguments: Arguments, backward: bool) -> list[torch.Tensor]:
    """Results, then buffers, then gradients."""
    torch.manual_seed(0)
    model.zero_grad()
    with torch.set_grad_enabled(backward):
        found = [leaf for leaf in pytree.tree_leaves(call(**arguments)) if isinstance(leaf, torch.Tensor)]
    if backward:
        torch.stack([leaf.float().square().mean() for leaf in found if leaf.requires_grad]).sum().backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return [leaf.detach() for leaf in found] + [value.clone() for value in model.buffers()] + gradients


def _error(got: torch.Tensor, want: torch.Tensor) -> float:
    if got.shape != want.shape or got.dtype != want.dtype or not torch.equal(got.isnan(), want.isnan()):
        return float("inf")
    if not want.numel():
        return 0.0
    a, b = got.nan_to_num().double(), want.nan_to_num().double()
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-6))


def classifiers() -> dict[str, Callable[[], tuple[nn.Module, Arguments]]]:
    """torchvision's classification models by name. Raises `InputError` when torchvision is not installed."""
    try:
        from torchvision import models
    except ImportError:
        raise InputError("the models need torchvision, which is not installed: pip install torchvision.") from None

    def builder(name: str) -> Callable[[], tuple[nn.Module, Arguments]]:
        def build() -> tuple[nn.Module, Arguments]:
            torch.manual_seed(0)
            rows = OTHER.get(name, SIZE)
            chosen: dict[str, Any] = {"image_size": rows} if name.startswith("vit_") else {}
            chosen |= {"init_weights": True} if name in ("inception_v3", "googlenet") else {}
            model = models.get_model(name, weights=None, **chosen).eval()
            columns = rows if SQUARE.match(name) else rows + 32
            (input_name,) = list(inspect.signature(model.forward).parameters)[:1]
            return settled(model), {input_name: torch.randn(1, 3, rows, columns)}

        return build

    return {name: builder(name) for name in models.list_models(module=models)}


def settled(model: nn.Module) -> nn.Module:
    """A model whose norms have statistics and whose parameters all matter, so that a fault in them shows.

    Untrained models have biases of 0, scales of 1 or 1e-6 and heads of 0, under which whole branches give nothing.
    """
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
                assert module.running_var is not None
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 1.5)
        for parameter in model.parameters():
            if parameter.numel() < 2 or parameter.std() < 1e-4:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


LANGUAGE = {
    "bert": ("BertModel", {}),
    "distilbert": ("DistilBertModel", {"dim": 64, "hidden_dim": 128, "n_heads": 4, "n_layers": 2}),
    "gpt2": ("GPT2LMHeadModel", {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 64}),
    "llama": ("LlamaForCausalLM", {"num_key_value_heads": 2}),
    "whisper": (
        "WhisperModel",
        {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "max_source_positions": 40,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
    ),
    "vit": ("ViTModel", {"image_size": 64, "patch_size": 16}),
}  # fmt: skip
"""Model type -> class, and what makes it small."""


def transformers_models() -> dict[str, Callable[[], tuple[nn.Module, Arguments]]]:
    """Small configurations of Hugging Face models. Raises `InputError` when transformers is not installed."""
    try:
        import transformers
    except ImportError:
        raise InputError("the models need transformers, which is not installed: pip install transformers.") from None

    def builder(kind: str) -> Callable[[], tuple[nn.Module, Arguments]]:
        def build() -> tuple[nn.Module, Arguments]:
            torch.manual_seed(0)
            head, small = LANGUAGE[kind]
            sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
            common = {} if kind in ("distilbert", "gpt2", "whisper") else sizes
            chosen = {} if kind == "vit" else {"vocab_size": 200}
            config = transformers.AutoConfig.for_model(kind, **common, **chosen, **small)
            model = settled(getattr(transformers, head)(config).eval())
            tokens = torch.randint(3, 200, (2, 12))
            given: Arguments = {"input_ids": tokens, "use_cache": False}
            if kind in ("bert", "distilbert"):
                mask = torch.ones_like(tokens)
                mask[1, 9:] = 0
                given = {"input_ids": tokens, "attention_mask": mask}
            elif kind == "vit":
                given = {"pixel_values": torch.randn(2, 3, 64, 64)}
            elif kind == "whisper":
                given = {"input_features": torch.randn(2, config.num_mel_bins, 80), "decoder_input_ids": tokens}
                given["use_cache"] = False
            return model, given

        return build

    return {f"hf/{kind}": builder(kind) for kind in LANGUAGE}


def main(arguments: Iterable[str] | None = None) -> int:
    """Exit code 1 when a model gives a wrong result or raises, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="conformance_models", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="table that is written, and continued")
    parser.add_argument("--only", default="", help="regular expression that names must match")
    chosen = parser.parse_args(None if arguments is None else list(arguments))
    try:
        builders = {**transformers_models(), **classifiers()}
        builders = {name: build for name, build in builders.items() if re.search(chosen.only, name)}
        known = json.loads(chosen.out.read_text())["models"] if chosen.out.exists() else {}
    except (InputError, re.error, ValueError, KeyError, TypeError) as error:
        print(f"error: {error}")
        return 2
    for name, build in builders.items():
        if name in known:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                known[name] = asdict(compare(*build()))
            except Exception as error:
                known[name] = {"raised": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps({"torch": torch.__version__.split("+")[0], "models": known}, indent=1) + "\n")
        print(f"{name}: {json.dumps(known[name])}", flush=True)
    return int(any(not entry.get("error", 1) <= LIMIT for entry in known.values()))


LIMIT = 1e-3
"""Of `Comparison.error`: sums of deep models in another order."""


if __name__ == "__main__":
    raise SystemExit(main())
