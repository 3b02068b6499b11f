"""HiFi-GAN's generator: transposed convolutions from frames to samples, and dilated ones between; any length."""

import torch
from torch import nn

from benchmarks.networks import torch_export

SIZES = (32, 8, 17, 1, 64)

BANDS, WIDTH = 80, 128
GROWTH = ((8, 16), (8, 16), (2, 4), (2, 4))
"""How many times longer a step makes the sequence, and its window."""
KERNELS, DILATIONS = (3, 7, 11), (1, 3, 5)


class Residual(nn.Module):
    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.far = nn.ModuleList(
            nn.Conv1d(channels, channels, kernel, dilation=d, padding=d * (kernel - 1) // 2) for d in DILATIONS
        )
        self.near = nn.ModuleList(nn.Conv1d(channels, channels, kernel, padding=kernel // 2) for _ in DILATIONS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for far, near in zip(self.far, self.near, strict=True):
            x = x + near(nn.functional.leaky_relu(far(nn.functional.leaky_relu(x, 0.1)), 0.1))
        return x


class HiFiGAN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(BANDS, WIDTH, 7, padding=3)
        self.grow, self.blocks = nn.ModuleList(), nn.ModuleList()
        channels = WIDTH
        for times, kernel in GROWTH:
            self.grow.append(nn.ConvTranspose1d(channels, channels // 2, kernel, times, (kernel - times) // 2))
            channels //= 2
            self.blocks.append(nn.ModuleList(Residual(channels, k) for k in KERNELS))
        self.head = nn.Conv1d(channels, 1, 7, padding=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for grow, blocks in zip(self.grow, self.blocks, strict=True):
            x = grow(nn.functional.leaky_relu(x, 0.1))
            x = sum(block(x) for block in blocks) / len(KERNELS)  # type: ignore[attr-defined]
        return torch.tanh(self.head(nn.functional.leaky_relu(x)))


NETWORK = torch_export.OneTensor(
    46, HiFiGAN, (1, BANDS, None), 16, SIZES, ("x", {0: "batch", 2: "frames"}), ("y", {0: "batch", 2: "samples"})
)
network, export, inputs = NETWORK.network, NETWORK.export, NETWORK.inputs
