"""LSTMs of one and two layers, input 300, hidden 512, over sequences of any length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.networks import torch_export

SIZES = (50, 5, 100, 17, 1)  # tokens
INPUT, HIDDEN = 300, 512
LAYERS = 1


class Lstm(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(INPUT, HIDDEN, layers)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.lstm(tokens)[0]


def network(layers: int = LAYERS) -> nn.Module:
    return torch_export.build(25, lambda: Lstm(layers))


def export(path: str | Path, layers: int = LAYERS) -> None:
    sample = torch.randn(9, 1, INPUT, generator=torch.Generator().manual_seed(0))
    axes = {"tokens": {0: "length"}, "hidden": {0: "length"}}
    torch_export.export(network(layers), (sample,), path, ["tokens"], ["hidden"], axes)


def inputs(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    return {"tokens": rng.standard_normal((SIZES[size], 1, INPUT), np.float32)}
