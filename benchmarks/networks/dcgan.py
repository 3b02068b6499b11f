"""A generator in DCGAN's manner: transposed convolutions from a point to an image of 64 by 64, for any batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.networks import torch_export

SIZES = (1, 2, 3, 4, 8)
NOISE = 100
CHANNELS = (256, 128, 64, 32)


def network() -> nn.Module:
    def make() -> nn.Module:
        layers: list[nn.Module] = []
        before = NOISE
        for i, n in enumerate(CHANNELS):
            grow = nn.ConvTranspose2d(before, n, 4, 2 if i else 1, 1 if i else 0, bias=False)
            layers += [grow, nn.BatchNorm2d(n), nn.ReLU()]
            before = n
        return nn.Sequential(*layers, nn.ConvTranspose2d(before, 3, 4, 2, 1), nn.Tanh())

    return torch_export.build(31, make, _sample())


def export(path: str | Path) -> None:
    torch_export.export(network(), (_sample(),), path, ["z"], ["image"], {"z": {0: "batch"}, "image": {0: "batch"}})


def inputs(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    return {"z": rng.standard_normal((SIZES[size], NOISE, 1, 1), np.float32)}


def _sample() -> torch.Tensor:
    return torch.randn(2, NOISE, 1, 1, generator=torch.Generator().manual_seed(0))
