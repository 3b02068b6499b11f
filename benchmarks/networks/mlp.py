"""Three layers of 256 units with ReLU, for any batch: little work, so that a call's own cost shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.networks import torch_export

SIZES = (1, 2, 3, 17, 64)
WIDTH = 256


def network() -> nn.Module:
    def make() -> nn.Module:
        return nn.Sequential(*(m for _ in range(3) for m in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))

    return torch_export.build(26, make)


def export(path: str | Path) -> None:
    sample = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(0))
    axes = {"x": {0: "batch"}, "y": {0: "batch"}}
    torch_export.export(network(), (sample,), path, ["x"], ["y"], axes)


def inputs(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    return {"x": rng.standard_normal((SIZES[size], WIDTH), np.float32)}
