"""Single layers that every compiler is asked about, in 8-bit integers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """A convolution, or a product of (rows, channels) with (channels, outputs) when `kernel` is 0."""

    name: str
    channels: int
    outputs: int
    size: int
    """Height and width of a convolution's input; rows of a product."""
    kernel: int = 0
    groups: int = 1
    stride: int = 1

    @property
    def inputs(self) -> tuple[int, ...]:
        """Shape of the input; convolutions as (N, C, H, W)."""
        return (1, self.channels, self.size, self.size) if self.kernel else (self.size, self.channels)

    @property
    def weights(self) -> tuple[int, ...]:
        """Shape of the weight: (O, C / groups, R, S), or (O, C)."""
        if not self.kernel:
            return (self.outputs, self.channels)
        return (self.outputs, self.channels // self.groups, self.kernel, self.kernel)

    @property
    def results(self) -> tuple[int, ...]:
        """Shape of the output, with zeros that keep the size at stride 1."""
        side = -(-self.size // self.stride)
        return (1, self.outputs, side, side) if self.kernel else (self.size, self.outputs)


LAYERS = (
    Layer("conv 3x3, 64 to 64, 56x56", 64, 64, 56, kernel=3),
    Layer("conv 1x1, 256 to 64, 56x56", 256, 64, 56, kernel=1),
    Layer("conv 3x3 stride 2, 128 to 128, 56x56", 128, 128, 56, kernel=3, stride=2),
    Layer("depthwise 3x3, 64, 112x112", 64, 64, 112, kernel=3, groups=64),
    Layer("product 8x512 by 512x512", 512, 512, 8),
    Layer("product 1x2048 by 2048x2048", 2048, 2048, 1),
    Layer("product 128x768 by 768x3072", 768, 3072, 128),
)
