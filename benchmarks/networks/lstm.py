"""LSTMs of one and two layers, input 300, hidden 512, over sequences of any length."""

import torch
from torch import nn

from benchmarks.networks import torch_export

SIZES = (50, 5, 100, 17, 1)  # tokens
INPUT, HIDDEN = 300, 512


class Lstm(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(INPUT, HIDDEN, layers)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.lstm(tokens)[0]


NETWORK = torch_export.OneTensor(
    25, lambda: Lstm(1), (None, 1, INPUT), 9, SIZES, ("tokens", {0: "length"}), ("hidden", {0: "length"})
)
network, export, inputs = NETWORK.network, NETWORK.export, NETWORK.inputs
