"""ResNeXt-50 (32x4d): ResNet-50 whose 3x3 convolutions are in 32 groups, for any batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.networks import resnet50, torch_export

SIZES = (1, 2, 3, 4, 5)

GROUPS, BASE = 32, 4


class ResNeXt50(resnet50.ResNet50):
    """Blocks are twice as wide inside, in groups."""

    def __init__(self) -> None:
        super().__init__()
        for block in self.layers:
            width = block.conv2.in_channels * BASE * GROUPS // 64
            c_in, c_out = block.conv1.in_channels, block.conv3.out_channels
            block.conv1 = nn.Conv2d(c_in, width, 1, bias=False)
            block.conv2 = nn.Conv2d(width, width, 3, block.conv2.stride, 1, groups=GROUPS, bias=False)
            block.conv3 = nn.Conv2d(width, c_out, 1, bias=False)
            block.norm1, block.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)


def network() -> nn.Module:
    return torch_export.build(41, ResNeXt50, _sample())


def export(path: str | Path) -> None:
    axes = {0: "batch"}
    torch_export.export(network(), (_sample(),), path, ["x"], ["y"], {"x": axes, "y": axes})


def inputs(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    return {"x": rng.standard_normal((SIZES[size], 3, 224, 224), np.float32)}


def _sample() -> torch.Tensor:
    return torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
