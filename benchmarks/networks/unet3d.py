"""A U-Net for volumes: convolutions in three dimensions, pooling down, transposed convolutions up, three levels."""

import torch
from torch import nn

from benchmarks.networks import torch_export

SIZES = ((1, 16, 32, 32), (1, 8, 16, 16), (2, 8, 8, 16), (1, 4, 4, 4), (1, 12, 20, 28))
CHANNELS = (16, 32, 64)


def _convolutions(c_in: int, c_out: int) -> nn.Sequential:
    first, second = nn.Conv3d(c_in, c_out, 3, padding=1), nn.Conv3d(c_out, c_out, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU())


class UNet(nn.Module):
    """Each level's volume joins what comes up from below it."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(_convolutions(a, b) for a, b in zip((1, *CHANNELS[:-2]), CHANNELS[:-1], strict=True))
        self.bottom = _convolutions(CHANNELS[-2], CHANNELS[-1])
        pairs = list(zip(CHANNELS[:0:-1], CHANNELS[-2::-1], strict=True))
        self.grow = nn.ModuleList(nn.ConvTranspose3d(a, b, 2, 2) for a, b in pairs)
        self.up = nn.ModuleList(_convolutions(2 * b, b) for _, b in pairs)
        self.head = nn.Conv3d(CHANNELS[0], 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept: list[torch.Tensor] = []
        for level in self.down:
            x = level(x)
            kept.append(x)
            x = nn.functional.max_pool3d(x, 2)
        x = self.bottom(x)
        for grow, level in zip(self.grow, self.up, strict=True):
            x = level(torch.cat([grow(x), kept.pop()], 1))
        return self.head(x)


AXES = {0: "batch", 2: "depth", 3: "height", 4: "width"}
NETWORK = torch_export.OneTensor(32, UNet, (None, 1, None, None, None), (1, 8, 16, 16), SIZES, ("x", AXES), ("y", AXES))
network, export, inputs = NETWORK.network, NETWORK.export, NETWORK.inputs
