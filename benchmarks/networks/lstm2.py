"""The LSTM of two layers."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from benchmarks.networks import lstm
from benchmarks.networks.lstm import SIZES, inputs

__all__ = ["SIZES", "export", "inputs", "network"]

LAYERS = 2


def network() -> nn.Module:
    return lstm.network(LAYERS)


def export(path: str | Path) -> None:
    lstm.export(path, LAYERS)
