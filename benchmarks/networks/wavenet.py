"""WaveNet: gated convolutions of a sequence, each dilated twice as far as the one before, any length."""

import torch
from torch import nn

from benchmarks.networks import torch_export

SIZES = (4000, 1000, 333, 64, 8000)

WIDTH, SKIPPED, DILATIONS = 64, 128, (1, 2, 4, 8, 16, 32, 64, 128) * 2


class Layer(nn.Module):
    """A gated causal convolution; returns what goes on, and what goes to the end."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.room = 2 * dilation
        self.gated = nn.Conv1d(WIDTH, 2 * WIDTH, 3, dilation=dilation)
        self.on, self.end = nn.Conv1d(WIDTH, WIDTH, 1), nn.Conv1d(WIDTH, SKIPPED, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = self.gated(nn.functional.pad(x, (self.room, 0))).chunk(2, 1)
        y = torch.tanh(a) * torch.sigmoid(b)
        return x + self.on(y), self.end(y)


class WaveNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, WIDTH, 1)
        self.layers = nn.ModuleList(Layer(d) for d in DILATIONS)
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(SKIPPED, SKIPPED, 1), nn.ReLU(), nn.Conv1d(SKIPPED, 256, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        total = torch.zeros(1)
        for layer in self.layers:
            x, part = layer(x)
            total = total + part
        return self.head(total)


AXES = {0: "batch", 2: "samples"}
NETWORK = torch_export.OneTensor(45, WaveNet, (1, 1, None), 512, SIZES, ("x", AXES), ("y", AXES))
network, export, inputs = NETWORK.network, NETWORK.export, NETWORK.inputs
