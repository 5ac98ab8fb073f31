"""A small classifier of scikit-learn's digits, and the versions of it that three pull requests propose."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

TRAINED = Path(os.environ.get("ASSAY_DEMO", "demo-output")) / "digits.pt"
TRAINING_IMAGES = 400
"""So few that the classifier still makes mistakes: a perfect one could only lose."""


def held_out() -> tuple[torch.Tensor, torch.Tensor]:
    """The images that training never saw: (1397, 64) float32 in [0, 1], and their digits."""
    images, labels = _shuffled()
    return images[TRAINING_IMAGES:], labels[TRAINING_IMAGES:]


def train() -> None:
    """Train on 400 images and keep the weights; a few seconds on one core.

    In float64, so that another machine's order of summation does not change which images are classified right.
    """
    torch.manual_seed(0)
    images, labels = _shuffled()
    images, labels = images[:TRAINING_IMAGES].double(), labels[:TRAINING_IMAGES]
    model = _network().double()
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimiser.step()
    TRAINED.parent.mkdir(parents=True, exist_ok=True)
    torch.save(model.float().state_dict(), TRAINED)


def float32() -> nn.Module:
    """The trained classifier, as main has it; trained first when it is not there yet."""
    if not TRAINED.exists():
        train()
    model = _network()
    model.load_state_dict(torch.load(TRAINED, weights_only=True))
    return model.eval()


def int8() -> nn.Module:
    """Weights stored in 8 bits, one scale per output channel."""
    return _integer(float32(), bits=8, per_channel=True)


def naive_int4() -> nn.Module:
    """Weights stored in 4 bits with one scale for the whole matrix, which its largest weight sets."""
    return _integer(float32(), bits=4, per_channel=False)


def pruned() -> nn.Module:
    """The smallest weights set to zero."""
    model = float32()
    with torch.no_grad():
        for weight in _weights(model):
            limit = weight.abs().flatten().quantile(PRUNED)
            weight[weight.abs() < limit] = 0
    return model


PRUNED = 0.36


def _network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def _weights(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.ndim == 2]


class IntegerLinear(nn.Module):
    """A linear layer whose weight is stored as integers, two to a byte in 4 bits, and scaled back for the product."""

    def __init__(self, linear: nn.Linear, bits: int, per_channel: bool) -> None:
        super().__init__()
        largest = 2 ** (bits - 1) - 1
        weight = linear.weight.detach()
        peak = weight.abs().amax(dim=1, keepdim=True) if per_channel else weight.abs().max().reshape(1, 1)
        codes = (weight * largest / peak).round().clamp(-largest - 1, largest).to(torch.int8)
        self.bits = bits
        self.register_buffer("scale", peak / largest)
        self.register_buffer("codes", codes if bits == 8 else (codes[:, ::2] & 15) | (codes[:, 1::2] << 4))
        self.register_buffer("bias", linear.bias.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes = self.codes
        if self.bits == 4:
            low, high = (codes << 4) >> 4, codes >> 4  # arithmetic shifts restore the sign
            codes = torch.stack([low, high], dim=2).flatten(1)
        return nn.functional.linear(x, codes * self.scale, self.bias)


def _integer(model: nn.Module, bits: int, per_channel: bool) -> nn.Module:
    layers = [IntegerLinear(m, bits, per_channel) if isinstance(m, nn.Linear) else m for m in model.children()]
    return nn.Sequential(*layers).eval()


def _shuffled() -> tuple[torch.Tensor, torch.Tensor]:
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = torch.tensor(digits.data[order] / 16, dtype=torch.float32)
    return images, torch.tensor(digits.target[order])
