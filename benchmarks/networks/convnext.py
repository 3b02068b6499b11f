"""ConvNeXt-T: depthwise 7x7 convolutions, layer norms over channels, inverted bottlenecks; any batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.networks import torch_export

SIZES = (1, 2, 3, 4, 5)

DEPTHS, WIDTHS = (3, 3, 9, 3), (96, 192, 384, 768)


class Norm(nn.Module):
    """A layer norm over the channels of an image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    """Space by a depthwise convolution, then channels by two products, beside the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.space = nn.Conv2d(channels, channels, 7, 1, 3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.wide, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.space(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(nn.functional.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, WIDTHS[0], 4, 4), Norm(WIDTHS[0])]
        for i, (depth, width) in enumerate(zip(DEPTHS, WIDTHS, strict=True)):
            if i:
                layers += [Norm(WIDTHS[i - 1]), nn.Conv2d(WIDTHS[i - 1], width, 2, 2)]
            layers += [Block(width) for _ in range(depth)]
        self.layers = nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(WIDTHS[-1]), nn.Linear(WIDTHS[-1], 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(x).mean((2, 3))))


def network() -> nn.Module:
    return torch_export.build(42, ConvNeXt)


def export(path: str | Path) -> None:
    axes = {0: "batch"}
    torch_export.export(network(), (_sample(),), path, ["x"], ["y"], {"x": axes, "y": axes})


def inputs(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    return {"x": rng.standard_normal((SIZES[size], 3, 224, 224), np.float32)}


def _sample() -> torch.Tensor:
    return torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
