"""The models that the NPU benchmarks build, at random weights: fused layers of each, before they are cut into tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from assay.npu_backend.layers import LayerGraph
from assay.npu_backend.partition import NpuPart, Settings
from assay.npu_backend.register_backend import plan_model

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]


def classifier(name: str, size: int = 224) -> Built:
    """A torchvision classification model, batch 1."""
    from torchvision import models

    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return models.get_model(name, weights=None, **options).eval(), (torch.zeros(1, 3, size, size),)


PUBLISHED: dict[str, Callable[[], Built]] = {
    "convnext_base": lambda: classifier("convnext_base"),
    "convnext_tiny": lambda: classifier("convnext_tiny"),
    "densenet121": lambda: classifier("densenet121"),
    "efficientnet_b0": lambda: classifier("efficientnet_b0"),
    "efficientnet_v2_s": lambda: classifier("efficientnet_v2_s"),
    "mobilenet_v2": lambda: classifier("mobilenet_v2"),
    "mobilenet_v3_large": lambda: classifier("mobilenet_v3_large"),
    "mobilenet_v3_small": lambda: classifier("mobilenet_v3_small"),
    "regnet": lambda: classifier("regnet_x_3_2gf"),
    "resnet18": lambda: classifier("resnet18"),
    "resnet50": lambda: classifier("resnet50"),
    "resnext101": lambda: classifier("resnext101_32x8d"),
    "shufflenet_v2": lambda: classifier("shufflenet_v2_x0_5"),
    "vit": lambda: classifier("vit_b_16"),
    "wideresnet50": lambda: classifier("wide_resnet50_2"),
}
"""Name in the published table -> the model that has its parameters (resnext101: 88.7M, regnet: 15.3M, shufflenet: 1.37M)."""


def segmenter() -> Built:
    """FCN with ResNet-50 at 520 x 520, without its auxiliary head."""
    from torchvision.models.segmentation import fcn_resnet50

    model = fcn_resnet50(weights=None, weights_backbone=None)
    model.aux_classifier = None
    return _Only(model.eval(), "out"), (torch.zeros(1, 3, 520, 520),)


class _Only(nn.Module):
    """A model that returns one of its results."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        found = self.model(*inputs)
        return found[self.name]  # type: ignore[no-any-return]


def bert() -> Built:
    """BERT-base, 384 tokens."""
    from transformers import BertConfig, BertModel

    return _Only(BertModel(BertConfig()).eval(), "last_hidden_state"), (torch.zeros(1, 384, dtype=torch.int64),)


def mobile_bert() -> Built:
    """MobileBERT, 384 tokens."""
    from transformers import MobileBertConfig, MobileBertModel

    model = MobileBertModel(MobileBertConfig()).eval()
    return _Only(model, "last_hidden_state"), (torch.zeros(1, 384, dtype=torch.int64),)


def whisper_encoder(width: int = 384, layers: int = 4, heads: int = 6) -> Built:
    """The encoder of Whisper (tiny by default) on 30 seconds of sound."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=width, encoder_layers=layers, encoder_attention_heads=heads, encoder_ffn_dim=4 * width
    )
    return _Only(WhisperEncoder(config).eval(), "last_hidden_state"), (torch.zeros(1, 80, 3000),)


def whisper_decoder(past: int = 64) -> Built:
    """One step of the decoder of Whisper-tiny: a token after `past` others, all of the sound."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperDecoder

    config = WhisperConfig(use_cache=False)
    decoder = _Keywords(WhisperDecoder(config).eval(), ("input_ids", "encoder_hidden_states"), {"use_cache": False})
    return decoder, (torch.zeros(1, past, dtype=torch.int64), torch.zeros(1, 1500, config.d_model))


class _Keywords(nn.Module):
    """A model called by keywords, of which one result matters."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], fixed: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, names, fixed

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        found = self.model(**dict(zip(self.names, inputs, strict=True)), **self.fixed)
        return found[0]  # type: ignore[no-any-return]


class _Step(nn.Module):
    """Decoder layers of LLaMA on one token, with keys and values of the tokens before it as inputs."""

    def __init__(self, layers: int, head: bool, past: int) -> None:
        super().__init__()
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

        config = LlamaConfig(hidden_size=2048, intermediate_size=8192, num_attention_heads=32, num_key_value_heads=8)
        self.past, self.heads, self.kv, self.width = past, 32, 8, 64
        self.layers = nn.ModuleList()
        for _ in range(layers):
            made = {"norm": LlamaRMSNorm(2048), "after": LlamaRMSNorm(2048), "mlp": LlamaMLP(config)}
            sides = {name: nn.Linear(2048, size, bias=False) for name, size in
                     (("q", 2048), ("k", 512), ("v", 512), ("o", 2048))}  # fmt: skip
            self.layers.append(nn.ModuleDict({**made, **sides}))
        self.norm = LlamaRMSNorm(2048)
        self.head = nn.Linear(2048, 128_256, bias=False) if head else None

    def _turned(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = x[..., : self.width // 2], x[..., self.width // 2 :]
        return x * cos + torch.cat([-second, first], -1) * sin

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *kept: torch.Tensor) -> list[torch.Tensor]:
        new: list[torch.Tensor] = []
        for number, layer in enumerate(self.layers):
            y = layer["norm"](x)  # type: ignore[index]
            q, k, v = (layer[name](y).view(1, 1, -1, self.width).transpose(1, 2) for name in ("q", "k", "v"))  # type: ignore[index]
            k = torch.cat([kept[2 * number], self._turned(k, cos, sin)], 2)
            v = torch.cat([kept[2 * number + 1], v], 2)
            q = self._turned(q, cos, sin).view(1, self.kv, self.heads // self.kv, self.width)
            scores = torch.softmax(q @ k.transpose(2, 3) / self.width**0.5, -1)
            x = x + layer["o"]((scores @ v).reshape(1, 1, 2048))  # type: ignore[index]
            x = x + layer["mlp"](layer["after"](x))  # type: ignore[index]
            new += [k, v]
        x = self.norm(x)
        return [x if self.head is None else self.head(x), *new]


def llama_step(layers: int, *, head: bool, past: int = 255) -> Built:
    """One token of LLaMA-3.2-1B's sizes after `past` others: `layers` decoder layers, and the head over 128,256 tokens."""
    model = _Step(layers, head, past).eval()
    kept = [torch.zeros(1, 8, past, 64) for _ in range(2 * layers)]
    return model, (torch.zeros(1, 1, 2048), torch.ones(64), torch.zeros(64), *kept)


UNSEEN: dict[str, Callable[[], Built]] = {
    "fcn_resnet50": segmenter,
    "bert_base_uncased_hf": bert,
    "mobile_bert_uncased_google": mobile_bert,
    "whisper_tiny_encoder": whisper_encoder,
    "whisper_small_encoder": lambda: whisper_encoder(768, 12, 12),
}
"""Models of other kinds, which take no part in the fit."""


def layer_graphs(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[LayerGraph]:
    """Fused layers of every program of a model in inference."""
    made = plan_model(model, *inputs, settings=Settings())
    return [part.graph for part in made.parts if isinstance(part, NpuPart) and part.program.instructions]
