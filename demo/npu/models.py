"""The models that this repository's own pull requests compile: one of each kind of layer that the compiler must keep fast."""

from __future__ import annotations

import torch
from torch import nn
from torchvision import models

from assay.npu_backend.declaration import Declaration


class Block(nn.Module):
    """One layer of a transformer, with rotary-free attention written out."""

    def __init__(self, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


mlp = Declaration(
    "mlp",
    model=lambda: nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)),
    inputs=lambda: torch.randn(8, 512),
)
mobilenet = Declaration(
    "mobilenet-v3-small",
    model=lambda: models.mobilenet_v3_small(weights=None),
    inputs=lambda: torch.randn(1, 3, 224, 224),
)
block = Declaration("transformer-block", model=Block, inputs=lambda: torch.randn(1, 128, 256))
