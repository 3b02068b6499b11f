"""EfficientNet-B0 for any batch: inverted residuals with squeeze-excite and SiLU, its batch norms left in the graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.networks import torch_export

SIZES = (1, 2, 3, 4, 5)
# expansion, channels, repeats, stride, kernel
STAGES = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)  # fmt: skip


def conv_norm(c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(c_out))


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce, self.expand = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.silu(self.reduce(self.pool(x)))
        return x * torch.sigmoid(self.expand(y))


class Block(nn.Module):
    def __init__(self, c_in: int, c_out: int, expansion: int, stride: int, kernel: int) -> None:
        super().__init__()
        wide = c_in * expansion
        self.expand = nn.Sequential(conv_norm(c_in, wide, 1), nn.SiLU()) if expansion > 1 else nn.Identity()
        self.depthwise = nn.Sequential(conv_norm(wide, wide, kernel, stride, wide), nn.SiLU())
        self.excite = SqueezeExcite(wide, c_in // 4)
        self.project = conv_norm(wide, c_out, 1)
        self.residual = stride == 1 and c_in == c_out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.project(self.excite(self.depthwise(self.expand(x))))
        return x + y if self.residual else y


class EfficientNetB0(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 32, 3, 2), nn.SiLU()]
        channels = 32
        for expansion, c_out, repeats, stride, kernel in STAGES:
            for i in range(repeats):
                layers.append(Block(channels, c_out, expansion, stride if i == 0 else 1, kernel))
                channels = c_out
        self.features = nn.Sequential(*layers, conv_norm(channels, 1280, 1), nn.SiLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(1280, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.features(image), 1))


def network() -> nn.Module:
    return torch_export.build(21, EfficientNetB0, _sample())


def export(path: str | Path) -> None:
    axes = {"image": {0: "batch"}, "logits": {0: "batch"}}
    torch_export.export(network(), (_sample(),), path, ["image"], ["logits"], axes, keep_batch_norm=True)


def inputs(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    return {"image": rng.standard_normal((SIZES[size], 3, 224, 224), np.float32)}


def _sample() -> torch.Tensor:
    return torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
