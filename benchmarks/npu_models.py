"""The models that the NPU benchmarks build, at random weights: fused layers of each, before they are cut into tiles."""

from __future__ import annotations

from collections.abc import Callable

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
